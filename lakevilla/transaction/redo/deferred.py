"""Logical mode: operations that are deferred while other transactions go first (design, section 6).

Work that is done behind other transactions must be done again once they have
committed. So an operation there is checked and noted. It is performed after the
wait, or as soon as its rows or counts are read: until then it changes
nothing, stores nothing, and conflicts with nothing.

A performed operation never depends on a deferred one: an operation that follows on a
table with deferred operations, or reads one, is deferred too, or performs them first.
Appends depend on nothing, so they are made at once, and keep their place among
the other operations when those are performed.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.lake.context import file_namer
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
from lakevilla.transaction.state.files import made_files
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState

#: The physical side of a deferred operation.
NOT_PERFORMED = Performed(Change(), Counts(), {}, {})


def is_deferred(txn: TransactionState, operation: Operation) -> Program[bool]:
    """Return whether to note an operation without performing it yet; check it as far as possible.

    Raises
    ------
    InvalidOperation
        It can't fit its tables, whatever rows they have.
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

    With ``concerning`` only if some of them are on these tables; then still all of
    them, because their operations may read the other tables.

    Raises
    ------
    ConflictError, InvalidOperation
        See ``replay.redo``. A verb that was accepted can't take effect, so nothing
        of the transaction can commit.
    """
    late = {done.table for done in txn.work.done if done.deferred}
    if not late or (concerning is not None and late.isdisjoint(concerning)):
        return
    name = file_namer(txn.context, txn.id, txn.through_head)
    with fetching(txn, [done for done in txn.work.done if done.deferred]) as files:

        def step(_: int, done: Done) -> Program[None]:
            if done.deferred:
                yield from files.before(done)
                yield from redo(txn, done, name)

        yield from replay(txn, step)


def defer(txn: TransactionState, tables: Collection[str]) -> None:
    """Defer performed operations again, on tables where other transactions go first from now on.

    What the caller has read stays unchanged, with all operations from which it was made: were
    it created again, nothing could show whether the caller acted on it. Counts that the caller has
    read are compared when the operation is performed again. Files that were stored for it are the
    transaction's to delete, as those of any redo.
    """
    seen = _seen(txn)
    late: set[str] = set()
    for index, done in enumerate(txn.work.done):
        if index not in seen and not done.deferred and can_wait(done.operation):
            if done.table not in tables and late.isdisjoint(_tables(done.operation)):
                continue
            for key in made_files(done):
                txn.work.bodies.pop(key, None)
            done.change, done.metrics = Change(), {}
            done.deferred = done.fitted = True
        if done.deferred:
            late.add(done.table)
    if late:
        lay_over(txn)


def _seen(txn: TransactionState) -> set[int]:
    """Return the operations that must stay performed, by number.

    These are operations whose rows the caller has read, operations that can't be deferred (a new
    constraint held for the rows that existed then), and the operations from which they were made.
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
    """Return whether operations of this kind can be deferred: those that keep the schema.

    An operation that follows a change of the schema must see the new one.
    """
    return isinstance(operation, Update | Delete | Merge | Insert | Overwrite) and not _evolves(
        operation
    )


def _may_be_refused(txn: TransactionState, operation: Operation) -> bool:
    """Return whether it may remove rows of a table that only grows.

    Its rows decide that, and the error is raised to its caller.
    """
    if not txn.work.tables[operation.table].snapshot.append_only:
        return False
    if isinstance(operation, Merge):
        return any(clause.kind != "not_matched_insert" for clause in operation.clauses)
    return not isinstance(operation, Insert)


def _fits(txn: TransactionState, operation: Operation) -> Program[bool]:
    """Bind the operation to its tables' columns; False if only performing it can show more."""
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
            # Nothing to bind; or a source to which its caller has bound the operation while storing
            # it.
            pass
    return True


def _without_rows(txn: TransactionState, source: QuerySource) -> Program[pa.Table | None]:
    """Return a query's result without its rows; None if empty tables do not determine it."""

    def lookup(location: str) -> Program[TableSnapshot]:
        yield from ()  # all of them are part of the transaction already
        snapshot = txn.work.tables[location].snapshot
        blank = txn.context.formats.of(snapshot).blank(
            location, snapshot.layout.table, catalog=snapshot.catalog
        )
        return blank.apply(Change(metadata=snapshot.metadata, protocol=snapshot.protocol))

    try:
        rows = yield from read_source(txn.context, source, lookup)
    except InvalidOperation:
        # The query is wrong, or right only where there are rows: performing it shows which.
        return None
    return rows.slice(0, 0)
