"""A merge's source reaches the tasks in one of three ways; all have the result of DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakevilla as lv
from lakevilla.engines.spark.upkeep import merge

TARGET = pa.table(
    {
        "id": pa.array([*range(600), None, 7, 7], pa.int32()),
        "p": [f"p{i % 3}" for i in range(603)],
        "qty": pa.array(range(603), pa.int64()),
        "tags": [[str(i)] for i in range(603)],
    }
)


def source(first: int, count: int) -> pa.Table:
    """Return source rows: every third key of the table, some new keys, and one NULL key."""
    keys = [first + i * 3 for i in range(count)]
    return pa.table(
        {
            "id": pa.array([*keys, None], pa.int64()),
            "qty": pa.array([*(i * 10 for i in range(count)), -1], pa.int64()),
            "text": [f"t{i % 5}" for i in range(count + 1)],
        }
    )


def all_clauses(builder: Any) -> Any:
    builder = builder.when_matched_delete("s.text = 't1'")
    builder = builder.when_matched_update({"qty": "s.qty + t.qty", "p": "'moved'"}, "t.qty > 20")
    builder = builder.when_not_matched_insert(
        {"id": "cast(s.id as int)", "p": "s.text", "qty": "s.qty"}, "s.text <> 't2'"
    )
    return builder.when_not_matched_by_source_update({"qty": "-1"}, "t.qty > 550")


def upsert_like(builder: Any) -> Any:
    builder = builder.when_matched_update({"qty": "s.qty"})
    return builder.when_not_matched_insert({"id": "cast(s.id as int)", "qty": "s.qty"})


CASES = {
    "all clauses": ("t.id = s.id AND (t.qty < s.qty OR s.text <> 't3')", all_clauses),
    "null keys": ("t.id <=> s.id", upsert_like),
    "partitions too": ("t.id = s.id AND t.p <> s.text AND t.p IN ('p0', 'p1')", all_clauses),
}
#: The kind of task that reads files of the target, by the way that the source reaches it.
WAYS = {"broadcast": "BroadcastMergeTask", "shuffled": "RoutedMergeTask", "read": "MergeTask"}


def listed(found: pa.Table) -> list[str]:
    return sorted(repr(row) for row in found.to_pylist())


def make(lake: Any, kind: str) -> None:
    lake.create_table("t", TARGET.schema, format=kind, partition_by="p")
    for start in range(0, 603, 150):
        lake.run(lambda txn, start=start: txn.append("t", TARGET.slice(start, 150)))


def merged(lake: Any, rows: Any, on: str, clauses: Any) -> tuple[int, ...]:
    with lake.transaction() as txn:
        builder = txn.merge("t", rows, on, source_alias="s", target_alias="t")
        done = clauses(builder).execute()
    return done.rows_matched, done.rows_inserted, done.rows_updated, done.rows_deleted


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that forces one of the ways on sources, however small they are."""

    def way(name: str) -> None:
        if name != "broadcast":
            monkeypatch.setattr(merge, "BROADCAST_BYTES", 0)
        if name == "read":
            monkeypatch.setattr(merge, "keys_of", lambda *_: None)

    return way


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    with lv.connect(str(tmp_path / "spark"), spark=spark) as made:
        yield made


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Any]:
    with lv.connect(str(tmp_path / "embedded")) as made:
        yield made


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.seam
@pytest.mark.night
def test_a_merge_has_the_same_rows_as_by_the_embedded_engine(
    spark: SparkSession,
    lake: Any,
    embedded: Any,
    jobs: list[str],
    go: Any,
    way: str,
    case: str,
    kind: str,
) -> None:
    on, clauses = CASES[case]
    rows = source(0, 250)
    for one in (lake, embedded):
        make(one, kind)
    frame = spark.createDataFrame(rows).repartition(3)
    expected = merged(embedded, rows, on, clauses)
    go(way)
    jobs.clear()
    assert merged(lake, frame, on, clauses) == expected
    assert WAYS[way] in jobs
    with lv.connect(lake.root) as other:
        assert listed(other.read("t")) == listed(embedded.read("t"))
    assert lake.doctor().ok


@pytest.mark.parametrize("way", WAYS)
def test_two_source_rows_for_one_target_row_are_refused_and_leave_no_file(
    spark: SparkSession, lake: Any, jobs: list[str], go: Any, way: str
) -> None:
    make(lake, "delta")
    twice = pa.concat_tables([source(0, 250), source(3, 1)])
    go(way)
    with lake.transaction() as txn:
        before = sorted(Path(lake.root).rglob("*.parquet"))
        builder = txn.merge(
            "t", spark.createDataFrame(twice), "t.id = s.id", source_alias="s", target_alias="t"
        )
        with pytest.raises(lv.InvalidOperation, match="two source rows"):
            upsert_like(builder).execute()
        assert WAYS[way] in jobs
        assert sorted(Path(lake.root).rglob("*.parquet")) == before
    assert lake.snapshot().read("t").count() == 603


@pytest.mark.parametrize("way", ["broadcast", "shuffled"])
def test_a_merge_reports_rows_that_break_a_constraint_and_leaves_no_file(
    spark: SparkSession, lake: Any, go: Any, way: str
) -> None:
    make(lake, "delta")
    lake.run(lambda txn: txn.alter("t", add_constraints={"small": "qty < 2400"}))
    go(way)
    with lake.transaction() as txn:
        before = sorted(Path(lake.root).rglob("*.parquet"))
        builder = txn.merge(
            "t",
            spark.createDataFrame(source(0, 250)),
            "t.id = s.id",
            source_alias="s",
            target_alias="t",
        )
        with pytest.raises(lv.InvalidOperation, match="constraint small"):
            upsert_like(builder).execute()
        assert sorted(Path(lake.root).rglob("*.parquet")) == before


def test_a_merge_works_with_an_empty_source_or_an_empty_table(
    spark: SparkSession, lake: Any, go: Any
) -> None:
    lake.create_table("t", TARGET.schema, partition_by="p")
    go("shuffled")
    frame = spark.createDataFrame(source(0, 10))
    assert merged(lake, frame, "t.id = s.id", upsert_like) == (0, 11, 0, 0)
    assert merged(lake, frame.where("false"), "t.id = s.id", upsert_like) == (0, 0, 0, 0)
    assert merged(lake, frame, "t.id = s.id", upsert_like) == (10, 1, 10, 0)
