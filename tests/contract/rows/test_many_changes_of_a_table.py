"""Many changes of a table in one transaction: the next sees each, and the result is stored."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.transaction.state import files
from tests.support.inside import executor, inside
from tests.support.places import Place, make_place
from tests.support.stores import listed, unpublished
from tests.support.traces import cost

KINDS = ["memory", "s3", "iceberg"]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    with place.connect() as lake:
        lake.create_table("t", numbered(range(6)))
        yield lake


def numbered(numbers: range, v: int = 0) -> pa.Table:
    return pa.table({"k": list(numbers), "v": [v] * len(numbers)})


def values(source: lv.Lake | lv.Transaction) -> dict[int, int]:
    found = source.read("t").to_pydict()
    return dict(zip(found["k"], found["v"], strict=True))


def data_files_of(lake: lv.Lake) -> set[str]:
    """Return the data files that are stored in the table's directory."""
    return {one.key for one in listed(inside(lake).store, "t/") if one.key.endswith(".parquet")}


def in_memory(lake: lv.Lake) -> bool:
    """Return whether the engine reads a transaction's files from memory: not in a directory."""
    return inside(lake).context.engine.reads_by_parts


def forget_what_was_read(lake: lv.Lake) -> None:
    """Let DuckDB keep no part of a file: it would find there what nobody has stored."""
    cursor = inside(lake).context.engine._database.cursor()
    cursor.execute("SET GLOBAL enable_external_file_cache = false")


def test_a_file_that_the_transaction_replaces_is_never_stored(lake: lv.Lake) -> None:
    before = data_files_of(lake)
    with lake.transaction() as txn:
        for k in range(6):
            assert txn.update("t", {"v": f"{k + 1}"}, where=f"k = {k}").rows_updated == 1
            assert txn.read("t", where=f"k = {k}")["v"].to_pylist() == [k + 1]
            assert txn.sql(f"SELECT max(v) AS m FROM t WHERE k <= {k}")["m"].to_pylist() == [k + 1]
    assert len(data_files_of(lake) - before) == 1 or not in_memory(lake)
    assert values(lake) == {k: k + 1 for k in range(6)}
    assert not executor(txn).state.work.bodies, "an ended transaction holds no files"


def test_many_updates_cost_the_requests_of_one(lake: lv.Lake) -> None:
    if not in_memory(lake):
        pytest.skip("files of a local directory are stored for the engine")

    def work(count: int) -> None:
        with lake.transaction() as txn:
            for k in range(count):
                txn.update("t", {"v": "v + 1"}, where=f"k = {k}")

    work(1)
    one, six = cost(lake, lambda: work(1)), cost(lake, lambda: work(6))
    assert six.put == one.put
    assert six.get <= one.get


def test_deferred_changes_of_a_table_store_one_file(lake: lv.Lake) -> None:
    before = data_files_of(lake)
    with lake.transaction(defer=True) as txn:
        for k in range(6):
            txn.update("t", {"v": f"{k + 1}"}, where=f"k = {k}")
    assert len(data_files_of(lake) - before) == 1 or not in_memory(lake)
    assert values(lake) == {k: k + 1 for k in range(6)}


def test_each_kind_of_change_reads_those_before_it(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.upsert("t", numbered(range(10, 12)), keys="k")
        txn.update("t", {"v": "v + 1"}, where="k >= 10")
        txn.upsert("t", numbered(range(11, 13), v=5), keys="k")
        txn.delete("t", where="k = 10")
        txn.append("t", numbered(range(20, 21)))
        txn.update("t", {"v": "v + 1"}, where="k = 20 OR k = 11")
        txn.overwrite("t", numbered(range(12, 13), v=7), where="k = 12")
        now = values(txn)
    assert now == {**dict.fromkeys(range(6), 0), 11: 6, 12: 7, 20: 1}
    assert values(lake) == now


def test_a_redo_of_the_last_change_reads_the_file_of_the_one_before(place: Place) -> None:
    """A lost race redoes the second operation only, and what that reads was never stored."""
    events: list[lv.Event] = []
    with place.connect(on_event=events.append) as lake, place.connect() as other:
        forget_what_was_read(lake)
        lake.create_table("t", numbered(range(6)))
        lake.run(lambda txn: txn.append("t", numbered(range(100, 102))))
        with lake.transaction(isolation="snapshot") as txn:
            txn.update("t", {"v": "1"}, where="k < 3")
            txn.update("t", {"v": "v + 1"}, where="k IN (0, 100)")
            other.run(lambda txn: txn.update("t", {"v": "7"}, where="k = 101"))
        (redo,) = [event.message for event in events if event.kind == "redo"]
        assert redo == "redoing from operation 1 on t"
        expected = {0: 2, 1: 1, 2: 1, 3: 0, 4: 0, 5: 0, 100: 1, 101: 7}
        assert values(lake) == expected
        assert values(other) == expected


def test_rows_that_were_given_are_stored_for_whoever_performs_the_changes_again(
    request: pytest.FixtureRequest,
) -> None:
    place = make_place("s3", request)
    with place.connect() as lake:
        lake.create_table("t", numbered(range(6)))
        with unpublished(lake), lake.transaction() as txn:
            txn.append("t", numbered(range(10, 12)))
            txn.update("t", {"v": "v + 1"}, where="k >= 4")  # no file of the append is left
    place.delta("t").update(updates={"v": "9"}, predicate="k = 0")
    with place.connect() as other:
        other.recover()
        assert values(other) == {**dict.fromkeys(range(1, 4), 0), 0: 9, 4: 1, 5: 1, 10: 1, 11: 1}
    assert {row["k"]: row["v"] for row in place.seen("t")}[11] == 1


def test_an_old_transaction_does_not_miss_files_that_it_never_stored(place: Place) -> None:
    settings = lv.Settings(checked_tip_seconds=0.0)
    with place.connect(settings=settings) as lake:
        lake.create_table("t", numbered(range(6)))
        with lake.transaction() as txn:
            for k in range(3):
                txn.update("t", {"v": "1"}, where=f"k = {k}")
        assert sum(values(lake).values()) == 3


def test_a_saved_transaction_has_all_its_files(lake: lv.Lake) -> None:
    txn = lake.transaction().__enter__()
    for k in range(3):
        txn.update("t", {"v": "1"}, where=f"k = {k}")
    txn.save()
    again = lake.resume(txn.id)
    again.update("t", {"v": "1"}, where="k = 3")
    again.commit()
    assert sum(values(lake).values()) == 4


def test_more_bytes_than_a_transaction_may_hold_are_stored(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_HELD_BYTES", 0)
    before = data_files_of(lake)
    with lake.transaction() as txn:
        for k in range(3):
            txn.update("t", {"v": "1"}, where=f"k = {k}")
    assert len(data_files_of(lake) - before) == 3
    assert sum(values(lake).values()) == 3


def test_rows_of_a_stream_stay_those_of_the_time_of_the_read(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.update("t", {"v": "1"}, where="k = 0")
        stream = txn.scan("t")
        txn.update("t", {"v": "2"}, where="k = 0")
        txn.abort()
    assert sum(stream.read_all()["v"].to_pylist()) == 1
