"""Reads outside a transaction on a lake with Spark return DataFrames, or Arrow if requested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakevilla as lv


def test_reads_return_dataframes_unless_another_kind_of_frame_is_requested(
    spark: SparkSession, tmp_path: Path
) -> None:
    with lv.connect(str(tmp_path), spark=spark) as lake, duckdb.connect() as connection:
        lake.create_table("orders", spark.sql("SELECT id AS k FROM range(10)"))
        table: Any = lake.table("orders")
        frames = [
            lake.read("orders", where="k < 3"),
            lake.sql("SELECT k FROM orders WHERE k < 3"),
            table.read(where="k < :n", params={"n": 3}),
            lake.tables()[0].read(where="k < 3"),
        ]
        assert all(isinstance(frame, DataFrame) for frame in frames)
        assert [frame.count() for frame in frames] == [3] * 4
        assert lake.scan("orders").read_all().num_rows == pa.table(table).num_rows == 10
        assert len(table.to_pandas(where="k < 3")) == 3
        assert table.to_polars(where="k < 3").height == 3
        assert table.to_polars(lazy=True).filter(pl.col("k") < 3).collect().height == 3
        assert table.to_duckdb(connection=connection).filter("k < 3").count("*").fetchall() == [
            (3,)
        ]
        lake.attach(connection)
        assert connection.sql("SELECT count(*) FROM orders WHERE k < 3").fetchall() == [(3,)]


def test_reads_of_a_past_state_return_dataframes_too(spark: SparkSession, tmp_path: Path) -> None:
    with lv.connect(str(tmp_path), spark=spark) as lake:
        for format in ("delta", "iceberg"):
            lake.create_table(format, spark.sql("SELECT id AS k FROM range(3)"), format=format)
            table: Any = lake.table(format)
            first = table.versions()[0]
            lake.run(lambda txn, name=format: txn.append(name, [{"k": 9}]))
            lake.run(
                lambda txn, name=format: txn.alter(name, add_columns=pa.schema({"n": pa.int64()}))
            )
            past = [
                table.read(version=first.version),
                table.read(timestamp=first.timestamp),
                *([table.read(iceberg_ref=first.snapshot_id)] if format == "iceberg" else []),
            ]
            assert all(isinstance(frame, DataFrame) for frame in past)
            assert [(frame.columns, frame.count()) for frame in past] == [(["k"], 3)] * len(past)
            assert (table.read().columns, table.read().count()) == (["k", "n"], 4)
            with pytest.raises(lv.VersionNotFound, match="has no version 99"):
                table.read(version=99)


def test_the_catalog_returns_dataframes_and_paths_are_read_as_arrow(
    spark: SparkSession, tmp_path: Path
) -> None:
    with lv.connect(str(tmp_path), spark=spark) as lake:
        lake.create_table("sales/orders", [{"id": 1, "region": "Asia"}], partition_by=["region"])
        lake.create_table("plain", [{"id": 1}])
        shown: Any = lake.sql(
            "SELECT t.name, f.rows FROM lakevilla_tables AS t JOIN lakevilla_files AS f "
            "ON f.table = t.name WHERE t.name LIKE 'sales/%' AND f.partition['region'] = :r",
            {"r": "Asia"},
        )
        assert [tuple(row) for row in shown.collect()] == [("sales/orders", 1)]
        schemas: Any = lake.sql("SELECT table_schema FROM information_schema.tables ORDER BY 1")
        assert [row[0] for row in schemas.collect()] == ["main", "sales"]
        files = lake.query("/sales/*/files[partition.region = 'Asia']")
        assert files["table"].to_pylist() == ["sales/orders"]
        assert [one.name for one in lake.tables("s", details=False)] == ["sales/orders"]
