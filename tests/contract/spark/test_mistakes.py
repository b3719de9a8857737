"""Mistakes of PySpark users: the error names the mistake, before a job begins where that is
possible.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakevilla as lv
from lakevilla.engines.spark.session import check_session


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    # An abort may leave a saved transaction's files, and a slow job would be saved meanwhile.
    unsaved = lv.Settings(save_interval_seconds=3600)
    root = str(tmp_path_factory.mktemp("lake"))
    with lv.connect(root, spark=spark, settings=unsaved) as made:
        made.create_table("t", spark.sql("SELECT id, 'a' AS name, 1.5D AS price FROM range(4)"))
        yield made


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (["id", "id AS ID"], "'id' and 'ID'"),
        (["id", "id AS id"], "twice|'id' and 'id'"),
        (["id", "name AS nmae"], "no column 'nmae'"),
        (["'x' AS id"], "'id'"),
        (["make_interval(1) AS name"], "column 'name' .* of type interval"),
    ],
)
@pytest.mark.seam
def test_columns_that_do_not_fit_are_reported_before_any_job(
    spark: SparkSession, lake: Any, columns: list[str], told: str
) -> None:
    tracker = spark.sparkContext.statusTracker()
    frame = spark.sql("SELECT id, 'a' AS name FROM range(3)").selectExpr(*columns)
    before = len(tracker.getJobIdsForGroup())
    with lake.transaction() as txn:
        for verb in (txn.append, txn.overwrite):
            with pytest.raises(lv.InvalidOperation, match=told):
                verb("t", frame)
        with pytest.raises(lv.InvalidOperation):
            txn.upsert("t", frame, "id")
    assert len(tracker.getJobIdsForGroup()) == before
    assert lake.snapshot().read("t").count() == 4


def test_a_task_reports_a_value_that_does_not_fit(spark: SparkSession, lake: Any) -> None:
    lake.create_table("small", spark.sql("SELECT cast(1 AS byte) AS n"), exist_ok=True)
    with pytest.raises(lv.InvalidOperation, match="'n' of table 'small'"):
        lake.run(lambda txn: txn.append("small", spark.range(1000, 1001).toDF("n")))


def test_columns_match_in_any_case_and_order(spark: SparkSession, lake: Any) -> None:
    frame = spark.sql("SELECT 'b' AS NAME, id + 100 AS Id FROM range(2)")
    with lake.transaction() as txn:
        txn.append("t", frame)
        assert txn.read("t", where="id >= 100 and price is null").count() == 2
        with pytest.raises(lv.InvalidOperation, match="no column nothing"):
            txn.read("t", ["nothing"])
        txn.delete("t", where="id >= 100")


def test_objects_that_are_no_expression_are_refused_as_assignments_and_predicates(
    spark: SparkSession, lake: Any
) -> None:
    with lake.transaction() as txn:
        with pytest.raises(lv.InvalidOperation, match="DataFrame"):
            txn.update("t", {"price": spark.range(1)}, where="true")
        with pytest.raises(lv.InvalidOperation, match="pass its text itself"):
            txn.update("t", {"price": "price + 1"}, where=F.expr("id = 1"))


@pytest.mark.seam
def test_the_error_of_a_task_is_shown_before_its_traceback(
    spark: SparkSession, tmp_path: Path
) -> None:
    fails = F.udf(lambda value: 1 // (value - 1), "long")
    with lv.connect(str(tmp_path), spark=spark, spark_reader="python") as lake:
        lake.create_table("t", spark.range(3))
        with pytest.raises(lv.InvalidOperation, match="ZeroDivisionError") as raised:
            lake.run(lambda txn: txn.append("t", spark.range(3).select(fails("id").alias("id"))))
        shown = "".join(traceback.format_exception(raised.value))
        assert "Py4J" not in shown
        assert "PythonException" not in shown
        frame = lake.read("t")
        for file in (tmp_path / "t").glob("*.parquet"):
            file.unlink()
        with pytest.raises(PySparkException) as of_spark:
            frame.collect()
        text = str(of_spark.value)
        assert 0 < text.index("lakevilla.errors.") < text.index("Traceback (most recent")


def test_a_streaming_frame_is_refused_as_data_with_a_hint_of_foreach_batch(
    spark: SparkSession, lake: Any
) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value AS id")
    with pytest.raises(lv.InvalidOperation, match="foreach_batch"):
        lake.run(lambda txn: txn.append("t", stream))


def test_a_frame_of_an_aborted_transaction_raises_an_error_that_names_the_transaction(
    spark: SparkSession, lake: Any
) -> None:
    txn = lake.transaction()
    with pytest.raises(ZeroDivisionError), txn:
        before = txn.read("t")
        txn.append("t", spark.range(50, 52))
        frames = [txn.read("t"), txn.sql("SELECT id FROM t WHERE id > 2")]
        assert [frame.count() for frame in frames] == [6, 3]
        1 // 0  # noqa: B018
    assert before.count() == 4
    message = f"what transaction {txn.id} had changed.*has aborted.*read the table again"
    for frame in frames:
        with pytest.raises(PySparkException, match=message):
            frame.count()
        with pytest.raises(lv.LakeVillaError, match=message):
            lake.run(lambda txn, rows=frame: txn.append("t", rows.select("id")))
    assert lake.snapshot().read("t").count() == 4


def test_objects_that_are_no_frame_are_refused_as_data(spark: SparkSession, lake: Any) -> None:
    grouped = spark.range(1).groupBy("id")
    with pytest.raises(lv.InvalidOperation, match=r"pyspark\.GroupedData is not supported"):
        lake.run(lambda txn: txn.append("t", grouped))


def test_a_lake_without_spark_refuses_a_frame_with_a_hint(
    spark: SparkSession, lake: Any, tmp_path: Path
) -> None:
    embedded = lv.connect(lake.root)
    with pytest.raises(lv.InvalidOperation, match="spark="):
        embedded.run(lambda txn: txn.append("t", spark.range(1)))


def test_connect_refuses_invalid_spark_arguments(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(lv.InvalidOperation, match="SparkSession, not str"):
        lv.connect(str(tmp_path), spark="local[2]")  # type: ignore[call-overload]
    with pytest.raises(lv.InvalidOperation, match="memory of this process"):
        lv.connect("memory://lake", spark=spark)
    with pytest.raises(lv.InvalidOperation, match="spark_reader"):
        lv.connect(str(tmp_path), spark=spark, spark_reader="fast")  # type: ignore[call-overload]


def test_a_warning_reports_untested_spark_versions(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.10.0")
    with pytest.warns(UserWarning, match=r"PySpark 4\.10\.0"):
        lv.connect(str(tmp_path), spark=spark)
    monkeypatch.setattr(pyspark, "__version__", "4.7.0")
    with pytest.warns(
        UserWarning, match=r"PySpark 4\.7\.0: LakeVilla is tested with 4\.0 to 4\.3 only"
    ):
        lv.connect(str(tmp_path), spark=spark)
    monkeypatch.setattr(pyspark, "__version__", "3.5.2")
    with pytest.raises(lv.InvalidOperation, match=r"PySpark is 3\.5\.2.*install a newer pyspark"):
        lv.connect(str(tmp_path), spark=spark)


def test_a_spark_connect_server_that_is_too_old_is_refused(spark: SparkSession) -> None:
    class SparkSession:  # a Connect session has the version of its server
        version = "3.5.1"
        is_stopped = False

        def range(self, end: int) -> None: ...

    with pytest.raises(lv.InvalidOperation, match=r"Spark is 3\.5\.1.*newer Spark Connect server"):
        check_session(SparkSession())


def test_empty_text_in_a_partition_column_is_refused_and_leaves_nothing(
    spark: SparkSession, lake: Any
) -> None:
    """Spark would read the empty text as NULL."""
    rows = spark.sql("SELECT id, cast(id AS string) AS part FROM range(1, 4)")
    lake.create_table("parts", rows, partition_by=["part"])
    empty = spark.sql("SELECT id, if(id = 9, '', 'x') AS part FROM range(8, 10)")
    with lake.transaction() as txn:
        for verb in (
            lambda: txn.append("parts", empty),
            lambda: txn.overwrite("parts", empty),
            lambda: txn.upsert("parts", empty, "part"),
            lambda: txn.update("parts", {"part": "substr(part, 2)"}, "id = 2"),
        ):
            with pytest.raises(lv.InvalidOperation, match="column part must not be empty"):
                verb()
    assert sorted(row.part for row in lake.snapshot().read("parts").collect()) == ["1", "2", "3"]
