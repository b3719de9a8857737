"""Logical mode: operations that are put off while others go first (design, section 6).

Work that is done behind others is work to be done again once they have
committed. So an operation there is checked and noted, and performed after the
wait, or as soon as its rows or counts are looked at: until then it changes
nothing, stores nothing, and is in conflict with nothing.

A performed operation never depends on one that is put off: what follows on a
table with such operations, or reads one, is put off too, or performs them first.
Appends depend on nothing, so they are made at once, and keep their place among
the others when those are performed.
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

#: The physical side of an operation that is put off.
NOT_PERFORMED = Performed(Change(), Counts(), {}, {})


def is_put_off(txn: TransactionState, operation: Operation) -> Program[bool]:
    """Whether an operation is to be noted and not performed yet; it is checked as far as it can be.

    Raises
    ------
    InvalidOperation
        It can't fit its tables, whatever their rows are.
    """
    late = {done.table for done in txn.work.done if done.deferred}
    if not (txn.puts_off or txn.is_behind(operation.table) or late & _tables(operation)):
        return False
    if not can_wait(operation) or _may_be_refused(txn, operation):
        return False
    return (yield from _fits(txn, operation))


def perform_deferred(
    txn: TransactionState, concerning: Collection[str] | None = None
) -> Program[None]:
    """Perform what was put off, in order and on the state that the transaction has now.

    With ``concerning`` only if some of it is on these tables; then still all of
    it, because their operations may read the other tables.

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
    """Put off again what was performed on tables where others go first from now on.

    What the caller has read stays as it is, with all that it was made from: were
    it created again, nobody could tell whether he acted on it. Counts that he has looked at
    are compared when the operation is performed again. Files that were stored for it are
    the transaction's to delete, as those of any redo.
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
    """The operations that must stay performed, by number.

    Those whose rows the caller has read, those that can't be put off (a new
    constraint held for the rows that were there), and what they were made from.
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
    """The tables whose state an operation depends on."""
    if isinstance(operation, Append | Create) and not _evolves(operation):
        return set()
    return {operation.table, *tables_read(operation)}


def _evolves(operation: Operation) -> bool:
    return isinstance(operation, Append | Overwrite | Merge) and operation.columns is not None


def can_wait(operation: Operation) -> bool:
    """Whether operations of this kind can be put off: those that leave the schema as it is.

    What comes after one that changes it must see the new one.
    """
    return isinstance(operation, Update | Delete | Merge | Insert | Overwrite) and not _evolves(
        operation
    )


def _may_be_refused(txn: TransactionState, operation: Operation) -> bool:
    """Whether it may take rows out of a table that only grows: told by its rows, to its caller."""
    if not txn.work.tables[operation.table].snapshot.append_only:
        return False
    if isinstance(operation, Merge):
        return any(clause.kind != "not_matched_insert" for clause in operation.clauses)
    return not isinstance(operation, Insert)


def _fits(txn: TransactionState, operation: Operation) -> Program[bool]:
    """Bind the operation to its tables' columns; False if only performing it can tell more."""
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
            # Nothing to bind; or a source that its caller has bound it to while storing it.
            pass
    return True


def _without_rows(txn: TransactionState, source: QuerySource) -> Program[pa.Table | None]:
    """What a query returns, but for its rows; None if it can't be told from empty tables."""

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
        # Wrong, or right only where there are rows: performed, it is told which.
        return None
    return rows.slice(0, 0)
