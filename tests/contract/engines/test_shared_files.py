"""The threads of a statement share a large file: none waits while another reads it."""

from __future__ import annotations

import threading
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.duckdb.reading import relation
from lakevilla.formats.base import FormatName
from lakevilla.store.data_files import _RangeReader

ROWS = 250_000
#: A thread that waits in vain for another one gives up after this time, and the test fails.
_PATIENCE_SECONDS = 30
#: Reads of footers are smaller; the keys of at least two row groups are larger, however the threads
#: that wrote the file had cut it.
_COLUMN_BYTES = 40_000


@pytest.fixture
def lake() -> Any:
    # A larger file is written by DuckDB, in several row groups.
    with lv.connect("memory://", settings=lv.Settings(in_memory_file_limit_bytes=1 << 20)) as lake:
        yield lake


def rows_of(start: int, count: int) -> pa.Table:
    ids = np.arange(start, start + count)
    return pa.table({"id": ids, "x": ids / 7, "y": np.random.default_rng(2).random(count)})


def meeting(monkeypatch: pytest.MonkeyPatch) -> threading.Barrier:
    """Return a barrier at which the first two threads that request columns meet."""
    barrier = threading.Barrier(2)
    between, met = _RangeReader.between, threading.Event()

    def waiting(reader: _RangeReader, start: int, end: int) -> bytes:
        is_column = reader._key.endswith(".parquet") and end - start > _COLUMN_BYTES
        if is_column and not met.is_set():
            barrier.wait(_PATIENCE_SECONDS)
            met.set()
        return between(reader, start, end)

    monkeypatch.setattr(_RangeReader, "between", waiting)
    return barrier


@pytest.mark.skipif(
    duckdb.__version__.startswith("2."), reason="DuckDB 2 reads such a file with one thread"
)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_threads_meet_in_a_single_file(
    lake: lv.Lake, kind: FormatName, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table("t", rows_of(0, ROWS), format=kind)
    barrier = meeting(monkeypatch)
    # Each row group has a row that changes: the filter on keys leaves none out.
    source = rows_of(0, ROWS + 100).take(np.arange(0, ROWS + 100, 50))
    lake.run(lambda txn: txn.upsert("t", source, keys="id"))
    assert not barrier.broken
    monkeypatch.undo()
    kept = rows_of(0, ROWS).take([n for n in range(ROWS) if n % 50])
    due = pa.concat_tables([kept, source]).sort_by("id")
    assert lake.read("t").sort_by("id").equals(due)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_file_that_is_shared_keeps_its_values(
    lake: lv.Lake, kind: FormatName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns that the file lacks, and those of partitions, are not those of the empty file."""
    monkeypatch.setattr(relation, "_SHARED_BYTES", 0)
    rows = pa.table({"part": ["a", "b", "b"], "id": [1, 2, 3], "s": [{"v": 1}, {"v": 2}, {"v": 3}]})
    lake.create_table("t", rows, format=kind, partition_by=["part"])
    lake.run(lambda txn: txn.alter("t", add_columns={"late": "long"}))
    lake.run(lambda txn: txn.update("t", {"late": "id * 10"}, where="id = 2"))
    found = lake.sql("SELECT part, id, s, late FROM t WHERE part = 'b' ORDER BY id").to_pylist()
    assert found == [
        {"part": "b", "id": 2, "s": {"v": 2}, "late": 20},
        {"part": "b", "id": 3, "s": {"v": 3}, "late": None},
    ]
    assert lake.read("t", where="part = 'a'").to_pylist() == [
        {"part": "a", "id": 1, "s": {"v": 1}, "late": None}
    ]
