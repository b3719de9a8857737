"""Rows from generators, one by one or in batches, and generators that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import lakevilla as lv
from tests.contract.foreign_readers import FORMATS, Format, read_by_others
from tests.support.tables import contents, values

#: Settings with which a verb stores files before it ends, so that a failure could leave some.
SMALL = lv.Settings(in_memory_file_limit_bytes=1 << 16, target_file_size_bytes=1 << 17)


def rows(count: int, fails_at: int | None = None) -> Iterator[dict[str, Any]]:
    for number in range(count):
        if number == fails_at:
            raise LookupError("the source went away")
        yield {"id": number, "text": f"{number * 7919:032d}"}


def batches(count: int, fails_at: int | None = None) -> Iterator[pa.RecordBatch]:
    for start in range(0, count, 1000):
        part = list(rows(start + 1000, fails_at))[start:]
        yield pa.RecordBatch.from_pylist(part)


VERBS: dict[str, Callable[[lv.Transaction, Any], object]] = {
    "append": lambda txn, data: txn.append("t", data),
    "overwrite": lambda txn, data: txn.overwrite("t", data),
    "upsert": lambda txn, data: txn.upsert("t", data, "id"),
    "merge": lambda txn, data: (
        txn.merge("t", data, "source.id = target.id").when_not_matched_insert_all().execute()
    ),
    "create_table": lambda txn, data: txn.create_table("new", data),
    "sql": lambda txn, data: txn.sql("insert into t select * from v", views={"v": data}),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("make", [rows, batches])
@pytest.mark.parametrize("verb", VERBS)
def test_a_generator_that_fails_in_the_middle_writes_nothing(
    tmp_path: Path, verb: str, make: Callable[..., Iterator[object]], format: Format
) -> None:
    with lv.connect(tmp_path, settings=SMALL) as lake:
        lake.create_table("t", rows(3), format=format)
        before = contents(tmp_path)
        with pytest.raises(LookupError, match="went away"), lake.transaction() as txn:
            VERBS[verb](txn, make(24_000, 23_500))
        assert contents(tmp_path) == before
        # The transaction can go on without the failed verb.
        with lake.transaction() as txn:
            with pytest.raises(LookupError, match="went away"):
                VERBS[verb](txn, make(24_000, 23_500))
            txn.append("t", [{"id": 7, "text": "after"}])
        assert values(lake.snapshot().read("t")) == [0, 1, 2, 7]
        assert [table.name for table in lake.tables()] == ["t"]
        data = [key for key in contents(tmp_path) if key.endswith(".parquet")]
        assert len(data) == 2


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("make", [rows, batches])
def test_other_libraries_can_read_rows_from_a_generator(
    tmp_path: Path, make: Callable[..., Iterator[object]], format: Format
) -> None:
    with lv.connect(tmp_path, settings=SMALL) as lake:
        lake.create_table("t", make(12_000), format=format)
        with lake.transaction() as txn:
            txn.append("t", (row | {"id": row["id"] + 12_000} for row in rows(2)))
            txn.upsert("t", ({"id": number, "text": "new"} for number in (0, 12_001)), "id")
        uri = lake.table("t").uri
    for found in read_by_others(uri, format).values():
        assert values(found) == list(range(12_002))
        assert found["text"].to_pylist().count("new") == 2


def test_chunks_of_pandas_with_different_types_are_appended(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,n\n1,5\n2,6\n3,\n4,8\n")
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("t", {"id": "bigint", "n": "bigint"})
        with lake.transaction() as txn:
            txn.append("t", pd.read_csv(tmp_path / "rows.csv", chunksize=2))
        read = lake.snapshot().read("t")
    assert sorted(zip(read["id"].to_pylist(), read["n"].to_pylist(), strict=True)) == [
        (1, 5),
        (2, 6),
        (3, None),
        (4, 8),
    ]


def test_a_function_run_again_with_a_spent_generator_commits_nothing(
    tmp_path: Path,
) -> None:
    with lv.connect(tmp_path) as lake:
        lake.create_table("t", rows(1))

        def add(txn: lv.Transaction, data: Iterator[object] | None, runs: list[int]) -> None:
            runs.append(txn.read("t").num_rows)
            txn.append("t", rows(2) if data is None else data)
            if len(runs) == 1:
                lake.run(lambda other: other.append("t", rows(1)))

        with pytest.raises(lv.InvalidOperation, match="an iterator and has been read already"):
            lake.run(add, rows(2), [])
        assert len(lake.snapshot().read("t")) == 2
        lake.run(add, None, [])
        assert len(lake.snapshot().read("t")) == 5


def test_a_generator_that_reads_through_the_transaction_that_consumes_it_is_refused(
    tmp_path: Path,
) -> None:
    with lv.connect(tmp_path) as lake:
        lake.create_table("t", rows(1))
        with lake.transaction() as txn:

            def copied() -> Iterator[dict[str, Any]]:
                yield from txn.read("t").to_pylist()

            with pytest.raises(lv.InvalidOperation, match="running another operation"):
                txn.append("t", copied())
            txn.append("t", (row for row in txn.read("t").to_pylist()))
        assert values(lake.snapshot().read("t")) == [0, 0]
