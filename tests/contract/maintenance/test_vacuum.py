"""Files that a vacuum deletes, and those that it keeps because a client may still need them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakevilla as lv
from lakevilla.ids import Ids
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.stores import InterruptedStore, Later, interrupted, is_entry, is_head
from tests.support.tables import accounts, values

DAY = 24 * 3600


@pytest.fixture
def place(local_place: Place) -> Place:
    return local_place


@pytest.fixture
def lake(place: Place):  # type: ignore[no-untyped-def]
    with place.connect() as lake:
        lake.create_table("t", accounts(4))
        yield lake


def files(place: Place, table: str = "t") -> set[str]:
    """Return the stored data files."""
    root = Path(place.root) / table
    return {p.relative_to(root).as_posix() for p in root.rglob("*.parquet")} - {
        p.relative_to(root).as_posix() for p in (root / "_delta_log").rglob("*.parquet")
    }


def age(place: Place, table: str = "t", days: float = 30) -> None:
    """Make all files of a table look old to the store."""
    then = time.time() - days * DAY
    for path in (Path(place.root) / table).rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def vacuum_now(lake: lv.Lake, table: str = "t", *, dry_run: bool = False) -> list[str]:
    return lake.table(table).vacuum(0, dry_run, enforce_retention_duration=False)


def test_vacuum_only_lists_by_default_and_keeps_files_younger_than_a_week(
    place: Place, lake: lv.Lake
) -> None:
    before = files(place)
    with lake.transaction() as txn:
        txn.update("t", {"balance": "balance + 1"}, where="true")
    assert lake.table("t").vacuum() == []
    age(place)
    # The files are old by the store's clock, but were removed only just now.
    assert lake.table("t").vacuum(dry_run=False) == []
    told = vacuum_now(lake, dry_run=True)
    assert set(told) == before
    assert before < files(place)
    assert vacuum_now(lake) == told
    assert files(place).isdisjoint(before)
    assert lake.snapshot().read("t")["balance"].to_pylist() == [101] * 4
    assert place.delta("t").to_pyarrow_table().num_rows == 4
    assert lake.doctor().ok


@pytest.mark.parametrize("hours", [0, 167.9])
def test_a_retention_below_that_of_the_table_is_refused(
    place: Place, lake: lv.Lake, hours: float
) -> None:
    with pytest.raises(lv.InvalidOperation, match=r"table t: .* below the table's 168"):
        lake.table("t").vacuum(hours, dry_run=False)
    with pytest.raises(lv.InvalidOperation, match="0 or more"):
        lake.table("t").vacuum(-1)
    with lake.transaction() as txn:
        retention = {"delta.deletedFileRetentionDuration": "interval 1 hours"}
        txn.alter("t", set_properties=retention)
    assert lake.table("t").vacuum(1) == []


@pytest.mark.parametrize("by", ["lakevilla", "deltalake"])
def test_vacuum_keeps_files_for_the_retention_if_only_a_checkpoint_has_their_removal(
    place: Place, lake: lv.Lake, by: str
) -> None:
    with lake.transaction() as txn:
        txn.update("t", {"balance": "balance + 1"}, where="true")
    if by == "deltalake":
        place.delta("t").create_checkpoint()
    else:
        tail = inside(lake).context.tails["t"]
        inside(lake).run(inside(lake).context.formats["delta"].checkpoint(tail.snapshot))
    checkpoint = place.delta("t").version()
    for path in (Path(place.root) / "t" / "_delta_log").glob("*.json"):
        if int(path.name[:20]) <= checkpoint:
            path.unlink()
    age(place)
    with place.connect() as fresh:
        assert fresh.table("t").vacuum() == []
        assert len(vacuum_now(fresh)) == 1


def test_vacuum_deletes_old_foreign_data_files_that_no_version_names(
    place: Place, lake: lv.Lake
) -> None:
    root = Path(place.root) / "t"
    for name in ("part-1.parquet", "x=1/part-2.parquet", "_p=1/part-3.parquet"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"left over")
    for name in (
        "_change_data/cdc-1.parquet",
        "_other/thing.parquet",
        ".hidden/a.parquet",
        "notes.txt",
    ):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"not ours")
    age(place)
    gone = ["_p=1/part-3.parquet", "part-1.parquet", "x=1/part-2.parquet"]
    assert lake.table("t").vacuum() == gone
    assert lake.table("t").vacuum(dry_run=False) == gone
    assert (root / "notes.txt").exists()
    assert (root / "_change_data/cdc-1.parquet").exists()
    assert (root / "_other/thing.parquet").exists()
    assert lake.table("t").vacuum() == []


def test_vacuum_keeps_tables_inside_the_directory_of_the_table(place: Place, lake: lv.Lake) -> None:
    place.write("t/inner", accounts(3))
    lake.register("t/inner")
    place.write("t/unknown", accounts(3))
    age(place)
    assert vacuum_now(lake) == []
    assert lake.snapshot().read("t/inner").num_rows == 3


def test_vacuum_keeps_files_of_a_transaction_that_may_still_commit_whatever_their_age(
    place: Place, lake: lv.Lake
) -> None:
    settings = lv.Settings(in_memory_file_limit_bytes=0)
    with place.connect(settings=settings) as other:
        saved = other.transaction()
        saved.append("t", accounts(2))
        saved.save()
        running = other.transaction()
        running.append("t", accounts(3))
        assert len(files(place)) == 3
        age(place)
        assert vacuum_now(lake) == []
        running.commit()
        resumed = lake.resume(saved.id)
        resumed.commit()
    assert lake.snapshot().read("t").num_rows == 9
    assert place.delta("t").to_pyarrow_table().num_rows == 9


def test_vacuum_deletes_files_of_an_aborted_transaction(place: Place, lake: lv.Lake) -> None:
    settings = lv.Settings(in_memory_file_limit_bytes=0)
    with place.connect(settings=settings) as other:
        txn = other.transaction()
        txn.append("t", accounts(2))
        left = files(place)
        txn_id = txn.id
        lake.abort(txn_id)
        age(place)
        assert all(txn_id in path for path in vacuum_now(lake))
        assert len(left - files(place)) == 1


def test_vacuum_keeps_files_read_by_a_saved_transaction_until_it_ends(
    place: Place, lake: lv.Lake
) -> None:
    with place.connect() as other:
        txn = other.transaction(read_only=False)
        assert txn.read("t").num_rows == 4
        txn.append("t", accounts(1))
        txn.save()
        with lake.transaction() as rival:
            rival.update("t", {"balance": "balance + 1"}, where="true")
        age(place)
        assert vacuum_now(lake) == []
        assert txn.read("t", where="id < 2").num_rows >= 2
        txn.abort()
        lake.gc()
        assert len(vacuum_now(lake)) == 1


def test_vacuum_keeps_files_read_by_a_saved_transaction_whose_clock_is_ahead(
    place: Place, lake: lv.Lake
) -> None:
    with place.connect() as other:
        fast = Later()
        fast.ahead_seconds = 7 * DAY
        inside(other).context.ids = Ids(fast)
        txn = other.transaction(read_only=False)
        assert txn.read("t").num_rows == 4
        txn.append("t", accounts(1))
        txn.save()
        with lake.transaction() as rival:
            rival.update("t", {"balance": "balance + 1"}, where="true")
        age(place)
        assert vacuum_now(lake) == []
        txn.abort()


def test_vacuum_keeps_the_old_and_new_files_of_an_unpublished_commit(
    place: Place, lake: lv.Lake
) -> None:
    class Crash(BaseException):
        pass

    def crash() -> None:
        raise Crash

    with place.connect() as other:
        inner = inside(other).store
        inside(other).store = InterruptedStore(inner, is_entry("t"), crash)
        with pytest.raises(Crash):
            with other.transaction() as txn:
                txn.update("t", {"balance": "7"}, where="true")
    age(place)
    assert vacuum_now(lake) == []
    assert place.delta("t").to_pyarrow_table()["balance"].to_pylist() == [100] * 4
    assert lake.snapshot().read("t")["balance"].to_pylist() == [7] * 4
    lake.recover()
    assert place.delta("t").to_pyarrow_table()["balance"].to_pylist() == [7] * 4
    assert len(vacuum_now(lake)) == 1


def test_vacuum_keeps_files_of_a_commit_made_while_it_runs(place: Place, lake: lv.Lake) -> None:
    with place.connect() as other:
        done = False
        inner = inside(lake).store
        listed = inner.list

        def commit_after_listing(prefix: str, *bounds: str | None):  # type: ignore[no-untyped-def]
            nonlocal done
            found = listed(prefix, *bounds)
            if prefix == "t" and not done:
                done = True
                with other.transaction() as txn:
                    txn.append("t", accounts(2))
            return found

        store = InterruptedStore(inner, is_head, lambda: None)
        store.list = commit_after_listing  # type: ignore[method-assign]
        inside(lake).store = store
        assert vacuum_now(lake) == []
        inside(lake).store = inner
        assert done
    assert lake.snapshot().read("t").num_rows == 6


def test_a_guarded_table_is_vacuumed_after_it_was_optimized(place: Place, lake: lv.Lake) -> None:
    lake.guard("t")
    for _ in range(3):
        with lake.transaction() as txn:
            txn.append("t", accounts(2))
    version = place.delta("t").version()
    lake.table("t").optimize()
    assert len(vacuum_now(lake)) == 4
    assert len(files(place)) == 1
    assert place.delta("t").version() == version + 1
    assert DeltaTable(place.uri("t")).to_pyarrow_table().num_rows == 10
    assert values(lake.snapshot().read("t")) == [0, 0, 0, 0, 1, 1, 1, 1, 2, 3]


def test_vacuum_keeps_versions_of_the_lake_within_the_retention(
    place: Place, lake: lv.Lake
) -> None:
    before = place.delta("t").version()
    with lake.transaction() as txn:
        txn.delete("t", where="true")
        txn.append("t", accounts(1))
    age(place)
    assert lake.table("t").vacuum(dry_run=False) == []
    assert place.delta("t", before).to_pyarrow_table().num_rows == 4


def test_vacuum_of_a_missing_table_is_refused(place: Place, lake: lv.Lake) -> None:
    table = lake.table("t")
    lake.drop_table("t")
    with pytest.raises(lv.TableNotFound):
        table.vacuum(dry_run=False)
    assert len(files(place)) == 1


def test_vacuum_deletes_files_that_an_optimize_has_given_up(place: Place, lake: lv.Lake) -> None:
    with place.connect() as other:
        with lake.transaction() as txn:
            txn.append("t", accounts(2))

        def rival() -> None:
            with other.transaction() as txn:
                txn.delete("t", where="id = 3")

        with interrupted(lake, is_head, rival):
            assert lake.table("t").optimize().files_given_up == 2
        there = files(place)
        gone = vacuum_now(lake)
        assert len(gone) == 2  # a file that optimize gave up, and one that the rival has replaced
        assert files(place) == there - set(gone)
        assert lake.snapshot().read("t").num_rows == 5


def test_a_table_object_without_a_lake_refuses_verbs(lake: lv.Lake) -> None:
    import dataclasses

    table = lake.table("t")
    alone = dataclasses.replace(table, _client=None)
    assert alone == table
    assert repr(alone) == repr(table)
    with pytest.raises(lv.InvalidOperation, match="belongs to no lake"):
        alone.vacuum()
    assert pa.schema(alone.schema) == table.schema


def test_vacuum_keeps_files_of_a_commit_that_waits_to_be_reconciled(
    place: Place, lake: lv.Lake
) -> None:
    class Crash(BaseException):
        pass

    def crash() -> None:
        raise Crash

    with place.connect() as other:
        inner = inside(other).store
        inside(other).store = InterruptedStore(inner, is_entry("t"), crash)
        with pytest.raises(Crash), other.transaction() as txn:
            txn.update("t", {"balance": "balance + 7"}, where="id = 1")
    place.delta("t").update(updates={"balance": "200"}, predicate="id = 2")
    age(place)
    with place.connect() as fresh:
        vacuum_now(fresh)
        assert values(place.delta("t").to_pyarrow_table(), "balance") == [100, 100, 100, 200]
        fresh.recover()
        assert values(fresh.snapshot().read("t"), "balance") == [100, 100, 107, 200]
