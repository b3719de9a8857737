"""Rename a table within a transaction: HEAD decides it with the commit, and no log shows it."""

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
    """Rename the table at ``location`` to ``new``; ``place`` is the location of ``new`` as a path.

    Raises
    ------
    TableExists
        Another table has the new name.
    InvalidOperation
        ``name`` is a path that is no name of the table; or it is the new name.
    """
    txn.check_write(location, "rename_table")
    if not txn.through_head:
        yield from join_head(txn)
    # A rename reads no rows, so it does not conflict with appends and rewrites.
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
