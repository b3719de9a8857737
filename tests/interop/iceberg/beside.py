"""An Iceberg lake without a catalog, and the clients without LakeVilla that share it."""

from __future__ import annotations

import datetime
import importlib.util
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysTrue,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    IsNull,
    LessThanOrEqual,
)
from pyiceberg.table import StaticTable, Table
from pyspark.sql import Row, SparkSession

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog

#: A multiset of rows.
Bag = Counter[Any]


@dataclass(frozen=True)
class Where:
    """A comparison of a column: ``=``, ``>``, ``<=`` or ``IS NULL`` (without a value)."""

    column: str
    how: str
    value: Any = None

    def sql(self, *, spark: bool = False) -> str:
        quote = "`" if spark else '"'
        column = f"{quote}{self.column}{quote}"
        if self.how == "IS NULL":
            return f"{column} IS NULL"
        return f"{column} {self.how} {_literal(self.value, spark)}"

    def pyiceberg(self) -> BooleanExpression:
        if self.how == "IS NULL":
            return IsNull(self.column)
        made: dict[str, Any] = {"=": EqualTo, ">": GreaterThan, "<=": LessThanOrEqual}
        value = self.value
        if isinstance(value, datetime.datetime):  # as text: pyiceberg takes no other values
            value = value.isoformat()
        return made[self.how](self.column, value)

    def of(self, rows: pa.Table, *, nan_is_largest: bool) -> pa.Table:
        """Return the rows for which the comparison is true."""
        values = rows[self.column].to_pylist()
        return rows.filter(pa.array([self._holds(value, nan_is_largest) for value in values]))

    def _holds(self, found: Any, nan_is_largest: bool) -> bool:
        if self.how == "IS NULL" or found is None:
            return self.how == "IS NULL" and found is None
        if isinstance(found, float) and math.isnan(found):
            return nan_is_largest and self.how == ">"
        if isinstance(found, str):  # compared by UTF-8 bytes
            found, value = found.encode(), self.value.encode()
        else:
            value = self.value
        return bool({"=": found == value, ">": found > value, "<=": found <= value}[self.how])


def _literal(value: Any, spark: bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        zoned = value.tzinfo is not None
        kind = ("TIMESTAMP" if zoned else "TIMESTAMP_NTZ") if spark else "TIMESTAMP"
        kind = "TIMESTAMPTZ" if zoned and not spark else kind
        return f"{kind} '{value.isoformat(sep=' ')}'"
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'" if spark else f"from_hex('{value.hex()}')"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'") if spark else value
        return f"'{escaped}'" if spark else "'" + value.replace("'", "''") + "'"
    if isinstance(value, Decimal):
        text = format(value, "f")
        return text if spark else f"CAST('{text}' AS DECIMAL(38, {_scale(value)}))"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    return f"CAST('{value}' AS BIGINT)"


def _scale(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def bag(rows: pa.Table, columns: list[str] | None = None) -> Bag:
    """Return the rows as a multiset, with columns in order; nested values become comparable."""
    names = columns or rows.column_names
    return Counter(tuple(_plain(row[name]) for name in names) for row in rows.to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return tuple((name, _plain(part)) for name, part in value.items())
    if isinstance(value, list):
        pairs = [_plain(part) for part in value]
        is_map = bool(value) and all(isinstance(part, tuple) for part in value)
        return tuple(sorted(pairs, key=repr)) if is_map else tuple(pairs)
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


@dataclass(frozen=True)
class Beside:
    """A lake whose root is a namespace of Spark's catalog ``ice``."""

    spark: SparkSession
    duck: duckdb.DuckDBPyConnection
    warehouse: str
    namespace: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> str:
        return f"{self.warehouse}/{self.namespace}"

    def connect(self, **options: Any) -> lv.Lake:
        return lv.connect(self.root, **{**self.options, **options})

    @cached_property
    def catalog(self) -> ObjectStoreCatalog:
        return ObjectStoreCatalog("ice", warehouse=self.warehouse)

    # -- writers -------------------------------------------------------------------------

    def sql(self, statement: str, table: str = "t") -> list[Row]:
        """Run a Spark statement, where ``{t}`` is the table; return Spark's result."""
        return self.spark.sql(statement.replace("{t}", self.name(table))).collect()

    def call(self, procedure: str, arguments: str = "", table: str = "t") -> list[Row]:
        """Run a procedure of Iceberg's on a table."""
        more = f", {arguments}" if arguments else ""
        named = f"table => '{self.namespace}.{table}'"
        return self.spark.sql(f"CALL ice.system.{procedure}({named}{more})").collect()

    def loaded(self, table: str = "t") -> Table:
        """Return the table as pyiceberg's catalog loads it, to be read and written."""
        return self.catalog.load_table((self.namespace, *table.split("/")))

    # -- the table's state ------------------------------------------------------------------

    def path(self, table: str = "t") -> Path:
        return Path(self.root, table)

    def name(self, table: str = "t") -> str:
        """Return the name of a table of the lake in Spark SQL."""
        return f"ice.{self.namespace}.{table.replace('/', '.')}"

    def versions(self, table: str = "t") -> list[int]:
        """Return the numbers of the metadata files."""
        names = (self.path(table) / "metadata").glob("v*.metadata.json")
        return sorted(int(path.name[1:].partition(".")[0]) for path in names)

    def metadata_file(self, table: str = "t") -> Path:
        """Return the newest metadata file."""
        return self.path(table) / "metadata" / f"v{self.versions(table)[-1]}.metadata.json"

    def metadata(self, table: str = "t") -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.metadata_file(table).read_text())
        return document

    # -- readers -------------------------------------------------------------------------

    def ours(self, table: str = "t", where: Where | None = None) -> pa.Table:
        """Return the rows that a new client of the lake reads."""
        with self.connect() as lake, lake.snapshot() as state:
            if where is None:
                return state.read(table)
            text = f'"{where.column}" {where.how}'
            if where.how == "IS NULL":
                return state.read(table, where=text)
            return state.read(table, where=f"{text} :value", params={"value": where.value})

    def by_pyiceberg(self, table: str = "t", where: Where | None = None) -> pa.Table:
        chosen = AlwaysTrue() if where is None else where.pyiceberg()
        return StaticTable.from_metadata(str(self.metadata_file(table))).scan(chosen).to_arrow()

    def by_catalog(self, table: str = "t", where: Where | None = None) -> pa.Table:
        chosen = AlwaysTrue() if where is None else where.pyiceberg()
        return self.loaded(table).scan(chosen).to_arrow()

    def by_duckdb(self, table: str = "t", where: Where | None = None) -> pa.Table:
        tail = "" if where is None else f" WHERE {where.sql()}"
        query = f"SELECT * FROM iceberg_scan('{self.path(table)}'){tail}"
        return self.duck.execute(query).to_arrow_table()

    def by_spark(self, table: str = "t", where: Where | None = None) -> pa.Table:
        frame = self.spark.table(self.name(table))
        return (frame if where is None else frame.where(where.sql(spark=True))).toArrow()

    def by_spark_path(self, table: str = "t", where: Where | None = None) -> pa.Table:
        frame = self.spark.read.format("iceberg").load(str(self.path(table)))
        return (frame if where is None else frame.where(where.sql(spark=True))).toArrow()

    def readers(self) -> Iterator[tuple[str, Callable[..., pa.Table]]]:
        yield "LakeVilla", self.ours
        yield "pyiceberg", self.by_pyiceberg
        yield "pyiceberg's catalog", self.by_catalog
        yield "DuckDB", self.by_duckdb
        yield "Spark", self.by_spark
        yield "Spark's path", self.by_spark_path

    def agreed(self, table: str = "t", *, without: tuple[str, ...] = ()) -> Bag:
        """Return the rows, after a check that all readers read the same ones."""
        found = {name: read(table) for name, read in self.readers() if name not in without}
        bags = {name: bag(rows) for name, rows in found.items()}
        ours = bags["LakeVilla"]
        for name, theirs in bags.items():
            assert found[name].column_names == found["LakeVilla"].column_names, name
            assert theirs == ours, f"{name} reads {theirs - ours} and not {ours - theirs}"
        return ours


def duckdb_reader() -> duckdb.DuckDBPyConnection:
    """Return DuckDB with its Iceberg extension, from the wheels that contain it."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", "iceberg"):
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        directory = Path(next(iter(spec.submodule_search_locations)))
        (found,) = directory.rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{found}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection
