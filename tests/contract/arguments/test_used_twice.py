"""Objects for one use, or for one thread at a time, raise an error when used again."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.tables import contents

ROWS = pa.table({"id": [1, 2], "s": ["a", "b"]})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", ROWS)
        yield lake


def reader() -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.to_batches())


VERBS: dict[str, Callable[[lv.Transaction, Any], object]] = {
    "append": lambda txn, data: txn.append("t", data),
    "overwrite": lambda txn, data: txn.overwrite("t", data),
    "upsert": lambda txn, data: txn.upsert("t", data, "id"),
    "merge": lambda txn, data: (
        txn.merge("t", data, "source.id = target.id").when_matched_update_all().execute()
    ),
    "create_table": lambda txn, data: txn.create_table("new", data),
    "sql": lambda txn, data: txn.sql("insert into t from v", views={"v": data}),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_spent_reader_is_refused_and_not_taken_for_data_without_rows(
    lake: lv.Lake, verb: str
) -> None:
    data = reader()
    with lake.transaction() as txn:
        txn.append("t", data)
        with pytest.raises(lv.InvalidOperation, match="has been read already"):
            VERBS[verb](txn, data)
        VERBS[verb](txn, reader())
        txn.abort()


def test_a_function_that_is_run_again_with_a_spent_reader_commits_nothing(lake: lv.Lake) -> None:
    data, runs = reader(), []

    def add(txn: lv.Transaction) -> None:
        runs.append(txn.read("t").num_rows)
        txn.append("t", data)
        if len(runs) == 1:
            lake.run(lambda other: other.append("t", ROWS))

    with pytest.raises(lv.InvalidOperation, match="has been read already"):
        lake.run(add)
    assert len(runs) == 2
    assert len(lake.snapshot().read("t")) == 4


def test_data_whose_library_fails_is_refused(lake: lv.Lake) -> None:
    connection = duckdb.connect()
    connection.execute("create table gone as select 1 as id, 'a' as s")
    relation = connection.table("gone")
    connection.execute("drop table gone")
    with pytest.raises(lv.InvalidOperation, match="cannot become Arrow"):
        lake.run(lambda txn: txn.append("t", relation))


def test_an_error_of_the_callers_reader_is_raised_unchanged(lake: lv.Lake) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        lake.run(
            lambda txn: txn.append("t", pa.RecordBatchReader.from_batches(ROWS.schema, rows()))
        )
    assert len(lake.snapshot().read("t")) == 2


AFTER: dict[str, Callable[[lv.Transaction], object]] = {
    "read": lambda txn: txn.read("t"),
    "scan": lambda txn: txn.scan("t"),
    "sql": lambda txn: txn.sql("select * from t"),
    "changes": lambda txn: txn.changes("t", 0),
    "append": lambda txn: txn.append("t", ROWS),
    "overwrite": lambda txn: txn.overwrite("t", ROWS),
    "update": lambda txn: txn.update("t", {"id": 1}, "true"),
    "delete": lambda txn: txn.delete("t", "true"),
    "upsert": lambda txn: txn.upsert("t", ROWS, "id"),
    "merge": lambda txn: txn.merge("t", ROWS, "true"),
    "create_table": lambda txn: txn.create_table("new", ROWS),
    "drop_table": lambda txn: txn.drop_table("t"),
    "alter": lambda txn: txn.alter("t", set_properties={"a": "b"}),
    "take_turn": lambda txn: txn.take_turn("t"),
    "save": lambda txn: txn.save(),
}


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_transaction_that_has_ended_refuses_every_verb(
    lake: lv.Lake, tmp_path: Path, end: str
) -> None:
    txn = lake.transaction()
    txn.append("t", ROWS)
    getattr(txn, end)()
    before = contents(tmp_path)
    for verb, act in AFTER.items():
        with pytest.raises(lv.LakeVillaError) as told:
            act(txn)
        assert told.value.txn_id == txn.id, verb
    assert contents(tmp_path) == before


def test_a_transaction_is_neither_copied_nor_shared_by_threads(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(lv.InvalidOperation, match="cannot be pickled or copied"):
                copied(txn)  # type: ignore[operator]
        found: list[BaseException] = []

        def use() -> None:
            try:
                txn.read("t")
            except BaseException as error:
                found.append(error)

        def rows() -> Iterator[pa.RecordBatch]:
            other = threading.Thread(target=use)
            other.start()
            other.join()
            yield ROWS.to_batches()[0]

        txn.append("t", pa.RecordBatchReader.from_batches(ROWS.schema, rows()))
        txn.abort()
    assert [type(error) for error in found] == [lv.InvalidOperation]
    assert "in use by another thread" in str(found[0])


def test_swapped_arguments_are_refused(lake: lv.Lake, tmp_path: Path) -> None:
    swapped: list[Callable[[lv.Transaction], object]] = [
        lambda txn: txn.append(ROWS, "t"),  # type: ignore[arg-type]
        lambda txn: txn.upsert("t", "id", ROWS),  # type: ignore[arg-type]
        lambda txn: txn.update("t", "id = 1", {"s": "'x'"}),  # type: ignore[arg-type]
        lambda txn: txn.merge(ROWS, "t", "true"),  # type: ignore[arg-type]
        lambda txn: txn.merge("t", "source.id = target.id", ROWS),  # type: ignore[arg-type]
        lambda txn: txn.create_table(ROWS, "t"),  # type: ignore[arg-type]
        lambda txn: txn.read("id", ["t"]),
        lambda txn: txn.read("t", "id = 1"),
        lambda txn: txn.delete("id = 1", "t"),
    ]
    before = contents(tmp_path)
    for act in swapped:
        with lake.transaction() as txn:
            with pytest.raises((lv.InvalidOperation, lv.TableNotFound)):
                act(txn)
            txn.abort()
    assert contents(tmp_path) == before
