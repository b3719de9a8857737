"""Names of the catalog, as a transaction sees them."""

from __future__ import annotations

import msgspec

from lakevilla.global_log.head import NOWHERE, Head, shown_name
from lakevilla.global_log.leaves import HIGHEST
from lakevilla.global_log.repo import fetch_leaves, load_names, load_tables
from lakevilla.lake.frozen.mounts import mount_of, mounted_between
from lakevilla.lake.table_log import open_tail
from lakevilla.lake.tables.renaming import renamed
from lakevilla.sql.catalog import NameRange
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.operations import Create, Drop
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.bind import bind_to_head

# -------------------- names
#
# The tables that a transaction sees in a range of names, and the name of each.


def tables_named(txn: TransactionState, names: NameRange) -> Program[dict[str, str]]:
    """Return the locations of the tables whose names are in the range, by name and in their order.

    Only those of HEAD's leaves are fetched in which such a name may be: leaves of the range itself,
    and leaves to which registered names lead. Where a catalog is connected, whose names have
    nothing to do with locations, all are fetched.
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
    """Return the tables within the range that clones show; their names are their paths."""
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
    """Return the tables of a HEAD by the names of ``shown_tables``, within the range.

    ``revived`` are dropped there, and are in the lake again for the transaction.
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
    """Return the tables with those that the transaction has made, without those it has dropped."""
    for done in txn.work.done:
        operation = done.operation
        if isinstance(operation, Create) and operation.table in names:
            found[operation.table] = operation.table
        elif isinstance(operation, Drop):
            found = {
                name: location for name, location in found.items() if location != operation.table
            }
    return dict(sorted(found.items()))


# -------------------- binding
#
# Binding for a transaction that only reads: a root that may be mistyped is left unchanged.


__all__ = ["bind_if_made", "bind_where_it_is"]


def bind_if_made(txn: TransactionState) -> Program[None]:
    """Bind if a lake is here. Else the transaction stays unbound.

    If it writes later, the lake must still be absent.
    """
    yield from bind_to_head(txn, makes=False)


def bind_where_it_is(txn: TransactionState, location: str) -> Program[None]:
    """Do the same for a table, which must exist where no lake is: then its root is right.

    Raises
    ------
    TableNotFound
    """
    yield from bind_to_head(txn, makes=False)
    if not txn.bound.is_bound:
        yield from open_tail(txn.context, location)
        txn.bound.saw_no_lake = False
