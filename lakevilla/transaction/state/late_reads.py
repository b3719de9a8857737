"""Reads without a place in a queue, and the time when they are due for one."""

from __future__ import annotations

from lakevilla.sublogs.record import Access
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature

# -------------------- late reads
#
# Reads that have no place in a queue yet: most transactions that only read never need one.
#
# A transaction needs a place if it has something to lose to later transactions: if it will write
# what it has computed from its reads, or has lost with that once (note 25).


#: A transaction that has only read takes its places so many seconds after its first use. It is the
#: first pause of a waiting transaction (``Settings.wait_poll_seconds``): a place that is given back
#: before that transaction checks again is of no use to it. It is no setting: shorter than a commit
#: it would cost every reader a marker, and longer than a person's pause it would break the purpose
#: of a place.
PLACE_AFTER_SECONDS = 0.25


def unplaced_reads(txn: TransactionState) -> dict[str, Access]:
    """Return the tables whose rows its caller has seen without a place in their queues."""
    if not txn.queues:
        return {}
    queue = txn.claims.queue
    tables = dict.fromkeys(table for table, _ in txn.work.reads)
    return {table: "read" for table in tables if queue is None or not queue.covers(table, "read")}


def may_read_without_place(txn: TransactionState) -> bool:
    """Return whether a read takes no place yet: nothing is written, and it has not lasted.

    A transaction that holds a place already, or is run again, takes its further places where it
    reads.
    """
    return not (
        txn.claims.queue is not None or txn.claims.used or txn.work.done or _has_lasted(txn)
    )


def is_due_for_places(txn: TransactionState) -> bool:
    """Return whether another thread should take the places of its reads, between two verbs.

    It should not if a commit was tried: from then on the transaction has given its places back.
    """
    return (
        txn.state is Status.OPEN
        and not (txn.ending.tried or txn.ending.is_in_doubt or txn.work.behind)
        and _has_lasted(txn)
        and bool(unplaced_reads(txn))
    )


def _has_lasted(txn: TransactionState) -> bool:
    began = txn.bound.began_at
    return txn.bound.is_bound and txn.context.clock.elapsed() - began >= PLACE_AFTER_SECONDS


# -------------------- due
#
# The time when a long-lived transaction is due to be saved (design, section 6).
#
# It is due by time and by bytes, not by the number of its operations: a hundred small appends end
# sooner than a save of them would.


#: The most bytes of new files in the memory of one transaction.
MOST_HELD_BYTES = 64 * 1024 * 1024


def is_due(txn: TransactionState) -> bool:
    """Return whether a transaction with Feature.R has lived, or holds, enough to be saved."""
    return _is_lazy(txn) and (
        _age(txn) >= txn.context.settings.save_interval_seconds or _holds_much(txn)
    )


def is_due_in_verb(txn: TransactionState) -> bool:
    """Return whether the verb that ends now must save it, although a thread saves due ones.

    Then it holds as much memory as it may; or that thread, which waits for a time between two
    verbs, has found none for as long again.
    """
    return _is_lazy(txn) and (
        _age(txn) >= 2 * txn.context.settings.save_interval_seconds or _holds_much(txn)
    )


def is_due_between_verbs(txn: TransactionState) -> bool:
    """Return whether another thread should save it: not at its commit, nor with nothing to save.

    One whose commit was tried is left to its caller, which may need a report of the outcome.
    """
    count = 0 if txn.claims.saved is None else txn.claims.saved.operations
    return (
        len(txn.work.done) != count
        and not (txn.ending.tried or txn.ending.is_in_doubt or txn.work.behind)
        and is_due(txn)
    )


def _is_lazy(txn: TransactionState) -> bool:
    return (
        Feature.R in txn.options.features
        and txn.state is Status.OPEN
        and not txn.context.only_creates
    )


def _age(txn: TransactionState) -> float:
    """Return the seconds since it was last saved, or began."""
    since = txn.bound.began_at if txn.claims.saved is None else txn.claims.saved.at
    return txn.context.clock.elapsed() - since


def _holds_much(txn: TransactionState) -> bool:
    return txn.work.held_bytes >= MOST_HELD_BYTES
