"""Names of tables in a transaction: those that it sees, and those that it gives."""

from __future__ import annotations

import msgspec

from lakevilla.errors import InvalidOperation, TableExists
from lakevilla.global_log.head import NOWHERE, Head, NameMap, shown_name
from lakevilla.global_log.leaves import HIGHEST
from lakevilla.global_log.repo import fetch_leaves, load_names, load_tables
from lakevilla.lake.frozen.mounts import mount_of, mounted_between
from lakevilla.lake.table_log import open_tail
from lakevilla.lake.tables.dotted_names import twin_of
from lakevilla.lake.tables.renaming import known_name, refuse_taken, renamed
from lakevilla.sql.catalog import NameRange
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.operations import Create, Drop, Rename
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.bind import bind_to_head, join_head, touch
from lakevilla.transaction.verbs.read_write import execute

# -------------------- names
#
# The tables that a transaction sees in a range of names, and the name of each.


def tables_named(txn: TransactionState, names: NameRange) -> Program[dict[str, str]]:
    """Return the locations of the tables whose names are in the range, by name, sorted by name.

    This fetches only the leaves of HEAD that may have such a table: those of the range itself, and
    those with the locations of registered names. If a catalog is connected, all leaves are fetched,
    because its names do not follow from locations.
    """
    head = txn.head
    if head is None:
        return _own(txn, {}, names)
    yield from load_names(head)
    head = msgspec.structs.replace(head, names=renamed(head.names, txn.work.renames))
    registered = {
        location for name, location in head.names.items() if location != NOWHERE and name in names
    }
    if names.is_all or txn.context.connected:
        yield from load_tables(head)
    elif names.exact is not None:
        yield from load_tables(head, names.exact | registered)
    else:
        missing = head.tables.missing_between(names.first, names.last)
        yield from fetch_leaves(head.tables, missing)
        yield from load_tables(head, registered)
    revived = {location for location, one in txn.work.tables.items() if one.view.revives}
    shown = [*_shown(head, names, registered, revived), *(yield from _of_clones(head, names))]
    return _own(txn, dict(shown), names)


def _of_clones(head: Head, names: NameRange) -> Program[list[tuple[str, str]]]:
    """Return names and locations of the tables in the range that clones show: both are the path."""
    if names.exact is not None:
        locations = sorted(names.exact)
        mounts = yield from parallel([mount_of(head, location) for location in locations])
        return [(p, p) for p, mount in zip(locations, mounts, strict=True) if mount is not None]
    last = HIGHEST if names.last is None else f"{names.last}{HIGHEST}"
    found = yield from mounted_between(head, names.first, last)
    return [(location, location) for location in found if location in names]


def _shown(
    head: Head, names: NameRange, registered: set[str], revived: set[str]
) -> list[tuple[str, str]]:
    """Return name and location of the tables of a HEAD whose names are in the range.

    ``revived`` are tables that HEAD has dropped and that the transaction brings back.
    """
    found = []
    tables = head.tables.cached()
    if names.exact is not None and not head.names and len(names.exact) < len(tables):
        locations = (names.exact & tables.keys()) | {
            location for location, state in tables.items() if state.catalog
        }
        tables = {location: tables[location] for location in locations}
    for location, state in tables.items():
        if state.dropped and location not in revived:
            continue
        name = shown_name(head, location)
        if name in names:
            found.append((name, location))
    return sorted(found)


def _own(txn: TransactionState, found: dict[str, str], names: NameRange) -> dict[str, str]:
    """Add the tables that the transaction has created to ``found``; remove those it has dropped.

    It may have renamed a table that it has created: HEAD has not heard of either.
    """
    called = {rename.table: rename.new for rename in txn.work.renames}
    for done in txn.work.done:
        operation = done.operation
        if isinstance(operation, Create):
            name = called.get(operation.table, operation.table)
            if name in names:
                found[name] = operation.table
        elif isinstance(operation, Drop):
            found = {
                name: location for name, location in found.items() if location != operation.table
            }
    return dict(sorted(found.items()))


# -------------------- binding
#
# Bind a transaction that only reads, without creating a HEAD: the root may be mistyped.


__all__ = ["bind_if_made", "bind_where_it_is"]


def bind_if_made(txn: TransactionState) -> Program[None]:
    """Bind the transaction if a lake exists; else it stays unbound.

    An unbound transaction that writes later is in conflict if another client has made a lake.
    """
    yield from bind_to_head(txn, makes=False)


def bind_where_it_is(txn: TransactionState, location: str) -> Program[None]:
    """Bind the transaction if a lake exists; else check that a table is at ``location``.

    A table there shows that the root is not mistyped.

    Raises
    ------
    TableNotFound
    """
    yield from bind_to_head(txn, makes=False)
    if not txn.bound.is_bound:
        yield from open_tail(txn.context, location)
        txn.bound.saw_no_lake = False


# -------------------- rename
#
# Rename a table within a transaction: HEAD decides it with the commit, and no log shows it.


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
