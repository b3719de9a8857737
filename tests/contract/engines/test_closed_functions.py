"""No function that DuckDB has opens a file in the closed database, whatever it is called."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from tests.contract.engines.test_closed import shown
from tests.support.engine_lake import Lake
from tests.support.hostile.watch import watched

SECRET = "hunter2"
#: They write to the process's log, or change where it is stored, and end the process in spite of
#: the lock of settings; the first wall refuses them (docs/design/0026-one-closed-database.md).
ENDS_THE_PROCESS = frozenset({"enable_logging", "set_log_level"})
#: By type, a value for the arguments that are not text.
VALUES = {"BOOLEAN": "true", "VARCHAR[]": "['{path}']", "INTERVAL": "INTERVAL 1 DAY"}


def calls(connection: duckdb.DuckDBPyConnection, path: str) -> Iterator[str]:
    """Yield a call of each function that takes a text, with a path as each of its texts."""
    known = connection.execute(
        "SELECT DISTINCT function_name, function_type, parameters, parameter_types "
        "FROM duckdb_functions() ORDER BY ALL"
    ).fetchall()
    for name, kind, names, types in known:
        if kind == "table":  # the others are options; DuckDB 2 gives arguments names, too
            first = [t for n, t in zip(names, types, strict=True) if re.fullmatch(r"col\d+", n)]
            types = first or types[:1]
        if (
            not 1 <= len(types) <= 4
            or name in ENDS_THE_PROCESS
            or not any("VARCHAR" in str(t) or t == "ANY" for t in types)
        ):
            continue
        given = [
            VALUES.get(t, f"'{path}'" if t in ("VARCHAR", "ANY") else "1").format(path=path)
            for t in (str(one or "ANY") for one in types)
        ]
        call = f'"{name}"({", ".join(given)})'
        if kind in ("table", "table_macro"):
            yield f"SELECT t::VARCHAR FROM {call} AS t"
        elif kind == "pragma":
            yield f"CALL {call}"
            yield f"PRAGMA {name}('{path}')"
        else:
            yield f"SELECT {call}"


def telling(connection: duckdb.DuckDBPyConnection, outside: Path) -> tuple[list[str], int]:
    """Return the calls that tell the secret, and how many calls were made."""
    told, count = [], 0
    for text in (str(outside / "a.csv"), f"file://{outside}/*"):
        for statement in calls(connection, text):
            count += 1
            try:
                with connection.cursor() as cursor:
                    found = repr(cursor.execute(statement).fetchmany(20))
            except duckdb.Error as error:
                found = str(error)
            if SECRET in found:
                told.append(statement)
    return told, count


def test_the_calls_tell_what_is_in_a_file_where_a_database_is_open(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"name\n{SECRET}\n")
    with duckdb.connect() as connection:
        told, _ = telling(connection, tmp_path)
    assert any("read_csv" in one for one in told)
    assert any("read_text" in one for one in told)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's events of files are Linux's")
def test_no_function_of_duckdb_opens_a_file_in_the_closed_database(
    tmp_path: Path,
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    lake.make("customers", pa.table({"c": [1]}))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.csv").write_text(f"name\n{SECRET}\n")
    with shown(lake, "SELECT * FROM customers") as session, watched(str(outside)) as watch:
        told, count = telling(session.connection, outside)
    assert told == []
    assert watch.opened == []
    assert watch.ran == []
    assert count > 500
    assert sorted(os.listdir(outside)) == ["a.csv"]
