"""Iceberg tables in a lake that is a namespace of Spark's ``hadoop`` catalog."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import duckdb
import pytest
from pyspark.sql import SparkSession

from tests.interop.iceberg.beside import Beside, duckdb_reader


@pytest.fixture
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """Return a database for one test: a fatal error in a shared one would fail all later tests."""
    connection = duckdb_reader()
    yield connection
    connection.close()


@pytest.fixture
def beside(spark: SparkSession, duck: duckdb.DuckDBPyConnection) -> Beside:
    """Return an empty lake in the session's warehouse."""
    warehouse = str(spark.conf.get("spark.sql.catalog.ice.warehouse")).removeprefix("file://")
    return Beside(spark, duck, warehouse, f"lake_{uuid.uuid4().hex[:8]}")
