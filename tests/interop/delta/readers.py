"""Read a table by clients without LakeVilla."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable


def deltalake_rows(path: Path | str, order: str = "id") -> list[dict[str, Any]]:
    return DeltaTable(str(path)).to_pyarrow_table().sort_by(order).to_pylist()


def duckdb_rows(path: Path | str, order: str = "id") -> list[dict[str, Any]]:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{_extension()}'")
    query = f"SELECT * FROM delta_scan('{path}') ORDER BY {order}"
    rows: pa.Table = connection.execute(query).to_arrow_table()
    connection.close()
    return rows.to_pylist()


def _extension() -> str:
    spec = importlib.util.find_spec("duckdb_extension_delta")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (found,) = Path(next(iter(spec.submodule_search_locations))).rglob("delta.duckdb_extension")
    return str(found)
