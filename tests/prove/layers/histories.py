"""Histories of the real protocol under faults, of each kind and format in turn."""

from __future__ import annotations

from lakevilla_testing.histories.campaign import replay
from lakevilla_testing.histories.drawn import how_to_replay, plan_in_turn
from lakevilla_testing.world.faults import Fault
from tests.prove.layer_main import main
from tests.prove.turn import Turn


def run(turn: Turn) -> None:
    while turn.goes_on():
        seed = turn.next_seed()
        outcome, _, error = replay(seed, plan=plan_in_turn(seed))
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
