"""Wait for a turn (``deadlock.wait``), and publish what dead transactions ahead have decided."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lakevilla.deadlock.give_way import OnShift
from lakevilla.deadlock.wait import wait_until_first
from lakevilla.errors import LakeVillaError
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.publishing.publish import publish_table
from lakevilla.markers.ahead import Ahead
from lakevilla.phases import during
from lakevilla.store.effects import Program
from lakevilla.transaction.queue.reservation import unreserve
from lakevilla.transaction.redo.deferred import defer
from lakevilla.transaction.state.transaction import TransactionState


def wait_for_turn(
    txn: TransactionState, head: Head | None, ahead: Sequence[Ahead] | None = None
) -> Program[bool]:
    """Wait until no transaction is ahead, or for at most ``wait_timeout_seconds``.

    True if the transaction has waited: then HEAD has moved. ``head`` has the reservations;
    ``ahead`` has the transactions that were ahead when the queues were listed just now, if they
    were.
    """
    on_shift = OnShift(partial(unreserve, txn), partial(defer, txn))
    wait = yield from wait_until_first(txn, head, ahead, on_shift)
    if wait.swept:
        with during("publish"):
            yield from _finish_decided(txn, wait.swept)
    return wait.waited


def _finish_decided(txn: TransactionState, holders: set[str]) -> Program[None]:
    """Publish the commits that dead transactions have decided: ``holders`` are their ids."""
    context = txn.context
    held = yield from context.head()
    if held is None:
        return
    yield from load_tables(held.head)
    for table, state in held.head.tables.items():
        if any(ref.txn in holders for ref in state.pending):
            try:
                yield from publish_table(context, held.head, table)
            except LakeVillaError as error:
                context.note_unpublished(txn.id, table, error)
