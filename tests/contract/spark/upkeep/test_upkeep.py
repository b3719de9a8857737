"""Maintenance of tables on a lake with Spark: tasks do it, with the same result as elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakevilla as lv


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


DELTA = pytest.param("delta", marks=pytest.mark.connector("delta"))


@pytest.mark.parametrize("kind", [DELTA, "iceberg"])
@pytest.mark.seam
def test_tasks_optimize_and_z_order_tables_without_changing_rows(
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


def test_tasks_check_the_rows_for_a_new_constraint(
    lake: Any, other: lv.Lake, jobs: list[str]
) -> None:
    lake.create_table("t", rows(0, 400))
    other.run(lambda txn: txn.append("t", rows(400, 400)))
    jobs.clear()
    with pytest.raises(lv.InvalidOperation, match=r"'few' \(id < 790\) does not hold .*'id': 79"):
        lake.run(lambda txn: txn.alter("t", add_constraints={"few": "id < 790"}))
    lake.run(lambda txn: txn.alter("t", add_constraints={"more": "id < 800"}))
    assert jobs == ["FindTask", "FindTask"]
    with pytest.raises(lv.InvalidOperation, match="more"):
        other.run(lambda txn: txn.append("t", rows(800, 1)))


@pytest.mark.parametrize("kind", ["delta", "delta with its feed", "iceberg"])
def test_changes_by_tasks_are_those_of_the_embedded_engine(
    lake: Any, other: lv.Lake, jobs: list[str], kind: str
) -> None:
    feed = {"delta.enableChangeDataFeed": "true"} if "feed" in kind else {}
    lake.create_table("t", rows(0, 300), format=kind.split()[0], properties=feed, partition_by="p")
    first = lake.snapshot().version
    other.run(lambda txn: txn.append("t", rows(300, 300)))
    other.run(lambda txn: txn.update("t", {"x": "x + 1"}, where="id % 10 = 3"))
    other.run(lambda txn: txn.delete("t", where="id % 50 = 7"))
    other.run(lambda txn: txn.overwrite("t", rows(100, 400)))  # most of these rows existed before

    def both(since: int, **asked: Any) -> list[list[str]]:
        with lake.snapshot() as mine, other.snapshot() as theirs:
            found = mine.changes("t", since, **asked).toArrow()
            expected = theirs.changes("t", since, **asked)
        assert found.schema.names == expected.schema.names
        kinds = [field.type for field in expected.schema]
        shown = pa.table(
            [c.cast(k) for c, k in zip(found.columns, kinds, strict=True)], found.schema.names
        )
        return [sorted(map(repr, one.to_pylist())) for one in (shown, expected)]

    found, expected = both(first, where="id % 3 = 1", columns=["x", "id"])
    assert found == expected
    assert len(found) > 100
    found, expected = both(0)
    assert found == expected
    found, expected = both(lake.snapshot().version)
    assert found == expected == []


def test_changes_report_missing_files_when_rows_are_requested(lake: Any, other: lv.Lake) -> None:
    lake.create_table("t", rows(0, 30))
    first = lake.snapshot().version
    other.run(lambda txn: txn.update("t", {"x": "0"}, where="id = 3"))
    before = min(Path(lake.root).glob("t/*.parquet"), key=lambda path: path.stat().st_mtime)
    before.unlink()
    with lake.snapshot() as now, pytest.raises(lv.VersionNotFound, match="was removed"):
        now.changes("t", first)


def test_tasks_verify_the_files_and_report_damage(
    lake: Any, other: lv.Lake, jobs: list[str]
) -> None:
    for name in ("t", "u"):
        lake.create_table(name, rows(0, 400), partition_by="p")
        other.run(lambda txn, name=name: txn.append(name, rows(400, 400)))
    jobs.clear()
    report = lake.verify()
    assert report.ok
    assert report.findings == other.verify().findings
    assert jobs == ["ProgramTask"]
    lost, cut, turned = sorted(Path(lake.root).glob("t/**/*.parquet"))[:3]
    lost.unlink()
    cut.write_bytes(cut.read_bytes()[:-9])
    body = bytearray(turned.read_bytes())
    body[len(body) // 2] ^= 1
    turned.write_bytes(body)
    report = lake.verify()
    assert not report.ok
    assert report.findings == other.verify().findings
    assert {one.kind for one in report.findings} == {"missing_file", "damaged_file", "verified"}


def test_tasks_compare_rows_to_decide_whether_a_commit_conflicts(
    lake: Any, other: lv.Lake, jobs: list[str]
) -> None:
    lake.create_table("t", rows(0, 400))
    other.run(lambda txn: txn.append("t", rows(400, 400)))
    jobs.clear()
    with lake.transaction() as txn:
        txn.read("t", where="id < 300")
        txn.append("t", pa.table({"id": [900], "x": [1], "p": ["p0"]}))
        other.run(lambda one: one.update("t", {"x": "x + 1"}, where="id = 350"))
    assert jobs == ["DigestTask", "DigestTask"]  # of removed rows, and of added rows
    txn = lake.transaction()
    txn.read("t", where="id < 300")
    txn.append("t", pa.table({"id": [901], "x": [1], "p": ["p0"]}))
    other.run(lambda one: one.update("t", {"x": "x + 1"}, where="id = 250"))
    with pytest.raises(lv.ConflictError):
        txn.commit()
