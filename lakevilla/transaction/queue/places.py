"""A transaction's places in the queues of its tables: entered, held, left (design, section 5).

Record, marker, state, in this order: a marker without a record is void, and
whoever lists after it was placed lets this transaction go first, so the state
that is read next is not behind anybody with Feature.CT.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakevilla.markers.marker import Listed
from lakevilla.markers.queue import Happening, State, advance, ahead
from lakevilla.markers.repo import list_markers, load_markers, place
from lakevilla.phases import during
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.record import Access
from lakevilla.transaction.state.features import Feature
from lakevilla.transaction.state.life import Life
from lakevilla.transaction.state.record import create_record, delete_record
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import HeldTicket, Queue


def enter(txn: TransactionState, wanted: Mapping[str, Access]) -> Program[None]:
    """Take a place in the queue of each table that has none strong enough.

    Without Feature.CT, and for transactions that write nothing, there are no queues.
    """
    if Feature.CT not in txn.options.features or txn.options.read_only:
        return
    queue = txn.standing.queue
    if queue is None:
        queue = txn.standing.queue = Queue()
    missing = {table: access for table, access in wanted.items() if not queue.covers(table, access)}
    if not missing:
        return
    with during("marker", next(iter(missing)) if len(missing) == 1 else None):
        yield from _enter(txn, missing)


def _enter(txn: TransactionState, missing: Mapping[str, Access]) -> Program[None]:
    parts: list[Program[object]] = [list_markers(table) for table in missing]
    if txn.standing.record is None:
        parts.append(create_record(txn))
    listed = yield from parallel(parts)
    takes = []
    for (table, access), found in zip(missing.items(), listed, strict=False):
        assert isinstance(found, list)
        takes.append(take_ticket(txn, table, access, found))
    yield from parallel(takes)


def take_ticket(
    txn: TransactionState, table: str, access: Access, listed: list[Listed]
) -> Program[HeldTicket]:
    """Place a marker behind those that are listed, and see whether anybody is ahead."""
    queue = txn.standing.queue
    assert queue is not None
    placed = yield from place(table, txn.id, access, txn.context.ids, listed)
    queue.doubtful.extend((table, number) for number in placed.doubtful)
    below = [one for one in listed if one.number < placed.ticket.number]
    # Reading those ahead may fail, and the place is held all the same.
    event = Happening.PLACED_BEHIND if below or placed.met else Happening.PLACED_FIRST
    held = HeldTicket(placed.ticket, advance(State.PLACING, event))
    queue.places.append(held)
    if held.state is State.WAITING:
        loaded = yield from load_markers(table, below, txn.context.known_markers())
        if not ahead(placed.ticket, [*loaded, *placed.met], txn.id):
            held.state = advance(held.state, Happening.REACHED)
    return held


def leave(txn: TransactionState) -> Program[None]:
    """Give all places back, and the record with them."""
    queue, txn.standing.queue = txn.standing.queue, None
    places = [] if queue is None else queue.give_back(txn.id, committed=txn.state is Life.COMMITTED)
    # One that was saved, or is run again, may have a record and no places.
    yield from parallel([*places, delete_record(txn)])
