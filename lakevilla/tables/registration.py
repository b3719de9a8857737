"""Operating on a lake's table map: register, unregister, settle keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakevilla.errors import CorruptObject, InvalidOperation, StoreError, TableNotFound
from lakevilla.formats.registry import refuse_two_tables
from lakevilla.global_log.head import CommitSummary, Head, TableState, Touch, successor
from lakevilla.global_log.keys import load_key
from lakevilla.global_log.repo import (
    HeldHead,
    claim_table,
    lake_key,
    load_names,
    load_tables,
    make_room,
    replace_head,
    rules_table,
)
from lakevilla.lake.context import Context
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.publishing.outcome import outcome
from lakevilla.publishing.publish import Published, publish_table
from lakevilla.results import CommitResult, Outcome
from lakevilla.store.base import Stored
from lakevilla.store.effects import Program, delete, parallel, sleep
from lakevilla.tables.claims import note_names
from lakevilla.tables.dropped import refuse_half_deleted, refuse_strays

__all__ = ["outcome_of_key", "register", "replace_until_stored", "unregister"]

_MAX_RACES = 200


def replace_until_stored(
    context: Context,
    change: Callable[[Head], Program[Head | None]],
    *,
    adopting: bool = False,
) -> Program[Head]:
    """Replace HEAD by what ``change`` makes of it, again on each newer HEAD until it is stored.

    For changes that may be made twice without harm; ``change`` returns None
    when nothing is left to do.
    """
    for _ in range(_MAX_RACES):
        held = yield from context.head()
        if held is None:
            held = yield from context.make_head()
        if not adopting:
            context.refuse_foreign_root()
        new = yield from change(held.head)
        if new is None:
            return held.head
        if new.replacement != held.head.replacement + 1:
            continue  # on its way the change had to replace HEAD itself (a reconcile)
        outcome = yield from replace_head(held, new)
        if isinstance(outcome, Stored):
            context.remember(HeldHead(new, outcome.token))
            return new
        yield from sleep(context.settings.retry_base_seconds * context.ids.jitter())
    raise StoreError(f"HEAD was replaced by others {_MAX_RACES} times in a row: try again")


def register(
    context: Context, locations: Mapping[str, str], own_paths: Mapping[str, str]
) -> Program[None]:
    """Take tables into HEAD at the versions found; one replacement for all of them."""
    tails = {}
    yield from refuse_strays(context, locations.values())
    for name, location in locations.items():
        context.tails.pop(location, None)
        tails[location] = yield from open_tail(context, location)
        yield from refuse_two_tables(tails[location].snapshot)
        own = own_paths[name]
        if own != location:
            there = yield from open_tail(context, own, missing_ok=True)
            if there.tip >= 0:
                raise InvalidOperation(
                    f"name {name!r} could mean two tables: the one at {location}, and {own} under "
                    "the root; choose another name",
                    table=name,
                )
    held = yield from context.head()
    if held is None:
        held = yield from context.make_head()
    context.refuse_foreign_root()
    head = held.head
    aliases: dict[str, tuple[str, ...]] = {}
    for name, location in locations.items():
        if name != location:
            aliases[location] = (*aliases.get(location, ()), name)
    yield from parallel(
        [
            claim_table(
                location,
                head,
                context.ids,
                aliases=aliases.get(location, ()),
                catalog=tail.snapshot.catalog,
            )
            for location, tail in tails.items()
        ]
    )

    def change(head: Head) -> Program[Head | None]:
        yield from load_tables(head, locations.values())
        yield from load_names(head, locations)
        names: dict[str, str | None] = {}
        tables, touches = {}, {}
        for name, location in locations.items():
            known = head.names.get(name)
            if known not in (None, location):
                raise InvalidOperation(
                    f"name {name!r} is registered for {known}: unregister it first", table=name
                )
            state = head.tables.get(location)
            refuse_half_deleted(location, state)
            if known is None and name != location:
                if state is not None and not state.dropped:
                    yield from load_names(head)
                    if not {location} & {*head.names, *head.names.values()}:
                        # So far its location was its name: it stays one, and the one shown.
                        names.setdefault(location, location)
                names[name] = location
            if state is None or state.dropped:
                if state is not None and state.pending:
                    # Decided before the table was dropped: its rows are the table's.
                    published = yield from publish_table(context, head, location)
                    _check_complete(published, name)
                    if published.head is not head:
                        return (yield from change(published.head))
                    tails[location] = published.tail
                tail = tails[location]
                tables[location] = TableState(
                    tail.snapshot.table_id,
                    tail.tip,
                    guarded=tail.snapshot.guarded,
                    format=tail.snapshot.format,
                    catalog=tail.snapshot.catalog,
                )
                touches[location] = Touch(published=tail.tip, metadata=True, data_change=False)
        if not tables and not names:
            return None
        page = yield from make_room(head, context.ids)
        commit = CommitSummary(
            head.sequence + 1, 0, "register", context.ids.txn_id(above=head.floor), "", touches
        )
        return successor(
            head,
            nonce=context.ids.nonce(),
            now_ms=context.now_ms(),
            commits=[commit],
            tables=tables,
            names=names,
            page=page,
        )

    yield from replace_until_stored(context, change)
    yield from note_names(context, aliases)


def _check_complete(published: Published, name: str) -> None:
    if not published.complete:
        raise StoreError(
            f"table {name} has commits that could not be published now: try again", table=name
        )


def unregister(context: Context, name: str, location: str) -> Program[None]:
    """Take a name out of the lake, and with its last name the table.

    Then its pending commits are published, and a tombstone is left.
    """
    held = yield from context.head()
    yield from load_tables(None if held is None else held.head, [location])
    if held is None or location not in held.head.tables:
        raise TableNotFound(f"table {name} is not in this lake: `tables()` lists them", table=name)
    yield from load_names(held.head, [name])
    by_name = name in held.head.names

    def change(head: Head) -> Program[Head | None]:
        yield from load_names(head)
        named = [key for key, where in head.names.items() if where == location]
        if by_name and name not in named:
            return None  # another client has taken it out: what other names say is not asked
        if name in named and len(named) > 1:
            # Two clients that take out the last two names: safe because the one that loses the
            # race for HEAD looks again, and finds its name to be the last.
            page = yield from make_room(head, context.ids)
            commit = CommitSummary(
                head.sequence + 1, 0, "register", context.ids.txn_id(above=head.floor), "", {}
            )
            return successor(
                head,
                nonce=context.ids.nonce(),
                now_ms=context.now_ms(),
                commits=[commit],
                names={name: None},
                page=page,
            )
        published = yield from publish_table(context, head, location)
        _check_complete(published, name)
        tail = yield from probe(context, published.tail)
        state = published.head.tables.get(location)
        if published.head is not head or state is None or state.dropped:
            return None if state is None or state.dropped else (yield from change(published.head))
        page = yield from make_room(head, context.ids)
        touch = Touch(
            published=tail.tip, metadata=True, data_change=False, first=state.published + 1
        )
        commit = CommitSummary(
            head.sequence + 1,
            0,
            "register",
            context.ids.txn_id(above=head.floor),
            "",
            {location: touch},
        )
        return successor(
            head,
            nonce=context.ids.nonce(),
            now_ms=context.now_ms(),
            commits=[commit],
            tables={
                location: TableState(
                    state.table_id,
                    tail.tip,
                    dropped=True,
                    format=state.format,
                    catalog=state.catalog,
                )
            },
            names=dict.fromkeys(named),
            page=page,
        )

    head = yield from replace_until_stored(context, change)
    yield from load_tables(head, [location])
    state = head.tables.get(location)
    if state is not None and not state.dropped:
        yield from note_names(context, [location])
        return
    try:
        ours = yield from rules_table(location, head)
    except CorruptObject:
        ours = True  # it says nothing to anybody
    if ours:
        yield from delete(lake_key(location))


def outcome_of_key(context: Context, key: str, version: int | None) -> Program[Outcome]:
    """How the last use of an idempotency key ended."""
    held = yield from load_key(key, version)
    if held is None:
        return Outcome("expired")
    record = held.record
    if version is not None and record.committed is not None and version <= record.committed:
        return Outcome("committed", CommitResult(record.txn, None, None))
    told = yield from outcome(context, record.txn)
    if version is not None and told.state == "committed" and version > (record.version or 0):
        return Outcome("aborted")
    return told
