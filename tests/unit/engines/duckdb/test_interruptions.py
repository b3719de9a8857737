"""Ctrl-C while DuckDB runs is raised as KeyboardInterrupt, not as an error of DuckDB or the
statement.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.duckdb.failures import translated
from lakevilla.engines.duckdb.file_system import StoreFileSystem

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"


class Alarmed(Exception):
    """The error that a user's own signal handler raises."""


@pytest.fixture
def on_signal() -> Iterator[Callable[[Any], None]]:
    before = signal.getsignal(signal.SIGINT)

    def handle(handler: Any) -> None:
        signal.signal(signal.SIGINT, handler)
        threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()

    yield handle
    signal.signal(signal.SIGINT, before)


def alarm(number: int, frame: FrameType | None) -> None:
    raise Alarmed


@pytest.mark.parametrize(
    ("handler", "raised"),
    [(signal.default_int_handler, KeyboardInterrupt), (alarm, Alarmed)],
)
def test_a_query_stopped_by_a_signal_raises_the_error_of_the_signal_handler(
    on_signal: Callable[[Any], None], handler: Any, raised: type[BaseException], tmp_path: Path
) -> None:
    with lv.connect(str(tmp_path / "lake")) as lake:
        assert lake.sql("SELECT 41 AS n").to_pylist() == [{"n": 41}]
        on_signal(handler)
        with pytest.raises(raised):
            lake.sql(ENDLESS)
        assert lake.sql("SELECT 42 AS n").to_pylist() == [{"n": 42}]


def test_ctrl_c_stops_a_statement_and_rolls_back_its_transaction(
    on_signal: Callable[[Any], None], tmp_path: Path
) -> None:
    with lv.connect(str(tmp_path / "lake")) as lake:
        lake.create_table("rows", pa.table({"id": range(10)}))
        on_signal(signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt), lake.transaction() as txn:
            txn.append("rows", [{"id": -1}])
            txn.sql(ENDLESS)
        found = lake.snapshot().sql("SELECT count(*) AS n FROM rows").to_pylist()
        assert found == [{"n": 10}]


def test_ctrl_c_stops_a_query_while_its_rows_are_fetched(
    on_signal: Callable[[Any], None], tmp_path: Path
) -> None:
    with lv.connect(str(tmp_path / "lake")) as lake:
        lake.create_table("rows", pa.table({"id": range(10)}))
        began = time.process_time()
        on_signal(signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt):
            lake.sql("SELECT range FROM range(400_000_000)")
        # All rows would take five times as long and 3 GB.
        assert time.process_time() - began < 2
        assert lake.sql("SELECT count(*) AS n FROM rows").to_pylist() == [{"n": 10}]


class Failing:
    """A stub of data files that raise an error when they are opened."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def open_input(self, key: str, size: int) -> Any:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        lv.StoreError("the store is away:\ntry again"),
        lv.CorruptObject("t/a.parquet is missing: restore it"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_raised_while_duckdb_reads_a_file_reaches_the_caller_unchanged(
    error: BaseException,
) -> None:
    connection = duckdb.connect()
    connection.register_filesystem(StoreFileSystem(Failing(error)))  # type: ignore[arg-type]
    with pytest.raises(type(error)) as caught, translated("t"):
        connection.execute("FROM read_parquet('lakevilla://t/a.parquet?size=1000')")
    assert str(caught.value) == str(error)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), KeyboardInterrupt("by the user")])
def test_ctrl_c_raised_by_a_row_source_of_duckdb_reaches_the_caller(
    error: KeyboardInterrupt,
) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1]})
        raise error

    schema = pa.schema([("id", pa.int64())])
    connection = duckdb.connect()
    connection.register("rows", pa.RecordBatchReader.from_batches(schema, rows()))
    with pytest.raises(KeyboardInterrupt), translated("t"):
        connection.execute("SELECT sum(id) FROM rows").fetchall()


def test_a_value_with_the_text_of_ctrl_c_is_reported_as_an_error_of_the_statement() -> None:
    with pytest.raises(lv.InvalidOperation, match=r"table t: .*KeyboardInterrupt"), translated("t"):
        duckdb.connect().execute("SELECT CAST('KeyboardInterrupt: x\n\nAt:\n' AS INT)").fetchall()
