"""Changes of rows, bound to a table's columns: updates, deletes, merges, and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import pyarrow as pa

from lakevilla.api.client.client import LakeClient
from lakevilla.api.merge import OfOwnRow, PlannedMerge, new_columns
from lakevilla.engines.base import MergeClause
from lakevilla.errors import InvalidOperation
from lakevilla.formats.layout import Layout
from lakevilla.lake.operations.matching import reach
from lakevilla.results import Counts, OperationResult
from lakevilla.sql.expressions.assignments import exact_assignments
from lakevilla.sql.expressions.bind import exact
from lakevilla.sql.expressions.parse import StatementExpressions
from lakevilla.sql.expressions.render import shown_sql
from lakevilla.sql.expressions.tree import Expr, columns
from lakevilla.sql.statements.dml import MergeStatement
from lakevilla.sql.statements.meaning.duckdb import OtherMeaning, other_meaning
from lakevilla.sublogs.operations import Delete, InlineSource, Merge, QuerySource, Update
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.read_write import layout_of, layout_with

__all__ = [
    "delete_of",
    "fitting",
    "is_read_once",
    "merge_of",
    "own_row_test",
    "result_of",
    "update_of",
]

T = TypeVar("T")


def fitting(
    client: LakeClient, state: TransactionState, location: str, made: Callable[[Layout], T]
) -> T:
    """Call ``made`` with the table's layout, and return the verb that it binds to the columns.

    A deferred verb is bound to the cached layout. If that is refused, the present layout is read,
    and the verb is bound to that one.
    """
    if state.defers:
        try:
            return made(client.run(layout_of(state, location)))
        except InvalidOperation:
            pass
    return made(client.run(layout_of(state, location, probing=True)))


def update_of(
    location: str,
    layout: Layout,
    texts: StatementExpressions,
    values: Mapping[str, Expr],
    condition: Expr,
    alias: str | None,
) -> Update | OtherMeaning:
    """Return an update bound to a layout's columns; ``OtherMeaning`` if SQL reads it otherwise."""
    assigned = exact_assignments(values, layout.schema, alias=alias)
    other = other_meaning(texts, layout.schema, alias)
    if other is not None:
        return other
    return Update(location, assigned, exact(condition, layout.schema, alias=alias))


def delete_of(
    location: str, layout: Layout, texts: StatementExpressions, condition: Expr, alias: str | None
) -> Delete | OtherMeaning:
    """Return a delete bound to a layout's columns; ``OtherMeaning`` if SQL reads it otherwise."""
    exactly = exact(condition, layout.schema, alias=alias)
    return other_meaning(texts, layout.schema, alias) or Delete(location, exactly)


def merge_of(
    client: LakeClient,
    state: TransactionState,
    merge: PlannedMerge,
    clauses: tuple[MergeClause, ...],
) -> Merge:
    """Return a merge bound to the columns of its table and of its source."""

    def bound(layout: Layout) -> tuple[Expr, tuple[MergeClause, ...], bytes | None, pa.Schema]:
        columns = None
        source_alias, target_alias = merge.aliases
        if merge.widens:
            new = new_columns(
                clauses, layout.schema, merge.rows, source_alias=source_alias, table=layout.table
            )
            if new is not None:
                columns = new.serialize().to_pybytes()
                layout = client.run(layout_with(state, merge.location, new))
        schemas = merge.schemas(layout.schema)
        condition = exact(merge.on, schemas)
        exactly = tuple(_bound_clause(clause, schemas, target_alias) for clause in clauses)
        return condition, exactly, columns, layout.schema

    condition, exactly, columns, schema = fitting(client, state, merge.location, bound)
    source, within = merge.stored(), merge.within
    if within is None and columns is None and isinstance(source, InlineSource):
        rows = pa.ipc.open_stream(source.ipc).read_all()
        within = reach(condition, merge.aliases, schema, rows)
    set_columns = {column for one in exactly for column in one.assignments}
    return Merge(
        merge.location,
        source,
        condition,
        *merge.aliases,
        exactly,
        columns=columns,
        within=within,
        computed=tuple(sorted(filter(merge.of_own_row, set_columns))),
    )


def _bound_clause(
    clause: MergeClause, schemas: Mapping[str, pa.Schema], target_alias: str
) -> MergeClause:
    bound = MergeClause(
        clause.kind,
        None if clause.predicate is None else exact(clause.predicate, schemas),
        exact_assignments(
            clause.assignments,
            schemas[target_alias],
            schemas,
            alias=target_alias,
            inserts=clause.kind == "not_matched_insert",
        ),
    )
    _refuse_absent(bound, target_alias)
    return bound


def _refuse_absent(clause: MergeClause, target_alias: str) -> None:
    """Refuse columns of the side that has no row where a clause applies."""
    if not clause.kind.startswith("not_matched"):
        return
    inserts = clause.kind == "not_matched_insert"
    present, absent = ("source", "table") if inserts else ("table", "source")
    given: list[Expr] = list(clause.assignments.values())
    if clause.predicate is not None:
        given.append(clause.predicate)
    for column in (one for expr in given for one in columns(expr)):
        if (column.table == target_alias) == inserts:
            raise InvalidOperation(
                f"when_{clause.kind} has {shown_sql(column)}, and where it applies the {absent} "
                f"has no row: use columns of the {present}"
            )


def result_of(
    state: TransactionState, done: Done, perform: Callable[[Done], None]
) -> OperationResult:
    """Return a verb's result, which calls ``perform`` if counts of a deferred verb are read."""

    def counts() -> Counts:
        if done.deferred:
            perform(done)
        return done.counts

    def observe() -> None:
        counts()
        done.observed = True

    def settled() -> bool:
        return done.observed or state.state is Status.COMMITTED

    return OperationResult(counts, observe, settled)


# -------------------- own rows
#
# Test whether a merge sets a column to a value computed from the row that it updates.


def own_row_test(statement: MergeStatement, location: str, tables: Mapping[str, str]) -> OfOwnRow:
    """Return the function that decides, by column, whether a statement computes it from its own
    row.

    ``tables`` are the locations of the tables that the statement's query reads. If the statement
    does not list its computed columns, and its query reads the table itself, all columns count as
    computed.
    """
    if statement.computed is None:
        reads_itself = location in tables.values()
        return lambda column: reads_itself
    named = {column.lower() for column in statement.computed}
    return lambda column: column.lower() in named


def is_read_once(source: QuerySource, location: str) -> bool:
    """Return whether a query names a table exactly once; a table may have a name and a path."""
    return sum(table == location for table in source.tables.values()) == 1
