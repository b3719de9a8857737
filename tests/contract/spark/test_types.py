"""All types of Delta written by the Spark engine, and read by Spark and by LakeVilla."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import lakevilla as lv
from tests.fixtures.spark import connectors
from tests.interop.spark.beside import Beside
from tests.interop.spark.test_types import ROWS, _declared, plain, shifted, spark_writes
from tests.support.places import Place
from tests.support.tables import bag

BY_DELTA = pytest.mark.connector("delta")

#: A zone far from UTC, with daylight saving time: hours that are skipped or repeated.
ZONE = "America/Los_Angeles"


@pytest.fixture
def beside(spark: SparkSession, tmp_path: Path) -> Beside:
    assert spark.conf.get("spark.sql.session.timeZone") == ZONE
    return Beside(spark, Place(str(tmp_path / "lake")))


@pytest.fixture
def lake(beside: Beside) -> Iterator[Any]:
    """Return a lake with Spark whose tasks read files by LakeVilla's own reader."""
    with lv.connect(beside.place.root, spark=beside.spark, spark_reader="python") as made:
        yield made


def test_arrays_of_type_void_are_stored_and_maps_of_type_void_refused(
    beside: Beside, lake: Any
) -> None:
    lake.create_table("t", pa.schema([("k", pa.int64()), ("v", pa.list_(pa.int64()))]))
    rows = beside.spark.range(1).selectExpr("id AS k", "array() AS v")
    lake.run(lambda txn: txn.append("t", rows))
    lake.run(lambda txn: txn.upsert("t", rows, "k"))
    assert lake.read("t").toArrow().to_pylist() == [{"k": 0, "v": []}]
    with pytest.raises(lv.InvalidOperation, match=r"column 'v'.* of type map<void,void>"):
        lake.run(lambda txn: txn.append("t", beside.spark.range(1).selectExpr("map() AS v")))


def framed(spark: SparkSession, rows: pa.Table) -> DataFrame:
    # Spark can't take slices of lists; and without the schema, it would take times without a
    # zone for its session's.
    copied = rows.take(list(range(len(rows))))
    return spark.createDataFrame(copied, from_arrow_schema(rows.schema, True)).repartition(2)


def read_alike(beside: Beside, lake: Any, table: str, expected: pa.Table) -> None:
    """Assert that all available readers return the expected rows."""
    source = beside.spark.read.format("lakevilla").option("lake", beside.place.root)
    with beside.connect() as embedded:
        driver = embedded.snapshot().read(table)
    readers = {
        "LakeVilla's tasks": lake.snapshot().read(table).toArrow(),
        "the data source": source.load(table).toArrow(),
        "an embedded client": driver,
    }
    if "delta" in connectors():
        with lv.connect(beside.place.root, spark=beside.spark, spark_reader="native") as by_delta:
            readers["the native path"] = by_delta.snapshot().read(table).toArrow()
        readers["Spark's Delta reader"] = beside.arrow(table)
    for name, rows in readers.items():
        assert plain(rows) == plain(expected), name


@pytest.mark.seam
def test_a_frame_with_every_type_is_stored_and_read_alike_by_every_reader(
    beside: Beside, lake: Any
) -> None:
    frame = framed(beside.spark, ROWS)
    assert plain(frame.toArrow()) == plain(ROWS)
    lake.create_table("t", frame)
    assert plain(lake.snapshot().read("t").toArrow()) == plain(ROWS)
    with lake.transaction() as txn:
        txn.append("t", framed(beside.spark, shifted(ROWS, 10)))
        mine = pa.concat_tables([ROWS, shifted(ROWS, 10)])
        assert plain(txn.read("t").toArrow()) == plain(mine)
    read_alike(beside, lake, "t", mine)


@BY_DELTA
def test_a_table_written_by_spark_and_changed_by_jobs_is_read_alike_by_every_reader(
    beside: Beside, lake: Any
) -> None:
    spark_writes(beside, "t", ROWS)
    read_alike(beside, lake, "t", ROWS)
    with lake.transaction() as txn:
        assert txn.update("t", {"k": "k + 10"}, where="k <= 6").rows_updated == 6
    read_alike(beside, lake, "t", shifted(ROWS, 10))

    # Each row gets the values of another row, and all rows are inserted again: 17 to 22.
    turned = pa.concat_tables([ROWS.slice(1), ROWS.slice(0, 1)]).drop_columns("k")
    turned = turned.add_column(0, "k", ROWS["k"])
    given = pa.concat_tables([shifted(turned, 10), shifted(ROWS, 16)])
    with lake.transaction() as txn:
        done = txn.upsert("t", framed(beside.spark, given), keys="k")
        assert (done.rows_updated, done.rows_inserted) == (6, 6)
        assert plain(txn.read("t").toArrow()) == plain(given)
    read_alike(beside, lake, "t", given)

    with lake.transaction() as txn:
        names = [name for name in ROWS.schema.names if name != "k"]
        merge = txn.merge("t", framed(beside.spark, shifted(ROWS, 10)), "t.k = s.k",
                          source_alias="s", target_alias="t")  # fmt: skip
        merge.when_matched_update({name: f"s.{name}" for name in names})
        merge.when_not_matched_by_source_delete().execute()
    read_alike(beside, lake, "t", shifted(ROWS, 10))
    beside.sql("UPDATE {t} SET k = k - 10", "t")
    read_alike(beside, lake, "t", ROWS)


def test_rows_copied_between_tables_by_spark_sql_keep_their_values(
    beside: Beside, lake: Any
) -> None:
    lake.create_table("t", framed(beside.spark, ROWS))
    lake.create_table("copy", ROWS.schema)
    with lake.transaction() as txn:
        txn.sql("INSERT INTO copy SELECT * FROM t")
        txn.append("copy", txn.read("t").selectExpr("k + 10 AS k", *ROWS.schema.names[1:]))
        txn.overwrite("t", txn.read("copy"))
    both = pa.concat_tables([ROWS, shifted(ROWS, 10)])
    read_alike(beside, lake, "copy", both)
    read_alike(beside, lake, "t", both)


@BY_DELTA
def test_upsert_with_keys_of_every_type_updates_only_rows_with_equal_keys(
    beside: Beside, lake: Any
) -> None:
    keys = ["flag", "tiny", "small", "num", "big", "wide", "narrow", "text", "bytes", "day", "at",
            "wall"]  # fmt: skip
    one, two = ROWS.select(["k", *keys]).slice(0, 2).to_pylist()
    lake.create_table("t", framed(beside.spark, ROWS.select(["k", *keys]).slice(0, 2)))
    found = [{**one, "k": 101}, {**two, "k": 102}]
    others = [{**one, key: two[key], "k": n} for n, key in enumerate(keys, 200)]
    given = pa.Table.from_pylist(found + others, schema=ROWS.select(["k", *keys]).schema)
    with lake.transaction() as txn:
        done = txn.upsert("t", framed(beside.spark, given), keys=keys)
        assert (done.rows_updated, done.rows_inserted) == (2, len(keys))
    assert plain(beside.arrow("t")) == plain(given)


@BY_DELTA
@pytest.mark.seam
@pytest.mark.night
def test_a_timestamp_is_the_same_instant_in_each_session_time_zone(
    beside: Beside, lake: Any
) -> None:
    spark = beside.spark
    local = "TIMESTAMP '2024-03-09 23:30:00' AS at, TIMESTAMP_NTZ '2024-03-09 23:30:00' AS wall"
    lake.create_table("t", spark.sql(f"SELECT 1L AS k, {local}"))
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        with lake.transaction() as txn:
            txn.append("t", spark.sql(f"SELECT 2L AS k, {local}"))
            txn.update("t", {"k": "k + 10"}, where="at > TIMESTAMP '2024-03-10 00:00:00Z'")
    finally:
        spark.conf.set("spark.sql.session.timeZone", ZONE)
    with beside.connect() as embedded:
        rows = embedded.snapshot().sql('SELECT k, epoch("at")::BIGINT, wall::VARCHAR FROM t')
    expected = {
        (11, 1710055800, "2024-03-09 23:30:00"): 1,  # 07:30 the next day in UTC
        (2, 1709994600, "2024-03-09 23:30:00"): 1,  # 14:30 that day
    }
    assert bag(rows) == expected
    theirs = spark.read.format("delta").load(beside.path("t"))
    told = theirs.selectExpr("k", "unix_timestamp(at)", "cast(wall AS string)").toArrow()
    assert bag(told) == expected


@BY_DELTA
def test_char_and_varchar_columns_of_spark_sql_stay_so_when_jobs_rewrite_files(
    beside: Beside, lake: Any
) -> None:
    beside.make("k BIGINT, code CHAR(3), name VARCHAR(5) COMMENT 'short'", "t")
    beside.sql("INSERT INTO {t} VALUES (1, 'a', 'abc'), (2, 'abc', NULL)", "t")
    more = beside.spark.sql("SELECT 2L AS k, 'zz' AS code, 'two' AS name "
                            "UNION ALL SELECT 3L, 'new', NULL")  # fmt: skip
    with lake.transaction() as txn:
        txn.update("t", {"name": "'xyz'"}, where="k = 1")
        done = txn.upsert("t", more, keys="k")
        assert (done.rows_updated, done.rows_inserted) == (1, 1)
        txn.append("t", beside.spark.sql("SELECT 4L AS k, 'd' AS code, 'four' AS name"))
    fields = beside.spark.read.format("delta").load(beside.path("t"))
    assert _declared(beside) == {"code": "char(3)", "name": "varchar(5)"}
    with pytest.raises(Exception, match="EXCEED_CHAR_VARCHAR_LIMIT"):
        beside.sql("INSERT INTO {t} VALUES (5, 'abcd', 'abc')", "t")
    trimmed = fields.selectExpr("k", "rtrim(code) AS code", "name").toArrow()
    expected = {(1, "a", "xyz"): 1, (2, "zz", "two"): 1, (3, "new", None): 1, (4, "d", "four"): 1}
    assert bag(trimmed) == expected
    for reader in ("native", "python"):
        with lv.connect(beside.place.root, spark=beside.spark, spark_reader=reader) as other:
            frame: Any = other.snapshot().read("t")
            assert bag(frame.selectExpr("k", "rtrim(code) AS code", "name").toArrow()) == expected


def test_partition_values_of_every_type_are_written_and_read_by_jobs(
    beside: Beside, lake: Any
) -> None:
    names = ["flag", "tiny", "small", "num", "big", "single", "twice", "wide", "day", "at", "wall"]
    rows = ROWS.select(["k", "text", *names])
    lake.create_table("t", framed(beside.spark, rows), partition_by=names)
    read_alike(beside, lake, "t", rows)
    with lake.transaction() as txn:
        assert txn.update("t", {"k": "k + 10"}, where="k > 0").rows_updated == 6
        txn.append("t", framed(beside.spark, rows))
    read_alike(beside, lake, "t", pa.concat_tables([rows, shifted(rows, 10)]))


@pytest.mark.parametrize("reader", ["auto", pytest.param("native", marks=BY_DELTA), "python"])
def test_a_partition_timestamp_without_a_zone_is_read_as_utc_in_any_session_zone(
    beside: Beside, reader: Any
) -> None:
    """deltalake writes no zone in partition values; Spark's own reader assumes the session's."""
    instant = pa.scalar(1_700_000_000_000_000, pa.timestamp("us", "UTC"))
    rows = pa.table({"k": [1], "at": pa.array([instant.as_py()], instant.type)})
    beside.place.write("t", rows, partition_by=["at"])
    with lv.connect(beside.place.root, spark=beside.spark, spark_reader=reader) as lake:
        assert plain(lake.snapshot().read("t").toArrow()) == plain(rows)


def test_rows_that_spark_sends_without_offsets_of_nested_lists_are_written(
    beside: Beside, lake: Any
) -> None:
    """A batch in which all the outer lists are empty lacks the offsets of the inner ones."""
    empty = beside.spark.sql(
        "SELECT id AS k, CAST(array() AS ARRAY<ARRAY<ARRAY<STRING>>>) AS lists, "
        "CAST(NULL AS MAP<STRING, ARRAY<MAP<STRING, BINARY>>>) AS maps FROM range(3)"
    )
    expected = {(n, "[]", "None"): 1 for n in range(3)}
    lake.create_table("t", empty)
    with lake.transaction() as txn:
        txn.upsert("t", empty, keys="k")
    with beside.connect() as embedded:
        embedded.create_table("u", empty.toArrow())
        for table in ("t", "u"):
            rows = embedded.snapshot().read(table)
            found = {(row["k"], str(row["lists"]), str(row["maps"])): 1 for row in rows.to_pylist()}
            assert found == expected


def test_slices_of_arrow_tables_with_lists_can_be_views_of_a_query(
    beside: Beside, lake: Any
) -> None:
    lake.create_table("t", framed(beside.spark, ROWS.slice(0, 1)))
    part = ROWS.slice(2, 3)
    frame = lake.snapshot().sql("SELECT * FROM part", views={"part": part})
    assert plain(frame.toArrow()) == plain(part)
