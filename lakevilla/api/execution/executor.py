"""The verbs whose arguments are text: predicates, assignments, merges and SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa

from lakevilla.api.arguments import check_columns, check_number, parameters
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.queries import OfOwnRow, Queries, of_no_row, own_row_test
from lakevilla.api.execution.sources import frames_go_in_views
from lakevilla.api.frame import Frame
from lakevilla.api.merge import Described, MergeBuilder, new_columns
from lakevilla.arrow.input import refuse_unknown
from lakevilla.engines.base import MergeClause
from lakevilla.errors import (
    InvalidOperation,
    LakeVillaError,
    MergeConflict,
)
from lakevilla.formats.layout import Layout
from lakevilla.lake.operations.difference import TableDifference, rows_between
from lakevilla.lake.operations.feed_rows import AskedRows, rows_of
from lakevilla.lake.operations.sources import read_source
from lakevilla.meter import note
from lakevilla.phases import during, streamed
from lakevilla.results import OperationResult
from lakevilla.sql.expressions.assignments import exact_assignments
from lakevilla.sql.expressions.bind import Predicate, bind, exact
from lakevilla.sql.expressions.parse import (
    Meaning,
    StatementExpressions,
    parse_predicate,
    refuse_unused,
)
from lakevilla.sql.expressions.syntax.slips import naming_quotes
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.statements.dml import InsertStatement, MergeStatement
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Delete, Guard, QuerySource, Source, Update
from lakevilla.sublogs.operations import Insert as InsertOperation
from lakevilla.sublogs.operations import Merge as MergeOperation
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.verbs import optimize
from lakevilla.transaction.verbs.applying.apply import Outcome
from lakevilla.transaction.verbs.read_write import (
    changes_seen,
    execute,
    layout_of,
    layout_with,
    scan,
)
from lakevilla.transaction.verbs.replaced_tables import conflict_if_replaced, raise_if_replaced

__all__ = ["Executor"]

T = TypeVar("T")


class Executor(Queries[Frame]):
    """An executor of the verbs of one transaction; rows that it reads become frames of Arrow."""

    # -- reading -----------------------------------------------------------------

    def read(
        self,
        table: str,
        columns: Sequence[str] | None,
        where: Predicate | None,
        params: Mapping[str, object] | None,
    ) -> Frame:
        """Return rows of a table; see ``Transaction.read``."""
        with self.kept(), self.client.measured("read", table, self.state.id):
            rows: Frame = self.scan(table, columns, where, params).read_all()
            return rows

    def scan(
        self,
        table: str,
        columns: Sequence[str] | None,
        where: Predicate | None,
        params: Mapping[str, object] | None,
    ) -> pa.RecordBatchReader:
        """Return rows of a table as ``read`` does, streamed."""
        with self.kept(), self.alone("read", table):
            self.state.check_open("read")
            columns = check_columns(columns)
            predicate = self.optional_predicate(where, params, table)
            return self._scanned(table, columns, predicate)

    def scan_where(
        self, table: str, columns: Sequence[str] | None, predicate: Expr | None
    ) -> pa.RecordBatchReader:
        """Return rows of a table as ``scan`` does, by a predicate that is already a tree."""
        with self.kept(), self.alone("read", table):
            self.state.check_open("read")
            return self._scanned(table, columns, predicate)

    def _scanned(
        self, table: str, columns: Sequence[str] | None, predicate: Expr | None
    ) -> pa.RecordBatchReader:
        location = self.resolve(table)
        rows = self.run(scan(self.state, location, columns, predicate))
        return pa.RecordBatchReader.from_batches(rows.schema, self._streamed(location, rows))

    def changes(
        self,
        table: str,
        since: int,
        columns: Sequence[str] | None,
        where: Predicate | None,
        params: Mapping[str, object] | None,
    ) -> Frame:
        """Return the rows changed after a global version; see ``Transaction.changes``."""
        with self.alone("changes", table):
            self.state.check_open("changes")
            columns = check_columns(columns)
            since = check_number("since", since)
            predicate = self.optional_predicate(where, params, table)
            location = self.resolve(table)
            return self._changed(location, since, columns, predicate)

    def _changed(
        self, location: str, since: int, columns: Sequence[str] | None, where: Expr | None
    ) -> Frame:
        return self.framed(self.run(changes_seen(self.state, location, since, columns, where)))

    @staticmethod
    def rows_changed(client: LakeClient, asked: AskedRows) -> Frame:
        """Return the rows that a version of the feed changed in a table; see ``Version.tables``."""
        rows: Frame = client.run(rows_of(client.context, asked))
        return rows

    @staticmethod
    def differing(client: LakeClient, table: TableDifference, keys: Sequence[str] | None) -> Frame:
        """Return the rows in which two states of a table differ; see ``Diff.rows``."""
        rows: Frame = client.run(rows_between(client.context, table, keys))
        return rows

    def _streamed(self, location: str, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yield a table's rows; a file that is deleted with the table meanwhile is a conflict."""
        with self.kept():
            try:
                for batch in streamed(self.state.phases, "data", location, iter(rows)):
                    note(rows=batch.num_rows, bytes=batch.nbytes)
                    self.idle.note_use()  # a transaction whose rows are read is not idle
                    yield batch
            except (LakeVillaError, OSError) as error:
                self.run(raise_if_replaced(self.state, [location], error))
                raise

    # -- text ----------------------------------------------------------------------

    def optional_predicate(
        self, where: object, params: Mapping[str, object] | None, table: str | None = None
    ) -> Expr | None:
        """Return the tree of a ``where``, or None; ``table`` is the one whose columns it names."""
        if where is None:
            if parameters(params):
                raise InvalidOperation(
                    "params were given without a predicate that uses them: pass where, or leave "
                    "them out"
                )
            return None
        foreign = None if table is None else self.foreign(table)
        return parse_predicate(where, parameters(params), self._fixed_now(), foreign)

    # -- writing -------------------------------------------------------------------

    def merge(
        self,
        location: str,
        rows: pa.Schema,
        stored: Callable[[], Source],
        on: Expr,
        aliases: tuple[str, str],
        clauses: tuple[MergeClause, ...],
        *,
        widens: bool = False,
        within: Expr | None = None,
        of_own_row: OfOwnRow = of_no_row,
    ) -> OperationResult:
        """Merge a source into the table at ``location``.

        ``widens``: columns of the source that the clauses set, and the table lacks, are added to
        it. ``within`` is as in the operation. ``of_own_row``: the test whether the source has
        computed the value of a column from the table's own rows.
        """

        def bound(layout: Layout) -> tuple[Expr, tuple[MergeClause, ...], bytes | None]:
            return self._bound_merge(location, layout, rows, on, aliases, clauses, widens=widens)

        condition, exactly, columns = self._fitting(location, bound)
        operation = MergeOperation(
            location,
            stored(),
            condition,
            *aliases,
            exactly,
            columns=columns,
            within=within,
            computed=tuple(
                sorted({c for one in exactly for c in one.assignments if of_own_row(c)})
            ),
        )
        return self.done(execute(self.state, operation, "merge"))

    def _bound_merge(
        self,
        location: str,
        layout: Layout,
        rows: pa.Schema,
        on: Expr,
        aliases: tuple[str, str],
        clauses: tuple[MergeClause, ...],
        *,
        widens: bool,
    ) -> tuple[Expr, tuple[MergeClause, ...], bytes | None]:
        columns = None
        source_alias, target_alias = aliases
        if widens:
            new = new_columns(
                clauses, layout.schema, rows, source_alias=source_alias, table=layout.table
            )
            if new is not None:
                columns = new.serialize().to_pybytes()
                layout = self.run(layout_with(self.state, location, new))
        schemas = {source_alias: rows, target_alias: layout.schema}
        condition = exact(on, schemas)
        bound = tuple(
            MergeClause(
                clause.kind,
                None if clause.predicate is None else exact(clause.predicate, schemas),
                exact_assignments(
                    clause.assignments,
                    layout.schema,
                    schemas,
                    alias=target_alias,
                    inserts=clause.kind == "not_matched_insert",
                ),
            )
            for clause in clauses
        )
        return condition, bound, columns

    def _fitting(self, location: str, made: Callable[[Layout], T]) -> T:
        """Return the result of ``made`` for a table's layout: a verb, bound to the columns.

        A deferred verb uses the layout that is known already. If it does not fit that, the current
        layout is read and used.
        """
        if self.state.defers:
            try:
                return made(self.run(layout_of(self.state, location)))
            except InvalidOperation:
                pass
        return made(self.run(layout_of(self.state, location, probing=True)))

    def merge_builder(
        self,
        described: Described,
        location: str,
        rows: pa.Schema,
        stored: Callable[[], Source],
        condition: Expr,
        together: StatementExpressions,
        aliases: tuple[str, str],
        *,
        widens: bool = False,
        within: Expr | None = None,
        of_own_row: OfOwnRow = of_no_row,
    ) -> MergeBuilder:
        """Return the builder by which a caller describes a merge; its source is known."""
        layout = self.run(layout_of(self.state, location, probing=True))
        # A condition that can't be bound is refused here, not by `execute`.
        schemas = {aliases[0]: rows, aliases[1]: layout.schema}
        bind(condition, schemas)

        def perform(clauses: tuple[MergeClause, ...]) -> OperationResult:
            with self.alone(described.verb, described.table):
                together.finish()
                together.check(schemas)
                return self.merge(
                    location,
                    rows,
                    stored,
                    condition,
                    aliases,
                    clauses,
                    widens=widens,
                    within=within,
                    of_own_row=of_own_row,
                )

        return MergeBuilder(
            source=rows,
            target=layout.schema,
            aliases=aliases,
            widens=widens,
            parse=together.predicate,
            parse_assignments=together.assignments,
            perform=perform,
            placing=partial(self.placing, described.verb, described.table),
            described=described,
        )

    def update(
        self,
        table: str,
        assignments: Mapping[str, object],
        where: Predicate | None,
        params: Mapping[str, object] | None,
        alias: str | None = None,
        meaning: Meaning | None = None,
    ) -> OperationResult:
        with self.alone("update", table):
            location = self.to_write(table, "update")
            together = self.together(params, self.foreign(table), meaning)
            condition = together.predicate(where)
            with naming_quotes(assignments):
                values = together.assignments(assignments)
            together.finish()

            def bound(layout: Layout) -> Update:
                assigned = exact_assignments(values, layout.schema, alias=alias)
                together.check(layout.schema, alias)
                return Update(location, assigned, exact(condition, layout.schema, alias=alias))

            with naming_quotes(assignments):
                operation = self._fitting(location, bound)
                return self.done(execute(self.state, operation, "update"))

    def delete(
        self,
        table: str,
        where: Predicate | None,
        params: Mapping[str, object] | None,
        alias: str | None = None,
        meaning: Meaning | None = None,
    ) -> OperationResult:
        with self.alone("delete", table):
            location = self.to_write(table, "delete")
            together = self.together(params, self.foreign(table), meaning)
            condition = together.predicate(where)
            together.finish()

            def bound(layout: Layout) -> Delete:
                exactly = exact(condition, layout.schema, alias=alias)
                together.check(layout.schema, alias)
                return Delete(location, exactly)

            operation = self._fitting(location, bound)
            return self.done(execute(self.state, operation, "delete"))

    def optimize(
        self,
        table: str,
        where: Predicate | None,
        target_file_size_bytes: int | None,
        z_order_by: Sequence[str],
    ) -> Done | None:
        """Move a table's rows into fewer files, and do nothing else.

        Return None if all files are as they should be.
        """
        with self.alone("optimize", table):
            location = self.to_write(table, "optimize")
            return self.run(
                optimize.optimize(
                    self.state,
                    location,
                    self.optional_predicate(where, None, table),
                    target_file_size_bytes=target_file_size_bytes,
                    z_order_by=z_order_by,
                )
            )

    def applied(self, program: Program[dict[str, Outcome]]) -> dict[str, str]:
        """Return the outcome of each table, by name, of a program that applies one state to
        another.
        """
        with self.alone("apply"):
            self.client.ensure_safe_store()
            try:
                outcomes = self.run(program)
            except MergeConflict as error:
                names = self.shown_names()
                rows = error.by_table
                error.by_table = {names.get(table, table): found for table, found in rows.items()}
                raise
            self.save_if_due()
            names = self.shown_names()
            return {names.get(location, location): str(one) for location, one in outcomes.items()}

    def set_guard(self, table: str, on: bool) -> None:
        """Turn the writer feature ``lakevilla`` on or off."""
        with self.alone():
            location = self.to_write(table, "guard" if on else "unguard")
            self.done(execute(self.state, Guard(location, on), "guard"))

    # -- verbs of sql alone --------------------------------------------------------

    def insert(
        self, statement: InsertStatement, params: dict[str, object], views: Mapping[str, object]
    ) -> OperationResult:
        with self.alone("insert", statement.table):
            location = self.to_write(statement.table, "insert")

            def named(layout: Layout) -> tuple[Layout, tuple[str, ...]]:
                columns = statement.columns or tuple(layout.schema.names)
                refuse_unknown(columns, layout.schema, layout.table, "name another")
                return layout, columns

            layout, columns = self._fitting(location, named)
            source = self._query_source(statement.source, params, views, layout.schema)
            refuse_unused(params, source.params)
            operation = InsertOperation(location, columns, source)
            with frames_go_in_views(source.tables):
                return self.done(execute(self.state, operation, "insert"))

    def merge_from(
        self,
        statement: MergeStatement,
        params: dict[str, object],
        views: Mapping[str, object],
        meaning: Meaning | None = None,
    ) -> MergeBuilder:
        with self.alone(statement.verb, statement.table):
            location, layout = self.to_write_into(statement.table, "merge")
            source = self._query_source(statement.source, params, views, layout.schema)
            # A deferred merge must raise the errors of its query now.
            within = statement.within if _is_read_once(source, location) else None
            own = None if within is None else (location, within)
            alone = not self.state.defers
            reading = read_source(
                self.client.context, source, self.state.lookup, own, columns_alone=alone
            )
            with frames_go_in_views(source.tables), during("data"):
                rows = self.run(conflict_if_replaced(self.state, source.tables.values(), reading))
            together = self.together(params, None, meaning)
            together.use(source.params)
            return self.merge_builder(
                Described(statement.table, verb=statement.verb),
                location,
                rows.schema,
                lambda: source,
                together.predicate(statement.on),
                together,
                (statement.source_alias, statement.target_alias),
                within=within,
                of_own_row=own_row_test(statement, location, source.tables),
            )


def _is_read_once(source: QuerySource, location: str) -> bool:
    """Return whether a query knows a table by one name; it may have two, a path among them."""
    return sum(table == location for table in source.tables.values()) == 1
