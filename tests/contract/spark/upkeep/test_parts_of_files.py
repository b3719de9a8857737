"""Several tasks share a large file: they read it, and rewrite it by one commit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import WriterProperties, write_deltalake
from pyspark.sql import SparkSession

import lakevilla as lv
from lakevilla.engines.spark.jobs import Jobs
from lakevilla.engines.spark.upkeep import merge
from tests.support.iceberg_by_hand import File, Table, column, of_ids
from tests.support.tables import contents, in_order

ROWS = 400
#: Deleted rows, in several row groups.
DELETED = (0, 57, 211, 399)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    with lv.connect(str(tmp_path), spark=spark, spark_reader="python") as made:
        yield made


def rows() -> pa.Table:
    return pa.table(
        {"id": pa.array(range(ROWS), pa.int64()), "x": [n * 7919 % 10_007 for n in range(ROWS)]}
    )


def delta(spark: SparkSession, root: Path) -> None:
    small = WriterProperties(max_row_group_size=40)
    vectors = {"delta.enableDeletionVectors": "true"}
    write_deltalake(str(root / "t"), rows(), writer_properties=small, configuration=vectors)
    listed = ", ".join(map(str, DELETED))
    spark.sql(f"DELETE FROM delta.`{root}/t` WHERE id IN ({listed})")


def iceberg(spark: SparkSession, root: Path) -> None:
    own = Table(root / "t", [column(1, "id", "long"), column(2, "x", "long")])
    held = of_ids(rows(), {"id": 1, "x": 2})
    (root / "t/data").mkdir(parents=True)
    pq.write_table(held, root / "t/data/a.parquet", row_group_size=40)
    own.add(File("a.parquet", held, store=False))
    places = {"file_path": [f"{own.directory}/data/a.parquet"] * 4, "pos": list(DELETED)}
    schema = pa.schema([("file_path", pa.string()), ("pos", pa.int64())])
    positions = of_ids(pa.table(places, schema), {"file_path": 2147483546, "pos": 2147483545})
    own.add(File("d.parquet", positions, content=1), sequence=2).write()


@pytest.fixture(params=[pytest.param(delta, marks=pytest.mark.connector("delta")), iceberg])
def made(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> None:
    """Create a table of one file with ten row groups, and delete rows by position."""
    request.param(spark, tmp_path)


def there() -> dict[int, int]:
    found = dict(zip(*rows().to_pydict().values(), strict=True))
    return {key: x for key, x in found.items() if key not in DELETED}


def held(lake: Any) -> dict[int, int]:
    frame: Any = lake.read("t")
    found = in_order(frame.toArrow())
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["x"] for row in found}


@pytest.mark.usefixtures("made", "jobs")
@pytest.mark.seam
def test_several_tasks_read_one_file(lake: Any, spark: SparkSession) -> None:
    assert lake.read("t").rdd.getNumPartitions() >= 3
    assert held(lake) == there()
    expected = {key: x for key, x in there().items() if 50 <= key < 60}
    found: Any = lake.snapshot().read("t", where="id >= 50 and id < 60")
    assert {row["id"]: row["x"] for row in found.toArrow().to_pylist()} == expected


def update(txn: Any, spark: SparkSession) -> Any:
    return txn.update("t", {"x": "-1"}, where="id in (55, 57, 58)")


def delete(txn: Any, spark: SparkSession) -> Any:
    return txn.delete("t", where="id < 200 or id = 350")


def delete_all(txn: Any, spark: SparkSession) -> Any:
    return txn.delete("t", where="true")


def given(txn: Any, spark: SparkSession) -> Any:
    return txn.upsert("t", [{"id": 55, "x": -1}, {"id": 1000, "x": -2}], keys="id")


def staged(txn: Any, spark: SparkSession) -> Any:
    source = spark.createDataFrame([(55, -1), (380, -3), (1000, -2)], "id long, x long")
    return txn.upsert("t", source, keys="id")


def shuffled(txn: Any, spark: SparkSession) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "BROADCAST_BYTES", 0)
        return staged(txn, spark)


Change = Callable[[Any, SparkSession], Any]
CHANGES: list[tuple[Change, dict[int, int | None]]] = [
    (update, {55: -1, 58: -1}),
    (delete, {**dict.fromkeys(range(200)), 350: None}),
    (delete_all, dict.fromkeys(range(ROWS))),
    (given, {55: -1, 1000: -2}),
    (staged, {55: -1, 380: -3, 1000: -2}),
    (shuffled, {55: -1, 380: -3, 1000: -2}),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES)
@pytest.mark.usefixtures("made")
def test_several_tasks_rewrite_one_file_in_one_commit(
    lake: Any,
    spark: SparkSession,
    jobs: list[str],
    change: Change,
    expected: dict[int, int | None],
) -> None:
    lake.read("t")
    copies = change is not delete_all
    before = lake.snapshot().version
    with lake.transaction() as txn:
        done = change(txn, spark)
    assert lake.snapshot().version == before + 1
    assert done.files_removed == 1
    assert ("CopyTask" in jobs) == copies
    wanted = {k: x for k, x in {**there(), **expected}.items() if x is not None}
    if copies:
        assert done.files_added >= 2
    assert held(lake) == wanted
    assert lake.verify().ok
    with lv.connect(lake.root) as other:  # without Spark
        read = other.snapshot().read("t").to_pylist()
        assert {row["id"]: row["x"] for row in read} == wanted
        assert len(read) == len(wanted)


@pytest.mark.usefixtures("made")
def test_a_failed_copy_of_the_unchanged_parts_of_a_file_leaves_no_file(
    lake: Any, spark: SparkSession, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name for name in contents(lake.root) if name.endswith(".parquet")}
    run = Jobs.run

    def failing(self: Jobs, frame: Any, task: Any, about: str) -> Any:
        if type(task).__name__ == "CopyTask":
            raise lv.InvalidOperation("no executors")
        return run(self, frame, task, about)

    monkeypatch.setattr(Jobs, "run", failing)
    with pytest.raises(lv.InvalidOperation, match="no executors"), lake.transaction() as txn:
        update(txn, spark)
    assert {name for name in contents(lake.root) if name.endswith(".parquet")} == before
    assert held(lake) == there()


@pytest.mark.usefixtures("made")
def test_a_file_that_no_task_changes_is_left_as_it_is(lake: Any, jobs: list[str]) -> None:
    with lake.transaction() as txn:
        done = txn.update("t", {"x": "-1"}, where="id = 57")  # a row that was deleted before
    assert (done.files_removed, done.files_added) == (0, 0)
    assert "CopyTask" not in jobs
    assert held(lake) == there()


@pytest.mark.usefixtures("made")
def test_plans_and_job_descriptions_say_what_is_read_and_done(
    lake: Any, spark: SparkSession, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str | None] = []
    run = Jobs.run

    def listening(self: Jobs, frame: Any, task: Any, about: str) -> Any:
        described = type(frame).toArrow

        def noting(frame: Any) -> Any:
            said.append(spark.sparkContext.getLocalProperty("spark.job.description"))
            return described(frame)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(frame), "toArrow", noting)
            return run(self, frame, task, about)

    monkeypatch.setattr(Jobs, "run", listening)
    frame: Any = lake.snapshot().read("t", where="id = 5")
    plan = frame._jdf.queryExecution().toString()
    assert f"lakevilla {lake.root}: t version" in plan
    assert re.search(r"version \d+, 1 (of 1 )?files", plan)
    spark.sparkContext.setLocalProperty("spark.job.description", "mine")
    lake.run(lambda txn: txn.delete("t", where="id = 57"))
    (only,) = said
    assert re.fullmatch(rf"lakevilla {lake.root}: table t: job lakevilla-delete-\w+", str(only))
    assert spark.sparkContext.getLocalProperty("spark.job.description") == "mine"
    spark.sparkContext.setLocalProperty("spark.job.description", None)
