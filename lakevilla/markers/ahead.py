"""The markers and reservations that a transaction must wait for (design, section 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakevilla.global_log.head import Head
from lakevilla.markers.claims import Claimant
from lakevilla.markers.marker import LAST_TICKET, Listed, Present, Unreadable, marker_key
from lakevilla.markers.places import take_ticket, take_tickets
from lakevilla.markers.queue import Happening as Happened
from lakevilla.markers.queue import State, advance, ahead
from lakevilla.markers.repo import list_markers, load_markers
from lakevilla.markers.reservation import reserved_ahead, reserved_by
from lakevilla.phases import during
from lakevilla.store.base import Token
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.own_record import create_record
from lakevilla.sublogs.record import RESERVATION, Ticket


@dataclass(frozen=True, slots=True)
class Ahead:
    """A transaction that must go first: by a marker, or (number 0, no key) by a reservation.

    ``mine`` is the ticket of the transaction that waits; ``txn`` is the id of the transaction
    ahead, or empty if that is not known.
    """

    table: str
    number: int
    mine: int
    txn: str
    key: str = ""
    unreadable: Unreadable | None = None
    token: Token | None = None


def who_is_ahead(txn: Claimant, head: Head | None) -> Program[list[Ahead]]:
    """Return the markers and reservations that are ahead of the transaction.

    This takes one LIST for each table that the transaction has not reserved, all in one round. An
    append holds no place while no transaction is ahead of it. Where a transaction is ahead, the
    append takes its place now, and later transactions wait for the append (note 25).
    """
    own = reserved_by(head, txn.id)
    queue = txn.claims.queue
    placed = [] if queue is None else [table for table in queue.tables if table not in own]
    unplaced = [table for table in unplaced_appends(txn) if table not in own]
    tables = list(dict.fromkeys((*placed, *unplaced)))
    parts: list[Program[Any]] = [list_markers(table) for table in tables]
    if placed and txn.claims.record is None:
        parts.append(create_record(txn))  # its creation failed in the round of the markers
    lists: list[Any] = yield from parallel(parts)
    listed: dict[str, list[Listed]] = dict(zip(tables, lists, strict=False))
    if (yield from _is_any_ahead(txn, {table: listed[table] for table in unplaced})):
        with during("marker"):
            yield from take_tickets(txn, {table: ("append", listed[table]) for table in unplaced})
        return (yield from who_is_ahead(txn, head))
    some = yield from parallel([_at_table(txn, table, listed[table]) for table in placed])
    found = [one for several in some for one in several]
    places = () if queue is None else queue.places
    mine = {place.ticket.table: place.ticket.number for place in places}
    for reservation in reserved_ahead(txn, head):
        for table in reservation.tables:
            found.append(Ahead(table, RESERVATION, mine.get(table, 0), reservation.txn))
    return [one for one in found if not _is_beside(txn, one)]


def unplaced_appends(txn: Claimant) -> list[str]:
    """Return the tables to which the transaction appends without a place there (note 25)."""
    if not txn.queues:
        return []
    queue = txn.claims.queue
    return [table for table in txn.appended if queue is None or not queue.covers(table, "append")]


def _is_any_ahead(txn: Claimant, listed: Mapping[str, list[Listed]]) -> Program[bool]:
    """Return whether an append that joins the queues of these tables now would have to wait."""
    known = txn.context.known_markers()
    loaded = yield from parallel([load_markers(table, one, known) for table, one in listed.items()])
    return any(
        not _is_beside(txn, one)
        for table, present in zip(listed, loaded, strict=True)
        for one in _before(txn, Ticket(table, LAST_TICKET, "append"), present)
    )


def _is_beside(txn: Claimant, one: Ahead) -> bool:
    """Return whether the transaction ahead is open in the same thread that would wait for it.

    The thread would wait for ever. So the transaction continues, as after a time-out. If the two
    have changed the same rows, the transaction ahead redoes its work when it commits, or has a
    conflict.
    """
    if not txn.context.is_callers(one.txn):
        return False
    if one.txn not in txn.claims.beside:
        txn.claims.beside.add(one.txn)
        message = (
            f"transaction {txn.id} does not wait for {one.txn}, which the same thread has open: "
            f"the transaction continues concurrently with it on table {one.table}"
        )
        detail = {"table": one.table, "holders": [one.txn], "beside": True}
        txn.context.report("waiting", txn.id, message, detail)
    return True


def _at_table(txn: Claimant, table: str, listed: list[Listed]) -> Program[list[Ahead]]:
    yield from _replace_swept(txn, table, listed)
    assert txn.claims.queue is not None
    places = txn.claims.queue.at(table)
    last = max(place.ticket.number for place in places)
    below = [one for one in listed if one.number < last]
    loaded = yield from load_markers(table, below, txn.context.known_markers())
    found: dict[int, Ahead] = {}
    for place in places:
        before = ahead(place.ticket, loaded, txn.id)
        if before and place.state is State.FIRST:
            place.state = advance(place.state, Happened.OVERTAKEN)
        if not before and place.state is State.WAITING:
            place.state = advance(place.state, Happened.REACHED)
        found |= {one.number: one for one in _before(txn, place.ticket, loaded)}
    return list(found.values())


def _before(txn: Claimant, ticket: Ticket, loaded: Iterable[Present]) -> list[Ahead]:
    """Return the markers that a ticket waits for, without unreadable ones whose lease is over."""
    found = []
    for one, marker in ahead(ticket, loaded, txn.id):
        unreadable = marker if isinstance(marker, Unreadable) else None
        if unreadable is not None and one.token in txn.context.given_up.markers:
            continue
        holder = "" if isinstance(marker, Unreadable) else marker.txn
        key = marker_key(ticket.table, one.number)
        found.append(
            Ahead(ticket.table, one.number, ticket.number, holder, key, unreadable, one.token)
        )
    return found


def _replace_swept(txn: Claimant, table: str, listed: list[Listed]) -> Program[None]:
    """Take a new ticket for each ticket that does not exist any more.

    Other clients consider a transaction that has slept for a lease dead, and delete its markers.
    A list that lags behind the store looks the same: then the transaction gives up a good place
    for a later one, and nothing worse.
    """
    queue = txn.claims.queue
    assert queue is not None
    there = {one.number for one in listed}
    for lost in [place for place in queue.at(table) if place.ticket.number not in there]:
        lost.state = advance(advance(lost.state, Happened.SWEPT), Happened.WOKE)
        queue.places.remove(lost)
        queue.doubtful.append((table, lost.ticket.number))
        yield from take_ticket(txn, table, lost.ticket.access, listed)
