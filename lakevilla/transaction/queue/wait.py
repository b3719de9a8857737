"""Waiting for a turn, with what that changes in the lake: ``deadlock.wait`` does the waiting."""

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
    """Wait until no transaction is ahead, or the patience of the transaction is over.

    True if it has waited: then HEAD has moved. ``head`` shows the reservations; ``ahead``
    are those that were ahead just now, if that was listed.
    """
    on_shift = OnShift(partial(unreserve, txn), partial(defer, txn))
    wait = yield from wait_until_first(txn, head, ahead, on_shift)
    if wait.swept:
        with during("publish"):
            yield from _finish_decided(txn, wait.swept)
    return wait.waited


def _finish_decided(txn: TransactionState, holders: set[str]) -> Program[None]:
    """Publish the commits that the dead transactions have decided."""
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
