"""What the oldest DuckDB itself fails at, which these tests then leave out."""

from __future__ import annotations

import os
from collections.abc import Generator

import duckdb
import pytest

import lakevilla as lv

IS_OLDEST = os.environ.get("LAKEVILLA_COLUMN") == "oldest"


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    try:
        return (yield)
    except (duckdb.InternalException, lv.InvalidOperation) as error:
        if IS_OLDEST and _is_fault_of_duckdb(error):
            pytest.skip(f"DuckDB {duckdb.__version__} fails at it: {str(error).splitlines()[0]}")
        raise


def _is_fault_of_duckdb(error: Exception) -> bool:
    """Return whether DuckDB ended with an internal error, or made a BETWEEN of structs itself."""
    return isinstance(error, duckdb.InternalException) or "Invalid type for BETWEEN" in str(error)
