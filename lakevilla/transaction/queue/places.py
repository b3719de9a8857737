"""Decide which places a transaction must take in queues, and when (note 25).

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
    """Return the places that the transaction must take: it holds none there that is strong enough.

    A transaction without Feature.CT, or a read-only one, takes none. A table to which it only
    appends needs no place before the commit, and often none at the commit. The places of its reads
    are taken with its first write, to whatever table (note 25).
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
    """Take a place in the queue of each table where the transaction has none strong enough.

    True if the queues have no other ticket: then this took one round, and a HEAD and logs that were
    read in that round are valid.
    """
    missing = missing_places(txn, wanted)
    return not missing or (yield from join_queues(txn, missing))


def place_reads(txn: TransactionState) -> Program[None]:
    """Take the places of a long transaction's reads, between two verbs (note 25).

    HEAD is not read: the caller has seen the rows already, and the commit finds out whether another
    client has changed them meanwhile.
    """
    if is_due_for_places(txn):
        yield from enter(txn, unplaced_reads(txn))
