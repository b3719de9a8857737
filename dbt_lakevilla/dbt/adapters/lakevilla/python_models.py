"""Python models: run in this process, with DuckDB as the session."""

from __future__ import annotations

import types
from typing import Any

import duckdb
from dbt.adapters.lakevilla.handle import Handle
from dbt_common.exceptions import DbtRuntimeError


def run_python_model(handle: Handle, name: str, code: str) -> None:
    """Run a model's code, and write the rows that it returns, in the handle's transaction.

    ``dbt.ref`` and ``dbt.source`` give relations of DuckDB with the rows that the transaction sees.
    """
    module = types.ModuleType(f"dbt_model_{name}")
    # Macros indent the first line.
    exec(compile(code.lstrip(), f"<python model {name}>", "exec"), module.__dict__)
    with duckdb.connect() as connection:
        rows = module.model(
            module.dbtObj(lambda table: _relation(handle, connection, table)), connection
        )
        _write(handle, module.TARGET, module.IS_TEMPORARY, _as_data(name, rows))


def _relation(handle: Handle, connection: Any, table: str) -> Any:
    return connection.from_arrow(handle.run(f"select * from {table}"))


def _as_data(name: str, rows: object) -> object:
    """Return what a model gave back as data that a lake takes."""
    if rows is None:
        raise DbtRuntimeError(
            f"python model {name} returned None: return a DataFrame of pandas or polars, an Arrow "
            "table, or a relation of DuckDB"
        )
    return rows.to_arrow_table() if isinstance(rows, duckdb.DuckDBPyRelation) else rows


def _write(handle: Handle, target: str, is_temporary: bool, rows: object) -> None:
    query = "select * from dbt_python_rows"
    if is_temporary:
        handle.run(f"create temporary table {target} as {query}", {"dbt_python_rows": rows})
    else:
        handle.run(f"create or replace table {target} as {query}", {"dbt_python_rows": rows})
