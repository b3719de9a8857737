"""Damaged objects of a store: whatever its bytes are, one is read whole or refused by name."""

from __future__ import annotations

from lakevilla_testing.fuzzing import objects, parsers
from lakevilla_testing.fuzzing.choices import drawn
from lakevilla_testing.fuzzing.faults import Fault
from tests.prove.fuzzed import Notes
from tests.prove.layer_main import main
from tests.prove.turn import Turn

#: Inputs of parsers, thousands a second, for each damaged lake.
_PARSED = 100


def run(turn: Turn) -> None:
    with Notes("fuzz_store", turn) as notes:
        while turn.goes_on():
            seed = turn.next_seed()
            notes.begins(seed, "lake")
            lake = objects.input_of(drawn(seed))
            _tell(turn, notes, seed, "lake", lake.how, objects.judge(lake))
            turn.count("damaged lakes")
            for _ in range(_PARSED):
                seed = turn.next_seed()
                notes.begins(seed, "parser")
                given = parsers.input_of(drawn(seed))
                _tell(turn, notes, seed, "parser", given.how, parsers.judge(given))
            turn.count("damaged objects", _PARSED)


def _tell(turn: Turn, notes: Notes, seed: int, kind: str, how: str, faults: list[Fault]) -> None:
    turn.fired(how)
    for fault in faults:
        text = f"{fault.what} by {fault.verb} ({how})\n{fault.text}"
        turn.failed(seed, notes.command(kind, seed), text)


if __name__ == "__main__":
    main(run)
