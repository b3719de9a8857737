"""Spark Columns as predicates and assignments: LakeVilla computes what Spark computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.connect import functions as C

import lakevilla as lv
from lakevilla.engines.spark.columns import SessionTerms, Translator, frame_ids, read_column
from lakevilla.engines.spark.columns.connect import read as read_of_connect
from lakevilla.engines.spark.rows import spark_schema, spark_types
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.evaluate import evaluate
from lakevilla.sql.expressions.tree import Expr
from tests.support.columns.cases import SCHEMA, WRITTEN, Made, drawn, rows
from tests.support.function_cases import same

RAISED = "raised"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    with lv.connect(str(tmp_path), spark=spark) as made:
        made.create_table("t", spark.sql("SELECT id, id * 2 AS n, concat('v', id) AS v "
                                         "FROM range(6)"))  # fmt: skip
        yield made


def found(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


# -- verbs -----------------------------------------------------------------------


def test_verbs_accept_spark_columns_instead_of_text(spark: SparkSession, lake: Any) -> None:
    with lake.transaction() as txn:
        mine = txn.read("t", where=F.col("id") >= 2)
        assert mine.count() == 4
        txn.update("t", {"n": F.col("n") + 1, "v": "upper(v)"}, where=mine["id"] == 3)
        txn.delete("t", where=F.col("v").isin("v0", "v1") | (F.col("n") > 9))
        txn.overwrite("t", spark.sql("SELECT 2L AS id, 0L AS n, 'z' AS v"), where=F.col("id") == 2)
    assert found(lake.read("t")) == [(2, 0, "z"), (3, 7, "V3"), (4, 8, "v4")]
    assert lake.read("t", where=~F.col("v").startswith("v")).count() == 2


def test_a_merge_accepts_columns_by_alias_or_from_the_frames_of_both_sides(
    spark: SparkSession, lake: Any
) -> None:
    source = spark.sql("SELECT 4L AS id, 40L AS n UNION ALL SELECT 9L, 90L")
    with lake.transaction() as txn:
        target = txn.read("t")
        merge = txn.merge("t", source, on=target["id"] == source["id"])
        merge = merge.when_matched_update(
            {"n": source["n"] + target["n"], "v": F.lit("merged")},
            predicate=F.col("source.n") > F.col("target.n"),
        )
        merge.when_not_matched_insert({"id": source.id, "n": 7, "v": F.lit("new")}).execute()
    assert found(lake.read("t", where="id > 3")) == [(4, 48, "merged"), (5, 10, "v5"),
                                                     (9, 7, "new")]  # fmt: skip


def test_an_update_by_spark_columns_is_redone_after_a_conflict(lake: Any) -> None:
    with lv.connect(lake.root) as other, lake.transaction() as txn:
        txn.update("t", {"n": F.col("n") + 1}, where=F.col("id") == 1)
        other.run(lambda theirs: theirs.update("t", {"n": "n + 100"}, where="id = 1"))
    assert found(lake.read("t", where="id = 1")) == [(1, 103, "v1")]


def test_errors_and_the_log_show_a_column_as_its_author_wrote_it(lake: Any) -> None:
    with lake.transaction() as txn:
        with pytest.raises(lv.InvalidOperation, match=r"division by zero in n / 0: use nullif"):
            txn.delete("t", where=F.col("n") / 0 > 1)
        with pytest.raises(lv.InvalidOperation, match=r"column v of type string in n / 2: convert"):
            txn.update("t", {"v": F.col("n") / 2}, where="true")
        txn.delete("t", where=F.col("n") / 2 % 3 == 1)
    assert lake.table("t").history(1)[0].parameters == {"predicate": "n / 2 % 3 = 1"}
    assert found(lake.read("t", ["id"])) == [(0,), (2,), (3,), (5,)]


def test_a_column_of_another_frame_is_refused(spark: SparkSession, lake: Any) -> None:
    stranger = spark.range(3)
    with lake.transaction() as txn:
        target = txn.read("t")
        for column in (stranger["id"], target.where("id > 1")["id"], lake.read("t")["id"]):
            with pytest.raises(lv.InvalidOperation, match=r"write F\.col\('id'\)"):
                txn.delete("t", where=column == 1)
        with pytest.raises(lv.InvalidOperation, match="could be any of"):
            txn.merge("t", stranger, on=F.col("id") == 1)


REFUSED: list[tuple[Made, str]] = [
    (lambda F: F.expr("id > 1"), r"F\.expr.*pass its text itself"),
    (lambda F: F.rand() > 0.5, r"rand\(\).*another value each time"),
    (lambda F: F.sum("id") > 1, r"sum\(\).*of many rows"),
    (lambda F: F.udf(lambda x: x, "boolean")("id"), "user-defined function"),
    (lambda F: F.col("id").desc(), "sort order"),
    (lambda F: F.col("*"), "name the columns"),
    (lambda F: F.hex("id") == "1", r"hex\(\)"),
    (lambda F: F.call_function("abs", "id") == 1, "abs|call_function"),
    (lambda F: F.col("v").try_cast("long") == 1, "try_cast"),
    (lambda F: F.exists(F.array("id"), lambda x: x > 1), "function of elements"),
    (lambda F: F.col("id") == "1", "bigint|long and string"),
    (lambda F: F.substring("v", -1, 1) == "1", "from -1"),
    (lambda F: F.element_at(F.array("id"), 1) == 1, r"element_at\(\)"),
    (lambda F: F.array("id")[0] == 1, r"F\.get"),
    (lambda F: F.round(F.col("id") / 3, 2) == 1, "decimal"),
    (lambda F: F.col("nothing") == 1, "no column nothing"),
    (lambda F: F.col("id") + 1, "must be boolean"),
    (lambda F: F.col("id").cast("timestamp").isNull(), "cast of long to timestamp"),
]


@pytest.mark.parametrize("at", range(len(REFUSED)))
@pytest.mark.seam
def test_column_expressions_that_would_differ_from_spark_are_refused(
    spark: SparkSession, lake: Any, at: int
) -> None:
    made, message = REFUSED[at]
    with lake.transaction() as txn, pytest.raises(lv.InvalidOperation, match=message):
        txn.delete("t", where=made(F))


def test_a_lake_without_spark_refuses_a_spark_column(lake: Any) -> None:
    with lv.connect(lake.root) as plain, plain.transaction() as txn:
        with pytest.raises(lv.InvalidOperation, match="Column"):
            txn.delete("t", where=F.col("id") == 1)
        with pytest.raises(lv.InvalidOperation, match="Column"):
            txn.update("t", {"n": F.col("n") + 1}, where="true")


# -- meanings --------------------------------------------------------------------


def translator(spark: SparkSession) -> Translator:
    now = datetime(2026, 1, 31, tzinfo=UTC)
    return Translator(SCHEMA, SessionTerms.of(spark), frame_ids([], "none"), now)


def values(spark: SparkSession, table: pa.Table, columns: list[Any]) -> list[list[Any]]:
    """Return what Spark computes of each column, row by row."""
    # Slices are refused by createDataFrame.
    table = table.take(pa.array(range(table.num_rows), pa.int64()))
    frame = spark.createDataFrame(table.cast(spark_types(table.schema)), spark_schema(SCHEMA))
    named = [column.alias(f"r{at}") for at, column in enumerate(columns)]
    computed = frame.select(*named).toArrow()
    utc = pa.timestamp("us", "UTC")
    return [
        (one.cast(utc) if pa.types.is_timestamp(one.type) and one.type.tz else one).to_pylist()
        for one in computed.columns
    ]


def meant(tree: Expr, row: dict[str, Any]) -> Any:
    try:
        return evaluate(tree, row)
    except lv.InvalidOperation:
        return RAISED


def said(spark: SparkSession, table: pa.Table, every: list[Made]) -> list[bool]:
    """Return which Columns LakeVilla can translate; those must give Spark's value for each row."""
    reader = translator(spark)
    expected: dict[int, list[Any]] = {}
    for at, made in enumerate(every):
        with suppress(lv.InvalidOperation):
            tree = bind(reader.expression(read_column(made(F), spark)), SCHEMA, predicate=False)
            expected[at] = [meant(tree, row) for row in table.to_pylist()]
    whole = [at for at in expected if RAISED not in expected[at] and _is_spark(spark, every[at])]
    wrong = []
    for at in expected:
        if at not in whole and _is_spark(spark, every[at]):
            fine = [place for place, value in enumerate(expected[at]) if value is not RAISED]
            some = table.take(pa.array(fine, pa.int64()))
            wrong += differing(
                some, every, [at], expected, fine, values(spark, some, [every[at](F)])
            )
    given = values(spark, table, [every[at](F) for at in whole])
    wrong += differing(table, every, whole, expected, range(table.num_rows), given)
    assert wrong == []
    return [at in expected for at in range(len(every))]


def _is_spark(spark: SparkSession, made: Made) -> bool:
    """Return whether Spark accepts the Column: it takes conditions that are only NULL for
    text.
    """
    try:
        return bool(spark.createDataFrame([], spark_schema(SCHEMA)).select(made(F)).columns)
    except PySparkException as error:
        if "DATATYPE_MISMATCH" not in str(error):
            raise
        return False


def differing(
    table: pa.Table,
    every: list[Made],
    ats: list[int],
    expected: dict[int, list[Any]],
    places: Iterable[int],
    given: list[list[Any]],
) -> list[Any]:
    """Return columns and rows where Spark's value differs; a power may in its last digit."""
    return [
        (every[at](F), row, expected[at][place], value)
        for at, of_one in zip(ats, given, strict=True)
        for row, place, value in zip(table.to_pylist(), places, of_one, strict=True)
        if not same(expected[at][place], value, places=int("power" in str(every[at](F))))
    ]


def batches(of: list[Made], size: int) -> list[list[Made]]:
    return [of[first : first + size] for first in range(0, len(of), size)]


@pytest.mark.parametrize("part", range(len(batches(WRITTEN, 20))))
def test_typical_columns_give_the_values_that_spark_computes(
    spark: SparkSession, part: int
) -> None:
    table = rows(Random(part), 40)
    assert all(said(spark, table, batches(WRITTEN, 20)[part]))


@pytest.mark.parametrize("seed", range(40))
def test_random_columns_give_the_values_that_spark_computes(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    table = rows(random, 60)
    kinds = ["boolean", "number", "text", "date"]
    made = [drawn(random, random.choice(kinds)) for _ in range(30)]
    assert sum(said(spark, table, made)) > 15


@pytest.mark.seam
def test_columns_of_spark_connect_are_read_as_classic_ones(spark: SparkSession) -> None:
    random = Random(7)
    reader = translator(spark)

    def tree(read: Callable[[], Any]) -> str:
        try:
            return repr(reader.expression(read()))
        except lv.InvalidOperation as error:
            return str(error)

    for made in [*WRITTEN, *(drawn(random, "boolean") for _ in range(60))]:
        classic = tree(lambda made=made: read_column(made(F), spark))  # type: ignore[misc]
        connect = tree(lambda made=made: read_of_connect(made(C), None))  # type: ignore[misc]
        assert classic == connect


def test_columns_that_depend_on_the_time_zone_are_refused_unless_the_zone_is_utc(
    spark: SparkSession,
) -> None:
    table = rows(Random(1), 60)
    zoned: list[Made] = [
        lambda F: F.col("at") >= "2024-02-29 12:00:00",
        lambda F: F.col("at") < date(2024, 2, 29),
        lambda F: F.year("at"),
        lambda F: F.hour("at"),
        lambda F: F.date_trunc("month", "at"),
        lambda F: F.date_format("at", "yyyy-MM-dd HH:mm"),
        lambda F: F.col("at").cast("date"),
        lambda F: F.col("at").cast("timestamp_ntz"),
        lambda F: F.col("ntz").cast("timestamp"),
        lambda F: F.col("day").cast("timestamp"),
        lambda F: F.to_timestamp(F.lit("2024-02-29 12:00:00"), "yyyy-MM-dd HH:mm:ss"),
    ]
    before = spark.conf.get("spark.sql.session.timeZone")
    assert not any(said(spark, table, zoned))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        assert all(said(spark, table, zoned))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
