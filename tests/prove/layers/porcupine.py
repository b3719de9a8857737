"""Histories that Porcupine judges: short ones of the simulator, and those of real processes."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from lakevilla_testing.checks.elle import unpromised
from lakevilla_testing.checks.history import Recorded
from lakevilla_testing.checks.known_bad import KNOWN_BAD
from lakevilla_testing.outside.files import record, write
from lakevilla_testing.outside.porcupine import Answer, ask, can_check
from tests.integration.processes import lists
from tests.prove.layer_main import main
from tests.prove.turn import Turn
from tests.support.porcupine import MISSING, build

#: How many histories of the simulator come before one of processes, which takes as long as these.
_BETWEEN = 100
_SIMULATED = (
    "python -m lakevilla_testing histories --format porcupine --seeds {seed}..{end}"
    " .cache/histories && make porcupine HISTORIES=.cache/histories"
)
_PROCESSES = "python -m tests.prove.layers.porcupine --seed {seed} --seconds 1"


def run(turn: Turn) -> None:
    """Search, after the program has rejected each history that is known to be bad."""
    program = build()
    if program is None:
        turn.leave_out(MISSING)
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        for name, bad in KNOWN_BAD.items():
            if _ask(turn, program, bad.recorded, path / "bad").whole != "Illegal":
                turn.failed(0, "make porcupine", f"Porcupine accepts the bad history {name}")
        while turn.goes_on():
            seed = turn.next_seed()
            if seed % _BETWEEN == 0:
                _processes(turn, program, seed)
            else:
                _simulated(turn, program, seed, path)


def _simulated(turn: Turn, program: Path, seed: int, path: Path) -> None:
    recorded = record("lists", seed)
    if recorded is None or not can_check(recorded):
        turn.count("histories that were promised less")
        return
    answer = _ask(turn, program, recorded, path / "simulated")
    turn.count("simulated histories")
    if "Illegal" in (answer.keys, answer.whole):
        turn.failed(seed, _SIMULATED.format(seed=seed, end=seed + 1), str(answer))


def _processes(turn: Turn, program: Path, seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        recorded = lists.record(path, seed, clients=3, transactions=6, kills=1)
        ended = Counter(txn.status for txn in recorded.txns)
        turn.count("histories of processes")
        turn.fired("process killed", ended["unknown"])
        answer = _ask(turn, program, recorded, path / "processes")
    wrong = list(map(str, unpromised(recorded)))
    if wrong or "Illegal" in (answer.keys, answer.whole):
        turn.failed(seed, _PROCESSES.format(seed=seed), f"{answer}; {'; '.join(wrong)}")


def _ask(turn: Turn, program: Path, recorded: Recorded, stem: Path) -> Answer:
    (answer,) = ask(program, [write(recorded, "porcupine", stem)])
    turn.count("transactions", answer.transactions)
    if answer.whole == "Unknown":
        turn.count("not decided in time")
    return answer


if __name__ == "__main__":
    main(run)
