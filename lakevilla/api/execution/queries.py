"""The queries of ``sql``: run, explained, and kept as what a redo runs again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeGuard, TypeVar

import pyarrow as pa

from lakevilla.api.client.sql_names import refuse_places
from lakevilla.api.execution.frame_hint import frames_go_in_views
from lakevilla.api.execution.sources import Sources
from lakevilla.api.frame import Frame
from lakevilla.arrow.scalars import plain
from lakevilla.engines.base import TableInput
from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    VersionNotFound,
)
from lakevilla.formats.layout import Layout
from lakevilla.lake.operations.inserted import assigned_rows
from lakevilla.lake.operations.sources.reading import read_source, without_rows
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.expressions.values import literal
from lakevilla.sql.statements.determinism import refuse_volatile, with_fixed_time
from lakevilla.sql.statements.select import Select, named_parameters
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import QuerySource
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.catalog.explain import answer, plan
from lakevilla.transaction.verbs.read_write import layout_of, query, scan, see_files
from lakevilla.transaction.verbs.replaced_tables import conflict_if_replaced

__all__ = ["PastRows", "Queries"]

T = TypeVar("T")


class Queries(Sources[Frame]):
    """An executor of SELECTs; rows are Arrow."""

    @contextmanager
    def kept(self) -> Iterator[None]:
        """A past state whose files were vacuumed is a version that is not there any more."""
        try:
            yield
        except VersionNotFound:
            raise
        except (LakeVillaError, OSError) as error:
            # An engine tells of a missing file in its own ways; a mistake in a query names none.
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
                literal(value, f"parameter :{name}")  # what no column holds is no parameter

            def within(schemas: Mapping[str, pa.Schema]) -> dict[str, Expr]:
                return self.rows_within(statement, params, {**schemas, **self._schemas(tables)})

            with frames_go_in_views(tables), self._pasts(views, within) as pasts:
                asked = query(self.state, sql, tables, given, params, pasts)
                found: Frame = self.run(asked)
            return found

    def rows_within(
        self, statement: Select, params: Mapping[str, object], schemas: Mapping[str, pa.Schema]
    ) -> dict[str, Expr]:
        """What a query says of the rows of tables that it looks at, by their paths in it.

        Spark tells nothing of its own queries.
        """
        if self.dialect != "duckdb":
            return {}
        sql = with_fixed_time(statement.sql, self._fixed_now(), self.dialect)
        return dict(self.client.context.engine.rows_within(sql, params, schemas))

    def plan(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> str:
        """How the engine would run a query; nothing counts as read."""
        with self.alone():
            tables = self._sql_tables(statement, views)
            given = self._given_rows(views)
            with self._pasts(views) as pasts:
                return self.run(plan(self.state, statement.sql, tables, given, params, pasts))

    def columns(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> pa.Schema:
        """The columns of a query; nothing counts as read."""
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
        """Whether a view is a past table whose files the engine of this lake reads itself."""
        engine = self.client.context.engine
        return isinstance(view, PastRows) and view.executor.client.context.engine is engine

    def _schemas(self, tables: Mapping[str, str]) -> dict[str, pa.Schema]:
        """The columns of tables that a query is about to read, as far as they can be told."""
        try:
            return {
                path: self.run(layout_of(self.state, location, reading=True)).schema
                for path, location in tables.items()
            }
        except LakeVillaError:
            return {}  # what is wrong with one, the query tells

    @contextmanager
    def _pasts(
        self,
        views: Mapping[str, object],
        within: Callable[[Mapping[str, pa.Schema]], Mapping[str, Expr]] | None = None,
    ) -> Iterator[dict[str, TableInput]]:
        """The past tables among the views, of which a query reads what it needs.

        ``within`` says by their names, given their schemas, which of their rows it looks at.
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
        """The columns of a query, of which no row counts as seen."""
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
        """As ``to_write``, for a verb that has to know the columns that are there."""
        location = self.to_write(table, verb)
        return location, self.run(layout_of(self.state, location, probing=True))

    def assigned_rows(
        self, layout: Layout, columns: Sequence[str], rows: Frame, *, literals: bool
    ) -> pa.RecordBatchReader:
        """What a query has found, as the ``columns`` of a table that it is inserted into."""
        found: Any = rows
        return assigned_rows(columns, layout, found, literals=literals)

    def resolve_in_sql(self, table: str) -> str:
        """As ``resolve``, for what a statement calls a table.

        Raises
        ------
        InvalidOperation
            It is a place beyond the root, and no table of the lake.
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

    A query of the engine that knows it reads what it needs of the files. Whoever else asks for
    it gets all rows, streamed.

    Parameters
    ----------
    executor : Queries
        Bound to that state.
    table : str
    """

    def __init__(self, executor: Queries[Any], table: str) -> None:
        self.executor, self._table = executor, table

    def schema(self) -> pa.Schema:
        """The table's columns then."""
        return self._see(lambda state, location: layout_of(state, location, reading=True)).schema

    def files(self, within: Expr | None = None) -> TableInput:
        """The table's files then, of those whose rows ``within`` may be true of."""
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
