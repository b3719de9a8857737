"""Changes of HEAD's table map, register and unregister; and the outcome of idempotency keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import msgspec

from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    StoreError,
    TableNotFound,
)
from lakevilla.formats.iceberg.metadata.file import name_in_catalog
from lakevilla.formats.registry import refuse_two_tables
from lakevilla.formats.sizes import Size, size_from
from lakevilla.global_log.head import (
    NOWHERE,
    CommitSummary,
    Head,
    TableState,
    Touch,
    successor,
)
from lakevilla.global_log.keys import load_key
from lakevilla.global_log.repo import (
    HeldHead,
    LakeFile,
    claim_table,
    lake_key,
    load_names,
    load_tables,
    make_room,
    release_claim,
    replace_head,
)
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.frozen.kept import refuse_kept
from lakevilla.lake.newer import refuse_older_head
from lakevilla.lake.publishing.outcome import outcome, void_with_log
from lakevilla.lake.publishing.publish import Published, publish_table
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.lake.tables.claims import note_names
from lakevilla.lake.tables.discovery import FoundTable
from lakevilla.lake.tables.dotted_names import is_in_lake, refuse_twin
from lakevilla.lake.tables.dropped import refuse_half_deleted, refuse_written_after
from lakevilla.lake.tables.overlaps import refuse_shown
from lakevilla.results import CommitResult, Outcome
from lakevilla.sql.catalog import refuse_reserved
from lakevilla.store.base import Found, Stored, Token
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program, get, parallel, sleep

_MAX_RACES = 200
#: The number of attempts to release a table's claim while other clients write it again.
_MAX_RELEASES = 16


def replace_until_stored(
    context: Context,
    change: Callable[[Head], Program[Head | None]],
    *,
    adopting: bool = False,
) -> Program[Head]:
    """Replace HEAD by the result of ``change``; repeat on each newer HEAD until it is stored.

    This is for changes that may be made twice without harm; ``change`` returns None if HEAD needs
    no change.
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
            continue  # ``change`` itself has replaced HEAD, by a reconcile
        outcome = yield from replace_head(held, new)
        if isinstance(outcome, Stored):
            context.remember(HeldHead(new, outcome.token))
            return new
        yield from sleep(context.settings.retry_base_seconds * context.ids.jitter())
    raise StoreError(f"HEAD was replaced by other clients {_MAX_RACES} times in a row: try again")


def register(
    context: Context, locations: Mapping[str, str], own_paths: Mapping[str, Sequence[str]]
) -> Program[None]:
    """Add tables to HEAD at the newest versions of their logs, all by one replacement."""
    tails = yield from _found(context, locations, own_paths)
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
                tail.snapshot.table_id,
                aliases=aliases.get(location, ()),
                catalog=tail.snapshot.catalog,
            )
            for location, tail in tails.items()
        ]
    )
    yield from load_tables(head, tails)
    known = {location: _released_by(head, location) for location in tails}

    def change(head: Head) -> Program[Head | None]:
        yield from load_tables(head, tails)
        for location, released_by in known.items():
            known[location] = _released_by(head, location)
            if known[location] != released_by:  # an ``unregister`` may have released our claim
                table_id = tails[location].snapshot.table_id
                yield from claim_table(location, head, context.ids, table_id)
        return (yield from _with_tables(context, head, locations, tails))

    yield from replace_until_stored(context, change)
    yield from note_names(context, aliases)


def _released_by(head: Head, location: str) -> str:
    """Return the id of the ``unregister`` that has released a table; ``""`` if none has."""
    state = head.tables.get(location)
    return "" if state is None or not state.dropped else state.released_by


def register_found(context: Context, found: Sequence[FoundTable]) -> Program[list[FoundTable]]:
    """Add those of the discovered tables that are ``new``, all by one replacement of HEAD.

    Returns
    -------
    list of FoundTable
        The new tables: now in the lake, or refused because another client was faster.
    """
    new = [table for table in found if table.state == "new" and table.snapshot is not None]
    if not new:
        return []
    held = yield from context.head()
    if held is None:
        held = yield from context.make_head()
    context.refuse_foreign_root()
    yield from load_tables(held.head, [table.location for table in new])
    before = {table.location: held.head.tables.get(table.location) for table in new}
    judged = yield from parallel([_claimed(context, held.head, table) for table in new])
    ours = {table.location: table for table in judged if table.state == "new"}
    tails = {location: _tail_of(context, table) for location, table in ours.items()}

    def change(head: Head) -> Program[Head | None]:
        # A table that another client added or dropped meanwhile stays as that client made it.
        yield from load_tables(head, ours)
        same = {
            location: location for location in ours if head.tables.get(location) == before[location]
        }
        return (yield from _with_tables(context, head, same, tails))

    head = yield from replace_until_stored(context, change)
    yield from load_tables(head, ours)
    return [_as_it_came(head, table) for table in judged]


def _claimed(context: Context, head: Head, table: FoundTable) -> Program[FoundTable]:
    assert table.snapshot is not None
    try:
        yield from claim_table(table.location, head, context.ids, table.snapshot.table_id)
    except StoreError:
        raise
    except LakeVillaError as error:
        return replace(table, state="refused", reason=error.message, kind=error.kind)
    return table


def _tail_of(context: Context, table: FoundTable) -> Tail:
    snapshot = table.snapshot
    assert snapshot is not None
    context.tails.pop(table.location, None)
    newest = snapshot.newest
    entries = {} if newest is None else {newest.version: newest}
    tail = Tail(
        table.location, snapshot.version, {snapshot.version: snapshot}, entries, table.seen_at
    )
    return context.keep_tail(tail)


def _as_it_came(head: Head, table: FoundTable) -> FoundTable:
    state = head.tables.get(table.location)
    if table.state != "new" or (state is not None and not state.dropped):
        return table
    reason = "another client dropped it meanwhile"
    return replace(table, state="refused", reason=reason, kind=TableNotFound.kind)


def _found(
    context: Context, locations: Mapping[str, str], own_paths: Mapping[str, Sequence[str]]
) -> Program[dict[str, Tail]]:
    """Return the tables' logs; refuse a location without a table, or a name for two tables."""
    yield from refuse_written_after(context, locations.values())
    tails = yield from parallel(
        [_opened(context, name, location, own_paths[name]) for name, location in locations.items()]
    )
    return {tail.location: tail for tail in tails}


def _opened(context: Context, name: str, location: str, own_paths: Sequence[str]) -> Program[Tail]:
    context.tails.pop(location, None)
    tail = yield from open_tail(context, location)
    yield from refuse_two_tables(tail.snapshot)
    for own in own_paths:
        if own == location:
            continue
        there = yield from open_tail(context, own, missing_ok=True)
        if there.tip >= 0:
            raise InvalidOperation(
                f"name {name!r} could mean two tables: the one at {location}, and {own} under "
                "the root; choose another name",
                table=name,
            )
    return tail


def _with_tables(
    context: Context, head: Head, locations: Mapping[str, str], tails: dict[str, Tail]
) -> Program[Head | None]:
    """Return HEAD with the tables and their names added; None if HEAD has them already."""
    yield from load_tables(head, locations.values())
    yield from load_names(head, locations)
    names: dict[str, str | None] = {}
    tables, touches, sizes = {}, {}, {}
    for name, location in locations.items():
        state = head.tables.get(location)
        if not is_in_lake(head, location):
            yield from refuse_twin(head, location)
            if state is None:
                yield from refuse_shown(head, location)
        if name != location and name not in head.names:
            yield from refuse_shown(head, name)
            yield from refuse_twin(head, name, own=location, names=head.names.updated(names))
        names |= yield from _new_names(head, name, location, names)
        if state is None or state.dropped:
            if state is not None and state.pending:
                # These commits were decided before the table was dropped, so their rows belong to
                # it.
                published = yield from publish_table(context, head, location)
                _check_complete(published, name)
                if published.head is not head:
                    return (yield from _with_tables(context, published.head, locations, tails))
                tails[location] = published.tail
            tail = tails[location]
            tables[location] = TableState(
                tail.snapshot.table_id,
                tail.tip,
                guarded=tail.snapshot.guarded,
                format=tail.snapshot.format,
                catalog=tail.snapshot.catalog,
                view=tail.snapshot.is_view,
            )
            touches[location] = Touch(published=tail.tip, metadata=True, data_change=False)
            sizes[location] = size_from(tail.snapshot.known_size())
    if not tables and not names:
        return None
    return (yield from _registered(context, head, touches, tables, names, sizes))


def _new_names(
    head: Head, name: str, location: str, names: Mapping[str, str | None]
) -> Program[dict[str, str | None]]:
    """Return the names to add to HEAD, besides ``names``, so that ``name`` means ``location``."""
    refuse_reserved(name)
    known = head.names.get(name)
    state = head.tables.get(location)
    if known == NOWHERE and name == location and state is not None and not state.dropped:
        yield from load_names(head)
        called = next(key for key, place in head.names.items() if place == location)
        raise InvalidOperation(
            f"the table at {location} was renamed to {called!r}: "
            f"`rename_table({called!r}, {location!r})` gives it its path for a name again",
            table=name,
        )
    if known not in (None, NOWHERE, location):
        raise InvalidOperation(
            f"name {name!r} is registered for {known}: unregister it first", table=name
        )
    refuse_half_deleted(location, state)
    new: dict[str, str | None] = {}
    if known == NOWHERE:
        # The table at that path was dropped.
        known, new[name] = None, None
    if known is None and name != location:
        if state is not None and not state.dropped:
            yield from load_names(head)
            # Until now this was the table's name: it stays one of its names, and the shown one.
            own = name_in_catalog(state.catalog) if state.catalog else location
            if own not in (name, *names) and not {own, location} & {
                *head.names,
                *head.names.values(),
            }:
                new[own] = location
        new[name] = location
    return new


def _registered(
    context: Context,
    head: Head,
    touches: Mapping[str, Touch],
    tables: Mapping[str, TableState],
    names: Mapping[str, str | None],
    sizes: Mapping[str, Size] | None = None,
) -> Program[Head]:
    """Return HEAD after a commit that changes only the table map."""
    page = yield from make_room(head, context.ids)
    commit = CommitSummary(
        head.sequence + 1, 0, "register", context.ids.txn_id(above=head.floor), "", dict(touches)
    )
    return successor(
        head,
        nonce=context.ids.nonce(),
        now_ms=context.now_ms(),
        commits=[commit],
        tables=tables,
        names=names,
        page=page,
        sizes=sizes,
    )


def _check_complete(published: Published, name: str) -> None:
    if not published.complete:
        raise StoreError(
            f"table {name} has commits that could not be published now: try again", table=name
        )


def unregister(context: Context, name: str, location: str) -> Program[None]:
    """Remove a name of a table from the lake, and with the last name the table.

    A table that is removed has its pending commits published first, or cancelled if its log is
    gone or an older copy. It leaves a tombstone, and its
    directory is free for another lake afterwards. So HEAD must not be set back: a newer HEAD may
    have refs that keep the table.

    Raises
    ------
    TableNotFound
    CorruptObject
        HEAD was set back.
    """
    yield from refuse_older_head(context, f"unregister of table {name}", [location], waits=False)
    held = yield from context.head()
    yield from load_tables(None if held is None else held.head, [location])
    if held is None or location not in held.head.tables:
        raise TableNotFound(f"table {name} is not in this lake: `tables()` lists them", table=name)
    yield from load_names(held.head, [name, location])
    if name not in held.head.names and location in held.head.names:
        name = location  # ``name`` is another spelling of the path, which is one of several names
    by_name = name in held.head.names
    for _ in range(_MAX_RELEASES):
        if (yield from _taken_out(context, name, location, by_name=by_name)):
            return
    raise StoreError(
        f"table {name} is out of the lake, and other clients wrote its {lake_key(location)} again "
        "and again: `unregister` it once more",
        table=name,
    )


def _taken_out(context: Context, name: str, location: str, *, by_name: bool) -> Program[bool]:
    """Remove the name, and with the last one release the claim; False if the claim has changed."""
    claims: list[Token | None] = []
    head = yield from replace_until_stored(
        context,
        lambda head: _without_name(context, head, name, location, claims, by_name=by_name),
    )
    yield from load_tables(head, [location])
    state = head.tables.get(location)
    if state is not None and not state.dropped:
        yield from note_names(context, [location])
        return True
    token = claims[-1]
    if token is None:
        return True
    return (yield from release_claim(location, token, head, context.ids))


def _claim_to_release(location: str, head: Head) -> Program[Token | None]:
    """Return the token of a table's claim if it names this lake or can't be read; else None."""
    outcome = yield from get(lake_key(location))
    if not isinstance(outcome, Found):
        return None
    try:
        owner = decode(lake_key(location), outcome.body, LakeFile)
    except CorruptObject:
        return outcome.token  # no client can read this claim
    return outcome.token if owner.names(head) else None


def _without_name(
    context: Context,
    head: Head,
    name: str,
    location: str,
    claims: list[Token | None],
    *,
    by_name: bool,
) -> Program[Head | None]:
    """Return HEAD without the name (if the last, without the table); None if already removed.

    The token of the claim to release then is appended to ``claims``. The claim is read after this
    HEAD and before the HEAD that releases the table: a client that adds the table meanwhile has
    written another claim, or finds that the table was released (docs/design/0051-claims-let-go.md).
    """
    claims.append(None)
    yield from load_names(head)
    named = [key for key, value in head.names.items() if value == location]
    if by_name and name not in named:
        return None  # another client has removed this name: the table's other names stay
    if name in named and len(named) > 1:
        # Two clients may remove the last two names at once. This is safe because the client that
        # loses the race for HEAD reads HEAD again, and finds that its name is the last.
        return (yield from _registered(context, head, {}, {}, {name: None}))
    yield from refuse_kept(head, location, f"unregister {name!r}: table")
    try:
        published = yield from publish_table(context, head, location, gives_up=True)
    except CorruptObject:
        newer = yield from void_with_log(context, head, location)
        if newer is head:
            raise
        return (yield from _without_name(context, newer, name, location, claims, by_name=by_name))
    _check_complete(published, name)
    tail = yield from probe(context, published.tail)
    state = published.head.tables.get(location)
    if published.head is not head:
        head = published.head
        return (yield from _without_name(context, head, name, location, claims, by_name=by_name))
    if state is None:
        return None
    claims.append((yield from _claim_to_release(location, head)))
    if state.dropped and claims[-1] is None:
        return None
    return (yield from _released(context, head, location, state, tail.tip, named))


def _released(
    context: Context,
    head: Head,
    location: str,
    state: TableState,
    tip: int,
    names: Collection[str],
) -> Program[Head]:
    """Return HEAD with a tombstone of the table in place of its entry and names."""
    release = context.ids.nonce()
    if state.dropped:
        again = msgspec.structs.replace(state, released_by=release)
        now_ms, nonce = context.now_ms(), context.ids.nonce()
        return successor(head, nonce=nonce, now_ms=now_ms, tables={location: again})
    touch = Touch(published=tip, metadata=True, data_change=False, first=state.published + 1)
    tombstone = TableState(
        state.table_id,
        tip,
        dropped=True,
        format=state.format,
        catalog=state.catalog,
        released_by=release,
    )
    gone = dict.fromkeys([*names, location])
    return (yield from _registered(context, head, {location: touch}, {location: tombstone}, gone))


def outcome_of_key(context: Context, key: str, version: int | None) -> Program[Outcome]:
    """Return how the last use of an idempotency key ended."""
    held = yield from load_key(key, version)
    if held is None:
        return Outcome("expired")
    record = held.record
    if record.refused is not None:
        return Outcome("aborted")
    if version is not None and record.committed is not None and version <= record.committed:
        return Outcome("committed", CommitResult(record.txn, None, None))
    last = yield from outcome(context, record.txn)
    if version is not None and last.state == "committed" and version > (record.version or 0):
        return Outcome("aborted")
    return last
