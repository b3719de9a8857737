"""A transaction's places in the queues of its tables: taken, held, left (design, section 5).

Where the queue is empty, a place takes one round: a LIST, marker 1, the record, and a read of HEAD
(note 25). A marker without a record does not count; but a client checks twice for the record, which
may be stored after the marker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakevilla.markers.claims import Claimant, HeldTicket, Queue
from lakevilla.markers.marker import Listed
from lakevilla.markers.queue import Happening, State, advance, ahead
from lakevilla.markers.repo import free, list_markers, load_markers, place, place_first
from lakevilla.phases import during
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.own_record import create_record, delete_record
from lakevilla.sublogs.record import Access


def join_queues(txn: Claimant, wanted: Mapping[str, Access]) -> Program[bool]:
    """Take a place in the queue of each of these tables.

    True if no other ticket was found: then all took one round, and what the caller has read in the
    same round is valid.
    """
    if txn.claims.queue is None:
        txn.claims.queue = Queue()
    with during("marker", next(iter(wanted)) if len(wanted) == 1 else None):
        takes: list[Program[Any]] = [_take_place(txn, *one) for one in wanted.items()]
        if txn.claims.record is None:
            takes.append(create_record(txn))
        met_nobody: list[Any] = yield from parallel(takes)
        return all(met_nobody[: len(wanted)])


def _take_place(txn: Claimant, table: str, access: Access) -> Program[bool]:
    """Create ticket 1 while listing the queue; if other tickets exist, queue behind them.

    The transaction must not stay ahead of tickets that were taken before it: if it got ticket 1, it
    queues behind them at once and deletes ticket 1. A client that lists the queue in between waits
    for a short time in vain.
    """
    queue = txn.claims.queue
    assert queue is not None

    def guess() -> Program[HeldTicket | None]:
        guessed = yield from place_first(table, txn.id, access, txn.context.ids)
        if guessed.is_doubtful:
            queue.doubtful.append((table, guessed.ticket.number))
        if not guessed.is_held:
            return None
        # The ticket is held from now on, whatever the concurrent list shows.
        held = HeldTicket(guessed.ticket, advance(State.PLACING, Happening.PLACED_FIRST))
        queue.places.append(held)
        return held

    parts: list[Program[Any]] = [list_markers(table), guess()]
    listed, held = yield from parallel(parts)
    others = [one for one in listed if held is None or one.number != held.ticket.number]
    if held is not None and not others:
        return True
    yield from take_ticket(txn, table, access, others)
    if held is not None:
        held.state = advance(held.state, Happening.STEPPED_BACK)
        queue.places.remove(held)
        yield from free([held.ticket])
    return False


def take_tickets(txn: Claimant, wanted: Mapping[str, tuple[Access, list[Listed]]]) -> Program[None]:
    """Place a marker behind the listed ones of each table; create the record first."""
    if txn.claims.queue is None:
        txn.claims.queue = Queue()
    if txn.claims.record is None:
        yield from create_record(txn)
    yield from parallel(
        [take_ticket(txn, table, access, listed) for table, (access, listed) in wanted.items()]
    )


def take_ticket(
    txn: Claimant, table: str, access: Access, listed: list[Listed]
) -> Program[HeldTicket]:
    """Place a marker behind the listed ones, and check whether one of them is ahead."""
    queue = txn.claims.queue
    assert queue is not None
    placed = yield from place(table, txn.id, access, txn.context.ids, listed)
    queue.doubtful.extend((table, number) for number in placed.doubtful)
    below = [one for one in listed if one.number < placed.ticket.number]
    # The place is noted first: it is held even if the read of the markers ahead fails.
    event = Happening.PLACED_BEHIND if below or placed.met else Happening.PLACED_FIRST
    held = HeldTicket(placed.ticket, advance(State.PLACING, event))
    queue.places.append(held)
    if held.state is State.WAITING:
        loaded = yield from load_markers(table, below, txn.context.known_markers())
        if not ahead(placed.ticket, [*loaded, *placed.met], txn.id):
            held.state = advance(held.state, Happening.REACHED)
    return held


def leave(txn: Claimant) -> Program[None]:
    """Give all places back, and the record with them."""
    queue, txn.claims.queue = txn.claims.queue, None
    places = [] if queue is None else queue.give_back(txn.id, committed=txn.has_committed)
    # A transaction that was saved, or is run again, may have a record and no places.
    yield from parallel([*places, delete_record(txn)])
