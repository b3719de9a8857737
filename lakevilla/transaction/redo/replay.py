"""Perform a transaction's operations again, and lay their changes over its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial

from lakevilla.engines.base import FileNamer, KeptRows
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.formats.base import Change
from lakevilla.formats.delta.deletion_vectors import paths_of
from lakevilla.formats.files import DataFile, RemovedFile, holds_vectors
from lakevilla.lake.operations.changes import in_one_entry, is_mixed
from lakevilla.lake.operations.comparing.dropped_columns import named, refuse_hidden
from lakevilla.lake.operations.perform import (
    Performed,
    check_append_only,
    perform,
    perform_kept,
    performed_as,
)
from lakevilla.lake.operations.refresh import still_moved
from lakevilla.lake.row_changes import compose, marked_again
from lakevilla.phases import during
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import (
    Delete,
    Operation,
    Optimize,
    Transplant,
    Update,
    is_append,
    tables_read,
)
from lakevilla.transaction.state.files import (
    drop_files,
    held_files,
    hold_file,
    hold_written,
    keep_files,
    keep_rows,
    make_promised,
    marked_rows,
    note_stored,
    store_files,
)
from lakevilla.transaction.state.parts import Done, laid_over
from lakevilla.transaction.state.transaction import TransactionState, beneath_of, conflict

# -------------------- replay
#
# Go through a transaction's operations again, on the state that its tables have now.
#
# A redo after a conflict and the performing of deferred operations are one procedure: it begins
# with the tables' views, and performs each operation, in order, on the result of those before it.


def replay(txn: TransactionState, step: Callable[[int, Done], Program[None]]) -> Program[None]:
    """Apply the operations over the tables' views again, in order, each after its ``step``.

    While ``step`` runs for an operation, ``txn.work.done`` and the tables' snapshots have only the
    operations before it: in that state the operation reads its sources. If ``step`` raises, the
    transaction has all its operations again, and those that were performed keep their new results.
    """
    kept, txn.work.done = txn.work.done, []
    lay_over(txn)
    try:
        for index, done in enumerate(kept):
            yield from step(index, done)
            txn.work.done.append(done)
            working = txn.work.tables[done.table]
            working.snapshot = laid_over(working.view, working.snapshot, done)
    except BaseException:
        txn.work.done = kept
        lay_over(txn)
        raise


def lay_over(txn: TransactionState) -> None:
    """Compute the tables' snapshots again: the views with the transaction's own changes."""
    for working in txn.work.tables.values():
        working.snapshot = working.view.snapshot
    for done in txn.work.done:
        working = txn.work.tables[done.table]
        working.snapshot = laid_over(working.view, working.snapshot, done)


def undo_since(txn: TransactionState, count: int) -> None:
    """Drop the operations after the first ``count``, as if the caller had never requested them."""
    for done in txn.work.done[count:]:
        drop_files(txn, done)
    del txn.work.done[count:]
    lay_over(txn)


def redo(txn: TransactionState, done: Done, name: FileNamer) -> Program[None]:
    """Perform an operation on the present snapshots; replace its earlier results, if it has any.

    Raises
    ------
    ConflictError
        The operation fitted its tables before, and does not fit them after changes by other
        clients; or a count that the caller has read would change.
    InvalidOperation
        The operation was deferred until now, and can't be performed. After either error the
        transaction can't commit.
    """
    drop_files(txn, done)
    try:
        if isinstance(done.operation, Transplant):
            held = yield from held_files(txn, done.table)
            with held:
                yield from _refuse_values(txn, done.operation)
        redone = yield from perform_on_own(txn, done.operation, name, again=True)
        snapshot = txn.work.tables[done.table].snapshot
        check_append_only(snapshot, redone)
        done.operation = performed_as(done.operation, snapshot, redone)
    except InvalidOperation as error:
        raise txn.fail(_refused(txn, done, error)) from error
    if done.observed and redone.counts.rows != done.counts.rows:
        raise txn.fail(
            conflict(txn, done.table, "row counts that the caller has read would change")
        )
    done.change, done.counts, done.metrics = redone.change, redone.counts, redone.metrics
    if isinstance(done.operation, Optimize):
        # An optimize does not try again to rewrite files that it has given up: the new files made
        # of them belong to no operation from here on.
        done.operation = still_moved(done.operation, redone.change)
    done.deferred = False
    keep_files(txn, done, redone)
    yield from note_stored(txn, done.table)


def perform_on_own(
    txn: TransactionState, operation: Operation, name: FileNamer, *, again: bool = False
) -> Program[Performed]:
    """Perform an operation, for the first time or ``again``, on the transaction's present state.

    From the second UPDATE or DELETE of a table on, the engine keeps the rows of small files; from
    the first on if the transaction is combined.
    """
    table = operation.table
    if isinstance(operation, Update | Delete):
        kept = _kept_rows(txn, operation)
        if kept is not None:
            held = yield from held_files(txn, table, kept)
            snapshot = txn.work.tables[table].snapshot
            with held, during("data", table):
                performed = yield from perform_kept(txn.context, operation, snapshot, name, kept)
            if performed is not None:
                return performed
    if not is_append(operation):
        yield from make_promised(txn, table)
    reads = again or bool(tables_read(operation))
    held = (yield from held_files(txn, table)) if reads else nullcontext()
    snapshot, beneath = txn.work.tables[table].snapshot, beneath_of(txn, table)
    with held, during("data", table):
        return (yield from perform(txn.context, operation, snapshot, name, txn.lookup, beneath))


def _kept_rows(txn: TransactionState, operation: Update | Delete) -> KeptRows | None:
    """Return the memory in which the engine performs an operation; None if it needs none."""
    work, table = txn.work, operation.table
    layout = work.tables[table].snapshot.layout
    known = work.kept.get(table)
    if known is not None and known.layout is layout:
        return known
    is_first = not work.keeps_first and all(
        done.table != table or done.deferred or not isinstance(done.operation, Update | Delete)
        for done in work.done
    )
    return None if is_first else keep_rows(txn, table)


def remarked(txn: TransactionState, done: Done, name: FileNamer) -> Program[bool]:
    """Mark the rows that an operation has deleted in the files as they are now.

    Return False, and leave the operation as it is, if a file or one of the rows is gone: the
    operation must be performed again (note 65, rule V1).
    """
    snapshot = txn.work.tables[done.table].snapshot
    again = yield from marked_again(snapshot, done.change, name, partial(marked_rows, txn))
    if again is None:
        return False
    hold_written(txn, done.table, (one for one in again.written if one.bodies))
    done.change = again.change
    return True


def drop_vectors(txn: TransactionState) -> None:
    """Drop the vectors in memory that no operation of the transaction has any more."""
    named: set[str] = set()
    for done in txn.work.done:
        files: list[DataFile | RemovedFile] = [*done.change.adds, *done.change.removes]
        for file in files:
            named.update(f"{done.table}/{path}" for path in paths_of(done.table, file))
    for key in [one for one in txn.work.bodies if holds_vectors(one)]:
        if key not in named:
            txn.work.held_bytes -= len(txn.work.bodies.pop(key))


def _refuse_values(txn: TransactionState, operation: Transplant) -> Program[None]:
    """Refuse to redo a transplant that drops columns: other clients may have written to them."""
    if operation.hides:
        reason = (
            f"other transactions have written to it, and {named(operation.hides)} was to be "
            "dropped from it"
        )
        raise txn.fail(conflict(txn, operation.table, reason))
    snapshot = txn.work.tables[operation.table].snapshot
    yield from refuse_hidden(txn.context, operation, snapshot)


def _refused(txn: TransactionState, done: Done, error: InvalidOperation) -> LakeVillaError:
    if not done.deferred or done.fitted:
        return conflict(txn, done.table, error.message)
    verb = type(done.operation).__name__.lower()
    return InvalidOperation(
        f"{verb} of table {done.table}, deferred until other transactions had ended: "
        f"{error.message}",
        table=done.table,
        txn_id=txn.id,
    )


# -------------------- entry
#
# The change in a table's log entry: the sum of the transaction's operations on the table.


def entry_change(txn: TransactionState, table: str, of_table: Iterable[Done]) -> Program[Change]:
    """Return the sum of the changes of one transaction's operations on a table, ``of_table``."""
    yield from make_promised(txn, table)
    changes = [done.change for done in of_table]
    if not is_mixed(changes):
        return compose(changes)
    yield from store_files(txn, table)
    name = txn.file_namer
    before = txn.work.tables[table].view.snapshot
    change, bodies = yield from in_one_entry(txn.context, before, changes, name)
    for key, body in bodies.items():
        hold_file(txn, key, body)
    return change
