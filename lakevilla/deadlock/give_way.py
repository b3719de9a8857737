"""Giving way in a cycle of waits: only the youngest transaction shifts (design, section 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lakevilla.deadlock.graph import gives_way, live_edges
from lakevilla.global_log.head import Head
from lakevilla.markers.claims import Claimant
from lakevilla.markers.places import take_ticket
from lakevilla.markers.queue import Happening as Move
from lakevilla.markers.queue import advance
from lakevilla.markers.repo import free, list_markers
from lakevilla.markers.stale import Wait
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.record import RESERVATION, Access, Ticket


@dataclass(frozen=True, slots=True)
class OnShift:
    """The further actions of a transaction that gives way, besides those in the queues.

    ``unreserve`` removes its reservation from HEAD. ``defer`` defers its operations on the tables
    where it has shifted.
    """

    unreserve: Callable[[], Program[None]]
    defer: Callable[[Sequence[str]], None]


def give_way(txn: Claimant, wait: Wait, head: Head | None, on_shift: OnShift) -> Program[bool]:
    """Shift if this transaction is the youngest of a cycle of waits; return whether it shifted."""
    assert txn.claims.record is not None
    records = {txn_id: record for txn_id, (record, _) in wait.records.items() if record is not None}
    records[txn.id] = txn.claims.record.record
    reservations = () if head is None else head.reserved
    reserved = {(r.txn, table) for r in reservations for table in r.tables}
    edges = gives_way(txn.id, live_edges(records, reserved))
    if not edges:
        return False
    if any(edge.holder_ticket == RESERVATION for edge in edges):
        yield from on_shift.unreserve()
    tables = sorted({edge.table for edge in edges if edge.holder_ticket != RESERVATION})
    yield from parallel([shift(txn, table) for table in tables])
    on_shift.defer(tables)
    waiters = sorted({edge.waiter for edge in edges})
    message = f"transaction {txn.id} gives way to {', '.join(waiters)} on {', '.join(tables)}"
    detail = {"tables": tables, "holders": waiters}
    txn.context.report("shift", txn.id, message, detail)
    return True


def shift(txn: Claimant, table: str) -> Program[None]:
    """Take a new ticket at the end of the table's queue, then delete the old ones.

    In between both exist, which makes other transactions wait a little longer.
    """
    queue = txn.claims.queue
    assert queue is not None
    old = queue.at(table)
    listed = yield from list_markers(table)
    yield from take_ticket(txn, table, _strongest(place.ticket for place in old), listed)
    for place in old:
        place.state = advance(place.state, Move.GAVE_WAY)
        queue.places.remove(place)
    yield from free([place.ticket for place in old])


def _strongest(tickets: Iterable[Ticket]) -> Access:
    accesses = {ticket.access for ticket in tickets}
    return accesses.pop() if len(accesses) == 1 else "write"
