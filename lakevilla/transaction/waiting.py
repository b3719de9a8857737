"""Waiting for one's turn, and giving way in a cycle (design, sections 7 and 8, step 1).

Nothing here is needed for safety: a transaction that goes on too early loses a
race or redoes its work. So every doubt is settled in favour of going on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakevilla.deadlock.graph import live_edges
from lakevilla.deadlock.policy import gives_way
from lakevilla.errors import LakeVillaError
from lakevilla.global_log.head import Head
from lakevilla.ids import is_txn_id
from lakevilla.markers.marker import marker_key
from lakevilla.markers.queue import Event as Move
from lakevilla.markers.queue import State, advance, ahead
from lakevilla.markers.repo import Listed, Unreadable, free, list_markers, load_markers
from lakevilla.store.base import Found, Missing, Token
from lakevilla.store.effects import Program, delete, get, parallel, sleep
from lakevilla.store.readback import same_object
from lakevilla.sublogs.codec import decode
from lakevilla.sublogs.record import RESERVATION, Access, Edge, Ticket, TxnRecord, record_key
from lakevilla.transaction.context import Event
from lakevilla.transaction.deferred import defer
from lakevilla.transaction.publish import publish_table
from lakevilla.transaction.queueing import take_ticket
from lakevilla.transaction.record import change_record
from lakevilla.transaction.reservation import reserved_ahead, reserved_by, unreserve

if TYPE_CHECKING:
    from lakevilla.transaction.core import Transaction

__all__ = ["wait_for_turn"]

#: Edges written into one record; whoever waits for more is in no hurry to find a cycle.
_MOST_EDGES = 256
#: Records read to find a cycle; a larger one ends with a time-out.
_MOST_RECORDS = 4096
#: A queue moves on at the pace at which each waiter looks, so pauses grow slowly.
_GROWTH = 1.2


@dataclass(frozen=True, slots=True)
class _Ahead:
    """One who is to go first: by a marker, or (number 0, no key) by a reservation."""

    table: str
    number: int
    mine: int
    txn: str
    key: str = ""
    unreadable: Unreadable | None = None
    token: Token | None = None


@dataclass(slots=True)
class _Wait:
    """What one wait has learnt: records by transaction, and whom its caller was told of."""

    deadline: float
    pause: float
    records: dict[str, tuple[TxnRecord | None, Token]] = field(default_factory=dict)
    told: frozenset[str] = frozenset()
    swept: set[str] = field(default_factory=set)
    moved: set[tuple[str, int, Token]] = field(default_factory=set)
    unnamed: dict[tuple[str, int, str], list[Token]] = field(default_factory=dict)
    waited: bool = False


def wait_for_turn(txn: Transaction, head: Head | None) -> Program[bool]:
    """Wait until nobody is ahead, or the patience of the transaction is over.

    True if it has waited: then HEAD has moved. ``head`` shows the reservations.
    """
    context = txn.context
    settings = context.settings
    if txn.patience_ends is None:
        limit = txn.wait_timeout_seconds
        limit = settings.wait_timeout_seconds if limit is None else limit
        txn.patience_ends = context.clock.elapsed() + limit
    wait = _Wait(txn.patience_ends, settings.wait_poll_seconds)
    while True:
        if context.clock.elapsed() >= wait.deadline:
            _tell(txn, "waiting", f"transaction {txn.id} stops waiting and commits", {})
            break
        before = yield from _who_is_ahead(txn, head)
        if not before:
            break
        wait.waited = True
        yield from _wait(txn, wait, before, head)
        if head is not None and head.reserved:
            held_head = yield from context.head()
            head = None if held_head is None else held_head.head
    if wait.swept:
        yield from _finish_decided(txn, wait.swept)
    return wait.waited


# -- who is ahead ---------------------------------------------------------------


def _who_is_ahead(txn: Transaction, head: Head | None) -> Program[list[_Ahead]]:
    """One LIST for each table that the transaction has not reserved, all in one round."""
    found = []
    mine = {}
    queue = txn.queue
    if queue is not None:
        own = reserved_by(head, txn.id)
        tables = [table for table in queue.tables if table not in own]
        lists = yield from parallel([list_markers(table) for table in tables])
        some = yield from parallel(
            [_at_table(txn, table, listed) for table, listed in zip(tables, lists, strict=True)]
        )
        found = [one for several in some for one in several]
        mine = {place.ticket.table: place.ticket.number for place in queue.places}
    for reservation in reserved_ahead(txn, head):
        for table in reservation.tables:
            found.append(_Ahead(table, RESERVATION, mine.get(table, 0), reservation.txn))
    return found


def _at_table(txn: Transaction, table: str, listed: list[Listed]) -> Program[list[_Ahead]]:
    yield from _replace_swept(txn, table, listed)
    assert txn.queue is not None
    places = txn.queue.at(table)
    last = max(place.ticket.number for place in places)
    below = [one for one in listed if one.number < last]
    loaded = yield from load_markers(table, below, txn.context.known_markers())
    found = {}
    for place in places:
        before = ahead(place.ticket, loaded, txn.id)
        if before and place.state is State.FIRST:
            place.state = advance(place.state, Move.OVERTAKEN)
        if not before and place.state is State.WAITING:
            place.state = advance(place.state, Move.REACHED)
        for one, marker in before:
            unreadable = marker if isinstance(marker, Unreadable) else None
            if unreadable is not None and one.token in txn.context.passed:
                continue
            found[one.number] = _Ahead(
                table,
                one.number,
                place.ticket.number,
                "" if isinstance(marker, Unreadable) else marker.txn,
                marker_key(table, one.number),
                unreadable,
                one.token,
            )
    return list(found.values())


def _replace_swept(txn: Transaction, table: str, listed: list[Listed]) -> Program[None]:
    """Take a new ticket for each that is not there any more.

    Others take a transaction for dead that has slept for a lease. A list that is
    behind looks the same: then a good place is given up for a later one, which is
    all that a stale answer can do here.
    """
    queue = txn.queue
    assert queue is not None
    there = {one.number for one in listed}
    for lost in [place for place in queue.at(table) if place.ticket.number not in there]:
        lost.state = advance(advance(lost.state, Move.SWEPT), Move.WOKE)
        queue.places.remove(lost)
        queue.doubtful.append((table, lost.ticket.number))
        yield from take_ticket(txn, table, lost.ticket.access, listed)


# -- waiting ----------------------------------------------------------------------


def _wait(
    txn: Transaction, wait: _Wait, before: Sequence[_Ahead], head: Head | None
) -> Program[None]:
    """Wait until it is worth listing again.

    The edges are written before the records of others are read: of those who close
    a cycle the last to write sees all of it.
    """
    context = txn.context
    lease = context.settings.lease_seconds
    list_again = context.clock.elapsed() + lease
    yield from _write_edges(txn, before)
    while True:
        yield from _read_records(wait, before, txn)
        dead = _dead(txn, wait, before)
        if dead:
            yield from _sweep(txn, wait, dead)
            wait.pause = context.settings.wait_poll_seconds
            return
        strays = _strays(wait, before)
        if strays:
            yield from parallel([delete(one.key) for one in strays])
            return
        if txn.queue is not None and (yield from _give_way(txn, wait, head)):
            return
        if _has_moved(wait, before):
            return
        _announce(txn, wait, before)
        look_again = context.clock.elapsed() + lease / 3
        polled = max(before, key=lambda one: (one.txn != "", one.number))
        while True:
            now = context.clock.elapsed()
            if now >= min(wait.deadline, list_again):
                return
            if now >= look_again:
                break
            pause = wait.pause * (0.5 + context.ids.jitter() / 2)
            yield from sleep(min(pause, max(wait.deadline - now, 0.0)))
            wait.pause = min(context.settings.wait_poll_cap_seconds, _GROWTH * wait.pause)
            if not polled.txn:
                break
            if txn.ousted:
                yield from change_record(txn)  # tells why
            changed = yield from _poll(txn, wait, polled.txn)
            if polled.txn not in wait.records:
                wait.pause = context.settings.wait_poll_seconds
                return
            if changed:
                break


def _has_moved(wait: _Wait, before: Iterable[_Ahead]) -> bool:
    """Whether somebody ahead has shifted away: its record, while it waits, names its tickets.

    Asked once for each state of a record: tickets lag behind while it does not wait.
    """
    moved = False
    for one in before:
        record, token = wait.records.get(one.txn, (None, None))
        if record is None or token is None or not record.edges or one.number == RESERVATION:
            continue
        held = any(t.table == one.table and t.number == one.number for t in record.tickets)
        if not held and (one.txn, one.number, token) not in wait.moved:
            wait.moved.add((one.txn, one.number, token))
            moved = True
    return moved


def _write_edges(txn: Transaction, before: Iterable[_Ahead]) -> Program[None]:
    if txn.queue is None or txn.record is None:
        return  # holds no ticket, so nobody waits for it
    edges = [Edge(txn.id, one.mine, one.txn, one.number, one.table) for one in before if one.txn]
    edges = edges[:_MOST_EDGES]
    record = txn.record.record
    # Edges to those that have ended are void by themselves; only new ones must be told.
    if not set(edges) <= set(record.edges) or record.tickets != txn.queue.tickets:
        yield from change_record(txn, edges=tuple(edges))


def _poll(txn: Transaction, wait: _Wait, holder: str) -> Program[bool]:
    """One conditional GET; whether anything has changed."""
    before = wait.records.get(holder)
    yield from _read(txn, wait, holder)
    return wait.records.get(holder) != before or txn.context.leases.is_stale(
        holder, txn.context.clock.elapsed()
    )


def _read_records(wait: _Wait, before: Iterable[_Ahead], txn: Transaction) -> Program[None]:
    """The records of those ahead, and of those that they wait for in turn."""
    seen: set[str] = {txn.id}
    frontier = {one.txn for one in before if one.txn} - seen
    while frontier and len(seen) < _MOST_RECORDS:
        yield from parallel([_read(txn, wait, holder) for holder in sorted(frontier)])
        seen |= frontier
        further: set[str] = set()
        for holder in frontier:
            record = wait.records.get(holder, (None, None))[0]
            if record is not None:
                further.update(edge.holder for edge in record.edges)
        frontier = further - seen


def _read(txn: Transaction, wait: _Wait, holder: str) -> Program[None]:
    context = txn.context
    key = record_key(holder)
    known = wait.records.get(holder)
    outcome = yield from get(key, None if known is None else known[1])
    if isinstance(outcome, Missing):
        wait.records.pop(holder, None)
        context.leases.gone(holder)
        return
    if isinstance(outcome, Found):
        known = (_record(key, holder, outcome.body), outcome.token)
        wait.records[holder] = known
    assert known is not None
    lease = context.settings.lease_seconds if known[0] is None else known[0].lease_seconds
    context.leases.observe(holder, known[1], lease, context.clock.elapsed())


def _record(key: str, holder: str, body: bytes) -> TxnRecord | None:
    """A record that can't be read tells no edges; its lease still runs.

    The ids in it become parts of keys: a wrong one must not reach the store.
    """
    try:
        record = decode(key, body, TxnRecord)
    except LakeVillaError:
        return None
    if record.txn != holder or not all(is_txn_id(edge.holder) for edge in record.edges):
        return None
    return record


# -- those who are gone -------------------------------------------------------------


def _dead(txn: Transaction, wait: _Wait, before: Iterable[_Ahead]) -> list[_Ahead]:
    """Those of whom nothing is to be waited for: ended, aborted, or silent for a lease."""
    leases, now = txn.context.leases, txn.context.clock.elapsed()
    dead = []
    for one in before:
        if one.unreadable is not None:
            assert one.token is not None
            own = txn.context.settings.lease_seconds
            if leases.observe(one.key, one.token, own, now):
                dead.append(one)
        elif one.txn not in wait.records or leases.is_stale(one.txn, now):
            dead.append(one)
    return dead


def _strays(wait: _Wait, before: Iterable[_Ahead]) -> list[_Ahead]:
    """Markers of the living that they do not count among their places.

    Left by a process that died before it wrote them down, and whose transaction another
    has resumed; or by a create whose answer was lost. Their owner does not know of them, so no
    edge tells of a deadlock over them. Every replacement of a record names all places, and
    one may have been on its way when the marker was placed: so whoever is not named in the
    second after it was seen has lost a place at most.
    """
    strays = []
    for one in before:
        record, token = wait.records.get(one.txn, (None, None))
        if record is None or token is None or not one.key:
            continue
        place = (one.table, one.number, one.txn)
        if any(t.table == one.table and t.number == one.number for t in record.tickets):
            wait.unnamed.pop(place, None)
            continue
        seen = wait.unnamed.setdefault(place, [])
        if not seen or not same_object(seen[-1], token):
            seen.append(token)
        if len(seen) > 2:
            strays.append(one)
    return strays


def _sweep(txn: Transaction, wait: _Wait, dead: Sequence[_Ahead]) -> Program[None]:
    """Give up the places of the dead; their records stay, so that they may go on if they wake.

    A marker that was freed and placed again under the same number meanwhile is
    deleted with them: its owner finds out before it commits, and takes another.
    """
    context = txn.context
    stale = {one.txn for one in dead if one.txn in wait.records}
    wait.swept |= stale
    for one in dead:
        if one.number == RESERVATION:
            context.departed.add(one.txn)
    for holder in sorted(stale):
        _tell(
            txn,
            "stale",
            f"transaction {holder} has shown no sign of life for its lease: "
            f"transaction {txn.id} goes on without it",
            {"holder": holder},
        )
    yield from parallel(
        [
            delete(one.key)
            for one in dead
            if one.key and not (one.unreadable is not None and one.unreadable.newer)
        ]
    )
    context.passed.update(one.token for one in dead if one.unreadable is not None and one.token)


def _finish_decided(txn: Transaction, holders: set[str]) -> Program[None]:
    """Publish what the dead have decided."""
    context = txn.context
    held = yield from context.head()
    if held is None:
        return
    for table, state in held.head.tables.items():
        if any(ref.txn in holders for ref in state.pending):
            try:
                yield from publish_table(context, held.head, table)
            except LakeVillaError as error:
                context.note_unpublished(txn.id, table, error)


# -- cycles -------------------------------------------------------------------------


def _give_way(txn: Transaction, wait: _Wait, head: Head | None) -> Program[bool]:
    """Shift if this is the youngest of a cycle; nobody else in it does."""
    assert txn.record is not None
    records = {who: record for who, (record, _) in wait.records.items() if record is not None}
    records[txn.id] = txn.record.record
    reservations = () if head is None else head.reserved
    reserved = {(r.txn, table) for r in reservations for table in r.tables}
    into = gives_way(txn.id, live_edges(records, reserved))
    if not into:
        return False
    if any(edge.holder_ticket == RESERVATION for edge in into):
        yield from unreserve(txn)
    tables = sorted({edge.table for edge in into if edge.holder_ticket != RESERVATION})
    yield from parallel([_shift(txn, table) for table in tables])
    defer(txn, tables)
    others = sorted({edge.waiter for edge in into})
    message = f"transaction {txn.id} gives way to {', '.join(others)} on {', '.join(tables)}"
    _tell(txn, "shift", message, {"tables": tables, "holders": others})
    return True


def _shift(txn: Transaction, table: str) -> Program[None]:
    """New ticket at the end, then the old ones go: in between both stand, which costs a wait."""
    queue = txn.queue
    assert queue is not None
    old = queue.at(table)
    listed = yield from list_markers(table)
    yield from take_ticket(txn, table, _strongest(held.ticket for held in old), listed)
    for held in old:
        held.state = advance(held.state, Move.GAVE_WAY)
        queue.places.remove(held)
    yield from free([held.ticket for held in old])


def _strongest(tickets: Iterable[Ticket]) -> Access:
    accesses = {ticket.access for ticket in tickets}
    return accesses.pop() if len(accesses) == 1 else "write"


# -- telling ------------------------------------------------------------------------


def _announce(txn: Transaction, wait: _Wait, before: Sequence[_Ahead]) -> None:
    """Say whom it waits for, once for each set of them."""
    holders = frozenset(one.txn or one.key for one in before)
    if holders == wait.told:
        return
    wait.told = holders
    first = before[-1]
    record = wait.records.get(first.txn, (None, None))[0]
    owner = "" if record is None else f" ({record.owner})"
    more = "" if len(holders) == 1 else f" and {len(holders) - 1} more"
    message = f"transaction {txn.id} waits for {first.txn or first.key}{owner}{more}"
    _tell(
        txn,
        "waiting",
        f"{message} on table {first.table}",
        {
            "table": first.table,
            "holders": sorted(holders),
            "owner": None if record is None else record.owner,
        },
    )


def _tell(txn: Transaction, kind: str, message: str, detail: dict[str, object]) -> None:
    txn.context.notify(Event(kind, txn.id, message, detail))  # type: ignore[arg-type]
