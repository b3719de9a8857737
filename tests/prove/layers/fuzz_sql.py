"""Drawn SQL, predicates, names and paths: each ends well, or is refused by LakeVilla."""

from __future__ import annotations

from lakevilla_testing.fuzzing import texts
from lakevilla_testing.fuzzing.choices import drawn
from tests.prove.fuzzed import Notes
from tests.prove.layer_main import main
from tests.prove.turn import Turn


def run(turn: Turn) -> None:
    with Notes("fuzz_sql", turn) as notes:
        while turn.goes_on():
            seed = turn.next_seed()
            notes.begins(seed, "text")
            given = texts.input_of(drawn(seed))
            turn.count("texts")
            turn.count(f"texts for {given.call}")
            for fault in texts.judge(given):
                text = f"{fault.what} by {given}\n{fault.text}"
                turn.failed(seed, notes.command("text", seed), text)


if __name__ == "__main__":
    main(run)
