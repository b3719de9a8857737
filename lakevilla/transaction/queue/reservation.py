"""Make and remove reservations in HEAD; ``markers.reservation`` reads them."""

from __future__ import annotations

from collections.abc import Collection

from lakevilla.global_log.head import Head, Reservation, successor
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.markers.reservation import without
from lakevilla.phases import during
from lakevilla.store.effects import Program
from lakevilla.sublogs.own_record import create_record
from lakevilla.transaction.state.transaction import TransactionState

#: The most reservations in HEAD: more would make HEAD large for every client, and help no one.
MOST_RESERVATIONS = 32


def reserve(txn: TransactionState, tables: Collection[str]) -> Program[None]:
    """Add the transaction to HEAD's ``reserved``.

    This replacement of HEAD makes every optimistic commit that is under way lose its race, and read
    HEAD again. The record is created first: a reservation of a transaction without a record does
    not count.
    """
    with during("marker"):
        yield from _reserve(txn, tables)


def _reserve(txn: TransactionState, tables: Collection[str]) -> Program[None]:
    if txn.claims.record is None:
        yield from create_record(txn)
    context = txn.context
    wanted = Reservation(txn.id, tuple(sorted(tables)))

    def change(head: Head) -> Program[Head | None]:
        alive = without(head, context.given_up.holders)
        # It replaces the transaction's earlier reservation, in the same position: the transaction
        # that has waited longest stays first.
        now = tuple(wanted if one.txn == txn.id else one for one in alive)
        if wanted not in now:
            now = (*now, wanted)
        if now == head.reserved or head.is_fenced(txn.id) or len(now) > MOST_RESERVATIONS:
            return None
        yield from ()
        return successor(head, nonce=context.ids.nonce(), now_ms=context.now_ms(), reserved=now)

    head = yield from replace_until_stored(context, change)
    if wanted not in head.reserved:
        return
    message = (
        f"transaction {txn.id} reserves {', '.join(wanted.tables)}: other transactions let it "
        "commit first"
    )
    context.report("escalation", txn.id, message, {"tables": list(wanted.tables)})


def unreserve(txn: TransactionState) -> Program[None]:
    """Give way: remove the transaction from HEAD's ``reserved``."""
    context = txn.context

    def change(head: Head) -> Program[Head | None]:
        others = without(head, {txn.id})
        if others == head.reserved:
            return None
        yield from ()
        return successor(head, nonce=context.ids.nonce(), now_ms=context.now_ms(), reserved=others)

    yield from replace_until_stored(context, change)
