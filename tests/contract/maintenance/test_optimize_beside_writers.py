"""Optimizing a table while other transactions use it causes them no conflict."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakevilla as lv
from tests.support.inside import executor, inside
from tests.support.places import Place, skip_constraints
from tests.support.stores import InterruptedStore, interrupted, is_entry, is_head
from tests.support.tables import accounts, kinds, values


@pytest.fixture
def place(quick_place: Place) -> Place:
    return quick_place


def in_files(place: Place, files: int = 4, *, guarded: bool = False) -> lv.Lake:
    """Create a table ``t`` of ids and balances, with ten rows per file."""
    lake = place.connect()
    lake.create_table("t", pa.schema([("id", pa.int64()), ("balance", pa.int64())]))
    if guarded:
        lake.guard("t")
    for number in range(files):
        add(lake, number)
    return lake


def add(lake: lv.Lake, number: int) -> None:
    with lake.transaction() as txn:
        rows = [{"id": number * 10 + i, "balance": 100} for i in range(10)]
        txn.append("t", rows)


def files_of(lake: lv.Lake) -> int:
    with lake.transaction(read_only=True) as txn:
        view = executor(txn).look("t")
        found: int = inside(lake).run(view.snapshot.files()).num_rows
        return found


def others(place: Place) -> Iterator[lv.Lake]:
    with place.connect() as lake:
        yield lake


other = pytest.fixture(others)

Work = Callable[[lv.Transaction], object]

READS_AND_WRITES: dict[str, Work] = {
    "reads and appends": lambda txn: (txn.read("t"), txn.append("t", accounts(1))),
    "reads by a predicate": lambda txn: (
        txn.read("t", where="id = 3"),
        txn.append("t", accounts(1)),
    ),
    "updates": lambda txn: txn.update("t", {"balance": "balance + 1"}, where="id = 3"),
    "updates and looks at its count": lambda txn: (
        txn.update("t", {"balance": "balance + 1"}, where="id < 15").rows_updated
    ),
    "updates and reads its own rows": lambda txn: (
        txn.update("t", {"balance": "balance + 1"}, where="id = 3"),
        txn.read("t", where="id < 5"),
    ),
    "deletes": lambda txn: txn.delete("t", where="id >= 35"),
    "merges": lambda txn: txn.upsert("t", [{"id": 3, "balance": 7}], "id"),
    "inserts from itself": lambda txn: txn.sql("INSERT INTO t SELECT id + 1000, balance FROM t"),
    "adds a constraint": lambda txn: txn.alter("t", add_constraints={"positive": "balance > 0"}),
    "overwrites": lambda txn: txn.overwrite("t", accounts(2)),
}


@pytest.mark.parametrize("work", READS_AND_WRITES.values(), ids=READS_AND_WRITES.keys())
def test_no_transaction_conflicts_with_a_concurrent_optimize(
    request: pytest.FixtureRequest, place: Place, other: lv.Lake, work: Work
) -> None:
    skip_constraints(request)
    with in_files(place) as lake:
        txn = other.transaction()
        work(txn)
        seen = txn.read("t").sort_by("id").to_pylist() if "s its" in str(work) else None
        done = lake.table("t").optimize()
        assert (done.files_removed, done.files_added) == (4, 1)
        assert files_of(lake) == 1
        txn.commit()
        expected = place_expected(work)
        rows = lake.snapshot().read("t").sort_by([("id", "ascending"), ("balance", "ascending")])
        assert rows.to_pylist() == expected
        assert seen is None or seen == expected


def place_expected(work: Work) -> list[dict[str, int]]:
    """Return the rows after the work without concurrent transactions."""
    settings = lv.Settings(reuse_after_seconds=0)
    with lv.connect(f"memory://alone-{id(work)}", settings=settings) as lake:
        lake.create_table("t", [{"id": i, "balance": 100} for i in range(40)])
        lake.run(work)
        rows = lake.snapshot().read("t").sort_by([("id", "ascending"), ("balance", "ascending")])
        lake.drop_table("t", delete_data=True)
        return list(rows.to_pylist())


def test_a_read_conflicts_with_a_deletion_of_rows_that_optimize_has_moved(
    place: Place, other: lv.Lake
) -> None:
    with in_files(place, 2) as lake:
        txn = other.transaction()
        assert txn.read("t").num_rows == 20
        txn.append("t", accounts(1))
        lake.table("t").optimize()
        with lake.transaction() as rival:
            rival.delete("t", where="true")
        with pytest.raises(lv.ConflictError):
            txn.commit()


def test_a_read_conflicts_with_appended_rows_that_optimize_has_moved(
    place: Place, other: lv.Lake
) -> None:
    with in_files(place, 2) as lake:
        txn = other.transaction()
        assert txn.read("t").num_rows == 20
        txn.append("t", accounts(1))
        add(lake, 2)
        lake.table("t").optimize()
        with pytest.raises(lv.ConflictError):
            txn.commit()


def test_a_read_does_not_conflict_with_an_optimize_and_a_commit_of_other_rows(
    place: Place,
) -> None:
    with in_files(place, 2) as lake:
        # The setting prevents a comparison of rows, as for large files.
        settings = lv.Settings(row_check_limit_bytes=0)
        with place.connect(settings=settings) as other, other.transaction() as txn:
            assert txn.read("t", where="id = 3").num_rows == 1
            txn.append("t", accounts(1))
            lake.table("t").optimize()
            add(lake, 7)
        assert lake.snapshot().read("t").num_rows == 31


def test_optimize_gives_up_files_that_another_client_has_changed_and_commits_the_rest(
    place: Place,
) -> None:
    with place.connect() as lake, place.connect() as other:
        schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
        lake.create_table("t", schema, partition_by="day")
        for number in range(3):
            with lake.transaction() as txn:
                txn.append("t", [{"id": number, "day": day} for day in "abc"])

        def rival() -> None:
            with other.transaction() as txn:
                txn.update("t", {"id": "id + 10"}, where="day = 'b' AND id = 1")

        with interrupted(lake, is_head, rival):
            done = lake.table("t").optimize()
        assert (done.files_removed, done.files_added, done.files_given_up) == (6, 2, 3)
        assert done.partitions == 2
        assert values(lake.snapshot().read("t", where="day = 'b'")) == [0, 2, 11]
        assert values(lake.snapshot().read("t", where="day = 'a'")) == [0, 1, 2]
        assert files_of(lake) == 5
        again = lake.table("t").optimize()
        assert (again.files_removed, again.files_added) == (3, 1)
        assert lake.doctor().ok


def test_optimize_ends_even_if_its_files_are_changed_again_and_again(place: Place) -> None:
    with place.connect(settings=lv.Settings(max_redos=2)) as lake, place.connect() as other:
        schema = pa.schema([("id", pa.int64()), ("day", pa.int64())])
        lake.create_table("t", schema, partition_by="day")
        for number in range(2):
            with lake.transaction() as txn:
                txn.append("t", [{"id": number, "day": day} for day in range(6)])
        days = iter(range(4))
        inner = inside(lake).store

        def rival() -> None:
            day = next(days, None)
            if day is not None:
                with other.transaction() as txn:
                    txn.update("t", {"id": "id + 10"}, where="day = :day", params={"day": day})
                inside(lake).store = InterruptedStore(inner, is_head, rival)

        inside(lake).store = InterruptedStore(inner, is_head, rival)
        done = lake.table("t").optimize()
        assert (done.partitions, done.files_given_up) == (2, 8)
        assert lake.snapshot().read("t").num_rows == 12


def test_optimize_gives_up_all_files_if_the_schema_is_changed_meanwhile(
    place: Place, other: lv.Lake
) -> None:
    with in_files(place) as lake:

        def rival() -> None:
            with other.transaction() as txn:
                txn.alter("t", add_columns=pa.schema([("note", pa.string())]))

        with interrupted(lake, is_head, rival):
            done = lake.table("t").optimize()
        assert (done.files_removed, done.files_given_up) == (0, 4)
        assert lake.snapshot().read("t").column_names == ["id", "balance", "note"]
        assert lake.table("t").optimize().files_removed == 4


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.night
def test_writers_on_other_threads_get_no_conflict_from_repeated_optimizes(
    local_place: Place, guarded: bool
) -> None:
    place = local_place
    with in_files(place, 3, guarded=guarded) as lake:
        stop = threading.Event()
        failures: list[BaseException] = []
        moved = 0

        def write(number: int) -> None:
            try:
                with place.connect() as mine:
                    for step in range(12):
                        with mine.transaction() as txn:
                            txn.append("t", [{"id": 1000 + number * 100 + step, "balance": 1}])
                        with mine.transaction() as txn:
                            # Only this thread uses the rows, so only an optimize could conflict.
                            where = f"id = {1000 + number * 100 + step}"
                            txn.read("t", where=where)
                            txn.update("t", {"balance": "balance + 1"}, where=where)
                            txn.read("t", where=where)
            except BaseException as error:
                failures.append(error)
            finally:
                stop.set()

        writer = threading.Thread(target=write, args=(1,))
        writer.start()
        while not stop.is_set():
            moved += lake.table("t").optimize().files_removed
        writer.join()
        assert not failures
        assert moved > 0
        lake.table("t").optimize()
        assert files_of(lake) == 1
        rows = lake.snapshot().read("t")
        assert rows.num_rows == 30 + 12
        assert set(rows.filter(pa.compute.field("id") >= 1000)["balance"].to_pylist()) == {2}
        assert DeltaTable(place.uri("t")).to_pyarrow_table().num_rows == 42
        assert lake.doctor().ok


def test_a_foreign_delete_before_an_optimize_is_published_stays_and_raises_no_error(
    local_place: Place,
) -> None:
    place, events = local_place, list[lv.Event]()
    with in_files(place) as lake, place.connect(on_event=events.append) as optimizer:

        def rival() -> None:
            place.delta("t").delete("id = 3")

        with interrupted(optimizer, is_entry("t"), rival):
            done = optimizer.table("t").optimize()
        assert "reconcile" in kinds(events)
        assert values(lake.snapshot().read("t")) == [i for i in range(40) if i != 3]
        assert place.delta("t").to_pyarrow_table().num_rows == 39
        assert done.global_version is not None
        assert lake.doctor().ok
        lake.table("t").optimize()
        assert files_of(lake) == 1


def test_gc_deletes_files_of_an_interrupted_optimize(local_place: Place) -> None:
    place = local_place
    with in_files(place) as lake:
        table = lake.table("t")

        class Crash(BaseException):
            pass

        def crash() -> None:
            raise Crash

        inner = inside(lake).store
        inside(lake).store = InterruptedStore(inner, is_head, crash)
        with pytest.raises(Crash):
            table.optimize()
        inside(lake).store = inner
    data = sorted(p.name for p in (local_root(place) / "t").glob("*.parquet"))
    assert len(data) == 5
    with place.connect(settings=lv.Settings(max_age_seconds=0)) as lake:
        # Otherwise gc would suspect that HEAD was set back by that commit.
        lake.recover(confirm_head=True)
        lake.gc()
        assert files_of(lake) == 4
        assert len(list((local_root(place) / "t").glob("*.parquet"))) == 4
        assert lake.snapshot().read("t").num_rows == 40


def local_root(place: Place):  # type: ignore[no-untyped-def]
    from pathlib import Path

    return Path(place.root)
