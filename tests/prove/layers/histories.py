"""Histories of the real protocol under faults, of each kind and format in turn."""

from __future__ import annotations

from typing import get_args

from lakevilla_testing.histories.campaign import replay
from lakevilla_testing.histories.drawn import KINDS, how_to_replay
from lakevilla_testing.histories.plan import LakeFormat
from lakevilla_testing.world.faults import Fault
from tests.prove.layer_main import main
from tests.prove.turn import Turn

FORMATS = get_args(LakeFormat)


def run(turn: Turn) -> None:
    while turn.goes_on():
        seed = turn.next_seed()
        kind = list(KINDS)[seed % len(KINDS)]
        formats = FORMATS[seed // len(KINDS) % len(FORMATS)]
        outcome, _, error = replay(seed, plan=KINDS[kind](seed, formats))
        turn.count("histories")
        turn.count("requests", outcome.requests)
        turn.count("transactions", sum(outcome.ended.values()))
        for fault, times in outcome.fired.items():
            turn.fired("crash" if fault is Fault.CRASH else fault.value, times)
        if error is not None:
            command = how_to_replay(outcome.plan)
            turn.failed(seed, command, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(run)
