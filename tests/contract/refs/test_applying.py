"""Rollback, revert, cherry-pick, restore and diff, also of tables that foreign clients use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import lakevilla as lv
from bench.size.many_tables import lake_of
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from tests.contract.foreign_readers import Format, read_by_others
from tests.property.position_deletes import delete_positions
from tests.support.inside import inside
from tests.support.refs.shop import shop


def sell(lake: lv.Lake, number: int = 2) -> int:
    """Commit a change to both tables, and return its version."""

    def both(txn: lv.Transaction) -> None:
        txn.update("stock", {"qty": "qty - 1"}, where="sku = 'tea'")
        txn.append("sales/orders", [{"id": number}])

    lake.run(both)
    return lake.history(1)[0].version


def state(lake: lv.Lake) -> dict[str, list[Any]]:
    """Return the rows of both tables; LakeVilla and other readers must see the same ones."""
    shown = {
        "stock": sorted(lake.read("stock").to_pylist(), key=repr),
        "sales/orders": sorted(lake.read("sales/orders").to_pylist(), key=repr),
    }
    for name, rows in shown.items():
        table = lake.table(name)
        for who, others in read_by_others(table.uri, table.format).items():
            assert sorted(others.to_pylist(), key=repr) == rows, (who, name)
    return shown


def test_a_rollback_restores_all_tables_and_can_itself_be_rolled_back(
    lake: lv.Lake, kind: Format
) -> None:
    shop(lake, kind)
    before = state(lake)
    sell(lake)
    sell(lake, 3)
    done = lake.rollback(2, metadata={"why": "a bad batch"})
    assert state(lake) == before
    assert done.version == 5
    assert done.tables == {"stock": "physical", "sales/orders": "physical"}
    entry = lake.history(1)[0]
    assert (entry.version, entry.metadata) == (5, {"why": "a bad batch"})
    assert {one.operation for one in entry.operations} == {"RESTORE"}
    assert lake.rollback(4).tables == done.tables  # the rollback is undone
    assert [row["qty"] for row in lake.read("stock").to_pylist()] == [3]
    assert lake.rollback("main").version is None


def test_rollback_takes_a_timestamp_or_a_tag_and_a_choice_of_tables(
    lake: lv.Lake, kind: Format
) -> None:
    shop(lake, kind)
    lake.tag("opening")
    sell(lake)
    instant = lake.history(1)[0].timestamp
    sell(lake, 3)
    assert lake.rollback(instant).tables.keys() == {"stock", "sales/orders"}
    assert lake.rollback("opening", tables=["sales/*"]).tables == {"sales/orders": "physical"}
    assert lake.read("stock")["qty"].to_pylist() == [4]
    assert lake.read("sales/orders")["id"].to_pylist() == [1]


def test_a_revert_keeps_later_commits(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    lake.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": -1}]))
    lake.run(lambda txn: txn.append("stock", [{"sku": "oil", "qty": 2}]))
    assert lake.revert(3).tables == {"stock": "physical"}
    assert [row["sku"] for row in state(lake)["stock"]] == ["oil", "tea"]
    assert lake.cherry_pick(3).tables == {"stock": "physical"}
    assert [row["sku"] for row in state(lake)["stock"]] == ["jam", "oil", "tea"]
    assert lake.cherry_pick(3) == lv.MergeResult(None, "cherry-pick of 3", {"stock": "kept"})


def test_a_revert_of_rows_that_were_changed_since_is_a_conflict(
    lake: lv.Lake, kind: Format
) -> None:
    shop(lake, kind)
    third = sell(lake)
    sell(lake, 3)
    before = state(lake)
    with pytest.raises(
        lv.MergeConflict, match=r"table stock: a row to delete was changed"
    ) as raised:
        lake.revert(third)
    assert raised.value.tables == ["stock"]
    with pytest.raises(lv.InvalidOperation, match="is in conflict as a whole"):
        raised.value.rows("stock")
    assert state(lake) == before  # the orders, though without conflict, are unchanged, too
    assert lake.revert(third, on_conflict="ours").tables == {
        "stock": "kept",
        "sales/orders": "physical",
    }
    assert state(lake)["sales/orders"] == [{"id": 1}, {"id": 3}]
    assert lake.revert(third, on_conflict="theirs", tables=["stock"]).tables == {
        "stock": "physical"
    }
    assert state(lake)["stock"] == [{"qty": 5, "sku": "tea"}]


def test_a_transaction_can_have_an_apply_and_other_operations(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    third = sell(lake)
    with lake.transaction() as txn:
        txn.append("stock", [{"sku": "jam", "qty": 1}])
        assert txn.apply(third, third - 1).tables == {
            "stock": "physical",
            "sales/orders": "physical",
        }
        assert txn.read("sales/orders")["id"].to_pylist() == [1]
        txn.update("stock", {"qty": "qty + 1"}, where="sku = 'tea'")
    assert state(lake)["stock"] == [{"qty": 1, "sku": "jam"}, {"qty": 6, "sku": "tea"}]
    with lake.transaction() as txn:
        txn.apply(third - 1, third, tables=["sales/*"])
        txn.abort()
    assert state(lake)["sales/orders"] == [{"id": 1}]


def test_a_transaction_that_removes_a_file_and_adds_it_again_is_published(
    lake: lv.Lake, kind: Format
) -> None:
    lake.create_table("t", pa.table({"id": [1, 2]}), format=kind)
    before = lake.snapshot().version
    lake.run(lambda txn: txn.delete("t", where="id = 1"))
    after = lake.snapshot().version
    lake.rollback(before)
    with lake.transaction() as txn:
        txn.append("t", pa.table({"id": [3]}))
        txn.apply(before, after)
        txn.apply(after, before)
    assert txn.result is not None
    assert txn.result.versions["t"] is not None
    assert sorted(lake.read("t")["id"].to_pylist()) == [1, 2, 3]
    assert lake.verify().ok


def test_an_apply_that_raises_a_conflict_leaves_its_transaction_unchanged(lake: lv.Lake) -> None:
    shop(lake)
    third = sell(lake)
    sell(lake, 3)
    with lake.transaction() as txn:
        txn.append("sales/orders", [{"id": 9}])
        with pytest.raises(lv.MergeConflict):
            txn.apply(third, third - 1)
        assert len(txn.operations) == 1
    assert sorted(lake.read("sales/orders")["id"].to_pylist()) == [1, 2, 3, 9]


def test_a_rollback_restores_the_schema_too(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    lake.run(lambda txn: txn.alter("stock", add_columns={"place": "string"}))
    lake.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 1, "place": "b"}]))
    lake.run(lambda txn: txn.append("sales/orders", [{"id": 2}]))
    lake.rollback(2)
    assert lake.table("stock").schema.names == ["sku", "qty"]
    assert state(lake)["stock"] == [{"qty": 5, "sku": "tea"}]
    # A new column of the same name shows no value of the dropped one.
    lake.run(lambda txn: txn.alter("stock", add_columns={"place": "string"}))
    assert state(lake)["stock"] == [{"place": None, "qty": 5, "sku": "tea"}]
    lake.rollback(5)
    assert state(lake)["stock"] == [
        {"place": "b", "qty": 1, "sku": "jam"},
        {"place": None, "qty": 5, "sku": "tea"},
    ]


def test_a_commit_is_reverted_though_a_foreign_client_has_added_a_column(
    lake: lv.Lake, kind: Format
) -> None:
    shop(lake, kind)
    lake.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": -1}]))
    lake.run(lambda txn: txn.alter("stock", add_columns={"place": "string"}))
    lake.revert(3)
    assert state(lake)["stock"] == [{"place": None, "qty": 5, "sku": "tea"}]
    lake.revert(4)
    assert lake.table("stock").schema.names == ["sku", "qty"]
    lake.run(lambda txn: txn.alter("stock", add_columns={"shelf": "string"}))
    with pytest.raises(lv.MergeConflict, match="changed on both sides"):
        lake.cherry_pick(4)


def test_a_rollback_undoes_commits_of_foreign_clients_too(lake: lv.Lake, kind: Format) -> None:
    """The foreign commit is only in the table's log: HEAD does not know it."""
    shop(lake, kind)
    write_beside(lake, kind)
    assert len(lake.read("stock")) == 2
    assert lake.diff(2).tables["rows_added"].to_pylist() == [1]
    assert lake.rollback(2).tables == {"stock": "physical"}
    assert state(lake)["stock"] == [{"qty": 5, "sku": "tea"}]


def write_beside(lake: lv.Lake, kind: Format) -> None:
    rows = pa.table({"sku": ["foreign"], "qty": pa.array([1], pa.int64())})
    if kind == "delta":
        deltalake.write_deltalake(f"{lake.root}/stock", rows, mode="append")
    else:
        ObjectStoreCatalog("tests", warehouse=lake.root).load_table(("stock",)).append(rows)


@pytest.mark.parametrize("delete_data", [False, True])
def test_a_rollback_of_a_dropped_table_is_refused(lake: lv.Lake, delete_data: bool) -> None:
    lake.create_table("u", [{"id": 1}])
    then = lake.history(1)[0].version
    lake.drop_table("u", delete_data=delete_data)
    way = "its data was deleted" if delete_data else "`register` revives it"
    with pytest.raises(lv.InvalidOperation, match=f"table u was dropped since .*{way}"):
        lake.rollback(then)
    lake.create_table("w", [{"id": 1}])
    lake.run(lambda txn: txn.delete("w", where="true"))
    assert lake.rollback(lake.history(1)[0].version - 1, tables=["w"]).tables == {"w": "physical"}


def test_a_rollback_drops_tables_created_since_and_revives_no_dropped_one(
    lake: lv.Lake, kind: Format
) -> None:
    shop(lake, kind)
    lake.create_table("later", [{"n": 1}], format=kind)
    assert lake.rollback(2).tables == {"later": "dropped"}
    assert "later" not in lake
    lake.register("later", f"{lake.root}/later")
    with pytest.raises(lv.MergeConflict, match="was changed by other transactions"):
        lake.run(lambda txn: (txn.append("later", [{"n": 2}]), txn.apply(3, 2)))
    assert lake.revert(3).tables == {"later": "dropped"}
    with pytest.raises(lv.LakeVillaError, match="`register` revives it"):
        lake.rollback(3)
    assert lake.rollback(3, tables=["stock"]).tables == {}


@pytest.mark.parametrize("delete_data", [False, True])
def test_a_difference_leaves_out_a_table_that_came_and_went_between_the_states(
    lake: lv.Lake, delete_data: bool
) -> None:
    shop(lake)
    since = lake.history(1)[0].version
    lake.create_table("staging", [{"n": 1}])
    lake.create_table("kept", [{"n": 1}])
    lake.drop_table("staging", delete_data=delete_data)
    assert lake.diff(since).tables.select(["table", "change"]).to_pylist() == [
        {"table": "kept", "change": "created"}
    ]


def test_a_rollback_leaves_a_table_that_joined_the_lake_later_with_its_own_log(
    lake: lv.Lake,
) -> None:
    shop(lake)
    rows = pa.table({"n": pa.array([1], pa.int64())})
    deltalake.write_deltalake(f"{lake.root}/guest", rows)
    deltalake.write_deltalake(f"{lake.root}/guest", rows, mode="append")
    lake.run(lambda txn: txn.append("guest", rows))
    assert lake.diff(2).tables.select(["table", "change"]).to_pylist() == [
        {"table": "guest", "change": "joined"}
    ]
    assert lake.rollback(2).tables == {"guest": "kept"}
    assert lake.read("guest").num_rows == 3
    # The table's own log has versions from before it joined the lake.
    assert lake.table("guest").restore(0).tables == {"guest": "physical"}
    assert deltalake.DeltaTable(f"{lake.root}/guest").to_pyarrow_table().num_rows == 1


def test_a_table_is_restored_to_a_version_of_its_log_a_timestamp_or_a_tag(
    lake: lv.Lake, kind: Format
) -> None:
    shop(lake, kind)
    lake.tag("opening")
    first = lake.table("stock").version
    sell(lake)
    instant = datetime.now(UTC)
    sell(lake, 3)
    table = lake.table("stock")
    assert table.restore(first).tables == {"stock": "physical"}
    assert lake.read("stock")["qty"].to_pylist() == [5]
    table.restore(instant)
    assert lake.read("stock")["qty"].to_pylist() == [4]
    assert table.restore("opening").merged == "restore to opening"
    assert state(lake)["stock"] == [{"qty": 5, "sku": "tea"}]
    assert len(lake.read("sales/orders")) == 3


def test_rollback_to_a_vacuumed_state_is_refused(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    sell(lake)
    sell(lake, 3)
    lake["stock"].vacuum(dry_run=False)  # deletes nothing: the retention is not over
    assert lake.rollback(2).version == 5
    lake.rollback(4)
    for name in ("stock", "sales/orders"):
        lake[name].vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    before = state(lake)
    with pytest.raises(lv.VersionNotFound, match=r"is not kept|was removed|was vacuumed"):
        lake.rollback(2)
    assert state(lake) == before


def test_a_rollback_to_a_tag_restores_files_that_only_the_tag_has_kept(
    lake: lv.Lake, kind: Format
) -> None:
    shop(lake, kind)
    lake.tag("opening")
    sell(lake)
    for name in ("stock", "sales/orders"):
        lake[name].vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    lake.gc()
    lake.rollback("opening")
    lake.delete_ref("opening")
    for name in ("stock", "sales/orders"):
        lake[name].vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert state(lake) == {"stock": [{"qty": 5, "sku": "tea"}], "sales/orders": [{"id": 1}]}


def test_rollback_and_revert_report_files_that_deltalake_has_vacuumed(lake: lv.Lake) -> None:
    shop(lake)
    sell(lake)
    table = deltalake.DeltaTable(f"{lake.root}/stock")
    removed = table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert removed
    with pytest.raises(lv.VersionNotFound, match="was removed"):
        lake.rollback(2)
    with pytest.raises(lv.VersionNotFound, match="was removed"):
        lake.revert(3)
    # A rollback to a state whose files deltalake did not delete succeeds.
    assert lake.rollback(2, tables=["sales/orders"]).tables == {"sales/orders": "physical"}


def test_a_vacuum_by_deltalake_after_a_rollback_deletes_no_needed_file(lake: lv.Lake) -> None:
    shop(lake)
    sell(lake)
    lake.rollback(2)
    table = deltalake.DeltaTable(f"{lake.root}/stock")
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert state(lake)["stock"] == [{"qty": 5, "sku": "tea"}]
    table.create_checkpoint()
    deltalake.DeltaTable(f"{lake.root}/stock").cleanup_metadata()
    sell(lake, 3)
    assert state(lake)["stock"] == [{"qty": 4, "sku": "tea"}]


def counts(lake: lv.Lake, *states: int | str) -> list[int | None]:
    """Return the changed rows of the only table that differs, and the rows of its files."""
    (row,) = lake.diff(*states).tables.to_pylist()
    names = ("rows_added", "rows_removed", "file_rows_added", "file_rows_removed")
    return [row[name] for name in names]


def test_a_diff_counts_changed_rows_where_one_statement_lies_between(
    lake: lv.Lake, kind: Format
) -> None:
    rows = [{"id": number, "n": number % 3} for number in range(90)]
    lake.create_table("t", rows, format=kind)
    lake.tag("full")
    lake.run(lambda txn: txn.update("t", {"n": "7"}, where="id < 2"))
    assert counts(lake, 1, 2) == [2, 2, 90, 90]
    assert counts(lake, "full") == [2, 2, 90, 90]
    lake.run(lambda txn: txn.delete("t", where="n = 7"))
    assert counts(lake, 2, 3) == [0, 2, 88, 90]
    assert counts(lake, 3, 2) == [2, 0, 90, 88]
    lake.run(lambda txn: txn.upsert("t", [{"id": 5, "n": 8}, {"id": 99, "n": 8}], "id"))
    assert counts(lake, 3, 4)[:2] == [2, 1]


def test_a_diff_leaves_changed_rows_open_where_it_would_have_to_read_them(
    lake: lv.Lake, kind: Format
) -> None:
    lake.create_table("t", [{"id": number} for number in range(9)], format=kind)
    lake.run(lambda txn: txn.update("t", {"id": "-1"}, where="id = 1"))
    lake.run(lambda txn: txn.update("t", {"id": "1"}, where="id = -1"))
    assert counts(lake, 1, 3) == [None, None, 9, 9]
    lake.run(lambda txn: txn.overwrite("t", [{"id": number} for number in range(10)]))
    assert counts(lake, 3, 4) == [None, None, 10, 9]

    def twice(txn: lv.Transaction) -> None:
        txn.append("t", [{"id": 77}])
        txn.delete("t", where="id = 77 OR id = 1")

    lake.run(twice)
    assert counts(lake, 4, 5)[:2] == [None, None]


def test_a_diff_counts_the_rows_of_another_client_by_their_files_alone(
    lake: lv.Lake, kind: Format
) -> None:
    """Its append came after an UPDATE, and no commit of the lake has made the difference."""
    shop(lake, kind)
    lake.run(lambda txn: txn.update("stock", {"qty": "9"}, where="sku = 'tea'"))
    before = lake.history()[0].version - 1
    write_beside(lake, kind)
    assert counts(lake, before) == [None, None, 2, 1]


def test_a_diff_reports_tables_and_rows(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    sell(lake)
    lake.create_table("later", [{"n": 1}], format=kind)
    lake.run(lambda txn: txn.alter("stock", add_columns={"place": "string"}))
    found = lake.diff(2)
    rows_of = {row["table"]: row for row in found.tables.to_pylist()}
    assert {name: row["change"] for name, row in rows_of.items()} == {
        "later": "created",
        "sales/orders": "changed",
        "stock": "changed",
    }
    assert rows_of["stock"]["schema_changed"]
    assert not rows_of["sales/orders"]["schema_changed"]
    assert [rows_of["stock"][name] for name in ("files_added", "rows_removed")] == [1, 1]
    assert rows_of["stock"]["rows_added"] == 1
    assert found.rows("sales/orders").to_pylist() == [{"id": 2, "_change_type": "insert"}]
    assert found.rows("stock", keys="sku").select(["qty", "_change_type"]).to_pylist() == [
        {"qty": 5, "_change_type": "update_preimage"},
        {"qty": 4, "_change_type": "update_postimage"},
    ]
    back = lake.diff("main", 2)
    assert back.tables["change"].to_pylist()[0] == "dropped"
    assert back.rows("later").to_pylist() == [{"n": 1, "_change_type": "delete"}]
    assert lake.diff(3, 3).tables.num_rows == 0
    assert found.rows("stock", limit=1).num_rows == 1
    assert found.rows("stock", keys="sku", limit=1)["qty"].to_pylist() == [5]
    with pytest.raises(lv.InvalidOperation, match="limit"):
        found.rows("stock", limit=-1)
    assert repr(found) == "<lakevilla.Diff: 3 tables>"


def test_a_diff_compares_the_lake_with_a_branch(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    lake.branch("etl")
    assert lake.diff("main", "etl").tables.num_rows == 0
    sell(lake.on("etl"))
    sell(lake)
    etl = lake.on("etl")
    etl.create_table("later", [{"n": 1}], format=kind)
    found = lake.diff("main", "etl")
    assert {row["table"]: row["change"] for row in found.tables.to_pylist()} == {
        "later": "created",
        "sales/orders": "changed",
        "stock": "changed",
    }
    assert found.rows("stock").num_rows == 0  # equal rows in different files
    with pytest.raises(lv.InvalidOperation, match="a transaction on a branch can"):
        etl.run(lambda txn: txn.apply(2, 1))
    with pytest.raises(lv.InvalidOperation, match="is for the lake itself"):
        etl.rollback(2)


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (lambda lake: lake.rollback(99), lv.VersionNotFound, "no global version 99"),
        (lambda lake: lake.revert(99), lv.VersionNotFound, "no global version 99"),
        (lambda lake: lake.revert(0), lv.InvalidOperation, "1 or more"),
        (lambda lake: lake.cherry_pick("2"), lv.InvalidOperation, "version"),
        (lambda lake: lake.rollback("nowhere"), lv.RefNotFound, "no ref 'nowhere'"),
        (lambda lake: lake.rollback(None), lv.InvalidOperation, "to is a global version"),
        (lambda lake: lake.rollback(True), lv.InvalidOperation, "to is a global version"),
        (lambda lake: lake.rollback(datetime(2026, 1, 1)), lv.InvalidOperation, "no time zone"),
        (
            lambda lake: lake.rollback(datetime.now(UTC) + timedelta(days=1)),
            lv.InvalidOperation,
            "in the future",
        ),
        (
            lambda lake: lake.rollback(datetime(2001, 1, 1, tzinfo=UTC)),
            lv.VersionNotFound,
            "as old as the requested time",
        ),
        (lambda lake: lake.rollback(1, tables=["nosuch*"]), lv.InvalidOperation, "nosuch"),
        (lambda lake: lake.rollback(1, tables="stock"), lv.InvalidOperation, "list of names"),
        (lambda lake: lake.rollback(1, metadata={"a": 1}), lv.InvalidOperation, "metadata"),
        (
            lambda lake: lake.revert(3, keys={"stock": ["nosuch"]}),
            lv.InvalidOperation,
            "no column 'nosuch'",
        ),
        (lambda lake: lake.revert(3, keys={"stok": ["sku"]}), lv.TableNotFound, "stok"),
        (lambda lake: lake.revert(3, keys={"stock": []}), lv.InvalidOperation, "at least one"),
        (lambda lake: lake.revert(3, keys=["sku"]), lv.InvalidOperation, "keys is a mapping"),
        (lambda lake: lake.revert(3, on_conflict="mine"), lv.InvalidOperation, "on_conflict"),
        (lambda lake: lake.diff("main", "nowhere"), lv.RefNotFound, "nowhere"),
        (lambda lake: lake.diff(2).rows("later"), lv.InvalidOperation, "is the same in both"),
        (lambda lake: lake.diff(2).rows("stock", keys="no"), lv.InvalidOperation, "no column"),
        (lambda lake: lake.table("stock").restore(99), lv.VersionNotFound, "version 99"),
        (lambda lake: lake.table("stock").restore("nowhere"), lv.RefNotFound, "nowhere"),
        (lambda lake: lake.on("opening").rollback(1), lv.InvalidOperation, "opening"),
    ],
)
def test_invalid_arguments_are_refused_by_name_and_write_nothing(
    lake: lv.Lake, asked: Any, error: type[Exception], words: str
) -> None:
    shop(lake)
    lake.tag("opening")
    sell(lake)
    before = sorted(Path(lake.root).rglob("*"))
    with pytest.raises(error, match=words):
        asked(lake)
    assert sorted(Path(lake.root).rglob("*")) == before
    assert state(lake)["stock"] == [{"qty": 4, "sku": "tea"}]


def test_rollback_and_diff_of_a_lake_without_versions_raise(lake: lv.Lake) -> None:
    with pytest.raises(lv.VersionNotFound, match="has no global version"):
        lake.rollback(1)
    with pytest.raises(lv.VersionNotFound, match="has no global version"):
        lake.diff(1)


def test_a_rollback_keeps_a_guard_and_refuses_to_shrink_an_append_only_table(lake: lv.Lake) -> None:
    shop(lake)
    lake.guard("stock")
    sell(lake)
    lake.rollback(2)
    assert lake.table("stock").guarded
    lake.create_table("grows", [{"n": 1}], properties={"delta.appendOnly": "true"})
    version = lake.history(1)[0].version
    lake.run(lambda txn: txn.append("grows", [{"n": 2}]))
    with pytest.raises(lv.InvalidOperation, match="append-only"):
        lake.rollback(version)


def test_an_iceberg_file_with_deleted_rows_is_restored_without_these_rows(
    lake: lv.Lake,
) -> None:
    """Deletes would not apply to the file if it came back under a new sequence number."""
    lake.create_table("stock", [{"id": n, "qty": n} for n in range(4)], format="iceberg")
    table = ObjectStoreCatalog("tests", warehouse=lake.root).load_table(("stock",))
    delete_positions(table, [1, 2], Random(1))
    lake.run(lambda txn: txn.append("stock", [{"id": 9, "qty": 9}]))
    version = lake.history(1)[0].version
    assert sorted(lake.read("stock")["id"].to_pylist()) == [0, 3, 9]
    lake.run(lambda txn: txn.delete("stock", where="true"))
    assert lake.rollback(version).tables == {"stock": "rows"}
    for _, rows in read_by_others(f"{lake.root}/stock", "iceberg").items():
        assert sorted(rows["id"].to_pylist()) == [0, 3, 9]
    assert sorted(lake.read("stock")["id"].to_pylist()) == [0, 3, 9]


def test_iceberg_files_with_deleted_rows_are_restored_to_their_partitions(lake: lv.Lake) -> None:
    rows = [{"id": n, "p": "ab"[n % 2]} for n in range(6)]
    lake.create_table("stock", rows, format="iceberg", partition_by="p")
    table = ObjectStoreCatalog("tests", warehouse=lake.root).load_table(("stock",))
    delete_positions(table, [1, 2], Random(1))
    left = [row for row in rows if row["id"] not in (1, 2)]
    lake.run(lambda txn: txn.append("stock", [{"id": 9, "p": "b"}]))
    version = lake.history(1)[0].version
    lake.run(lambda txn: txn.delete("stock", where="true"))
    with lv.connect(lake.root, settings=lv.Settings(in_memory_file_limit_bytes=0)) as other:
        other.rollback(version)  # writes files, none kept in memory
    found = lake.read("stock").sort_by("id").to_pylist()
    assert found == [*left, {"id": 9, "p": "b"}]
    for p in "ab":  # a partition is read by the metadata of its files
        in_it = lake.read("stock", where=f"p = '{p}'").sort_by("id").to_pylist()
        assert in_it == [row for row in found if row["p"] == p]


class Scale(WrappedStore):
    """A store that counts the bytes written."""

    written: int

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        self.written += len(body)
        return super().put(key, body, condition)


@pytest.mark.parametrize("rows", [10, 100_000])
def test_a_rollback_copies_no_data_and_needs_as_many_requests_for_any_number_of_rows(
    lake: lv.Lake, rows: int
) -> None:
    """A rollback of two tables writes two log entries, a commit object and HEAD."""
    for name in ("one", "two"):
        lake.create_table(name, pa.table({"n": pa.array(range(rows), pa.int64())}))
    lake.run(lambda txn: [txn.delete(name, where="n >= 0") for name in ("one", "two")])
    scale = Scale(inside(lake).store)
    scale.written = 0
    inside(lake).store = scale
    with inside(lake).requests.counting() as requests:
        assert lake.rollback(2).tables == {"one": "physical", "two": "physical"}
    assert (requests.put, requests.list, requests.delete) == (4, 0, 0)
    assert requests.get <= 12
    assert requests.head == 2  # for the two files that come back
    assert scale.written < 12_000
    assert lake.read("one").num_rows == rows


@pytest.mark.parametrize("count", [10, 100_000])
def test_diff_cherry_pick_and_rollback_cost_no_more_in_a_lake_of_many_tables(
    tmp_path: Path, count: int
) -> None:
    """These verbs read only leaves that hold the tables in question."""
    with lake_of(count, str(tmp_path / "lake"), commits=3) as lake:
        version = lake.history(1)[0].version
        lake.revert(version)  # the first revert caches logs and leaves
        with inside(lake).requests.counting() as requests:
            assert lake.diff(version - 1, version).tables.num_rows == 2
        assert (requests.put, requests.head, requests.list) == (0, 0, 0)
        assert requests.get <= 4
        with inside(lake).requests.counting() as requests:
            assert set(lake.cherry_pick(version).tables.values()) == {"physical"}
        leaves = 0 if count == 10 else 2
        assert requests.put == 4 + leaves
        assert (requests.head, requests.list) == (2, 0)
        assert requests.get <= 12
        with lv.connect(lake.root) as new, inside(new).requests.counting() as requests:
            assert set(new.rollback(version - 1).tables.values()) == {"physical"}
        assert requests.put <= 4 + leaves
        assert requests.get <= 60
