"""Perform deferred operations: after taking places in the queues, on the newest state (note 25).

A deferred operation relies on no rows yet, so the transaction takes no place for it before it is
performed. Then the transaction takes all places, and reads the logs and HEAD, in one round.
"""

from __future__ import annotations

from collections.abc import Collection

from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.operations import tables_read
from lakevilla.sublogs.record import Access
from lakevilla.transaction.queue.places import enter, missing_places
from lakevilla.transaction.redo.deferred import perform_deferred
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.validation.validate import catch_up, extend


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
