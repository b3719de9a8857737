"""Many changes of a table in one transaction: the next sees each, and the result is stored."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.duckdb.writing import rewrite, writer
from lakevilla.engines.duckdb.writing.parquet import encode
from lakevilla.engines.duckdb.writing.rewrite import Kept, Marks
from lakevilla.formats.layout import Layout
from lakevilla.transaction.state import files
from tests.support.inside import executor, inside
from tests.support.places import Place, make_place
from tests.support.stores import listed, unpublished
from tests.support.traces import cost

KINDS = ["memory", "remote", "iceberg"]


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
    place = make_place("remote", request)
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
            txn.upsert("t", numbered(range(k, k + 1), v=1), keys="k")
    assert len(data_files_of(lake) - before) == 3
    assert sum(values(lake).values()) == 3


def test_rows_of_a_stream_stay_those_of_the_time_of_the_read(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.update("t", {"v": "1"}, where="k = 0")
        stream = txn.scan("t")
        txn.update("t", {"v": "2"}, where="k = 0")
        txn.abort()
    assert sum(stream.read_all()["v"].to_pylist()) == 1


# -------------------- rows in the engine's memory


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of rows of each data file that is made."""
    numbers: list[int] = []

    def counted(rows: pa.Table, layout: Layout) -> bytes:
        numbers.append(rows.num_rows)
        return encode(rows, layout)

    monkeypatch.setattr(writer, "encode", counted)
    return numbers


def test_of_a_run_of_changes_only_the_first_and_the_last_file_are_made(
    lake: lv.Lake, made: list[int]
) -> None:
    made.clear()
    with lake.transaction() as txn:
        for k in range(5):
            result = txn.update("t", {"v": "v + 1"}, where=f"k >= {k}")
            assert (result.rows_updated, result.files_added, result.files_removed) == (6 - k, 1, 1)
        assert txn.delete("t", where="k = 5").rows_deleted == 1
    assert made == [6, 5]
    assert values(lake) == {k: k + 1 for k in range(5)}


def test_a_read_of_kept_rows_makes_no_file(lake: lv.Lake, made: list[int]) -> None:
    made.clear()
    with lake.transaction() as txn:
        for k in range(3):
            txn.update("t", {"v": "v + 1"}, where=f"k <= {k}")
        made.clear()
        assert values(txn) == {0: 3, 1: 2, 2: 1, 3: 0, 4: 0, 5: 0}
        assert sorted(txn.read("t", columns=["k"], where="v > 1")["k"].to_pylist()) == [0, 1]
        with pytest.raises(lv.InvalidOperation, match="there is no column x"):
            txn.read("t", columns=["x"])
        assert made == [6], "only a refused read looks at the files"
        txn.update("t", {"v": "v + 1"}, where="k = 0")
        assert txn.sql("SELECT sum(v) AS s FROM t")["s"].to_pylist() == [7]
    assert made == [6, 6]


def test_a_run_of_deferred_changes_makes_two_files(lake: lv.Lake, made: list[int]) -> None:
    made.clear()
    with lake.transaction(defer=True) as txn:
        for k in range(6):
            txn.update("t", {"v": f"{k + 1}"}, where=f"k = {k}")
    assert made == [6, 6]
    assert values(lake) == {k: k + 1 for k in range(6)}


def test_a_file_whose_rows_are_all_deleted_is_not_made(lake: lv.Lake, made: list[int]) -> None:
    lake.run(lambda txn: txn.append("t", numbered(range(10, 12))))
    made.clear()
    with lake.transaction() as txn:
        txn.update("t", {"v": "1"}, where="k = 0")
        txn.update("t", {"v": "1"}, where="k = 10")
        assert txn.delete("t", where="k >= 10").files_added == 0
        txn.update("t", {"v": "2"}, where="k >= 10")
    assert made == [6]
    assert values(lake) == {0: 1, **dict.fromkeys(range(1, 6), 0)}


def test_a_statement_that_breaks_a_rule_takes_only_itself_back(
    request: pytest.FixtureRequest,
) -> None:
    with make_place("memory", request).connect() as lake:
        lake.create_table("t", numbered(range(6)))
        lake.run(lambda txn: txn.alter("t", add_constraints={"small": "v < 3"}))
        with lake.transaction() as txn:
            for _ in range(2):
                txn.update("t", {"v": "v + 1"}, where="k < 3")
            for _ in range(2):
                with pytest.raises(lv.InvalidOperation, match="constraint small"):
                    txn.update("t", {"v": "v + 1"}, where="true")
                with pytest.raises(lv.InvalidOperation, match="cannot cast"):
                    txn.update(
                        "t", {"v": "CAST(concat('x', CAST(k AS STRING)) AS BIGINT)"}, where="k > 4"
                    )
                assert txn.update("t", {"v": "v - 1"}, where="k = 0").rows_updated == 1
        assert values(lake) == {0: 0, 1: 2, 2: 2, 3: 0, 4: 0, 5: 0}


def test_a_statement_in_doubt_is_settled_by_the_statements_before_it(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C arrives when DuckDB has changed the rows already, and nobody has noted that."""
    with lake.transaction() as txn:
        for _ in range(3):
            txn.update("t", {"v": "v + 1"}, where="k < 3")
        with monkeypatch.context() as patch:
            patch.setattr(Kept, "_noted", interrupted)
            with pytest.raises(KeyboardInterrupt):
                txn.update("t", {"v": "v + 100"}, where="true")
        assert values(txn) == {0: 3, 1: 3, 2: 3, 3: 0, 4: 0, 5: 0}
        txn.update("t", {"v": "v + 1"}, where="k = 0")
        txn.update("t", {"v": "v + 1"}, where="k = 0")
    assert values(lake) == {0: 5, 1: 3, 2: 3, 3: 0, 4: 0, 5: 0}


def test_rows_that_were_loaded_late_have_no_part_in_earlier_statements(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake.transaction() as txn:
        for _ in range(3):
            txn.update("t", {"v": "v + 1"}, where="true")
        txn.append("t", numbered(range(100, 102)))
        for _ in range(2):
            txn.update("t", {"v": "v + 10"}, where="k >= 100")
        txn.update("t", {"v": "v + 100"}, where="k IN (0, 100)")
        with monkeypatch.context() as patch:
            patch.setattr(Kept, "_noted", interrupted)
            with pytest.raises(KeyboardInterrupt):
                txn.update("t", {"v": "0"}, where="true")
    expected = {0: 103, **dict.fromkeys(range(1, 6), 3), 100: 120, 101: 20}
    assert values(lake) == expected


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_redo_begins_with_a_file_that_was_only_promised(place: Place) -> None:
    """A lost race redoes the last of four operations; the file of the third was never made."""
    events: list[lv.Event] = []
    with place.connect(on_event=events.append) as lake, place.connect() as other:
        forget_what_was_read(lake)
        lake.create_table("t", numbered(range(6)))
        lake.run(lambda txn: txn.append("t", numbered(range(100, 102))))
        with lake.transaction(isolation="snapshot") as txn:
            for _ in range(3):
                txn.update("t", {"v": "v + 1"}, where="k < 3")
            txn.update("t", {"v": "v + 1"}, where="k IN (0, 100)")
            txn.update("t", {"v": "v + 1"}, where="k IN (1, 100)")
            other.run(lambda txn: txn.update("t", {"v": "7"}, where="k = 101"))
        (redo,) = [event.message for event in events if event.kind == "redo"]
        assert redo == "redoing from operation 3 on t"
        expected = {0: 4, 1: 4, 2: 3, 3: 0, 4: 0, 5: 0, 100: 2, 101: 7}
        assert values(lake) == expected
        assert values(other) == expected


def test_a_resumed_transaction_redoes_what_followed_a_promised_file(place: Place) -> None:
    with place.connect() as lake, place.connect() as other:
        lake.create_table("t", numbered(range(6)))
        lake.run(lambda txn: txn.append("t", numbered(range(100, 102))))
        txn = lake.transaction(isolation="snapshot").__enter__()
        for _ in range(3):
            txn.update("t", {"v": "v + 1"}, where="k < 3")
        txn.update("t", {"v": "v + 1"}, where="k IN (0, 100)")
        txn.save()
        again = other.resume(txn.id)
        again.update("t", {"v": "v + 1"}, where="k IN (1, 100)")
        with place.connect() as third:
            third.run(lambda txn: txn.update("t", {"v": "7"}, where="k = 101"))
        again.commit()
        assert values(other) == {0: 4, 1: 4, 2: 3, 3: 0, 4: 0, 5: 0, 100: 2, 101: 7}


def test_a_change_of_the_columns_ends_a_run_of_changes(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        for _ in range(3):
            txn.update("t", {"v": "v + 1"}, where="k < 3")
        txn.alter("t", add_columns=pa.schema([("n", pa.int64())]))
        for _ in range(3):
            txn.update("t", {"n": "coalesce(n, 0) + v"}, where="k < 2")
    assert values(lake) == {0: 3, 1: 3, 2: 3, 3: 0, 4: 0, 5: 0}
    rows = lake.read("t").to_pylist()
    assert {row["k"]: row["n"] for row in rows if row["n"] is not None} == {0: 9, 1: 9}


def test_rows_that_have_become_large_are_written_by_way_of_the_disk(
    place: Place, made: list[int]
) -> None:
    settings = lv.Settings(in_memory_file_limit_bytes=4096)
    with place.connect(settings=settings) as lake:
        lake.create_table("t", pa.table({"k": [1, 2], "s": ["", ""]}))
        made.clear()
        with lake.transaction() as txn:
            txn.update("t", {"s": "'a'"}, where="true")
            txn.update("t", {"s": ":s"}, params={"s": "b" * 100_000}, where="k = 1")
            txn.update("t", {"s": "concat(s, 'c')"}, where="true")
        assert made == [2]
        found = lake.read("t").to_pydict()
    sizes = dict(zip(found["k"], map(len, found["s"]), strict=True))
    assert sizes == {1: 100_001, 2: 2}


def test_rows_that_another_client_has_marked_as_deleted_are_not_kept(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has its name still: the rows in memory were loaded before."""
    place = make_place("iceberg", request)
    marks = {"format-version": "3", "write.delete.mode": "merge-on-read"}
    with place.connect() as lake, place.connect() as other:
        lake.create_table("t", numbered(range(6)), properties=marks)
        with lake.transaction() as txn:
            for _ in range(2):  # the second one loads the file
                txn.update("t", {"v": "99"}, where="v % 10 = 7")
            txn.update("t", {"v": "v + 1"}, where="k < 3")
            with monkeypatch.context() as patch, other.transaction() as second:
                patch.setattr(rewrite, "MARKS", Marks(least_bytes=0, part=1, rows=9, deleted=1))
                second.delete("t", where="k = 5")
                second.append("t", pa.table({"k": [50], "v": [7]}))
        assert values(lake) == {0: 1, 1: 1, 2: 1, 3: 0, 4: 0, 50: 99}
