"""The upkeep of tables on a lake of Spark: done by its tasks, to the same end as without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakevilla as lv
from lakevilla.engines.spark import bins
from lakevilla.engines.spark.reported import Jobs

pytestmark = pytest.mark.daily(2, of="upkeep through Spark")


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    with lv.connect(str(tmp_path), spark=spark) as made:
        yield made


@pytest.fixture
def other(tmp_path: Path) -> Iterator[lv.Lake]:
    """A client of the same lake without Spark."""
    with lv.connect(str(tmp_path)) as made:
        yield made


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of task that were run; a task's share of a table is a few rows."""
    monkeypatch.setattr(bins, "_LEAST_BYTES", 1)
    monkeypatch.setattr(bins, "_MOST_BYTES", 2_000)
    kinds: list[str] = []
    run = Jobs.run

    def noting(self: Jobs, frame: Any, task: Any, about: str) -> Any:
        kinds.append(type(task).__name__)
        return run(self, frame, task, about)

    monkeypatch.setattr(Jobs, "run", noting)
    return kinds


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "x": [i * 7919 % 101 for i in numbers],
            "p": [f"p{i % 3}" for i in numbers],
        }
    )


def listed(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=repr)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_optimize_and_z_order_are_done_by_tasks_and_change_no_row(
    spark: SparkSession, lake: Any, other: lv.Lake, jobs: list[str], kind: str
) -> None:
    vectors = {"delta.enableDeletionVectors": "true"} if kind == "delta" else {}
    lake.create_table("t", rows(0, 400), format=kind, partition_by="p", properties=vectors)
    for first in (400, 800, 1200):
        other.run(lambda txn, first=first: txn.append("t", rows(first, 400)))
    if kind == "delta":  # without new files
        spark.sql(f"DELETE FROM delta.`{lake.root}/t` WHERE id % 7 = 3")
    before = listed(other.read("t"))
    jobs.clear()
    done = lake.table("t").optimize()
    assert (done.files_removed, done.files_added, done.partitions) == (12, 3, 3)
    assert jobs == ["MoveTask"]
    assert listed(other.read("t")) == before
    done = lake.table("t").optimize(z_order_by=["x", "id"], target_file_size_bytes=1500)
    assert jobs[1:] == ["SampleTask", "RangeTask"]
    assert done.files_removed == 3
    assert done.files_added > 3
    assert listed(other.read("t")) == before
    assert lake.verify().ok
    assert lake.doctor().ok
