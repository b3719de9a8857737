"""Rows that a foreign commit marks as only moved, but that changed since a transaction's read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lakevilla as lv
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.stores import Closed, is_entry
from tests.support.tables import values

NEAR = [{"id": 1, "part": "a", "share": 1}]
ALSO_NEAR = [{"id": 2, "part": "a", "share": 1}]
FAR = [{"id": 3, "part": "b", "share": 2}]


@pytest.fixture
def place(local_place: Place) -> Place:
    for rows in (NEAR, ALSO_NEAR, FAR):
        local_place.write("t", rows, partition_by=["part"])
    local_place.write("seen", [{"rows": -1}])
    with local_place.connect() as lake:
        lake.register({"t": "t", "seen": "seen"})
    return local_place


def decide(place: Place, where: str) -> None:
    """Delete rows by a commit that is decided, but not published."""
    with place.connect() as lake:
        inside(lake).store = Closed(inside(lake).store, is_entry("t"))
        with lake.transaction() as txn:
            assert txn.delete("t", where).rows_deleted > 0


def add_anew(place: Place) -> None:
    """Write a log entry that adds the files of part a once more, as a client does to store new
    statistics: the rows are the same, and ``dataChange`` is false.
    """
    log = Path(place.uri("t")) / "_delta_log"
    entries = sorted(log.glob("*.json"))
    live: dict[str, dict[str, object]] = {}
    for entry in entries:
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        for action in actions:
            live.pop(action.get("remove", {}).get("path"), None)
        for action in actions:
            if "part=a" in action.get("add", {}).get("path", ""):
                live[action["add"]["path"]] = action["add"]
    assert live
    info = {"commitInfo": {"timestamp": 1_900_000_000_000, "operation": "COMPUTE STATS"}}
    again = [{"add": {**file, "dataChange": False}} for file in live.values()]
    text = "".join(json.dumps(action) + "\n" for action in [info, *again])
    (log / f"{len(entries):020}.json").write_text(text)


def test_rows_restored_by_a_voided_deletion_conflict_with_a_read_that_missed_them(
    place: Place,
) -> None:
    decide(place, "12 / share = 12")
    with place.connect() as lake, place.connect() as other:
        txn = lake.transaction()
        near = txn.read("t", where="part = 'a'")
        assert near.num_rows == 0, "the commit that has deleted them is decided"
        txn.append("seen", [{"rows": near.num_rows}])
        # Replayed on this row the deletion divides by zero: it is void.
        place.write("t", [{"id": 4, "part": "b", "share": 0}], partition_by=["part"])
        place.delta("t").optimize.compact([("part", "=", "a")])
        other.recover()
        assert values(other.snapshot().read("t", where="part = 'a'")) == [1, 2]
        with pytest.raises(lv.ConflictError, match="rows that the transaction has read"):
            txn.commit()


def test_rows_appended_and_then_marked_as_moved_conflict_with_a_read_that_missed_them(
    place: Place,
) -> None:
    with place.connect() as lake:
        txn = lake.transaction()
        assert values(txn.read("t", where="part = 'a'")) == [1, 2]
        txn.append("seen", [{"rows": 2}])
        place.write("t", [{"id": 5, "part": "a", "share": 1}], partition_by=["part"])
        add_anew(place)
        with pytest.raises(lv.ConflictError, match="rows that the transaction has read"):
            txn.commit()


def test_files_that_are_only_added_again_or_compacted_conflict_with_no_read(place: Place) -> None:
    with place.connect() as lake:
        txn = lake.transaction()
        assert values(txn.read("t", where="part = 'a'")) == [1, 2]
        txn.append("seen", [{"rows": 2}])
        add_anew(place)
        place.delta("t").optimize.compact([("part", "=", "a")])
        place.write("t", [{"id": 6, "part": "b", "share": 1}], partition_by=["part"])
        txn.commit()
        assert txn.state == "committed"
