"""Spark reads and writes a lake's Iceberg tables through the gateway."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import lakevilla as lv
from tests.contract.serve.gateway import serving
from tests.contract.serve.test_delta_tables import all_types, create, rows, seen
from tests.support.tables import accounts, in_order


@contextmanager
def attached(spark: SparkSession, lake: lv.Lake, warehouse: str = "lake") -> Iterator[str]:
    """Return a block in which a lake, or a state of it, is a catalog of the session."""
    name = f"served_{uuid.uuid4().hex[:8]}"
    with serving(lake, token="secret") as gateway:
        settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest"}
        settings |= {".token": "secret", ".token-refresh-enabled": "false"}
        settings |= {".uri": gateway.uri, ".warehouse": warehouse, ".cache-enabled": "false"}
        for key, value in settings.items():
            spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
        try:
            yield name
        finally:
            for key in settings:
                spark.conf.unset(f"spark.sql.catalog.{name}{key}")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("stock", accounts(4), format="iceberg")
        lake.create_table("sales/orders", accounts(2), format="iceberg")
        yield lake


@pytest.mark.seam
def test_each_statement_of_spark_is_a_commit_of_the_lake(
    spark: SparkSession, lake: lv.Lake
) -> None:
    with attached(spark, lake) as name:
        table = f"{name}.root.stock"
        statements = (
            f"INSERT INTO {table} VALUES (7, 70)",
            f"UPDATE {table} SET balance = 1 WHERE id = 1",
            f"DELETE FROM {table} WHERE id = 2",
            f"MERGE INTO {table} t USING (SELECT 3L id, 33L balance UNION ALL SELECT 8L, 80L) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            f"ALTER TABLE {table} ADD COLUMN note STRING",
            f"INSERT INTO {table} VALUES (9, 90, 'new')",
        )
        for statement in statements:
            before = lake.history(1)[0].version
            spark.sql(statement)
            assert lake.history(1)[0].version == before + 1, statement
            mine = in_order(lake.read("stock"))
            assert in_order(spark.table(table).toArrow()) == mine, statement
        lake.run(lambda txn: txn.update("stock", {"note": "'lake'"}, where="id = 9"))
        assert spark.sql(f"SELECT note FROM {table} WHERE id = 9").collect()[0][0] == "lake"
    assert not lake.doctor().findings


def test_spark_makes_renames_and_drops_tables(spark: SparkSession, lake: lv.Lake) -> None:
    with attached(spark, lake) as name:
        spark.sql(f"CREATE NAMESPACE {name}.lab")
        spark.sql(
            f"CREATE TABLE {name}.lab.t (id BIGINT, day DATE) USING iceberg "
            "PARTITIONED BY (days(day))"
        )
        spark.sql(f"INSERT INTO {name}.lab.t VALUES (1, DATE'2026-01-31')")
        spark.sql(f"ALTER TABLE {name}.lab.t RENAME TO lab.u")
        assert lake.read("lab/u")["id"].to_pylist() == [1]
        shown = {row[1] for row in spark.sql(f"SHOW TABLES IN {name}.lab").collect()}
        assert shown == {"u"}
        spark.sql(f"DROP TABLE {name}.lab.u")
        assert "lab/u" not in lake
    assert not lake.doctor().findings


def test_spark_makes_tables_of_a_query_and_makes_them_again(
    spark: SparkSession, lake: lv.Lake
) -> None:
    with attached(spark, lake) as name:
        table = f"{name}.sales.made"
        statements = (
            f"CREATE TABLE {table} USING iceberg AS SELECT 1L id, 'a' note",
            f"CREATE OR REPLACE TABLE {table} USING iceberg AS SELECT 2L id, 20L balance",
            f"CREATE OR REPLACE TABLE {name}.sales.other USING iceberg AS SELECT 3L id",
        )
        for statement in statements:
            before = lake.history(1)[0].version
            spark.sql(statement)
            assert lake.history(1)[0].version == before + 1, statement
        spark.table(table).write.saveAsTable(f"{name}.sales.saved")
        assert lake.read("sales/saved").to_pylist() == [{"id": 2, "balance": 20}]
        assert lake.read("sales/made").to_pylist() == [{"id": 2, "balance": 20}]
        assert lake.read("sales/other").to_pylist() == [{"id": 3}]
        spark.sql(f"INSERT INTO {table} VALUES (4, 40)")
        lake.run(lambda txn: txn.delete("sales/made", where="id = 2"))
        assert spark.table(table).collect() == [(4, 40)]
    assert not lake.doctor().findings


def test_spark_maintains_orders_and_streams_into_a_table(
    spark: SparkSession, lake: lv.Lake, tmp_path: Path
) -> None:
    with attached(spark, lake) as name:
        table = f"{name}.root.stock"

        def is_one_version(statement: str) -> None:
            before, rows = lake.history(1)[0].version, in_order(lake.read("stock"))
            spark.sql(statement).collect()
            assert lake.history(1)[0].version == before + 1, statement
            assert in_order(lake.read("stock")) == rows, statement

        is_one_version(f"ALTER TABLE {table} WRITE ORDERED BY balance DESC")
        spark.sql(f"INSERT INTO {table} SELECT id, id * 7 % 10 FROM range(20, 30)")
        (newest,) = lake.history(1)
        assert newest.tables == ("stock",)
        for number in range(3):
            spark.sql(f"INSERT INTO {table} VALUES ({30 + number}, {number})")
        system, of_table = f"CALL {name}.system", "table => 'root.stock'"
        is_one_version(f"{system}.rewrite_manifests({of_table})")
        is_one_version(
            f"{system}.rewrite_data_files({of_table}, options => map('min-input-files', '2'))"
        )
        now = "TIMESTAMP '2999-01-01 00:00:00'"
        is_one_version(
            f"{system}.expire_snapshots({of_table}, older_than => {now}, retain_last => 1)"
        )
        (first,) = spark.sql(f"SELECT snapshot_id FROM {table}.snapshots").collect()
        before = in_order(lake.read("stock"))
        spark.sql(f"INSERT INTO {table} VALUES (40, 4)")
        spark.sql(f"{system}.rollback_to_snapshot('root.stock', {first[0]})").collect()
        assert in_order(lake.read("stock")) == before
        source = tmp_path / "source"
        rows = spark.createDataFrame([(50, 5), (51, 5)], "id BIGINT, balance BIGINT")
        rows.write.parquet(str(source))
        stream = spark.readStream.schema("id BIGINT, balance BIGINT").parquet(str(source))
        writer = stream.writeStream.format("iceberg").outputMode("append")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        for _ in range(2):
            writer.trigger(availableNow=True).toTable(table).awaitTermination()
            assert lake.read("stock", where="id >= 50").num_rows == 2
    assert not lake.doctor().findings


def test_spark_reads_a_branch_and_joins_tables_at_one_version(
    spark: SparkSession, lake: lv.Lake
) -> None:
    lake.branch("etl")
    lake.on("etl").run(lambda txn: txn.update("stock", {"balance": "5"}, where="id = 1"))
    with attached(spark, lake, "lake@etl") as name:
        found = in_order(spark.table(f"{name}.root.stock").toArrow())
        assert found == in_order(lake.on("etl").read("stock"))
    with attached(spark, lake, "lake@now") as name:
        joined = f"SELECT count(*) FROM {name}.root.stock JOIN {name}.sales.orders USING (id)"
        before = spark.sql(joined).collect()[0][0]
        lake.run(lambda txn: txn.delete("sales/orders", where="true"))
        assert spark.sql(joined).collect()[0][0] == before > 0


#: How Spark writes: data files again, position delete files, or deletion vectors.
WAYS = {
    "copies": {},
    "positions": {f"write.{one}.mode": "merge-on-read" for one in ("delete", "update", "merge")},
}
WAYS["vectors"] = {**WAYS["positions"], "format-version": "3"}


@pytest.mark.parametrize("way", WAYS)
def test_spark_writes_on_a_branch_that_is_merged(
    spark: SparkSession, lake: lv.Lake, way: str
) -> None:
    lake.create_table("written", accounts(4), format="iceberg", properties=WAYS[way])
    lake.branch("etl")
    etl = lake.on("etl")
    with attached(spark, lake, "lake@etl") as name:
        table = f"{name}.root.written"
        statements = (
            f"INSERT INTO {table} VALUES (7, 70)",
            f"UPDATE {table} SET balance = 1 WHERE id = 1",
            f"DELETE FROM {table} WHERE id = 2",
            f"MERGE INTO {table} t USING (SELECT 3L id, 33L balance UNION ALL SELECT 8L, 80L) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            f"ALTER TABLE {table} ADD COLUMN note STRING",
            f"INSERT INTO {table} VALUES (9, 90, 'new')",
        )
        before = in_order(lake.read("written"))
        for number, statement in enumerate(statements, 1):
            spark.sql(statement)
            assert len(etl.history()) == number, statement
            assert in_order(spark.table(table).toArrow()) == in_order(etl.read("written")), (
                statement
            )
        assert in_order(lake.read("written")) == before
    on_branch = in_order(etl.read("written"))
    lake.run(lambda txn: txn.append("sales/orders", accounts(1)))
    lake.merge("etl", delete=True)
    assert in_order(lake.read("written")) == on_branch
    with attached(spark, lake) as name:
        assert in_order(spark.table(f"{name}.root.written").toArrow()) == on_branch
    assert not lake.doctor().findings


@pytest.mark.seam
def test_spark_reads_a_delta_table_that_it_has_written_too(
    spark: SparkSession, lake: lv.Lake, marks_in_small_files: None
) -> None:
    create(lake, all_types(), "day", enableDeletionVectors="true")
    path = f"{lake.root}/t"
    spark.read.format("delta").load(path).write.format("delta").mode("append").save(path)
    with attached(spark, lake) as name:
        table = f"{name}.root.t"
        # One by one: an engine may take answers from metadata if it can take all of a statement's.
        asked = ("min(at)", "max(at)", "min(local)", "max(local)", "max(text)", "count(money)")
        found = [spark.sql(f"SELECT {one} FROM {table}").toArrow()[0][0].as_py() for one in asked]
        assert found == answers(lake.read("t"))
        lake.run(lambda txn: txn.delete("t", "id = 2 AND byte = 0"))
        lake.run(lambda txn: txn.append("t", all_types(8)))
        lake.run(lambda txn: txn.delete("t", "id = 7"))
        expected = rows(lake.read("t"))
        assert rows(spark.table(table).toArrow()) == expected
        predicate = "at >= TIMESTAMP '2024-01-04 01:02:03.123456Z'"
        few = spark.sql(f"SELECT id FROM {table} WHERE {predicate}").toArrow()
        assert few.num_rows == lake.read("t", where="id >= 3").num_rows
        with pytest.raises(Exception, match="is a Delta table"):
            spark.sql(f"DELETE FROM {table} WHERE id = 1")
    with serving(lake) as gateway:
        for found_by in seen(gateway):
            assert found_by == expected
    assert rows(lake.read("t")) == expected


def answers(table: pa.Table) -> list[object]:
    ends = [end for name in ("at", "local") for end in pc.min_max(table[name]).as_py().values()]
    return [*ends, pc.max(table["text"]).as_py(), len(table) - table["money"].null_count]
