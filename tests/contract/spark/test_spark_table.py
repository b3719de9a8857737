"""``SparkTable`` beside Delta's own ``DeltaTable``: the same calls make the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakevilla as lv
from tests.support.delta_table import DeltaTable

ROWS = "SELECT id AS k, cast(10 * id AS int) AS qty, concat('v', id) AS v FROM range(6)"
#: Two rows match, one does not; one column more than the table has.
COUNTED = """
    SELECT * FROM VALUES (3L, 1, 'a', 'u'), (4L, 2, 'b', 'd'), (9L, 3, 'c', 'u') AS (k, qty, v, op)
"""

Calls = Callable[[Any, Any], Any]
CHANGES: dict[str, Calls] = {
    "update": lambda t, s: t.update("t.k > 2", {"qty": "t.qty + 1", "v": "upper(v)"}),
    "update-all": lambda t, s: t.update(set={"t.qty": "qty * 2"}),
    "update-by-columns": lambda t, s: t.update(F.col("t.k") > 2, {"qty": F.col("t.qty") - 1}),
    "delete": lambda t, s: t.delete("t.k % 2 = 0"),
    "delete-by-columns": lambda t, s: t.delete(F.col("v").isin("v1", "v2")),
    "delete-all": lambda t, s: t.delete(),
}
MERGES: dict[str, Calls] = {
    "merge-all": lambda t, s: (
        t.merge(s, "t.k = s.k").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    ),
    "merge-as-told": lambda t, s: (
        t.merge(s, "t.k = s.k")
        .whenMatchedDelete("s.op = 'd'")
        .whenMatchedUpdate(set={"qty": "t.qty + s.qty", "t.v": "s.v"})
        .whenNotMatchedInsert("s.qty > 0", {"k": "s.k", "v": "s.v"})
        .execute()
    ),
    "merge-by-columns": lambda t, s: (
        t.merge(s, F.col("t.k") == F.col("s.k"))
        .whenMatchedUpdate(F.col("s.op") == "u", {"v": F.concat("t.v", "s.v"), "qty": F.lit(7)})
        .whenNotMatchedInsertAll(F.col("s.qty") > 100)
        .execute()
    ),
    "merge-by-source": lambda t, s: (
        t.merge(s, "t.k = s.k")
        .whenMatchedUpdateAll("s.op = 'u'")
        .whenNotMatchedBySourceUpdate("t.k < 2", {"v": "concat(t.v, '!')"})
        .whenNotMatchedBySourceDelete("t.k = 5")
        .execute()
    ),
    "merge-evolving": lambda t, s: (
        t.merge(s.drop("v"), "t.k = s.k")
        .withSchemaEvolution()
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .execute()
    ),
}
#: Calls that both refuse.
REFUSED: dict[str, Calls] = {
    "two-rows-for-one": lambda t, s: (
        t.merge(s.union(s).alias("s"), "t.k = s.k")
        .whenMatchedUpdate(set={"qty": "s.qty"})
        .execute()
    ),
    "all-of-a-narrow-source": lambda t, s: (
        t.merge(s.drop("v"), "t.k = s.k").whenMatchedUpdateAll().execute()
    ),
    "the-source-in-its-absence": lambda t, s: (
        t.merge(s, "t.k = s.k").whenNotMatchedBySourceDelete("s.qty > 0").execute()
    ),
    "the-table-in-its-absence": lambda t, s: (
        t.merge(s, "t.k = s.k").whenNotMatchedInsert(values={"k": "t.k"}).execute()
    ),
    "an-alias-of-nobody": lambda t, s: t.update("z.k = 1", {"qty": "0"}),
}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    with lv.connect(str(tmp_path / "lake"), spark=spark) as made:
        made.create_table("stock", spark.sql(ROWS))
        yield made


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=repr)


@pytest.fixture
def beside(spark: SparkSession, tmp_path: Path) -> str:
    """Return the path of a table with the same rows that only Delta changes."""
    path = str(tmp_path / "beside")
    spark.sql(ROWS).coalesce(1).write.format("delta").save(path)
    return path


@pytest.mark.connector("delta")
@pytest.mark.parametrize("name", CHANGES)
def test_updates_and_deletes_make_the_rows_that_delta_makes(
    spark: SparkSession, lake: Any, beside: str, name: str
) -> None:
    check(spark, lake, beside, CHANGES[name])


@pytest.mark.connector("delta")
@pytest.mark.seam
@pytest.mark.cases(1)
@pytest.mark.parametrize("name", MERGES)
def test_merges_make_the_rows_that_delta_makes(
    spark: SparkSession, lake: Any, beside: str, name: str
) -> None:
    check(spark, lake, beside, MERGES[name])


def check(spark: SparkSession, lake: Any, beside: str, calls: Calls) -> None:
    """Make the calls on a table of each, and compare the rows."""
    counted = spark.sql(COUNTED).alias("s")
    calls(DeltaTable(spark, beside, "t"), counted)
    calls(lv.SparkTable.forName(lake, "stock").alias("t"), counted)
    made = lake.read("stock")
    expected = spark.read.format("delta").load(beside)
    assert made.columns == expected.columns
    assert rows(made) == rows(expected) != rows(spark.sql(ROWS))


@pytest.mark.connector("delta")
@pytest.mark.parametrize("name", REFUSED)
def test_calls_that_delta_refuses_are_refused(
    spark: SparkSession, lake: Any, beside: str, name: str
) -> None:
    counted = spark.sql(COUNTED).alias("s")
    with pytest.raises((PySparkException, Py4JJavaError)):
        REFUSED[name](DeltaTable(spark, beside, "t"), counted)
    with pytest.raises(lv.InvalidOperation):
        REFUSED[name](lv.SparkTable.forName(lake, "stock").alias("t"), counted)
    assert rows(lake.read("stock")) == rows(spark.sql(ROWS))


@pytest.mark.seam
def test_merges_of_two_tables_in_a_transaction_are_one_commit(
    spark: SparkSession, lake: Any
) -> None:
    lake.create_table("log", spark.sql(ROWS))
    before = lake.snapshot().version
    with lake.transaction() as txn:
        for name in ("stock", "log"):
            counted = spark.sql(COUNTED).drop("op").alias("s")
            merge = lv.SparkTable.forName(txn, name).merge(counted, f"{name}.k = s.k")
            merge.whenMatchedDelete().whenNotMatchedInsertAll().execute()
        assert lv.SparkTable.forName(txn, "log").alias("l").toDF().where("l.k = 9").count() == 1
        assert lake.read("log").count() == 6
    assert lake.snapshot().version == before + 1
    assert rows(lake.read("stock")) == rows(lake.read("log"))


def test_a_session_names_the_lake_that_it_is_connected_to(
    spark: SparkSession, lake: Any, tmp_path: Path
) -> None:
    path = f"{lake.root}/stock"
    lv.SparkTable.forPath(spark, path).delete("stock.k < 5")
    assert lake.read("stock").count() == 1
    with pytest.raises(lv.InvalidOperation, match=r"which lake is meant by .*elsewhere"):
        lv.SparkTable.forPath(spark, str(tmp_path / "elsewhere" / "t"))
    other = spark.newSession()
    with pytest.raises(lv.InvalidOperation, match="connected to: none"):
        lv.SparkTable.forName(other, "stock")
    with lv.connect(str(tmp_path / "other"), spark=other) as second:
        second.create_table("t", [{"id": 1}])
        assert lv.SparkTable.forName(other, "t").toDF().count() == 1


def test_the_log_the_details_and_upkeep_are_those_of_the_lake(
    spark: SparkSession, lake: Any
) -> None:
    stock = lv.SparkTable.forName(lake, "stock")
    stock.update("k = 1", {"qty": "0"})
    newest = stock.history(1).collect()
    assert [(row.version, row.operation) for row in newest] == [(1, "UPDATE")]
    assert newest[0].operationParameters == {"predicate": "k = 1"}
    assert newest[0].operationMetrics["num_updated_rows"] == "1"
    (told,) = stock.detail().collect()
    assert (told.format, told.name, told.location) == ("delta", "stock", f"{lake.root}/stock")
    files = [path for path in Path(lake.root, "stock").glob("*.parquet") if path.stat().st_size]
    assert 1 <= told.numFiles < len(files)
    assert 0 < told.sizeInBytes < sum(path.stat().st_size for path in files)
    assert stock.optimize().executeZOrderBy("k", "v").files_added == 1
    assert stock.optimize().executeCompaction().files_added == 0
    assert stock.vacuum() == []
    stock.restoreToVersion(0)
    assert rows(stock.toDF()) == rows(spark.sql(ROWS))
    with pytest.raises(lv.InvalidOperation, match="no time zone"):
        stock.restoreToTimestamp("2026-01-31 12:00:00")
