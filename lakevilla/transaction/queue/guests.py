"""Reserve tables in HEAD for the next commit of an Iceberg client (note 75)."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from lakevilla.errors import LakeVillaError
from lakevilla.global_log.head import Head, Reservation, successor
from lakevilla.lake.context import Context
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.markers.guests import GUEST_SECONDS, guests_at
from lakevilla.markers.reservation import without
from lakevilla.phases import during
from lakevilla.store.base import ABSENT
from lakevilla.store.codec import FORMAT, encode
from lakevilla.store.effects import Program, delete, parallel, put
from lakevilla.sublogs.record import TxnRecord, record_key
from lakevilla.transaction.queue.reservation import MOST_RESERVATIONS
from lakevilla.transaction.state.transaction import TransactionState


def give_way_to_guests(txn: TransactionState, tables: Collection[str]) -> Program[None]:
    """Note that others were first where a guest was to commit; reserve its tables if it is time.

    What the guest is told does not depend on it, so an error of the store changes nothing.
    """
    context = txn.context
    if (
        context.epoch
        or not tables
        or not context.guests.note_refusal(tables, context.clock.elapsed())
    ):
        return
    with suppress(LakeVillaError), during("marker"):
        if not (yield from context.is_only_creating()):
            yield from _reserve(context, txn.owner, tuple(sorted(tables)))


def thank_guest(txn: TransactionState) -> Program[None]:
    """Delete the records of the reservations that a guest's commit has left out of HEAD."""
    context = txn.context
    context.guests.note_commit(txn.written, context.clock.elapsed())
    used = guests_at(() if txn.head is None else txn.head.reserved, txn.written)
    if used:
        with suppress(LakeVillaError):
            yield from parallel([delete(record_key(one)) for one in used])


def _reserve(context: Context, owner: str, tables: tuple[str, ...]) -> Program[None]:
    """Create a record that nobody renews, and name it in HEAD."""
    held = yield from context.head()
    if held is None or guests_at(held.head.reserved, tables):
        return
    wanted = Reservation(context.new_txn_id(above=held.head.floor), tables, guest=True)
    key = record_key(wanted.txn)
    record = TxnRecord(
        format=FORMAT,
        nonce=context.ids.nonce(),
        txn=wanted.txn,
        owner=owner,
        heartbeat=0,
        lease_seconds=min(GUEST_SECONDS, context.settings.lease_seconds),  # `recover` sees its end
        began=held.head.sequence,
        claim=context.ids.nonce(),
        tables=tables,
    )
    yield from put(key, encode(record), ABSENT)

    def change(head: Head) -> Program[Head | None]:
        alive = without(head, context.given_up.holders)
        if guests_at(alive, tables) or len(alive) >= MOST_RESERVATIONS:
            return None
        yield from ()
        reserved = (*alive, wanted)
        return successor(
            head, nonce=context.ids.nonce(), now_ms=context.now_ms(), reserved=reserved
        )

    head = yield from replace_until_stored(context, change)
    if wanted not in head.reserved:
        yield from delete(key)
        return
    names = ", ".join(tables)
    message = f"{names}: reserved for the next commit of an Iceberg client, which lost twice"
    context.report("escalation", wanted.txn, message, {"tables": list(tables)})
