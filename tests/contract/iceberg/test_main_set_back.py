"""Tables whose main branch another client sets back to an older snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import lakevilla as lv
from tests.support.places import Place, make_place
from tests.support.tables import values


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return replace(make_place("local", request), format="iceberg")


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 1}], format="iceberg")
        lake.run(lambda txn: txn.append("t", [{"id": 2}]))
        yield lake


def set_back(place: Place, snapshot_id: int) -> None:
    table = place.catalog().load_table("t")
    table.manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


@pytest.mark.parametrize("compacted", [True, False])
@pytest.mark.cases(2)
def test_rows_removed_by_setting_main_back_conflict_with_a_read_of_them(
    place: Place, lake: lv.Lake, compacted: bool
) -> None:
    """Main's new snapshot may be a compaction; compared with the newest state, rows are removed."""
    if compacted:
        lake.table("t").optimize()
    older = place.catalog().load_table("t").current_snapshot()
    assert older is not None
    lake.run(lambda txn: txn.append("t", [{"id": 3}]))
    txn = lake.transaction()
    assert values(txn.read("t")) == [1, 2, 3]
    set_back(place, older.snapshot_id)
    txn.append("t", [{"id": 100}])
    with pytest.raises(lv.ConflictError, match="rows that the transaction has read"):
        txn.commit()
    assert values(lake.read("t")) == [1, 2]


def test_the_commit_that_sets_main_back_does_not_have_the_older_commits_transaction_ids(
    place: Place, lake: lv.Lake
) -> None:
    older = place.catalog().load_table("t").current_snapshot()
    assert older is not None
    lake.run(lambda txn: txn.append("t", [{"id": 3}]))
    set_back(place, older.snapshot_id)
    newest, *_ = lake.table("t").history()
    assert newest.operation == "ROLLBACK"
    assert newest.txn_ids == ()
