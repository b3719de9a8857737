"""Views in a DuckDB connection of the caller's, over rows that LakeVilla passes to it.

All views are temporary: none is stored in a database file of the caller's. A comment marks each
view as LakeVilla's and names its lake, so that it can be created again for a newer state. Views
without this mark are never changed. A table ``a/b`` is the view ``"a/b"``, and also ``a.b``,
through a database in memory with the name ``a``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.reading.relation import may_have_nan
from lakevilla.engines.duckdb.sqltext import quote_name, quote_text
from lakevilla.errors import InvalidOperation

Connection: TypeAlias = "duckdb.DuckDBPyConnection"
Relation: TypeAlias = "duckdb.DuckDBPyRelation"

#: The places where DuckDB searches for a name without a schema: a view or table there would be
#: hidden by LakeVilla's view, or hide it.
_IN_REACH = """
    database_name IN ('temp', current_database()) AND schema_name IN ('main', current_schema())
    AND NOT internal
"""


@dataclass(frozen=True, slots=True)
class AttachedView:
    """Rows, an Arrow dataset, and the view that shows them.

    ``path`` is the view's name in parts, if it has one.
    """

    view: str
    path: tuple[str, ...]
    rows: Any


def connection_of(given: object) -> Connection:
    """Return the connection itself; the default one for None and for the module ``duckdb``.

    Raises
    ------
    InvalidOperation
        It is no connection.
    """
    if given is None or given is sys.modules.get("duckdb"):
        return duckdb.default_connection()
    if not isinstance(given, duckdb.DuckDBPyConnection):
        raise InvalidOperation(
            f"a connection of DuckDB is needed, not a {type(given).__name__}: "
            "pass what duckdb.connect() returns, or duckdb itself"
        )
    return given


def as_relation(connection: Connection, rows: Any) -> Relation:
    """Return a relation over the rows, which are read when the relation is used."""
    with _refused("to_duckdb"):
        return _relation(connection, rows)


def show_tables(connection: Connection, lake: str, shown: Sequence[AttachedView]) -> None:
    """Make the views, and replace those that this lake has made before.

    Raises
    ------
    InvalidOperation
        The connection has a foreign view or table of that name, two names differ only by case, or
        DuckDB refuses. Then no view is changed.
    """
    mark = f"lakevilla: {lake}"
    with _refused("attach"):
        _refuse_taken(connection, mark, shown)
        _remove(connection, mark)
        try:
            for one in shown:
                _show(connection, mark, one)
            for one in shown:
                _show_by_path(connection, mark, one)
        except BaseException:
            _remove(connection, mark)
            raise


def _show(connection: Connection, mark: str, view: AttachedView) -> None:
    connection.register(view.view, _relation(connection, view.rows))
    connection.execute(f"COMMENT ON VIEW temp.main.{quote_name(view.view)} IS {quote_text(mark)}")


def _show_by_path(connection: Connection, mark: str, view: AttachedView) -> None:
    if not view.path:
        return
    database, *schemas, _ = view.path
    connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {quote_name(database)}")
    if schemas:
        connection.execute(
            f"CREATE SCHEMA IF NOT EXISTS {quote_name(database)}.{quote_name(schemas[0])}"
        )
    full = ".".join(map(quote_name, _full(view.path)))
    connection.execute(f"CREATE VIEW {full} AS FROM temp.main.{quote_name(view.view)}")
    connection.execute(f"COMMENT ON VIEW {full} IS {quote_text(mark)}")


def _full(path: tuple[str, ...]) -> tuple[str, ...]:
    return path if len(path) == 3 else (path[0], "main", path[1])


def _relation(connection: Connection, rows: Any) -> Relation:
    return connection.from_arrow(rows).project(_columns(rows.schema))


def _columns(schema: pa.Schema) -> str:
    """Return the columns; columns that may have NaN are wrapped so that DuckDB pushes no filter
    into them.

    DuckDB hands filters to Arrow, which does not order NaN above every number.
    """
    # docs/upstream.md, "A filter on Arrow data leaves out NaN"
    return ", ".join(
        f"CASE WHEN {name} IS NULL THEN NULL ELSE {name} END AS {name}" if nan else name
        for name, nan in ((quote_name(f.name), may_have_nan(f.type)) for f in schema)
    )


def _refuse_taken(connection: Connection, mark: str, shown: Sequence[AttachedView]) -> None:
    rows = connection.execute(
        f"SELECT view_name FROM duckdb_views() "
        f"WHERE {_IN_REACH} AND comment IS DISTINCT FROM {quote_text(mark)} "
        f"UNION ALL SELECT table_name FROM duckdb_tables() WHERE {_IN_REACH}"
    ).fetchall()
    taken = {name.lower(): name for (name,) in rows}
    known: dict[str, str] = {}
    for one in shown:
        lower = one.view.lower()
        if lower in taken:
            raise InvalidOperation(
                f"attach: the connection has a table or view {taken[lower]} already, which is "
                f"left unchanged: pass tables={{'another_name': {one.view!r}, ...}}, or drop it"
            )
        if (other := known.setdefault(lower, one.view)) is not one.view:
            raise InvalidOperation(
                f"attach: tables {other} and {one.view} are one name to DuckDB: pass "
                f"tables={{'another_name': {one.view!r}, ...}}"
            )
    _refuse_paths(connection, mark, shown)


def _refuse_paths(connection: Connection, mark: str, shown: Sequence[AttachedView]) -> None:
    """Refuse paths whose database or schema is the caller's.

    There, ``a.b`` would be written into the caller's database, or mean two things.
    """
    databases = {
        name.lower(): path
        for name, path in connection.execute(
            "SELECT database_name, path FROM duckdb_databases()"
        ).fetchall()
    }
    (current,) = connection.execute("SELECT current_database()").fetchall()[0]
    schemas = {
        name.lower()
        for (name,) in connection.execute(
            "SELECT schema_name FROM duckdb_schemas() "
            "WHERE database_name IN (current_database(), 'system', 'temp')"
        ).fetchall()
    }
    others = {
        (database.lower(), schema.lower(), name.lower())
        for database, schema, name in connection.execute(
            "SELECT database_name, schema_name, view_name FROM duckdb_views() "
            f"WHERE NOT internal AND comment IS DISTINCT FROM {quote_text(mark)} UNION ALL "
            "SELECT database_name, schema_name, table_name FROM duckdb_tables()"
        ).fetchall()
    }
    known: dict[tuple[str, ...], str] = {}
    for view in shown:
        if not view.path:
            continue
        first = view.path[0].lower()
        full = tuple(part.lower() for part in _full(view.path))
        if (
            first in (current.lower(), "temp", "system")
            or first in schemas
            or databases.get(first) is not None
            or full in others
        ):
            raise InvalidOperation(
                f"attach: the connection has a database or schema {view.path[0]} already, so "
                f"table {view.view} can't be {'.'.join(view.path)} there: pass "
                f"tables={{'another_name': {view.view!r}, ...}}"
            )
        if (other := known.setdefault(full, view.view)) is not view.view:
            raise InvalidOperation(
                f"attach: tables {other} and {view.view} are both {'.'.join(view.path)} to DuckDB: "
                f"pass tables={{'another_name': {view.view!r}, ...}}"
            )


def _remove(connection: Connection, mark: str) -> None:
    """Remove the views that this lake has made; views that other views read are removed last."""
    ours = connection.execute(
        "SELECT database_name, schema_name, view_name FROM duckdb_views() "
        f"WHERE comment = {quote_text(mark)} "
        "ORDER BY database_name = 'temp'"
    ).fetchall()
    for database, schema, name in ours:
        if database == "temp":
            connection.unregister(name)  # also releases its rows
        full = ".".join(map(quote_name, (database, schema, name)))
        connection.execute(f"DROP VIEW IF EXISTS {full}")


@contextmanager
def _refused(verb: str) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise InvalidOperation(f"{verb}: DuckDB refuses: {str(error).strip()}") from error
