"""Decide which places a transaction must take in queues, and when (note 25).

``markers.places`` takes them. Deferred operations are performed after that, on the newest state: a
deferred operation relies on no rows yet, so the transaction takes no place for it before. Then it
takes all places, and reads the logs and HEAD, in one round.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lakevilla.markers.places import join_queues
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.operations import tables_read
from lakevilla.sublogs.record import Access
from lakevilla.transaction.redo.deferred import perform_deferred
from lakevilla.transaction.state.late_reads import (
    is_due_for_places,
    may_read_without_place,
    unplaced_reads,
)
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.validation.validate import catch_up, extend


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


# -------------------- deferred
#
# Perform deferred operations, once the places that they need are taken.


def stand_for_deferred(txn: TransactionState) -> Program[bool]:
    """Take the places that the deferred operations need, and move to the newest HEAD, in one round.

    False if that was done before, or if the queues have other tickets: then the transaction must
    first wait for those that are ahead.

    Raises
    ------
    ConflictError
        Another client has changed what the caller has read.
    """
    if not _has_unchecked_places(txn):
        return False
    met_nobody = yield from catch_up(txn, [enter(txn, _places(txn))])
    _note_probed(txn)
    return all(met_nobody)


def perform_late(txn: TransactionState, concerning: Collection[str] | None = None) -> Program[None]:
    """Perform deferred operations before the commit, because the caller reads their results.

    See ``perform_deferred``. The transaction moves to the newest state only if what the caller has
    read is unchanged there.
    """
    late = {done.table for done in txn.work.done if done.deferred}
    if not late or (concerning is not None and late.isdisjoint(concerning)):
        return
    if _has_unchecked_places(txn):
        yield from parallel([enter(txn, _places(txn))])
        yield from extend(txn)
        _note_probed(txn)
    yield from perform_deferred(txn, concerning)


def _has_unchecked_places(txn: TransactionState) -> bool:
    """Return whether deferred operations need places, or a check of logs, that is still missing."""
    wanted = _places(txn)
    unprobed = [table for table in wanted if not txn.work.tables[table].probed]
    return txn.through_head and bool(unprobed or missing_places(txn, wanted))


def _places(txn: TransactionState) -> dict[str, Access]:
    wanted: dict[str, Access] = {}
    for done in txn.work.done:
        if done.deferred:
            for table in tables_read(done.operation):
                wanted.setdefault(table, "read")
            wanted[done.table] = "write"
    return wanted


def _note_probed(txn: TransactionState) -> None:
    """Note that the tables' logs were probed, so that no performing probes or moves the tables."""
    for working in txn.work.tables.values():
        working.probed = True
