"""Histories as Elle and Porcupine read them, from transactions with known places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakevilla_testing.__main__ import main
from lakevilla_testing.checks.history import Recorded
from lakevilla_testing.checks.known_bad import KNOWN_BAD, txn
from lakevilla_testing.outside.elle import to_edn
from lakevilla_testing.outside.events import promised, spans
from lakevilla_testing.outside.porcupine import can_check, to_lines

FINAL = {"x": [1, 2]}
HISTORY = Recorded(
    [
        txn("A", ("x", 1), at=0, until=2),
        txn("B", ("x", [1]), ("x", 2), at=1, until=None, status="unknown"),
        txn("C", ("x", [1]), ("y", 3), at=2, until=3, status="aborted"),
    ],
    FINAL,
)


def test_elle_gets_an_event_a_line_and_the_lists_at_the_end() -> None:
    assert list(to_edn(HISTORY)) == [
        '{:index 0, :time 0, :type :invoke, :process 0, :f :txn, :value [[:append "x" 1]]}',
        "{:index 1, :time 1, :type :invoke, :process 1, :f :txn, "
        ':value [[:r "x" nil] [:append "x" 2]]}',
        "{:index 2, :time 2, :type :invoke, :process 2, :f :txn, "
        ':value [[:r "x" nil] [:append "y" 3]]}',
        '{:index 3, :time 3, :type :ok, :process 0, :f :txn, :value [[:append "x" 1]]}',
        "{:index 4, :time 4, :type :fail, :process 2, :f :txn, "
        ':value [[:r "x" nil] [:append "y" 3]]}',
        '{:index 5, :time 5, :type :invoke, :process 3, :f :txn, :value [[:r "x" nil]]}',
        '{:index 6, :time 6, :type :ok, :process 3, :f :txn, :value [[:r "x" [1 2]]]}',
        "{:index 7, :time 7, :type :info, :process 1, :f :txn, "
        ':value [[:r "x" nil] [:append "x" 2]]}',
    ]


def test_porcupine_gets_no_aborted_transaction_and_no_end_of_one_without_an_answer() -> None:
    lines = [json.loads(line) for line in to_lines(HISTORY)]
    assert [(line["name"], line["call"], line["return"]) for line in lines] == [
        ("A", 0, 3),
        ("B", 1, -1),
        ("the end", 5, 6),
    ]
    assert lines[1]["operations"] == [{"read": "x", "values": [1]}, {"append": "x", "value": 2}]


def test_transactions_that_meet_at_one_time_are_at_the_same_time() -> None:
    met = Recorded([txn("A", ("x", 1), at=0, until=1), txn("B", ("x", 2), at=1, until=2)], FINAL)
    first, second, _ = spans(met)
    assert first.ended is not None
    assert first.invoked < second.invoked < first.ended


def test_a_process_has_one_transaction_at_a_time_and_none_after_an_unknown_one() -> None:
    busy = [
        txn("A", ("x", 1), at=0, until=4),
        txn("B", ("x", 2), at=1, until=2),
        txn("C", ("x", 3), at=3, until=None, status="unknown"),
        txn("D", ("x", 4), at=5, until=6),
        txn("E", ("x", 5), at=7, until=8),
    ]
    for one in busy:
        one.client = "client"
    found = {span.txn.name: span.process for span in spans(Recorded(busy, {}))}
    assert found["A"] != found["B"]
    assert found["C"] == found["B"], "its process was free"
    assert found["C"] not in (found["D"], found["E"])
    assert found["D"] == found["E"]


def test_a_reader_that_was_promised_no_place_is_left_out() -> None:
    seen = Recorded([txn("E", ("x", 1)), txn("R", ("x", [1]))], {"x": [1]}, unplaced={"R": {"E"}})
    assert [span.txn.name for span in spans(seen)] == ["E", "the end"]


@pytest.mark.parametrize(
    ("recorded", "level"),
    [
        (HISTORY, "strict-serializable"),
        (Recorded(HISTORY.txns, FINAL, real_time=False), "serializable"),
        (Recorded(HISTORY.txns, FINAL, snapshot=frozenset("A")), "snapshot-isolation"),
    ],
)
def test_a_history_has_the_level_that_all_its_transactions_were_promised(
    recorded: Recorded, level: str
) -> None:
    assert promised(recorded) == level
    assert can_check(recorded) == (level == "strict-serializable")


def test_the_command_writes_histories_by_the_level_that_they_were_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["histories", "--format", "elle", "--seeds", "0..6", str(tmp_path)]) == 0
    told = dict(reversed(line.split()) for line in capsys.readouterr().out.splitlines())
    for level, count in told.items():
        files = list((tmp_path / level).glob("lists-*.edn"))
        assert len(files) == int(count)
        assert all(":invoke" in file.read_text() for file in files)
    assert "strict-serializable" in told


def test_the_command_writes_the_histories_that_a_checker_must_reject(tmp_path: Path) -> None:
    assert main(["histories", "--format=porcupine", "--kind=known-bad", str(tmp_path)]) == 0
    assert len(list((tmp_path / "known-bad").glob("*.jsonl"))) == len(KNOWN_BAD)
