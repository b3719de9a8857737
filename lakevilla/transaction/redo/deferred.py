"""Deferred operations: noted now, performed at the commit or for a read (design, section 6).

A transaction that is behind other transactions would have to redo its work once they have
committed. So it only checks and notes an operation, and performs it after the wait, or as soon as
the caller reads its rows or counts. Until then the operation changes no table, stores no file, and
conflicts with no commit.

A performed operation never depends on a deferred one: an operation on a table with deferred
operations, or one that reads such a table, is deferred too, or the deferred ones are performed
first. An append depends on no rows, so it is performed at once, and keeps its place among the other
operations when these are performed.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.lake.operations.inserted import inserted_rows
from lakevilla.lake.operations.perform import Performed, merge_spec
from lakevilla.lake.operations.sources import read_source
from lakevilla.results import Counts
from lakevilla.sql.expressions.assignments import bind_assignments
from lakevilla.sql.expressions.bind import bind
from lakevilla.store.effects import Program
from lakevilla.sublogs.binding import locate
from lakevilla.sublogs.operations import (
    Append,
    Create,
    Delete,
    InlineSource,
    Insert,
    Merge,
    Operation,
    Overwrite,
    QuerySource,
    Update,
    tables_read,
)
from lakevilla.transaction.redo.rebase import fetching
from lakevilla.transaction.redo.replay import lay_over, redo, replay
from lakevilla.transaction.state.files import drop_files
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState

#: The result of a deferred operation before it is performed: no change.
NOT_PERFORMED = Performed(Change(), Counts(), {}, {})


def is_deferred(txn: TransactionState, operation: Operation) -> Program[bool]:
    """Return whether to note an operation without performing it; check it as far as possible.

    Raises
    ------
    InvalidOperation
        The operation does not fit the columns of its tables, so it can't be performed on any rows.
    """
    late = {done.table for done in txn.work.done if done.deferred}
    if not (txn.defers or txn.is_behind(operation.table) or late & _tables(operation)):
        return False
    if not can_wait(operation) or _may_be_refused(txn, operation):
        return False
    return (yield from _fits(txn, operation))


def perform_deferred(
    txn: TransactionState, concerning: Collection[str] | None = None
) -> Program[None]:
    """Perform the deferred operations, in order and on the present state of the transaction.

    With ``concerning``, do nothing unless one of them is on these tables; if one is, perform all,
    because a deferred operation may read tables that another one changes.

    Raises
    ------
    ConflictError, InvalidOperation
        See ``replay.redo``. An operation that the verb accepted can't be performed, so the
        transaction can't commit.
    """
    late = {done.table for done in txn.work.done if done.deferred}
    if not late or (concerning is not None and late.isdisjoint(concerning)):
        return
    name = txn.file_namer
    with fetching(txn, [done for done in txn.work.done if done.deferred]) as files:

        def step(_: int, done: Done) -> Program[None]:
            if done.deferred:
                yield from files.before(done)
                yield from redo(txn, done, name)

        yield from replay(txn, step)


def defer(txn: TransactionState, tables: Collection[str]) -> None:
    """Defer performed operations again, on tables where other transactions go first from now on.

    Operations whose rows the caller has read stay performed, and so do the operations on which
    those rows depend: if the rows changed, the caller might have acted on rows that are not true
    any more. Counts that the caller has read are compared when the operation is performed again. As
    after any redo, the transaction may delete the files that were stored for the operation before.
    """
    seen = _seen(txn)
    late: set[str] = set()
    for index, done in enumerate(txn.work.done):
        if index not in seen and not done.deferred and can_wait(done.operation):
            if done.table not in tables and late.isdisjoint(_tables(done.operation)):
                continue
            drop_files(txn, done)
            done.change, done.metrics = Change(), {}
            done.deferred = done.fitted = True
        if done.deferred:
            late.add(done.table)
    if late:
        lay_over(txn)


def _seen(txn: TransactionState) -> set[int]:
    """Return the numbers of the operations that must stay performed.

    These are operations whose rows the caller has read, operations that can't be deferred (such as
    a new constraint, which was checked on the rows of that time), and all on which these depend.
    """
    seen: set[int] = set()
    tables: set[str] = set()
    for index in reversed(range(len(txn.work.done))):
        done = txn.work.done[index]
        if isinstance(done.operation, Append | Create) and not _evolves(done.operation):
            continue
        if (
            done.table in tables
            or not can_wait(done.operation)
            or any(r.table == done.table and r.after > index for r in txn.work.reads.values())
        ):
            seen.add(index)
            tables |= _tables(done.operation)
    return seen


def _tables(operation: Operation) -> set[str]:
    """Return the tables on whose state an operation depends."""
    if isinstance(operation, Append | Create) and not _evolves(operation):
        return set()
    return {operation.table, *tables_read(operation)}


def _evolves(operation: Operation) -> bool:
    return isinstance(operation, Append | Overwrite | Merge) and operation.columns is not None


def can_wait(operation: Operation) -> bool:
    """Return whether an operation is of a kind that can be deferred: it must not change the schema.

    Operations that follow a change of the schema must see the new schema.
    """
    return isinstance(operation, Update | Delete | Merge | Insert | Overwrite) and not _evolves(
        operation
    )


def _may_be_refused(txn: TransactionState, operation: Operation) -> bool:
    """Return whether an operation may remove rows of an append-only table.

    The table's rows decide that, so the operation is performed at once: the verb raises the error.
    """
    if not txn.work.tables[operation.table].snapshot.append_only:
        return False
    if isinstance(operation, Merge):
        return any(clause.kind != "not_matched_insert" for clause in operation.clauses)
    return not isinstance(operation, Insert)


def _fits(txn: TransactionState, operation: Operation) -> Program[bool]:
    """Bind the operation to its tables' columns; False if only its performing can check it."""
    layout = txn.work.tables[operation.table].snapshot.layout
    operation = locate(operation, layout)
    match operation:
        case Update(assignments=assignments, where=where):
            bind(where, layout.schema)
            bind_assignments(assignments, layout.schema)
        case Delete(where=where):
            bind(where, layout.schema)
        case Overwrite(where=where) if where is not None:
            bind(where, layout.schema)
        case Merge(source=InlineSource(ipc=ipc)):
            merge_spec(operation, layout.schema, pa.ipc.open_stream(ipc).schema)
        case Merge(source=QuerySource() as source):
            rows = yield from _without_rows(txn, source)
            if rows is None:
                return False
            merge_spec(operation, layout.schema, rows.schema)
        case Insert(source=source):
            rows = yield from _without_rows(txn, source)
            if rows is None:
                return False
            inserted_rows(operation, layout, rows)
        case _:
            # There is nothing to bind; or the verb bound the operation to its source when it stored
            # the source.
            pass
    return True


def _without_rows(txn: TransactionState, source: QuerySource) -> Program[pa.Table | None]:
    """Return a query's columns as a table without rows; None if empty tables do not show them."""

    def lookup(location: str) -> Program[TableSnapshot]:
        yield from ()  # all these tables are part of the transaction already
        snapshot = txn.work.tables[location].snapshot
        blank = txn.context.formats.of(snapshot).blank(
            location, snapshot.layout.table, catalog=snapshot.catalog
        )
        return blank.apply(Change(metadata=snapshot.metadata, protocol=snapshot.protocol))

    try:
        rows = yield from read_source(txn.context, source, lookup)
    except InvalidOperation:
        # The query is invalid, or fails on empty tables only: performing it shows which.
        return None
    return rows.slice(0, 0)
