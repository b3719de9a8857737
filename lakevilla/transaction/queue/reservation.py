"""Reservations: an escalated transaction holds against optimistic ones (design, section 7).

Optimistic transactions read no markers, but every transaction reads HEAD. A reservation is a
ticket below all others in the tables that it names; it counts while its holder's
record lives.
"""

from __future__ import annotations

from collections.abc import Collection

from lakevilla.global_log.head import Head, Reservation, successor
from lakevilla.lake.context import Event
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.phases import during
from lakevilla.store.effects import Program
from lakevilla.transaction.state.record import create_record
from lakevilla.transaction.state.transaction import TransactionState

#: More reservations would make HEAD heavy for every client, and an order among so many is no help.
_MOST = 32


def reserve(txn: TransactionState, tables: Collection[str]) -> Program[None]:
    """Add the transaction to HEAD's ``reserved``.

    The replacement itself makes every optimistic commit that is under way lose
    its race, and read HEAD again. The record is created first: a reservation
    whose holder has no record is void.
    """
    with during("marker"):
        yield from _reserve(txn, tables)


def _reserve(txn: TransactionState, tables: Collection[str]) -> Program[None]:
    if txn.claims.record is None:
        yield from create_record(txn)
    context = txn.context
    wanted = Reservation(txn.id, tuple(sorted(tables)))

    def change(head: Head) -> Program[Head | None]:
        alive = _without(head, context.given_up.holders)
        # It takes the place of an earlier one: the transaction that has waited longest stays first.
        now = tuple(wanted if one.txn == txn.id else one for one in alive)
        if wanted not in now:
            now = (*now, wanted)
        if now == head.reserved or head.is_fenced(txn.id) or len(now) > _MOST:
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
    context.notify(Event("escalation", txn.id, message, {"tables": list(wanted.tables)}))


def unreserve(txn: TransactionState) -> Program[None]:
    """Give way: remove the transaction from HEAD's ``reserved``."""
    context = txn.context

    def change(head: Head) -> Program[Head | None]:
        others = _without(head, {txn.id})
        if others == head.reserved:
            return None
        yield from ()
        return successor(head, nonce=context.ids.nonce(), now_ms=context.now_ms(), reserved=others)

    yield from replace_until_stored(context, change)


def reserved_by(head: Head | None, txn_id: str) -> frozenset[str]:
    """Return the tables that a transaction has reserved."""
    reservations = () if head is None else head.reserved
    return frozenset(table for r in reservations if r.txn == txn_id for table in r.tables)


def reserved_ahead(txn: TransactionState, head: Head | None) -> list[Reservation]:
    """Return the reservations that go first: those in HEAD before the transaction's own.

    They count only as far as it writes what they have reserved: a read can't invalidate them.
    """
    written = {done.table for done in txn.work.done}
    if head is not None and txn.context.given_up.holders:
        # A holder whose reservation was removed from HEAD counts again, should it be added again.
        txn.context.given_up.holders &= {reservation.txn for reservation in head.reserved}
    before = []
    for reservation in () if head is None else head.reserved:
        if reservation.txn == txn.id:
            break
        tables = tuple(sorted(written.intersection(reservation.tables)))
        if tables and reservation.txn not in txn.context.given_up.holders:
            before.append(Reservation(reservation.txn, tables))
    return before


def remaining(txn: TransactionState, head: Head) -> tuple[Reservation, ...]:
    """Return the reservations that the transaction keeps in the HEAD by which it decides itself.

    Its own has served its purpose; those whose holders were found dead are dropped by
    the first transaction that decides.
    """
    return _without(head, {txn.id, *txn.context.given_up.holders})


def _without(head: Head, ended: Collection[str]) -> tuple[Reservation, ...]:
    return tuple(r for r in head.reserved if r.txn not in ended)
