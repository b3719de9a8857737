"""Porcupine, which others wrote, judges histories: bad ones, the simulator's, and those of real
processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakevilla_testing.checks.elle import unpromised
from lakevilla_testing.checks.known_bad import KNOWN_BAD
from lakevilla_testing.outside.files import record as record_seed
from lakevilla_testing.outside.files import write, write_all
from lakevilla_testing.outside.porcupine import ask
from lakevilla_testing.planted.every import PLANTED
from tests.integration.processes import lists
from tests.support.porcupine import MISSING, build
from tests.support.search import how_many

HISTORIES = how_many(20, whole=100, soak=20_000)


@pytest.fixture(scope="module")
def porcupine() -> Path:
    program = build()
    if program is None:
        pytest.skip(MISSING)
    return program


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", KNOWN_BAD)
def test_porcupine_rejects_each_history_that_is_known_to_be_bad(
    name: str, porcupine: Path, tmp_path: Path
) -> None:
    file = write(KNOWN_BAD[name].recorded, "porcupine", tmp_path / "bad")
    (answer,) = ask(porcupine, [file])
    assert answer.whole == "Illegal"


def test_porcupine_finds_the_simulator_s_histories_linearizable(
    porcupine: Path, tmp_path: Path
) -> None:
    write_all("lists", "porcupine", range(HISTORIES), tmp_path)
    answers = ask(porcupine, sorted(tmp_path.rglob("*.jsonl")))
    assert len(answers) > HISTORIES / 2
    assert {(one.keys, one.whole) for one in answers} == {("Ok", "Ok")}


def test_porcupine_finds_a_planted_bug_of_isolation(porcupine: Path, tmp_path: Path) -> None:
    """The seed is one that our own checker finds, too (``simulation/histories/test_lists.py``)."""
    with PLANTED["pending_not_laid_over"].plant():
        recorded = record_seed("lists", 8)
    assert recorded is not None
    assert unpromised(recorded)
    (answer,) = ask(porcupine, [write(recorded, "porcupine", tmp_path / "planted")])
    assert answer.whole == "Illegal"


@pytest.mark.night
@pytest.mark.timeout(300)
def test_some_order_in_real_time_explains_what_processes_have_read_though_some_are_killed(
    porcupine: Path, tmp_path: Path
) -> None:
    recorded = lists.record(tmp_path, 1, clients=3, transactions=4, kills=1)
    ended = [txn.status for txn in recorded.txns]
    assert ended.count("committed") > 5
    assert not unpromised(recorded)
    (answer,) = ask(porcupine, [write(recorded, "porcupine", tmp_path / "processes")])
    assert answer.keys == "Ok"
    assert answer.whole != "Illegal"
