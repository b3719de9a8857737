"""Carry out queries, those over the catalog too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeGuard, TypeVar

import pyarrow as pa

from lakevilla.api.client.discovering import refuse_places
from lakevilla.api.execution.base import ExecutorBase
from lakevilla.api.execution.sources import Sources, frames_go_in_views
from lakevilla.api.frame import Frame
from lakevilla.arrow.scalars import plain
from lakevilla.branches.change import all_refs
from lakevilla.engines.base import TableInput
from lakevilla.engines.duckdb.sqltext import duckdb_type
from lakevilla.errors import CorruptObject, InvalidOperation, LakeVillaError, VersionNotFound
from lakevilla.formats.layout import Layout
from lakevilla.global_log.head import NOWHERE, Head
from lakevilla.lake.operations.inserted import assigned_rows
from lakevilla.lake.operations.sources import read_source, without_rows
from lakevilla.sql.catalog import NAMED_BY, SCHEMAS, CatalogRead, NameRange, Term, range_of
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.expressions.values import literal
from lakevilla.sql.statements.catalog import MAIN_SCHEMA, CatalogUse, catalog_query
from lakevilla.sql.statements.determinism import refuse_volatile, with_fixed_time
from lakevilla.sql.statements.dml import MergeStatement
from lakevilla.sql.statements.select import Dialect, Select, named_parameters
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import QuerySource
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.catalog.explain import answer, plan
from lakevilla.transaction.verbs.catalog.names import bind_if_made
from lakevilla.transaction.verbs.catalog.rows import catalog_rows
from lakevilla.transaction.verbs.read_write import layout_of, query, scan, see_files
from lakevilla.transaction.verbs.replaced_tables import conflict_if_replaced

__all__ = [
    "PastRows",
    "Queries",
    "with_catalog",
]

# -------------------- queries
#
# Queries of ``sql``: run, explained, and kept for a redo that runs them again.


T = TypeVar("T")


class Queries(Sources[Frame]):
    """An executor of SELECTs; rows are Arrow."""

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Raise ``VersionNotFound`` if files of the past state that is read were vacuumed."""
        try:
            yield
        except VersionNotFound:
            raise
        except (LakeVillaError, OSError) as error:
            # Each engine reports a missing file in its own way; an error in a query names no file.
            may_be_missing = isinstance(error, CorruptObject) or "file" in str(error)
            if self.is_past and may_be_missing:
                self.refuse_missing_files()
            if may_be_missing:
                self.run(self.state.context.refuse_ended())
            raise

    def select(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> Frame:
        with self.alone():
            tables = self._sql_tables(statement, views)
            given = self._given_rows(views)
            sql = with_fixed_time(statement.sql, self._fixed_now(), self.dialect)
            for name, value in params.items():
                # A value that no column holds is no parameter.
                literal(value, f"parameter :{name}")

            def within(schemas: Mapping[str, pa.Schema]) -> dict[str, Expr]:
                return self.rows_within(statement, params, {**schemas, **self._schemas(tables)})

            with frames_go_in_views(tables), self._pasts(views, within) as pasts:
                asked = query(self.state, sql, tables, given, params, pasts)
                found: Frame = self.run(asked)
            return found

    def rows_within(
        self, statement: Select, params: Mapping[str, object], schemas: Mapping[str, pa.Schema]
    ) -> dict[str, Expr]:
        """Return the conditions on the rows that a query reads of tables, by their paths in it.

        Spark reports nothing about its own queries.
        """
        if self.dialect != "duckdb":
            return {}
        sql = with_fixed_time(statement.sql, self._fixed_now(), self.dialect)
        return dict(self.client.context.engine.rows_within(sql, params, schemas))

    def plan(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> str:
        """Return the engine's plan of a query; nothing counts as read."""
        with self.alone():
            tables = self._sql_tables(statement, views)
            given = self._given_rows(views)
            with self._pasts(views) as pasts:
                return self.run(plan(self.state, statement.sql, tables, given, params, pasts))

    def columns(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> pa.Schema:
        """Return the columns of a query; nothing counts as read."""
        with self.alone():
            tables = self._sql_tables(statement, views)
            given = self._given_rows(views)
            sql = without_rows(statement.sql)
            with self._pasts(views) as pasts:
                return self.run(answer(self.state, sql, tables, given, params, pasts)).schema

    def _given_rows(self, views: Mapping[str, object]) -> dict[str, pa.RecordBatchReader]:
        return {
            name: self._view_rows(view, name).to_reader()
            for name, view in views.items()
            if not self._reads_files_of(view)
        }

    def _reads_files_of(self, view: object) -> TypeGuard[PastRows]:
        """Return whether a view is a past table whose files this lake's engine reads itself."""
        engine = self.client.context.engine
        return isinstance(view, PastRows) and view.executor.client.context.engine is engine

    def _schemas(self, tables: Mapping[str, str]) -> dict[str, pa.Schema]:
        """Return the columns of tables that a query is about to read, as far as they are known."""
        try:
            return {
                path: self.run(layout_of(self.state, location, reading=True)).schema
                for path, location in tables.items()
            }
        except LakeVillaError:
            return {}  # the query itself raises the error of a table

    @contextmanager
    def _pasts(
        self,
        views: Mapping[str, object],
        within: Callable[[Mapping[str, pa.Schema]], Mapping[str, Expr]] | None = None,
    ) -> Iterator[dict[str, TableInput]]:
        """Yield the past tables among the views, each with the files that a query needs of it.

        ``within`` returns, given their schemas, the conditions on the rows that the query reads, by
        the tables' names.
        """
        pasts = {name: view for name, view in views.items() if self._reads_files_of(view)}
        with ExitStack() as kept:
            for view in pasts.values():
                kept.enter_context(view.executor.kept())
            left: Mapping[str, Expr] = {}
            if pasts and within is not None:
                left = within({name: view.schema() for name, view in pasts.items()})
            yield {name: view.files(left.get(name)) for name, view in pasts.items()}

    def schema_of_query(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> pa.Schema:
        """Return the columns of a query; none of its rows counts as seen."""
        with self.alone():
            source = self._query_source(statement, params, views, pa.schema([]))
            reading = read_source(
                self.client.context, source, self.state.lookup, columns_alone=True
            )
            found: pa.Table = self.run(
                conflict_if_replaced(self.state, source.tables.values(), reading)
            )
        return found.schema

    def to_write_into(self, table: str, verb: str) -> tuple[str, Layout]:
        """Return what ``to_write`` does, and the layout, for a verb that must know the columns."""
        location = self.to_write(table, verb)
        return location, self.run(layout_of(self.state, location, probing=True))

    def assigned_rows(
        self, layout: Layout, columns: Sequence[str], rows: Frame, *, literals: bool
    ) -> pa.RecordBatchReader:
        """Return the rows that a query has found, as the ``columns`` of a table to insert into."""
        found: Any = rows
        return assigned_rows(columns, layout, found, literals=literals)

    def resolve_in_sql(self, table: str) -> str:
        """Return the location of a table, as ``resolve``, by its name in a statement.

        Raises
        ------
        InvalidOperation
            The name is a place beyond the root, and no table of the lake.
        """
        refuse_places(self.client, table, self.state.work.tables)
        return self.resolve(table)

    def _sql_tables(self, statement: Select, views: Mapping[str, object]) -> dict[str, str]:
        found: dict[str, str] = {}
        for path, name in statement.spellings:
            if path in views:
                continue
            location = self.resolve_in_sql(name)
            if found.setdefault(path, location) != location:
                raise InvalidOperation(
                    f"sql names {path!r} in two ways, which are two tables here: {found[path]} and "
                    f"{location}; read one of them before, and pass it in views",
                    table=location,
                )
        return found

    def _query_source(
        self,
        statement: Select,
        params: dict[str, object],
        views: Mapping[str, object],
        like: pa.Schema,
    ) -> QuerySource:
        refuse_volatile(statement.sql)
        sql = with_fixed_time(statement.sql, self._fixed_now(), self.dialect)
        stored = {
            name: self._stored_source(self._view_rows(view, name, like))
            for name, view in views.items()
        }
        used = {
            name: literal(plain(value, f"parameter :{name}"))
            for name, value in params.items()
            if re.search(rf"\${name}\b", named_parameters(sql, None))
        }
        return QuerySource(sql, self._sql_tables(statement, views), used, stored)


class PastRows:
    """A table in another state than that of a statement, as one of its views.

    A query of the engine that knows this view reads what it needs of the files. Any other reader
    gets all rows, streamed.

    Parameters
    ----------
    executor : Queries
        Bound to that state.
    table : str
    """

    def __init__(self, executor: Queries[Any], table: str) -> None:
        self.executor, self._table = executor, table

    def schema(self) -> pa.Schema:
        """Return the table's columns in that state."""
        return self._see(lambda state, location: layout_of(state, location, reading=True)).schema

    def files(self, within: Expr | None = None) -> TableInput:
        """Return the table's files in that state whose rows may satisfy ``within``."""
        return self._see(lambda state, location: see_files(state, location, None, within))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        def read(state: TransactionState, location: str) -> Program[pa.RecordBatchReader]:
            return scan(state, location, None, None)

        with self.executor.kept():
            return self._see(read).__arrow_c_stream__(requested_schema)

    def _see(self, read: Callable[[TransactionState, str], Program[T]]) -> T:
        executor = self.executor
        with executor.kept(), executor.alone("read", self._table):
            executor.state.check_open("read")
            return executor.run(read(executor.state, executor.resolve(self._table)))


# -------------------- catalog
#
# Catalog tables in a statement: each one that it names is made before it runs, and passed as a
# view.


_CATALOG = "lake"
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
    executor: ExecutorBase[Frame],
    dialect: Dialect,
    statement: Select,
    params: Mapping[str, object],
    views: dict[str, object],
) -> tuple[Select, dict[str, object]]:
    """Return the statement and its views, with the rows of the catalog tables that it names.

    Raises
    ------
    InvalidOperation
        The lake has a table of that name.
    """
    found = catalog_query(statement, params, dialect, frozenset(views))
    if found is None:
        return statement, views
    rows: dict[str, object] = {}
    with executor.alone():
        executor.run(bind_if_made(executor.state))
        head = executor.state.head
        for use in found.uses:
            _refuse_twin(head, use)
            rows[use.view] = _rows(executor, use)
    return found.select, {**views, **rows}


def _refuse_twin(head: Head | None, use: CatalogUse) -> None:
    """Refuse a name that could mean two tables, as far as HEAD is cached.

    It makes no request for this, because no table is created with, registered under or renamed to
    such a name.
    """
    name = use.name.removeprefix(f"{MAIN_SCHEMA}.").replace(".", "/")
    if head is None:
        return
    state = head.tables.cached().get(name)
    called = head.names.cached().get(name)
    is_there = called is None and state is not None and not state.dropped
    if is_there or called not in (None, NOWHERE):
        raise InvalidOperation(
            f"{use.name} is a catalog table of every lake, and this one has a table of that name: "
            f"rename_table({name!r}, ...) gives it another",
            table=name,
        )


def _rows(executor: ExecutorBase[Frame], use: CatalogUse) -> pa.Table:
    if use.kind == "refs":
        return _refs(executor)
    if use.information:
        return _information(executor, use)
    names = range_of(use.terms, NAMED_BY[use.kind])
    read = CatalogRead(use.kind, names, use.terms, use.columns)
    return executor.run(catalog_rows(executor.state, read))


def _refs(executor: ExecutorBase[Frame]) -> pa.Table:
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


def _information(executor: ExecutorBase[Frame], use: CatalogUse) -> pa.Table:
    names = _names_asked(use.terms)
    asked = ("name",) if use.kind == "tables" else None
    read = CatalogRead(use.kind, names, columns=asked)
    rows = executor.run(catalog_rows(executor.state, read)).to_pylist()
    shown = list(_SHOWN[use.information](rows))
    return pa.Table.from_pylist(shown, _INFORMATION[use.information])


def _schemata(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for schema in sorted({_split(row["name"])[0] for row in rows} | {MAIN_SCHEMA}):
        yield {"catalog_name": _CATALOG, "schema_name": schema}


def _tables(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {**_named(row["name"]), "table_type": "BASE TABLE", "is_insertable_into": "YES"}


def _columns(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {
            **_named(row["table"]),
            "column_name": row["name"],
            "ordinal_position": row["position"] + 1,
            "is_nullable": "YES" if row["nullable"] else "NO",
            "data_type": duckdb_type(row["type"]),
        }


_SHOWN = {"schemata": _schemata, "tables": _tables, "columns": _columns}


def _named(name: str) -> dict[str, str]:
    schema, table = _split(name)
    return {"table_catalog": _CATALOG, "table_schema": schema, "table_name": table}


def _split(name: str) -> tuple[str, str]:
    """Return a table's schema and name: its path up to the last slash, and what follows."""
    schema, slash, table = name.rpartition("/")
    return (schema, table) if slash else (MAIN_SCHEMA, name)


def _names_asked(terms: Sequence[Term]) -> NameRange:
    """Return the names of the tables that terms on schema and name admit."""
    schemas = range_of(terms, "table_schema")
    if schemas.is_all:
        schemas = range_of(terms, "schema_name")
    tables = range_of(terms, "table_name")
    if schemas.exact is None or len(schemas.exact) != 1:
        return NameRange()
    (schema,) = schemas.exact
    if schema == MAIN_SCHEMA:
        # A table of that name, or one that is stored in a directory of that name.
        both = tables.exact or frozenset()
        exact = both | {f"{schema}/{name}" for name in both}
        return NameRange(exact=exact) if tables.exact is not None else NameRange()
    prefix = f"{schema}/"
    if tables.exact is not None:
        return NameRange(exact=frozenset(prefix + name for name in tables.exact))
    last = _HIGHEST if tables.last is None else tables.last
    return NameRange(prefix + tables.first, prefix + last)


# -------------------- own rows
#
# Test of whether a merge sets a column to a value computed from the row that it sets.


#: Returns the answer for a column that is set to a value of the source.
OfOwnRow = Callable[[str], bool]


def of_no_row(_: str) -> bool:
    """Return False: rows that the caller gives are the caller's own values."""
    return False


def own_row_test(statement: MergeStatement, location: str, tables: Mapping[str, str]) -> OfOwnRow:
    """Return the test for a statement, and for the ``tables`` that its query reads, by location.

    If the statement does not list the computed columns, a query over the table itself may have
    computed all of them.
    """
    if statement.computed is None:
        reads_itself = location in tables.values()
        return lambda column: reads_itself
    named = {column.lower() for column in statement.computed}
    return lambda column: column.lower() in named
