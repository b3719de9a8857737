"""Reservations, by which an escalated transaction goes before optimistic ones (design, 7).

Optimistic transactions read no markers, but every transaction reads HEAD. A reservation is a
ticket below all others in the tables that it names; it counts while its holder's record exists
and is renewed.
"""

from __future__ import annotations

from collections.abc import Collection

from lakevilla.global_log.head import Head, Reservation
from lakevilla.markers.claims import Claimant
from lakevilla.markers.guests import guests_at


def reserved_by(head: Head | None, txn_id: str) -> frozenset[str]:
    """Return the tables that a transaction has reserved."""
    reservations = () if head is None else head.reserved
    return frozenset(table for r in reservations if r.txn == txn_id for table in r.tables)


def reserved_ahead(txn: Claimant, head: Head | None) -> list[Reservation]:
    """Return the reservations that go before the transaction: those in HEAD before its own.

    They count only for tables that the transaction writes: a read can't invalidate their holders.
    """
    written = txn.written
    if head is not None and txn.context.given_up.holders:
        # If a reservation was removed from HEAD, its holder counts again once it makes another.
        txn.context.given_up.holders &= {reservation.txn for reservation in head.reserved}
    before = []
    for reservation in () if head is None else head.reserved:
        if reservation.txn == txn.id:
            break
        if reservation.guest and txn.claims.is_guest:
            continue
        tables = tuple(sorted(written.intersection(reservation.tables)))
        if tables and reservation.txn not in txn.context.given_up.holders:
            before.append(Reservation(reservation.txn, tables))
    return before


def remaining(txn: Claimant, head: Head) -> tuple[Reservation, ...]:
    """Return the reservations that the transaction leaves in HEAD when it commits.

    It removes its own, which has served its purpose, and those whose holders were found dead. A
    guest's commit removes those for guests on its tables.
    """
    ended = {txn.id, *txn.context.given_up.holders}
    if txn.claims.is_guest:
        ended.update(guests_at(head.reserved, txn.written))
    return without(head, ended)


def without(head: Head, ended: Collection[str]) -> tuple[Reservation, ...]:
    """Return the reservations of HEAD without those of some transactions."""
    return tuple(r for r in head.reserved if r.txn not in ended)
