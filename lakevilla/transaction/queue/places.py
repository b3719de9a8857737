"""A transaction's places in the queues of its tables: entered, held, given back (section 5).

Record, marker, state, in this order: a marker without a record is void, and
whoever lists after it was placed lets this transaction go first, so the state
that is read next is not behind anybody with Feature.CT.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakevilla.markers.queue import Event, State, advance, ahead, covers
from lakevilla.markers.repo import Listed, free, list_markers, load_markers, place, withdraw
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.record import Access, Ticket
from lakevilla.transaction.state.features import Feature
from lakevilla.transaction.state.record import create_record, delete_record

if TYPE_CHECKING:
    from lakevilla.transaction.state.transaction import Transaction

__all__ = ["Place", "Queue", "enter", "leave", "take_ticket"]


@dataclass(slots=True)
class Place:
    """One ticket and where its transaction stands with it."""

    ticket: Ticket
    state: State


@dataclass(slots=True)
class Queue:
    """All places of one transaction.

    ``doubtful`` are markers that may be there, or may yet come: creates whose
    answers were lost, and places that others have swept. At the end those that are
    there and ours are deleted with the rest.
    """

    places: list[Place] = field(default_factory=list)
    doubtful: list[tuple[str, int]] = field(default_factory=list)

    @classmethod
    def resumed(cls, tickets: Iterable[Ticket]) -> Queue:
        """The places of a transaction that another process has begun."""
        return cls([Place(ticket, State.WAITING) for ticket in tickets])

    @property
    def tickets(self) -> tuple[Ticket, ...]:
        return tuple(place.ticket for place in self.places)

    @property
    def tables(self) -> list[str]:
        return list(dict.fromkeys(place.ticket.table for place in self.places))

    def at(self, table: str) -> list[Place]:
        return [place for place in self.places if place.ticket.table == table]

    def covers(self, table: str, wanted: Access) -> bool:
        """Whether a place is held that is as good as one with ``wanted`` access."""
        return any(covers(place.ticket.access, wanted) for place in self.at(table))

    def is_behind(self, table: str) -> bool:
        """Whether others were ahead when it last looked: then it works logically there."""
        return any(place.state is State.WAITING for place in self.at(table))

    def give_back(self, txn: Transaction) -> list[Program[None]]:
        """The parts of one round that delete what is left of it in the store."""
        for held in self.places:
            ended = Event.COMMITTED if txn.state == "committed" else Event.ABORTED
            held.state = advance(held.state, ended)
        parts: list[Program[None]] = [free([ticket]) for ticket in self.tickets]
        return [*parts, withdraw(txn.id, self.doubtful)] if self.doubtful else parts


def enter(txn: Transaction, wanted: Mapping[str, Access]) -> Program[None]:
    """Take a place in the queue of each table that has none strong enough.

    Without Feature.CT, and for transactions that write nothing, there are no queues.
    """
    if Feature.CT not in txn.features or txn.read_only:
        return
    queue = txn.queue
    if queue is None:
        queue = txn.queue = Queue()
    missing = {table: access for table, access in wanted.items() if not queue.covers(table, access)}
    if not missing:
        return
    parts: list[Program[object]] = [list_markers(table) for table in missing]
    if txn.record is None:
        parts.append(create_record(txn))
    listed = yield from parallel(parts)
    takes = []
    for (table, access), found in zip(missing.items(), listed, strict=False):
        assert isinstance(found, list)
        takes.append(take_ticket(txn, table, access, found))
    yield from parallel(takes)


def take_ticket(
    txn: Transaction, table: str, access: Access, listed: list[Listed]
) -> Program[Place]:
    """Place a marker behind those that are listed, and see whether anybody is ahead."""
    queue = txn.queue
    assert queue is not None
    placed = yield from place(table, txn.id, access, txn.context.ids, listed)
    queue.doubtful.extend((table, number) for number in placed.doubtful)
    below = [one for one in listed if one.number < placed.ticket.number]
    # Reading those ahead may fail, and the place is held all the same.
    event = Event.PLACED_BEHIND if below or placed.met else Event.PLACED_FIRST
    held = Place(placed.ticket, advance(State.PLACING, event))
    queue.places.append(held)
    if held.state is State.WAITING:
        loaded = yield from load_markers(table, below, txn.context.known_markers())
        if not ahead(placed.ticket, [*loaded, *placed.met], txn.id):
            held.state = advance(held.state, Event.REACHED)
    return held


def leave(txn: Transaction) -> Program[None]:
    """Give all places back, and the record with them."""
    queue, txn.queue = txn.queue, None
    places = [] if queue is None else queue.give_back(txn)
    # One that was saved, or is run again, may have a record and no places.
    yield from parallel([*places, delete_record(txn)])
