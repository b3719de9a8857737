"""Reads that have no place in a queue yet: most transactions that only read never need one.

A place is for whoever has something to lose to those who come later: who will write what he has
computed from his reads, or has lost with that once (note 25).
"""

from __future__ import annotations

from lakevilla.sublogs.record import Access
from lakevilla.transaction.state.life import Life
from lakevilla.transaction.state.transaction import TransactionState

#: So long after its first use a transaction that has only read takes its places. It is the first
#: pause of those who wait (``Settings.wait_poll_seconds``): nobody gains by knowing of a
#: place that is given back before he looks again. No setting: shorter than a commit it would cost
#: every reader a marker, and longer than a person's pause it would break what a place is for.
PLACE_AFTER_SECONDS = 0.25


def unplaced_reads(txn: TransactionState) -> dict[str, Access]:
    """The tables whose rows its caller has seen without a place in their queues."""
    if not txn.queues:
        return {}
    queue = txn.standing.queue
    tables = dict.fromkeys(table for table, _ in txn.work.reads)
    return {table: "read" for table in tables if queue is None or not queue.covers(table, "read")}


def may_read_without_place(txn: TransactionState) -> bool:
    """Whether a read takes no place yet: nothing is written, and it has not lasted.

    One that holds a place already, or is run again, takes the others where it reads.
    """
    return not (
        txn.standing.queue is not None or txn.standing.used or txn.work.done or _has_lasted(txn)
    )


def is_due_for_places(txn: TransactionState) -> bool:
    """Whether a thread beside it should take the places of its reads, between two verbs.

    Not of one whose commit was tried: what it holds is given back from then on.
    """
    return (
        txn.state is Life.OPEN
        and not (txn.ending.tried or txn.ending.is_in_doubt or txn.work.behind)
        and _has_lasted(txn)
        and bool(unplaced_reads(txn))
    )


def _has_lasted(txn: TransactionState) -> bool:
    began = txn.bound.began_at
    return txn.bound.is_bound and txn.context.clock.elapsed() - began >= PLACE_AFTER_SECONDS
