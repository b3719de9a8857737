"""Reads without a place in a queue, and the times when a place, or a save, becomes due."""

from __future__ import annotations

from lakevilla.sublogs.record import Access
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature

# -------------------- late reads
#
# Reads that have no place in a queue yet: most transactions that only read never need one.
#
# A transaction needs a place for its reads if a later transaction could make it redo work: if it
# will write what it has computed from its reads, or has lost a commit that way before (note 25).


#: A transaction that has only read takes its places so many seconds after its first use. This is
#: the first pause of a waiting transaction (``Settings.wait_poll_seconds``): a place that is given
#: back before the waiting transaction checks again has no effect. The time is no setting: shorter
#: than a commit, it would cost every reader a marker; longer than a person's pause, places would
#: come too late to help.
PLACE_AFTER_SECONDS = 0.25


def unplaced_reads(txn: TransactionState) -> dict[str, Access]:
    """Return the tables that the caller has read without a place in their queues."""
    if not txn.queues:
        return {}
    queue = txn.claims.queue
    tables = dict.fromkeys(table for table, _ in txn.work.reads)
    return {table: "read" for table in tables if queue is None or not queue.covers(table, "read")}


def may_read_without_place(txn: TransactionState) -> bool:
    """Return whether a read takes no place yet: the transaction is young and has written nothing.

    A transaction that holds a place already, or is run again, takes further places as it reads.
    """
    return not (
        txn.claims.queue is not None or txn.claims.used or txn.work.done or _has_lasted(txn)
    )


def is_due_for_places(txn: TransactionState) -> bool:
    """Return whether a thread should take the places of the reads now, between two verbs.

    It should not after a commit was tried: by then the transaction has given its places back.
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
# The time when a long transaction is due to be saved (design, section 6).
#
# Its age and its bytes in memory decide that, not the number of its operations: a hundred small
# appends end sooner than a save of them would.


#: The most bytes of new files in the memory of one transaction.
MOST_HELD_BYTES = 64 * 1024 * 1024


def is_due(txn: TransactionState) -> bool:
    """Return whether a transaction with Feature.R is old, or large, enough to be saved."""
    return _is_lazy(txn) and (
        _age(txn) >= txn.context.settings.save_interval_seconds or _holds_much(txn)
    )


def is_due_in_verb(txn: TransactionState) -> bool:
    """Return whether the verb that ends now must save the transaction itself.

    Mostly a thread saves it between two verbs. The verb does so if the transaction holds as much
    memory as it may, or if the thread has found no such time for two save intervals.
    """
    return _is_lazy(txn) and (
        _age(txn) >= 2 * txn.context.settings.save_interval_seconds or _holds_much(txn)
    )


def is_due_between_verbs(txn: TransactionState) -> bool:
    """Return whether a thread should save the transaction now, between two verbs.

    Not if it has no new operations, nor once its commit was tried: then the caller goes on with it,
    and may need a report of the outcome.
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
        and txn.turn is None  # its operations stand on those of others, which are not decided
        and txn.state is Status.OPEN
        and not txn.context.only_creates
    )


def _age(txn: TransactionState) -> float:
    """Return the seconds since the transaction was last saved, or began."""
    since = txn.bound.began_at if txn.claims.saved is None else txn.claims.saved.at
    return txn.context.clock.elapsed() - since


def _holds_much(txn: TransactionState) -> bool:
    return txn.work.held_bytes >= MOST_HELD_BYTES
