"""A user's SELECT, where it can see the tables it names and nothing else.

Two walls, each enough by itself: the statement is read first, and refused if it
is no SELECT or names a relation or table function that it was not given; then it
runs in a database of its own, whose access to files and network is closed but
for the paths of those tables, and whose settings are locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import duckdb
import pyarrow as pa

from lakevilla.engines.duckdb.database import Database
from lakevilla.engines.duckdb.failures import Tap, translated
from lakevilla.engines.duckdb.file_system import literal_path
from lakevilla.engines.duckdb.reading.relation import FILE, ROW, Files
from lakevilla.engines.duckdb.sqltext import quote_name, quote_text
from lakevilla.engines.sql.select import named_parameters, select_of
from lakevilla.errors import InvalidOperation


def query(
    database: Database,
    sql: str,
    tables: Mapping[str, Files],
    views: Mapping[str, pa.RecordBatchReader],
    params: Mapping[str, object],
) -> pa.Table:
    """Run one SELECT; ``tables`` and ``views`` are named as ``Select.tables`` names them."""
    select = select_of(sql, params)
    unknown = sorted(select.tables - tables.keys() - views.keys())
    if unknown:
        raise InvalidOperation(
            f"sql names {', '.join(unknown)}, which is no table of the lake and no view given; "
            "register the table or pass the frame in views"
        )
    connection = open_for(database, select.references, tables, views)
    try:
        with translated(None):
            text = named_parameters(sql, params)
            return connection.execute(text, dict(params) if params else None).to_arrow_table()
    except BaseException:
        connection.interrupt()  # closing waits for DuckDB's threads, which Ctrl-C has not stopped
        raise
    finally:
        connection.close()


def open_for(
    database: Database,
    references: Iterable[tuple[str, ...]],
    tables: Mapping[str, Files],
    views: Mapping[str, pa.RecordBatchReader],
) -> duckdb.DuckDBPyConnection:
    """A database with what a query names, every other way out of it closed."""
    named: dict[str, list[tuple[str, ...]]] = {}
    for parts in references:
        named.setdefault("/".join(parts), []).append(parts)
    paths = {files.paths[i] for files in tables.values() for i in files.chosen}
    # DuckDB asks for the pattern and for the file that it stands for.
    allowed = sorted(paths | {literal_path(path) for path in paths})
    connection = database.isolated()
    try:
        for number, (name, reader) in enumerate(views.items()):
            rows = _keep(connection, reader, number)
            with translated(None):
                for parts in named.get(name, ()):
                    _create(connection, parts, f"FROM {rows}")
        with translated(None):
            connection.execute(f"SET allowed_paths = [{', '.join(map(quote_text, allowed))}]")
            connection.execute("SET enable_external_access = false")
            # Without statistics every file has a thousand rows to the planner, and a join of some
            # tables may take for ever. One far table alone needs no footer that it does not read.
            known = database.is_local or len(tables) > 1
            for name in tables.keys() - views.keys():
                files = tables[name]
                uniform = known and files.is_uniform(connection)
                as_stored = files.as_stored(connection)
                relation = files.bind(connection, uniform=uniform, as_stored=as_stored)
                sql = f"SELECT * EXCLUDE ({FILE}, {ROW}) FROM ({relation})"
                for parts in named.get(name, ()):
                    _create(connection, parts, sql)
            connection.execute("SET lock_configuration = true")
    except BaseException:
        connection.close()
        raise
    return connection


def _keep(connection: duckdb.DuckDBPyConnection, reader: pa.RecordBatchReader, number: int) -> str:
    """Copy a view's rows: a query may read them twice, a stream gives them once."""
    tap = Tap(reader.schema, reader)
    stream = f"__lakevilla_stream{number}"
    connection.register(stream, tap.reader)
    with translated(None, (tap,)):
        connection.execute(f"CREATE TABLE {stream}_rows AS FROM {stream}")
    connection.unregister(stream)
    return f"memory.main.{stream}_rows"


def _create(connection: duckdb.DuckDBPyConnection, parts: tuple[str, ...], sql: str) -> None:
    """A view under the very name that the query uses."""
    path = parts[:-1]
    if len(path) == 2:
        connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {quote_name(path[0])}")
    if path:
        schema = ".".join(map(quote_name, path))
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    full = ".".join(map(quote_name, parts))
    connection.execute(f"CREATE OR REPLACE VIEW {full} AS {sql}")
