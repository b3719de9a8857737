"""Queries of ``sql``: bind, run and explain them, and keep them as sources for a redo."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeGuard, TypeVar

import pyarrow as pa

from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.sources import frames_go_in_views
from lakevilla.arrow.scalars import plain
from lakevilla.engines.base import TableInput
from lakevilla.errors import CorruptObject, InvalidOperation, LakeVillaError, VersionNotFound
from lakevilla.lake.operations.sources import read_source, without_rows
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.expressions.values import literal
from lakevilla.sql.statements.determinism import with_fixed_time
from lakevilla.sql.statements.select import Dialect, Select, named_parameters
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import QuerySource
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.catalog.explain import answer, plan
from lakevilla.transaction.verbs.read_write import layout_of, query, scan, see_files
from lakevilla.transaction.verbs.replaced_tables import READING_FAILED, raise_if_replaced

__all__ = [
    "BoundQuery",
    "PastRows",
    "Reader",
    "columns_of",
    "columns_of_source",
    "conflict_if_replaced",
    "given_rows",
    "kept",
    "parameters_of",
    "plan_of",
    "rows_within",
    "select",
    "tables_of",
]

T = TypeVar("T")


class Reader(Protocol):
    """The part of an executor that reading a table needs."""

    @property
    def client(self) -> LakeClient: ...
    @property
    def state(self) -> TransactionState: ...

    def run(self, program: Program[T]) -> T: ...
    def resolve(self, table: str) -> str: ...
    def verb_scope(self, verb: str, table: str | None) -> AbstractContextManager[None]: ...
    def kept(self) -> AbstractContextManager[None]: ...
    def refuse_missing_files(self) -> None: ...


@contextmanager
def kept(reader: Reader) -> Iterator[None]:
    """Raise ``VersionNotFound`` if the block fails as files of a past state were vacuumed."""
    try:
        yield
    except VersionNotFound:
        raise
    except (LakeVillaError, OSError) as error:
        # Engines report a missing file in different ways; an error in a query mentions no file.
        may_be_missing = isinstance(error, CorruptObject) or "file" in str(error)
        if reader.state.bound.is_past and may_be_missing:
            reader.refuse_missing_files()
        if may_be_missing:
            reader.run(reader.state.context.refuse_ended())
        raise


# -------------------- queries
#
# SELECTs, bound to the tables and views of a transaction.


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A query with the locations of the tables that it names, and the views that its caller gives.

    ``given`` has the rows of all views except the past tables that the engine reads itself.
    """

    statement: Select
    params: Mapping[str, object]
    views: Mapping[str, object]
    tables: Mapping[str, str]
    given: Mapping[str, pa.RecordBatchReader]


def tables_of(
    statement: Select, views: Mapping[str, object], resolve: Callable[[str], str]
) -> dict[str, str]:
    """Return the locations of the tables that a query names, by the paths in the query."""
    found: dict[str, str] = {}
    for path, name in statement.spellings:
        if path in views:
            continue
        location = resolve(name)
        if found.setdefault(path, location) != location:
            raise InvalidOperation(
                f"sql names {path!r} in two ways, which are two tables here: {found[path]} and "
                f"{location}; read one of them before, and pass it in views",
                table=location,
            )
    return found


def given_rows(
    client: LakeClient, views: Mapping[str, object], rows_of: Callable[[object, str], pa.Table]
) -> dict[str, pa.RecordBatchReader]:
    """Return the rows of views, each by ``rows_of``, except past tables, which the engine reads."""
    return {
        name: rows_of(view, name).to_reader()
        for name, view in views.items()
        if not _reads_files_of(view, client)
    }


def select(
    client: LakeClient, state: TransactionState, bound: BoundQuery, dialect: Dialect, now: datetime
) -> pa.Table:
    """Run a query; its tables' rows count as read."""
    sql = with_fixed_time(bound.statement.sql, now, dialect)
    for name, value in bound.params.items():
        # This refuses a parameter's value that no column could have.
        literal(value, f"parameter :{name}")

    def within(schemas: Mapping[str, pa.Schema]) -> dict[str, Expr]:
        known = {**schemas, **_schemas(client, state, bound.tables)}
        return rows_within(client, bound.statement, bound.params, known, dialect, now)

    with frames_go_in_views(bound.tables), _pasts(client, bound.views, within) as pasts:
        program = query(state, sql, bound.tables, bound.given, bound.params, pasts)
        return client.run(program)


def rows_within(
    client: LakeClient,
    statement: Select,
    params: Mapping[str, object],
    schemas: Mapping[str, pa.Schema],
    dialect: Dialect,
    now: datetime,
) -> dict[str, Expr]:
    """Return the conditions on the rows that a query reads, by the paths of its tables in it."""
    sql = with_fixed_time(statement.sql, now, dialect)
    return dict(client.context.engine.rows_within(sql, params, schemas))


def plan_of(client: LakeClient, state: TransactionState, bound: BoundQuery) -> str:
    """Return the engine's plan of a query, which is not run; nothing counts as read."""
    with _pasts(client, bound.views) as pasts:
        sql = bound.statement.sql
        return client.run(plan(state, sql, bound.tables, bound.given, bound.params, pasts))


def columns_of(client: LakeClient, state: TransactionState, bound: BoundQuery) -> pa.Schema:
    """Return the columns of a query; nothing counts as read."""
    sql = without_rows(bound.statement.sql)
    with _pasts(client, bound.views) as pasts:
        return client.run(answer(state, sql, bound.tables, bound.given, bound.params, pasts)).schema


def parameters_of(sql: str, params: Mapping[str, object]) -> dict[str, Expr]:
    """Return the values of the parameters that a query uses."""
    names = named_parameters(sql, None)
    return {
        name: literal(plain(value, f"parameter :{name}"))
        for name, value in params.items()
        if re.search(rf"\${name}\b", names)
    }


def columns_of_source(
    client: LakeClient, state: TransactionState, source: QuerySource
) -> pa.Schema:
    """Return the columns of a source; no row of it counts as seen."""
    reading = read_source(client.context, source, state.lookup, columns_alone=True)
    with conflict_if_replaced(client, state, source.tables.values()):
        found: pa.Table = client.run(reading)
    return found.schema


@contextmanager
def conflict_if_replaced(
    client: LakeClient, state: TransactionState, locations: Iterable[str]
) -> Iterator[None]:
    """Raise a conflict if the block fails to read files of a table that was replaced."""
    try:
        yield
    except READING_FAILED as error:
        client.run(raise_if_replaced(state, locations, error))
        raise


def _schemas(
    client: LakeClient, state: TransactionState, tables: Mapping[str, str]
) -> dict[str, pa.Schema]:
    """Return the columns of the tables that a query names; empty if a table can't be opened."""
    try:
        return {
            path: client.run(layout_of(state, location, reading=True)).schema
            for path, location in tables.items()
        }
    except LakeVillaError:
        return {}  # the query itself will raise the table's error


# -------------------- past tables
#
# Views of a query that are tables in other states than the statement's own.


class PastRows:
    """A view of a statement that is a table in another state than the statement's own.

    The lake's engine reads from the table's files what a query needs. Any other reader gets a
    stream of all rows.

    Parameters
    ----------
    executor : Reader
        Bound to that state.
    table : str
    """

    def __init__(self, executor: Reader, table: str) -> None:
        self.executor, self._table = executor, table

    def schema(self) -> pa.Schema:
        """Return the table's columns in the state to which the executor is bound."""
        return self._see(lambda state, location: layout_of(state, location, reading=True)).schema

    def files(self, within: Expr | None = None) -> TableInput:
        """Return the table's files, in the executor's state, whose rows may satisfy ``within``."""
        return self._see(lambda state, location: see_files(state, location, None, within))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        def read(state: TransactionState, location: str) -> Program[pa.RecordBatchReader]:
            return scan(state, location, None, None)

        with self.executor.kept():
            return self._see(read).__arrow_c_stream__(requested_schema)

    def _see(self, read: Callable[[TransactionState, str], Program[T]]) -> T:
        executor = self.executor
        with executor.kept(), executor.verb_scope("read", self._table):
            executor.state.check_open("read")
            return executor.run(read(executor.state, executor.resolve(self._table)))


def _reads_files_of(view: object, client: LakeClient) -> TypeGuard[PastRows]:
    """Return whether a view is a past table whose files this lake's engine reads itself."""
    engine = client.context.engine
    return isinstance(view, PastRows) and view.executor.client.context.engine is engine


@contextmanager
def _pasts(
    client: LakeClient,
    views: Mapping[str, object],
    within: Callable[[Mapping[str, pa.Schema]], Mapping[str, Expr]] | None = None,
) -> Iterator[dict[str, TableInput]]:
    """Yield the past tables among the views, each with the files of it that a query needs.

    ``within`` takes the past tables' schemas and returns, by the tables' names, the conditions on
    the rows that the query reads.
    """
    pasts = {name: view for name, view in views.items() if _reads_files_of(view, client)}
    with ExitStack() as files_kept:
        for view in pasts.values():
            files_kept.enter_context(view.executor.kept())
        left: Mapping[str, Expr] = {}
        if pasts and within is not None:
            left = within({name: view.schema() for name, view in pasts.items()})
        yield {name: view.files(left.get(name)) for name, view in pasts.items()}
