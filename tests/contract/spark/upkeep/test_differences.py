"""Differences between two states of a table: tasks find the same as the embedded engine."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakevilla as lv

NAN = math.nan
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("x", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("lat", pa.float64()), ("name", pa.string())])),
    ]
)
_BEGAN = datetime(2026, 3, 29, tzinfo=UTC)
_FLOATS = (NAN, -0.0, 0.0, 1.5, None, math.inf)


def rows(first: int, count: int) -> pa.Table:
    """Return rows with values that are hard to compare; each 40th has no id."""
    made = []
    for i in range(first, first + count):
        made.append(
            {
                "id": None if i % 40 == 39 else i,
                "p": f"p{i % 3}",
                "x": _FLOATS[i % len(_FLOATS)],
                "price": None if i % 11 == 0 else Decimal(i * 7919 % 10_007) / 100,
                "at": None if i % 13 == 0 else _BEGAN + timedelta(minutes=i * 37, microseconds=i),
                "tags": None if i % 5 == 0 else [f"t{i % 4}", None, "a, b"][: i % 4],
                "place": None if i % 6 == 0 else {"lat": _FLOATS[i % 4], "name": f"n{i % 3}"},
            }
        )
    return pa.Table.from_pylist(made, SCHEMA)


def bag(found: pa.Table) -> list[str]:
    return sorted(repr(row) for row in found.to_pylist())


def shown(frame: Any, like: pa.Schema) -> pa.Table:
    """Return a DataFrame's rows with the column types of the other engine."""
    found = frame.toArrow()
    assert found.schema.names == like.names
    kinds = [field.type for field in like]
    return pa.table([c.cast(k) for c, k in zip(found.columns, kinds, strict=True)], schema=like)


DELTA = pytest.param("delta", marks=pytest.mark.connector("delta"))


@pytest.mark.parametrize("kind", [DELTA, "iceberg"])
def test_a_diff_by_tasks_finds_the_same_rows_as_the_embedded_engine(
    spark: SparkSession, lake: Any, other: lv.Lake, jobs: list[str], kind: Any
) -> None:
    properties = {}
    if kind == "delta":
        properties = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}
    other.create_table("t", rows(0, 200), format=kind, partition_by="p", properties=properties)
    other.run(lambda txn: txn.append("t", rows(200, 200)))
    first = other.snapshot().version
    if kind == "delta":  # without new files
        spark.sql(f"DELETE FROM delta.`{lake.root}/t` WHERE id % 50 = 7")
    other.run(lambda txn: txn.update("t", {"price": "price + 1"}, where="id % 10 = 3"))
    other.run(lambda txn: txn.update("t", {"x": "-0.0"}, where="x = 0.0 AND id % 12 = 2"))
    other.run(lambda txn: txn.delete("t", where="id % 60 = 8"))
    other.run(lambda txn: txn.alter("t", rename_columns={"price": "cost"}))
    other.run(lambda txn: txn.append("t", rows(380, 60).rename_columns({"price": "cost"})))
    other.table("t").optimize()
    jobs.clear()
    mine, theirs = lake.diff(first), other.diff(first)
    assert mine.tables == theirs.tables
    for keys in (None, "id", ["id", "p"], ["x"], ["place", "at"]):
        expected = theirs.rows("t", keys)
        assert bag(shown(mine.rows("t", keys), expected.schema)) == bag(expected), keys
    told = set(theirs.rows("t", "id")["_change_type"].to_pylist())
    assert told == {"insert", "delete", "update_preimage", "update_postimage"}
    with pytest.raises(lv.InvalidOperation, match="no column 'nosuch'"):
        mine.rows("t", "nosuch")


def test_a_diff_has_all_rows_of_a_table_that_was_created_or_dropped(
    lake: Any, other: lv.Lake
) -> None:
    other.create_table("s", rows(0, 30))
    other.create_table("t", rows(0, 30))
    for states, kind in (((1, 2), "insert"), ((2, 1), "delete")):
        found = lake.diff(*states).rows("t", "id").toArrow()
        assert (found.num_rows, set(found["_change_type"].to_pylist())) == (30, {kind})


def test_a_diff_reports_a_missing_file_when_rows_are_requested(lake: Any, other: lv.Lake) -> None:
    other.create_table("t", rows(0, 30))
    first = other.snapshot().version
    other.run(lambda txn: txn.update("t", {"x": "0"}, where="id = 3"))
    before = min(Path(other.root).glob("t/*.parquet"), key=lambda path: path.stat().st_mtime)
    before.unlink()
    found = lake.diff(first)
    with pytest.raises(lv.VersionNotFound, match="was removed"):
        found.rows("t")
