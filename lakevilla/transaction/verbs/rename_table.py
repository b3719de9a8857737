"""Renaming a table within a transaction: decided with it in HEAD, and in no log."""

from __future__ import annotations

from lakevilla.errors import InvalidOperation, TableExists
from lakevilla.global_log.head import NameMap
from lakevilla.global_log.repo import load_names
from lakevilla.lake.tables.dotted_names import twin_of
from lakevilla.lake.tables.renaming import known_name, refuse_taken, renamed
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Create, Rename
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.bind import join_head, touch
from lakevilla.transaction.verbs.read_write import execute


def rename(txn: TransactionState, name: str, location: str, new: str, place: str) -> Program[Done]:
    """Rename the table at ``location`` to ``new``, which as a path would mean ``place``.

    Raises
    ------
    TableExists
        The new name would mean two tables.
    InvalidOperation
        ``name`` is no name of the table, but a place.
    """
    txn.check_write(location, "rename_table")
    if not txn.through_head:
        yield from join_head(txn)
    # It reads no rows, so it is compatible with appends and rewrites of other transactions.
    yield from touch(txn, [location], probing=False, access="append")
    yield from load_names(txn.head)
    names = renamed(NameMap() if txn.head is None else txn.head.names, txn.work.renames)
    old = known_name(names, name, location)
    operation = Rename(location, old, new, place)
    if (old, new) == (location, location) or old == new:
        raise InvalidOperation(f"table {name} has that name already", table=name)
    taken = {place, twin_of(place)} - {location}
    for done in txn.work.done:
        if isinstance(done.operation, Create) and done.table in taken:
            raise TableExists(
                f"this transaction creates a table at {done.table}: choose another name than "
                f"{new!r}",
                table=name,
            )
    yield from refuse_taken(txn.context, txn.head, names, operation)
    return (yield from execute(txn, operation, "rename_table"))
