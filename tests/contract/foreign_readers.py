"""The rows of a table that other clients read, in either format."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Literal

import duckdb
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

Format = Literal["delta", "iceberg"]
#: In a column of other versions (tests/versions.py) there are no extensions of DuckDB.
HAS_EXTENSIONS = "LAKEVILLA_COLUMN" not in os.environ
#: Older ones read no vector, and no table by deltalake 1.6.
POLARS_READS_VECTORS = tuple(map(int, pl.__version__.split(".")[:2])) >= (1, 40)
FORMATS: tuple[Format, ...] = ("delta", "iceberg")


def read_by_others(
    path: str | Path,
    format: Format,
    *,
    is_mapped: bool = False,
    with_equality_deletes: bool = False,
) -> dict[str, pa.Table]:
    """Return all rows, by deltalake or pyiceberg, and by DuckDB's extension for the format.

    deltalake's Arrow reader can't read mapped columns, nor pyiceberg equality deletes: then only
    DuckDB reads.
    """
    if format == "delta":
        found = _by_duckdb(f"delta_scan('{path}')")
        if not is_mapped:
            found["deltalake"] = DeltaTable(str(path)).to_pyarrow_table()
        return found
    version = (Path(path) / "metadata" / "version-hint.text").read_text().strip()
    metadata = f"{path}/metadata/v{version}.metadata.json"
    found = _by_duckdb(f"iceberg_scan('{metadata}')")
    if with_equality_deletes:
        return found
    return found | {"pyiceberg": StaticTable.from_metadata(metadata).scan().to_arrow()}


def _by_duckdb(scan: str) -> dict[str, pa.Table]:
    if not HAS_EXTENSIONS:
        return {}
    return {"duckdb": duckdb_reader().sql(f"FROM {scan}").to_arrow_table()}


@cache
def duckdb_reader() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB connection with its extensions for both formats."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", "delta", "iceberg"):
        connection.execute(f"LOAD '{extension(name)}'")
    return connection


def extension(name: str) -> str:
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    place = Path(next(iter(spec.submodule_search_locations)))
    (found,) = place.rglob(f"{name}.duckdb_extension")
    return str(found)
