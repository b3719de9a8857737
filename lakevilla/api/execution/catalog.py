"""Catalog tables in a statement: each that the statement names is made first, as a view."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.schemas import made_schemas
from lakevilla.api.execution.views import expanded
from lakevilla.api.frame import Frame
from lakevilla.branches.change import all_refs
from lakevilla.engines.duckdb.sqltext import duckdb_type
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.views import view_of
from lakevilla.global_log.head import NOWHERE, Head
from lakevilla.sql.catalog import NAMED_BY, SCHEMAS, CatalogRead, NameRange, Term, range_of
from lakevilla.sql.statements.catalog import CatalogUse, catalog_query
from lakevilla.sql.statements.select import CATALOG, MAIN_SCHEMA, Dialect, Select
from lakevilla.transaction.verbs.catalog.names import bind_if_made
from lakevilla.transaction.verbs.catalog.rows import catalog_rows, view_rows

__all__ = ["with_catalog"]

_HIGHEST = chr(0x10FFFF)

_INFORMATION = {
    "schemata": pa.schema([("catalog_name", pa.string()), ("schema_name", pa.string())]),
    "tables": pa.schema(
        [
            ("table_catalog", pa.string()),
            ("table_schema", pa.string()),
            ("table_name", pa.string()),
            ("table_type", pa.string()),
            ("is_insertable_into", pa.string()),
        ]
    ),
    "views": pa.schema(
        [
            ("table_catalog", pa.string()),
            ("table_schema", pa.string()),
            ("table_name", pa.string()),
            ("view_definition", pa.string()),
        ]
    ),
    "columns": pa.schema(
        [
            ("table_catalog", pa.string()),
            ("table_schema", pa.string()),
            ("table_name", pa.string()),
            ("column_name", pa.string()),
            ("ordinal_position", pa.int64()),
            ("column_default", pa.string()),
            ("is_nullable", pa.string()),
            ("data_type", pa.string()),
        ]
    ),
}


def with_catalog(
    executor: Executor[Frame],
    dialect: Dialect,
    statement: Select,
    params: Mapping[str, object],
    views: dict[str, object],
) -> tuple[Select, dict[str, object]]:
    """Return the statement and its views, and among them the catalog tables that it names.

    The views of the lake are texts in the statement.

    Raises
    ------
    InvalidOperation
        The lake has a table with the name of a catalog table.
    """
    statement = expanded(executor, statement, views)
    found = catalog_query(statement, params, dialect, frozenset(views))
    if found is None:
        return statement, views
    rows: dict[str, object] = {}
    with executor.verb_scope():
        executor.run(bind_if_made(executor.state))
        head = executor.state.head
        for use in found.uses:
            _refuse_twin(head, use)
            rows[use.view] = _rows(executor, use)
    return found.select, {**views, **rows}


def _refuse_twin(head: Head | None, use: CatalogUse) -> None:
    """Refuse the name of a catalog table that is, by the cached HEAD, also a table of the lake.

    No request is made for this check, because LakeVilla creates, registers and renames no table
    under such a name.
    """
    name = use.name.removeprefix(f"{MAIN_SCHEMA}.").replace(".", "/")
    if head is None:
        return
    state = head.tables.peek(name)
    called = head.names.peek(name)
    is_there = called is None and state is not None and not state.dropped
    if is_there or called not in (None, NOWHERE):
        raise InvalidOperation(
            f"{use.name} is a catalog table of every lake, and this lake has a table of that name: "
            f"rename_table({name!r}, ...) gives this table another name",
            table=name,
        )


def _rows(executor: Executor[Frame], use: CatalogUse) -> pa.Table:
    if use.kind == "refs":
        return _refs(executor)
    if use.information:
        return _information(executor, use)
    names = range_of(use.terms, NAMED_BY[use.kind])
    read = CatalogRead(use.kind, names, use.terms, use.columns)
    return executor.run(catalog_rows(executor.state, read))


def _refs(executor: Executor[Frame]) -> pa.Table:
    client = executor.client
    if client.branch is not None:
        client.main("lakevilla_refs")
    found = executor.run(all_refs(client.context))
    rows = [
        {
            "name": name,
            "kind": entry.kind,
            "version": version,
            "base_version": entry.base.sequence,
            "created": entry.created_ms * 1000,
            "created_by": entry.created_by,
            "protected": entry.protected,
            "merged": None if entry.synced is None else f"{name}@{entry.synced.sequence}",
            "metadata": dict(entry.metadata),
        }
        for name, (entry, version) in found.items()
    ]
    return pa.Table.from_pylist(rows, SCHEMAS["refs"])


# ------------------------------------------------------------------ information_schema


def _information(executor: Executor[Frame], use: CatalogUse) -> pa.Table:
    names = _names_asked(use.terms)
    columns = ("name",) if use.kind == "tables" else None
    read = CatalogRead(use.kind, names, columns=columns)
    rows = executor.run(catalog_rows(executor.state, read)).to_pylist()
    if use.information in ("tables", "views"):
        views = executor.run(view_rows(executor.state, names))
        shown = list(_tables(rows, views) if use.information == "tables" else _views(views))
    elif use.information == "schemata":
        rows += [{"name": name} for name in executor.run(view_rows(executor.state, names))]
        made = made_schemas(executor.client, executor.schema_changes)
        shown = list(_schemata(rows, made))
    else:
        shown = list(_columns(rows))
    return pa.Table.from_pylist(shown, _INFORMATION[use.information])


def _schemata(rows: Sequence[Mapping[str, Any]], made: Collection[str]) -> Iterator[dict[str, Any]]:
    for schema in sorted({_split(row["name"])[0] for row in rows} | {MAIN_SCHEMA, *made}):
        yield {"catalog_name": CATALOG, "schema_name": schema}


def _tables(rows: Sequence[Mapping[str, Any]], views: Collection[str]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {**_named(row["name"]), "table_type": "BASE TABLE", "is_insertable_into": "YES"}
    for name in views:
        yield {**_named(name), "table_type": "VIEW", "is_insertable_into": "NO"}


def _views(views: Mapping[str, TableSnapshot]) -> Iterator[dict[str, Any]]:
    for name, snapshot in views.items():
        view = view_of(snapshot.layout)
        yield {**_named(name), "view_definition": None if view is None else view.sql}


def _columns(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {
            **_named(row["table"]),
            "column_name": row["name"],
            "ordinal_position": row["position"] + 1,
            "is_nullable": "YES" if row["nullable"] else "NO",
            "data_type": duckdb_type(row["type"]),
        }


def _named(name: str) -> dict[str, str]:
    schema, table = _split(name)
    return {"table_catalog": CATALOG, "table_schema": schema, "table_name": table}


def _split(name: str) -> tuple[str, str]:
    """Split a table's name into its schema, up to the last slash, and its name in that.

    A table in a directory ``main`` keeps its whole name in the schema ``main``.
    """
    schema, slash, table = name.rpartition("/")
    return (schema, table) if slash and schema != MAIN_SCHEMA else (MAIN_SCHEMA, name)


def _names_asked(terms: Sequence[Term]) -> NameRange:
    """Return the range of table names that conditions on the schema and the name admit."""
    schemas = range_of(terms, "table_schema")
    if schemas.is_all:
        schemas = range_of(terms, "schema_name")
    tables = range_of(terms, "table_name")
    if schemas.exact is None or len(schemas.exact) != 1:
        return NameRange()
    (schema,) = schemas.exact
    if schema == MAIN_SCHEMA:
        return NameRange() if tables.exact is None else NameRange(exact=tables.exact)
    prefix = f"{schema}/"
    if tables.exact is not None:
        return NameRange(exact=frozenset(prefix + name for name in tables.exact))
    last = _HIGHEST if tables.last is None else tables.last
    return NameRange(prefix + tables.first, prefix + last)
