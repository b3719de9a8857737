"""Tables with pending commits that are dropped or unregistered, and registered again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.places import Place
from tests.support.stores import unpublished
from tests.support.tables import accounts

#: Allow a table where one was just dropped: no other client writes there in these tests.
AT_ONCE = lv.Settings(reuse_after_seconds=0)


def test_a_revived_table_has_the_rows_decided_before_it_was_dropped(local_place: Place) -> None:
    local_place.write("bank", accounts(1))
    with local_place.connect() as lake, local_place.connect() as other:
        lake.register("bank")
        with unpublished(lake), lake.transaction() as txn:
            txn.append("bank", [{"id": 5, "balance": 5}])
        other.drop_table("bank")
        other.register("bank")
        assert sorted(other.snapshot().read("bank")["id"].to_pylist()) == [0, 5]
    assert sorted(row["id"] for row in local_place.seen("bank")) == [0, 5]


def test_unregister_reconciles_pending_commits_before_the_table_leaves_the_lake(
    local_place: Place,
) -> None:
    local_place.write("bank", accounts(3))
    with local_place.connect() as lake, local_place.connect() as other:
        lake.register("bank")
        with unpublished(lake), lake.transaction() as txn:
            txn.update("bank", {"balance": "7"}, where="id = 1")
        local_place.delta("bank").delete("id = 2")
        other.unregister("bank")
        assert other.tables() == []
    rows = local_place.seen("bank")
    assert sorted((row["id"], row["balance"]) for row in rows) == [(0, 100), (1, 7)]


def test_a_table_recreated_after_its_data_was_deleted_is_claimed_again(tmp_path: Path) -> None:
    place, elsewhere = Place(str(tmp_path / "lake")), Place(str(tmp_path / "other"))
    rows = pa.Table.from_pylist(accounts(2))
    with place.connect(settings=AT_ONCE) as lake, elsewhere.connect() as rival:
        lake.create_table("bank", rows)
        lake.drop_table("bank", delete_data=True)
        lake.create_table("bank", rows)
        with pytest.raises(lv.InvalidOperation, match="belongs to the lake at"):
            rival.register("bank", place.uri("bank"))


def test_an_unpublished_table_that_is_dropped_with_its_data_does_not_come_back(
    place: Place,
) -> None:
    creator, other = place.connect(), place.connect()
    with unpublished(creator):
        creator.create_table("t", pa.Table.from_pylist(accounts(2)))
    other.drop_table("t", delete_data=True)
    assert other.recover().findings == ()
    with pytest.raises(lv.TableNotFound):
        place.connect().table("t")
    place.connect(settings=AT_ONCE).create_table("t", pa.Table.from_pylist(accounts(1)))
    with other.snapshot() as state:
        assert state.read("t").num_rows == 1
