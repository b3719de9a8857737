"""The places that a transaction must take: for its reads and writes, and when (note 25).

``markers.places`` takes them.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakevilla.markers.places import join_queues
from lakevilla.store.effects import Program
from lakevilla.sublogs.record import Access
from lakevilla.transaction.state.late_reads import (
    is_due_for_places,
    may_read_without_place,
    unplaced_reads,
)
from lakevilla.transaction.state.transaction import TransactionState


def missing_places(txn: TransactionState, wanted: Mapping[str, Access]) -> dict[str, Access]:
    """Return the places that must be taken: no place that is held is strong enough.

    Without Feature.CT, and for transactions that write nothing, there are no queues. A table
    that is only appended to needs no place before the commit, and often none then. Reads take
    their places with the first write, whichever it is (note 25).
    """
    if not txn.queues:
        return {}
    only_reads = all(access == "read" for access in wanted.values())
    if only_reads and may_read_without_place(txn):
        return {}
    queue = txn.claims.queue
    placed = {table: access for table, access in wanted.items() if access != "append"}
    return {
        table: access
        for table, access in {**unplaced_reads(txn), **placed}.items()
        if queue is None or not queue.covers(table, access)
    }


def enter(txn: TransactionState, wanted: Mapping[str, Access]) -> Program[bool]:
    """Take a place in the queue of each table that has none strong enough.

    True if no other ticket was found: then it took one round, and what was read in the same round
    is valid.
    """
    missing = missing_places(txn, wanted)
    return not missing or (yield from join_queues(txn, missing))


def place_reads(txn: TransactionState) -> Program[None]:
    """Take the places of what it has read, if it has lasted: between two verbs (note 25).

    HEAD is not read: the caller can't take back what it has seen, and a change by another client in
    the meantime is found at the commit.
    """
    if is_due_for_places(txn):
        yield from enter(txn, unplaced_reads(txn))
