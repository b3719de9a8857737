"""Create a table within a transaction: HEAD decides it, and entry 0 of its log publishes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa

from lakevilla.errors import InvalidOperation, StoreError, TableExists
from lakevilla.formats.base import Change, FormatName, TableSnapshot
from lakevilla.global_log.head import NOWHERE, Head, TableState
from lakevilla.global_log.repo import load_names, load_tables
from lakevilla.lake.context import Tail
from lakevilla.lake.newer import refuse_older
from lakevilla.lake.publishing.publish import publish_table
from lakevilla.lake.table_log import open_tail
from lakevilla.lake.tables.drop_data import make_free
from lakevilla.lake.tables.dropped import is_emptied
from lakevilla.lake.tables.overlaps import refuse_overlaps
from lakevilla.lake.tables.renaming import renames_of
from lakevilla.lake.view import Placement, View
from lakevilla.phases import during
from lakevilla.sql.catalog import refuse_reserved
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Detach, Drop, Operation
from lakevilla.transaction.state.transaction import TransactionState, conflict
from lakevilla.transaction.validation.validate import extend
from lakevilla.transaction.verbs.bind import bind_to_head

#: The most files that one commit names, which takes some 300 MB of memory.
MOST_FILES = 1_000_000


def create_change(
    txn: TransactionState,
    location: str,
    schema: pa.Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    format: FormatName,
) -> Program[Change]:
    """Return the change that creates the table; refuse a path that a table has, or had.

    Raises
    ------
    TableExists
        HEAD has a table there, or had one that was dropped and whose log still exists, or whose
        data was deleted a short time ago; or the path has the log of a table that HEAD does not
        know, which ``register`` adds to the lake.
    """
    refuse_reserved(location)
    table_format = txn.context.formats[format]

    def change(blank: TableSnapshot) -> Change:
        return table_format.create(
            blank,
            schema,
            table_id=txn.context.ids.uuid(),
            partition_by=partition_by,
            properties=properties,
            created_ms=txn.context.now_ms(),
        )

    yield from bind_to_head(txn, [location])
    with during("metadata", location):
        return (yield from _change(txn, location, change, format))


def defined_change(
    txn: TransactionState,
    location: str,
    definition: Callable[[TableSnapshot], Mapping[str, Any]],
    format: FormatName,
    *,
    is_filled: bool = False,
) -> Program[Change]:
    """Return the change that creates a table as its format's metadata defines it.

    ``is_filled``: its data files are there already. Errors as ``create_change``.
    """
    refuse_reserved(location)
    yield from bind_to_head(txn, [location])

    def change(blank: TableSnapshot) -> Change:
        return Change(metadata=dict(definition(blank)))

    with during("metadata", location):
        return (yield from _change(txn, location, change, format, is_filled=is_filled))


def copied_change(
    txn: TransactionState, location: str, made: TableSnapshot, *, is_filled: bool = False
) -> Program[Change]:
    """Return the change that creates on the lake a table of a branch, without its files.

    ``is_filled``: the files are there before the table is. Errors as ``create_change``.
    """

    def change(_: TableSnapshot) -> Change:
        return Change(metadata=dict(made.metadata), protocol=dict(made.protocol) or None)

    with during("metadata", location):
        return (yield from _change(txn, location, change, made.format, is_filled=is_filled))


def _change(
    txn: TransactionState,
    location: str,
    created: Callable[[TableSnapshot], Change],
    format: FormatName,
    *,
    is_filled: bool = False,
) -> Program[Change]:
    head = txn.head
    yield from load_tables(head, [location])
    state = None if head is None else head.tables.get(location)
    emptied = is_emptied(state)
    if emptied and (yield from make_free(txn.context, location)):
        # This client has replaced HEAD just now: so the transaction moves to the new one.
        if not (yield from extend(txn)):
            raise conflict(txn, location, "the files in its log were deleted")
        head = txn.head
        yield from load_tables(head, [location])
        state = None if head is None else head.tables.get(location)
    dropped = state is not None and state.dropped
    if state is not None and state.dropped:
        tail = yield from log_of_dropped(txn, location, state)
    else:
        tail = yield from open_tail(txn.context, location, missing_ok=True)
    if not txn.context.epoch:
        yield from refuse_older(txn.context, f"create_table({location!r})", [tail], once=True)
    if (state is not None and not dropped) or tail.tip >= 0 or location in txn.work.tables:
        new_name = None if dropped else (yield from _new_name(head, location))
        raise TableExists(
            _left_here(txn, location)
            or _taken(
                location,
                new_name,
                dropped=dropped,
                emptied=emptied,
                on_branch=bool(txn.context.epoch),
            ),
            table=location,
            txn_id=txn.id,
        )
    yield from refuse_overlaps(location, head, txn.id, is_filled=is_filled)
    for other in txn.work.tables:
        if other.startswith(f"{location}/") or location.startswith(f"{other}/"):
            raise InvalidOperation(
                f"one of the tables {location} and {other} would be inside the other, where a "
                "VACUUM by any client deletes its files: choose a name outside of it",
                table=location,
                txn_id=txn.id,
            )
    table_format = txn.context.formats[format]
    txn.context.expected[location] = format
    blank = table_format.blank(location, location)
    change = created(blank)
    txn.add_table(location, View(location, state, Placement(-1, ()), (), blank, blank, -1))
    return change


def log_of_dropped(txn: TransactionState, location: str, state: TableState) -> Program[Tail]:
    """Return the present log of a table that HEAD has dropped.

    If there is no log yet, the commits that were decided before the drop are published first: else
    a client that creates another table in its place would lose them.

    Raises
    ------
    StoreError
        These commits could not be published now.
    """
    context, head = txn.context, txn.head
    context.tails.pop(location, None)  # the log may have been deleted since
    tail = yield from open_tail(context, location, missing_ok=True)
    if tail.tip >= 0 or not state.pending or context.epoch or head is None:
        return tail
    published = yield from publish_table(context, head, location)
    if not published.complete:
        raise StoreError(
            f"table {location} was dropped and has commits that could not be published now: try "
            "again, or choose another name",
            table=location,
            txn_id=txn.id,
        )
    return published.tail


def _left_here(txn: TransactionState, location: str) -> str | None:
    """Return why a path is taken, if the transaction itself has dropped or renamed its table."""
    if is_dropped_here(txn, location):
        return (
            f"table {location} was dropped by this transaction, and its path holds its data: "
            "choose another name"
        )
    renames = renames_of(done.operation for done in txn.work.done if done.table == location)
    if not renames or any(one.new == location for one in renames[-1:]):
        return None
    return (
        f"the table at {location} was renamed to {renames[-1].new} by this transaction, and its "
        "path holds its data: choose another name"
    )


def _taken(
    location: str, new_name: str | None, *, dropped: bool, emptied: bool, on_branch: bool
) -> str:
    if new_name is not None:
        return (
            f"the table at {location} was renamed to {new_name}, and its path holds its data: "
            "choose another name"
        )
    if dropped and emptied:
        why = "was dropped with its data, and another table is stored there now: `register` it"
    elif dropped and on_branch:
        why = "was dropped on this branch and its log still exists: choose another name"
    elif dropped:
        # The table is found by its path alone: a name that it got by a rename is no path.
        why = (
            f"was dropped and its log still exists: `register({location!r})` revives it, and "
            "or_replace=True, in SQL CREATE OR REPLACE TABLE, creates it again in its place (its "
            "old versions stay)"
        )
    else:
        why = (
            "exists already: write to it, choose another name, or pass exist_ok=True or "
            "or_replace=True"
        )
    return f"table {location} {why}"


def _new_name(head: Head | None, location: str) -> Program[str | None]:
    """Return the name of the table at a path, if the path itself is not its name any more."""
    yield from load_names(head, [location])
    if head is None or head.names.get(location) != NOWHERE:
        return None
    yield from load_names(head)
    return next((name for name, place in head.names.items() if place == location), None)


def detaching(txn: TransactionState, operation: Operation) -> Program[Detach | None]:
    """Return the ``Detach`` that must precede a write to a table that a clone shows; else None.

    Raises
    ------
    InvalidOperation
        The table has too many files for one commit.
    TableExists
        Another client has created a table at its place.
    """
    location = operation.table
    view = txn.work.tables[location].view
    mount = view.mount
    if mount is None or isinstance(operation, Detach | Drop):
        return None
    if any(done.table == location and isinstance(done.operation, Detach) for done in txn.work.done):
        return None
    (part,) = view.parts
    if len(part.change.adds) > MOST_FILES:
        raise InvalidOperation(
            f"table {location}, which clone {mount.name!r} shows, has {len(part.change.adds):,} "
            f"files, and the first write to one of more than {MOST_FILES:,} can't name them all: "
            "clone it with copy=True",
            table=location,
            txn_id=txn.id,
        )
    tail = yield from open_tail(txn.context, location, missing_ok=True)
    if tail.tip >= 0:
        # Another transaction may have created it since the HEAD to which this one is bound.
        moved = yield from extend(txn)
        if txn.work.tables[location].view.mount is None:
            return None
        if not moved and (yield from _is_in_newest(txn, location)):
            raise conflict(txn, location, "it was written to there for the first time")
        raise TableExists(
            f"table {location}: another client has made a table at this path, which clone "
            f"{mount.name!r} shows tables below: move that table elsewhere",
            table=location,
            txn_id=txn.id,
        )
    base = mount.entry.base
    txn.context.expected[location] = view.snapshot.format
    return Detach(
        location,
        msgspec.structs.replace(part.change, adds=()),
        clone=mount.name,
        entry_id=mount.entry.id,
        base=(base.made, base.hash, base.sequence, base.timestamp_ms),
        source=mount.source,
    )


def _is_in_newest(txn: TransactionState, location: str) -> Program[bool]:
    held = txn.context.held
    head = None if held is None else held.head
    yield from load_tables(head, [location])
    return head is not None and head.tables.get(location) is not None


def is_dropped_here(txn: TransactionState, location: str) -> bool:
    """Return whether the transaction's last operation on a table was to drop it."""
    of_table = [done for done in txn.work.done if done.table == location]
    return bool(of_table) and isinstance(of_table[-1].operation, Drop)


@contextmanager
def drop_taken_back(txn: TransactionState, location: str) -> Iterator[None]:
    """Remove the drop of a table from the transaction, for a block that defines the table again.

    No operation on the table follows its drop, so all other operations stay valid. If the block
    raises, the table is dropped as before.
    """
    done, reads = list(txn.work.done), dict(txn.work.reads)
    index = max(i for i, one in enumerate(done) if one.table == location)
    del txn.work.done[index]
    for key, read in reads.items():
        if read.after > index:
            txn.work.reads[key] = msgspec.structs.replace(read, after=read.after - 1)
    try:
        yield
    except BaseException:
        txn.work.done[:], txn.work.reads = done, reads
        raise
    saved = txn.claims.saved
    if saved is not None and saved.operations > index:
        # The saved state has the drop, so the transaction counts as saved up to there only.
        txn.claims.saved = msgspec.structs.replace(saved, operations=index)


@contextmanager
def whole_or_not_at_all(txn: TransactionState, location: str) -> Iterator[None]:
    """Remove a table from the transaction if the block that creates it raises.

    The verb creates the table before it reads the rows; if it raises, it must have had no effect.
    """
    before = len(txn.work.done)
    known = location in txn.work.tables
    try:
        yield
    except BaseException:
        if not known and location in txn.work.tables:
            del txn.work.done[before:]
            txn.forget_table(location)
            for key in [key for key in txn.work.bodies if key.startswith(f"{location}/")]:
                del txn.work.bodies[key]
        raise
