"""A transaction's places in the queues of its tables: entered, held, given back (section 5).

Record, marker, state, in this order: a marker without a record is void, and
whoever lists after it was placed lets this transaction go first, so the state
that is read next is not behind anybody with Feature.CT.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakevilla.markers.queue import Event, State, advance, ahead
from lakevilla.markers.repo import Listed, list_markers, load_markers, place
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.record import Access
from lakevilla.transaction.state.features import Feature
from lakevilla.transaction.state.record import create_record, delete_record
from lakevilla.transaction.state.transaction import Transaction
from lakevilla.transaction.state.values import Place, Queue

__all__ = ["enter", "leave", "take_ticket"]


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
    places = [] if queue is None else queue.give_back(txn.id, committed=txn.state == "committed")
    # One that was saved, or is run again, may have a record and no places.
    yield from parallel([*places, delete_record(txn)])
