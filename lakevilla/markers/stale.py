"""Markers that are not worth a wait: of an ended or silent transaction, or in no record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lakevilla.markers.ahead import Ahead
from lakevilla.markers.claims import Claimant
from lakevilla.store.base import Token
from lakevilla.store.effects import Program, delete, parallel
from lakevilla.store.readback import same_object
from lakevilla.sublogs.record import RESERVATION, TxnRecord


@dataclass(slots=True)
class Wait:
    """The findings of one wait: records by transaction, holders that were reported, and more.

    ``ended`` has the markers that were listed, and whose transactions had no record. ``wide``: the
    next look is at all transactions ahead, since one of them has left its marker behind.
    """

    deadline: float
    pause: float
    began: float
    tell_again: float
    records: dict[str, tuple[TxnRecord | None, Token]] = field(default_factory=dict)
    named: frozenset[str] = frozenset()
    swept: set[str] = field(default_factory=set)
    moved: set[tuple[str, int, Token]] = field(default_factory=set)
    unnamed: dict[tuple[str, int, str], list[Token]] = field(default_factory=dict)
    unrecorded: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    waited: bool = False
    wide: bool = False


def dead(txn: Claimant, wait: Wait, before: Iterable[Ahead]) -> list[Ahead]:
    """Return the markers whose transactions have ended, were aborted, or are silent for a lease.

    A transaction has ended if two checks in a row find no record of it. One check is not enough: a
    marker is created in the same round as the record of its transaction, and may be stored first
    (note 25).
    """
    leases, now = txn.context.leases, txn.context.clock.elapsed()
    found = []
    for one in before:
        if one.unreadable is not None:
            assert one.token is not None
            own = txn.context.settings.lease_seconds
            if leases.observe(one.key, one.token, own, now):
                found.append(one)
        elif one.txn not in wait.records:
            if one.txn in wait.unrecorded:
                found.append(one)
            wait.unrecorded.add(one.txn)
        elif leases.is_stale(one.txn, now):
            found.append(one)
    return found


def left_behind(wait: Wait, dead: Sequence[Ahead]) -> list[Ahead]:
    """Return the markers of dead transactions that their owners have not deleted themselves.

    A transaction that ends deletes its marker and its record in one round, so mostly a marker
    without a record is gone as well: the queue is listed once more before the marker is deleted.
    """
    left = [one for one in dead if one.txn in wait.records or one.key in wait.ended]
    left += [one for one in dead if one.unreadable is not None and one not in left]
    wait.ended.update(one.key for one in dead)
    return left


def without_records(wait: Wait, before: Iterable[Ahead]) -> list[Ahead]:
    """Return unrecorded markers: those that the record of their live transaction does not name.

    Such a marker was left by a process that died before it recorded the marker, and whose
    transaction another process has resumed; or by a create whose answer was lost. The owner does
    not know of the marker, so no edge shows a deadlock over it. Every replacement of a record names
    all places of its transaction, and one replacement may have been under way when the marker was
    placed. A marker is returned if the second replacement after it was seen does not name it
    either: the most that its owner can lose is a place.
    """
    found = []
    for one in before:
        record, token = wait.records.get(one.txn, (None, None))
        if record is None or token is None or not one.key:
            continue
        place = (one.table, one.number, one.txn)
        if any(t.table == one.table and t.number == one.number for t in record.tickets):
            wait.unnamed.pop(place, None)
            continue
        seen = wait.unnamed.setdefault(place, [])
        if not seen or not same_object(seen[-1], token):
            seen.append(token)
        if len(seen) > 2:
            found.append(one)
    return found


def sweep(txn: Claimant, wait: Wait, dead: Sequence[Ahead]) -> Program[None]:
    """Delete the markers of dead transactions; their records stay, so that they may still wake.

    If a number was freed and taken again meanwhile, its new marker is deleted too: the new owner
    finds that out before it commits, and takes another place.
    """
    context = txn.context
    stale = {one.txn for one in dead if one.txn in wait.records}
    wait.swept |= stale
    for one in dead:
        if one.number == RESERVATION:
            context.given_up.holders.add(one.txn)
    for holder in sorted(stale):
        message = (
            f"transaction {holder} has shown no sign of life for its lease: "
            f"transaction {txn.id} continues without it"
        )
        context.report("stale", txn.id, message, {"holder": holder})
    yield from parallel(
        [
            delete(one.key)
            for one in dead
            if one.key and not (one.unreadable is not None and one.unreadable.newer)
        ]
    )
    context.given_up.markers.update(
        one.token for one in dead if one.unreadable is not None and one.token
    )


def have_moved(wait: Wait, before: Iterable[Ahead]) -> bool:
    """Return whether a transaction ahead has shifted, that is, its record lacks the listed ticket.

    Records are exact only while their transactions wait; else their tickets may be older than the
    markers. So each state of a record counts once.
    """
    moved = False
    for one in before:
        record, token = wait.records.get(one.txn, (None, None))
        if record is None or token is None or not record.edges or one.number == RESERVATION:
            continue
        has_ticket = any(t.table == one.table and t.number == one.number for t in record.tickets)
        if not has_ticket and (one.txn, one.number, token) not in wait.moved:
            wait.moved.add((one.txn, one.number, token))
            moved = True
    return moved
