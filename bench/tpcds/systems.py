"""The systems that answer queries, each as its users run it.

Another system is a class with ``open`` and ``close``, and a line in ``SYSTEMS``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, cast

import deltalake
import duckdb
import pyarrow as pa

import lakevilla as lv
from bench.harness.features import features
from bench.harness.peers import ducklake, peer
from bench.harness.store.places import Places
from bench.harness.tpc import Tpc


class Session(Protocol):
    """Answers queries; what it has learned of the tables is lost when it is closed."""

    def answer(self, sql: str) -> pa.Table: ...

    def close(self) -> None: ...


class System(Protocol):
    """A system with the data in it."""

    def open(self, tables: Sequence[str]) -> Session:
        """A session that knows nothing yet, and will be asked of these tables."""


@dataclass
class Data:
    """Some tables of the generator's, and where systems put them."""

    places: Places
    made: Tpc
    tables: Sequence[str]
    advance: Callable[[str], None] = field(default=lambda what: None)

    @cached_property
    def lake(self) -> str:
        """The root of a lake that has the tables: every system on the same files shares it."""
        root = self.places.root("lake")
        lake = lv.connect(root, storage_options=self.places.options)
        with lake, lake.transaction() as txn:
            for table in self.tables:
                self.advance(f"a lake is made: {table}")
                txn.create_table(table, self.made.rows(table))
        return root

    @cached_property
    def versions(self) -> dict[str, lv.TableVersion]:
        """Where each table of the lake lies, and its newest version."""
        with lv.connect(self.lake, storage_options=self.places.options) as lake:
            return lake.snapshot().versions


class LakeVilla:
    """LakeVilla: each query is a transaction of its own, with these features."""

    def __init__(self, features: lv.Feature, data: Data) -> None:
        self.features, self.root, self.options = features, data.lake, data.places.options

    def open(self, tables: Sequence[str]) -> Session:
        return _LakeSession(lv.connect(self.root, storage_options=self.options), self.features)


@dataclass
class _LakeSession:
    lake: lv.Lake
    features: lv.Feature

    def answer(self, sql: str) -> pa.Table:
        with self.lake.transaction(self.features) as txn:
            return txn.sql(sql)

    def close(self) -> None:
        self.lake.close()


class PlainDuckDB:
    """DuckDB on the very Parquet files of the lake, named one by one: no log is read."""

    def __init__(self, data: Data) -> None:
        self.options = data.places.options
        self.files: dict[str, list[str]] = {
            name: deltalake.DeltaTable(
                one.uri, version=one.version, storage_options=self.options
            ).file_uris()
            for name, one in data.versions.items()
        }

    def open(self, tables: Sequence[str]) -> Session:
        connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        if self.options:
            connection.load_extension(ducklake.extension("httpfs"))
            connection.execute(ducklake.secret(self.options))
        for table in tables:
            listed = ", ".join("'" + path.replace("'", "''") + "'" for path in self.files[table])
            connection.execute(f'CREATE VIEW "{table}" AS FROM read_parquet([{listed}])')
        return _DuckSession(connection)


@dataclass
class _DuckSession:
    connection: duckdb.DuckDBPyConnection

    def answer(self, sql: str) -> pa.Table:
        return self.connection.execute(sql).to_arrow_table()

    def close(self) -> None:
        self.connection.close()


class DuckLake:
    """DuckLake with its catalog in a local file, and files that it has written itself."""

    def __init__(self, data: Data) -> None:
        self.root, self.options = data.places.root("ducklake"), data.places.options
        self.catalog = data.places.file("ducklake.db")
        loading = self._attached(self.catalog)
        for table in data.tables:
            data.advance(f"DuckLake: {table}")
            loading.create([table], data.made.rows(table))
        loading.close()

    def open(self, tables: Sequence[str]) -> Session:
        connection = self._attached(self.catalog).connection
        connection.execute("USE lake")
        return _DuckSession(connection)

    def _attached(self, catalog: Path) -> ducklake.DuckLake:
        return ducklake.DuckLake(catalog, self.root, self.options)


class SparkDelta:
    """Spark with its Delta connector, on the very tables of the lake."""

    def __init__(self, data: Data) -> None:
        # Made by its name: Spark may not be installed, which is told.
        self.spark: Any = cast(Any, peer("Spark+Delta", data.places)).spark
        self.spark.sql(f"CREATE DATABASE {_DATABASE}")
        for name, one in data.versions.items():
            location = one.uri.replace("s3://", "s3a://", 1)
            self.spark.sql(f"CREATE TABLE {_DATABASE}.`{name}` USING delta LOCATION '{location}'")

    def open(self, tables: Sequence[str]) -> Session:
        session = self.spark.newSession()
        session.catalog.clearCache()
        # What its connector knows of logs outlives a session.
        self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        session.sql(f"USE {_DATABASE}")
        return _SparkSession(session)


_DATABASE = "spark_catalog.tpcds"


@dataclass
class _SparkSession:
    spark: Any

    def answer(self, sql: str) -> pa.Table:
        found: pa.Table = self.spark.sql(sql).toArrow()
        return found

    def close(self) -> None:
        """The session goes with its last reference; the JVM stays for the run."""


#: By name: how each gets the data. Of the features, those without CT and I read each table as
#: it is when it is met: a query over some tables may see them at different moments.
SYSTEMS: dict[str, Callable[[Data], System]] = {
    "DuckDB": PlainDuckDB,
    **{
        name: partial(LakeVilla, chosen)
        for name, chosen in features("NONE", "R", "R|CT", "R|I", "R|CT|I").items()
    },
    "DuckLake": DuckLake,
    "Spark+Delta": SparkDelta,
}
