"""Tasks merge branches by comparing rows, with the same result as without Spark."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakevilla as lv
from tests.contract.spark.upkeep.test_differences import rows

DELTA = pytest.param("delta", marks=pytest.mark.connector("delta"))
KEYS = {"t": ["id", "p"]}


def keyed(first: int, count: int) -> pa.Table:
    """Return rows with values that are hard to compare, and with ids that are not NULL."""
    found = rows(first, count)
    return found.set_column(0, "id", pa.array(range(first, first + count), pa.int64()))


@pytest.fixture
def by_spark(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    with lv.connect(str(tmp_path / "spark"), spark=spark) as made:
        yield made


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(str(tmp_path / "embedded")) as made:
        yield made


def history(spark: SparkSession, root: str, kind: Any) -> None:
    """Change rows of one table on a branch and on the lake; both change a few of the same rows."""
    properties = {}
    if kind == "delta":
        properties = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}
    with lv.connect(root) as lake:
        made = keyed(0, 300).rename_columns({"x": "y"})
        lake.create_table("t", made, format=kind, partition_by="p", properties=properties)
        lake.run(lambda txn: txn.alter("t", rename_columns={"y": "x"}))
        lake.branch("etl")
        etl = lake.on("etl")
        etl.run(lambda txn: txn.update("t", {"price": "price + 1"}, where="id % 10 = 3"))
        etl.run(lambda txn: txn.update("t", {"x": "-0.0"}, where="x = 0.0"))
        etl.run(lambda txn: txn.delete("t", where="id % 60 = 8"))
        etl.run(lambda txn: txn.append("t", keyed(300, 40)))
        lake.run(lambda txn: txn.update("t", {"price": "0"}, where="id IN (4, 13, 203)"))
        lake.run(lambda txn: txn.delete("t", where="id = 8"))
        if kind == "delta":
            spark.sql(f"DELETE FROM delta.`{root}/t` WHERE id % 50 = 7 OR id = 43")
        lake.run(lambda txn: txn.append("t", keyed(330, 1)))
        lake.table("t").optimize()


def bag(lake: Any) -> list[str]:
    return sorted(repr(row) for row in lake.read("t").to_pylist())


@pytest.mark.parametrize("kind", [DELTA, "iceberg"])
def test_a_merge_by_keys_has_the_same_result_as_by_the_embedded_engine(
    spark: SparkSession, by_spark: Any, embedded: lv.Lake, jobs: list[str], kind: Any
) -> None:
    for lake in (by_spark, embedded):
        history(spark, lake.root, kind)
    jobs.clear()
    conflicts = []
    for lake in (by_spark, embedded):
        with pytest.raises(
            lv.MergeConflict, match=r"the row with id \d+, p 'p\d' and \d more"
        ) as e:
            lake.merge("etl", keys=KEYS)
        conflicts.append(sorted(repr(row) for row in e.value.rows("t").to_pylist()))
    assert conflicts[0] == conflicts[1]
    assert jobs == ["JudgeTask", "JudgeTask"]
    assert not list(Path(by_spark.root).rglob("source-*"))
    for lake in (by_spark, embedded):
        assert lake.merge("etl", keys=KEYS, on_conflict="ours").tables == {"t": "rows"}
    with lv.connect(by_spark.root) as other:
        assert bag(other) == bag(embedded)
        # The lake has the merged rows, so another client does not merge them again.
        assert other.merge("etl", keys=KEYS).version is None
    assert not list(Path(by_spark.root).rglob("source-*"))
    assert by_spark.doctor().ok
    assert by_spark.verify().ok


def test_keys_that_do_not_identify_each_row_are_refused(
    by_spark: Any, jobs: list[str], spark: SparkSession
) -> None:
    history(spark, by_spark.root, "iceberg")
    before = sorted(Path(by_spark.root).rglob("*.parquet"))
    for keys, why in (
        ("p", "two rows have 'p"),
        ("price", "NULL in it"),
        ("tags", "identify no rows"),
    ):
        with pytest.raises(lv.InvalidOperation, match=why):
            by_spark.merge("etl", keys={"t": keys})
    assert sorted(Path(by_spark.root).rglob("*.parquet")) == before
    assert not list(Path(by_spark.root).rglob("source-*"))


def test_indistinguishable_rows_are_merged_by_tasks(
    by_spark: Any, embedded: lv.Lake, jobs: list[str]
) -> None:
    made = pa.table({"n": [1, 1, 2, None], "x": [0.0, -0.0, math.nan, None]})
    for lake in (by_spark, embedded):
        with lv.connect(lake.root) as other:
            other.create_table("t", pa.concat_tables([made] * 5))
            other.branch("etl")
            etl = other.on("etl")
            etl.run(lambda txn: txn.append("t", made))
            etl.run(lambda txn: txn.delete("t", where="n = 2"))
            other.run(lambda txn: txn.append("t", made))
            other.table("t").optimize()
        assert lake.merge("etl").tables == {"t": "rows"}
    assert jobs.count("JudgeTask") == 2
    with lv.connect(by_spark.root) as other:
        assert bag(other) == bag(embedded)
