"""Which functions of DuckDB may return something else when they are called again."""

from __future__ import annotations

import duckdb

from lakevilla.engines.sql.determinism import FIXED_FUNCTIONS, VOLATILE_FUNCTIONS


def test_every_volatile_function_of_duckdb_is_known() -> None:
    unstable = {
        name
        for (name,) in duckdb.sql(
            "select distinct function_name from duckdb_functions() "
            "where stability in ('VOLATILE', 'CONSISTENT_WITHIN_QUERY')"
        ).fetchall()
    }
    # `error` raises each time alike.
    assert unstable - {"error"} <= VOLATILE_FUNCTIONS | FIXED_FUNCTIONS.keys()
