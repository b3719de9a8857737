"""Clients without LakeVilla that read its tables, and what each of them can't."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.table import StaticTable

from tests.contract.foreign_readers import HAS_EXTENSIONS, duckdb_reader
from tests.property.programs.oracle import Table

Reader = Callable[[str], pa.Table]


def readers(table: Table) -> Iterator[tuple[str, Reader]]:
    """Yield the readers of a table that are able to read it, by name."""
    for name, format, read in READERS:
        if format == table.format and why_not(name, table) is None:
            yield name, read


def why_not(reader: str, table: Table) -> str | None:
    """Return why a reader is not asked for a table: a short list, each with its reason."""
    properties = dict(table.properties)
    mapped = "delta.columnMapping.mode" in properties
    if reader == "deltalake" and "delta.enableTypeWidening" in properties:
        return "deltalake has no type widening"
    if reader == "duckdb of delta" and mapped and table.partition:
        return "DuckDB reads NULL in partition columns that are mapped (duckdb-delta 343)"
    if reader == "pyiceberg" and any(col.type == "deep" for col in table.cols):
        return "pyiceberg reads a NULL list of structs as an empty list (iceberg-python 3833)"
    if reader == "duckdb of iceberg" and table.respecced:
        return "such a table has ended DuckDB's process"
    return None


def by_deltalake(path: str) -> pa.Table:
    """Read by its query engine, which follows deletion vectors."""
    query = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t")
    return pa.table(query.read_all())


def by_duckdb_delta(path: str) -> pa.Table:
    return _scan(f"delta_scan('file://{path}')")


def by_duckdb_iceberg(path: str) -> pa.Table:
    return _scan(f"iceberg_scan('{metadata_file(path)}')")


def by_pyiceberg(path: str) -> pa.Table:
    return StaticTable.from_metadata(metadata_file(path)).scan().to_arrow()


def metadata_file(path: str) -> str:
    version = (Path(path) / "metadata" / "version-hint.text").read_text().strip()
    return f"{path}/metadata/v{version}.metadata.json"


def _scan(scan: str) -> pa.Table:
    database: Any = duckdb_reader()
    database.execute("SET TimeZone = 'UTC'")
    return database.sql(f"FROM {scan}").to_arrow_table()


READERS: tuple[tuple[str, str, Reader], ...] = (
    ("deltalake", "delta", by_deltalake),
    ("pyiceberg", "iceberg", by_pyiceberg),
    *((("duckdb of delta", "delta", by_duckdb_delta),) if HAS_EXTENSIONS else ()),
    *((("duckdb of iceberg", "iceberg", by_duckdb_iceberg),) if HAS_EXTENSIONS else ()),
)
