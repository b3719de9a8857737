"""What the doctor tells of queues: who is where, who waits for whom, what can't be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from lakevilla.deadlock.graph import cycles
from lakevilla.errors import LakeVillaError, UnsupportedFormat
from lakevilla.global_log.head import Head, shown_names
from lakevilla.global_log.repo import load_names
from lakevilla.lake.context import Context
from lakevilla.maintenance.transactions import Places, describe, lease_of, look, waits
from lakevilla.markers.marker import Present, Unreadable, marker_key
from lakevilla.results import Finding, QueuePlace, TableQueue, TransactionInfo
from lakevilla.store.effects import Program
from lakevilla.sublogs.record import record_key


@dataclass(frozen=True, slots=True)
class QueueReport:
    """The doctor's part about queues and saved transactions."""

    findings: tuple[Finding, ...]
    queues: tuple[TableQueue, ...]
    cycles: tuple[tuple[str, ...], ...]


def report_queues(context: Context, head: Head) -> Program[QueueReport]:
    """Look at all queues and records. It changes nothing, and waits for nothing."""
    places = yield from look(context, head)
    known = yield from describe(context, head, places.records)
    yield from load_names(head)
    names = shown_names(head)
    reserved: dict[str, list[str]] = {}
    for reservation in head.reserved:
        for table in reservation.tables:
            reserved.setdefault(table, []).append(reservation.txn)
    queues = [
        TableQueue(
            names.get(table, table),
            tuple(
                _place(table, present, places, known) for present in places.markers.get(table, ())
            ),
            tuple(reserved.get(table, ())),
        )
        for table in sorted(places.markers.keys() | reserved.keys())
    ]
    rings = cycles(waits(head, places.records))
    findings = [
        *_unreadable(places),
        *_reservations(head, known),
        *_cycles(rings),
        *_markers(queues),
        *_silent(context, places, known, queues),
        *_saved(places, known),
    ]
    return QueueReport(tuple(findings), tuple(queues), tuple(rings))


def _place(
    table: str, present: Present, places: Places, known: Mapping[str, TransactionInfo]
) -> QueuePlace:
    listed, marker = present
    key = marker_key(table, listed.number)
    if isinstance(marker, Unreadable):
        return QueuePlace(listed.number, "unreadable", key)
    info = known.get(marker.txn)
    if info is None:
        unread = marker.txn in places.records.unreadable
        return QueuePlace(
            listed.number, "unreadable" if unread else "void", key, marker.txn, marker.access
        )
    return QueuePlace(
        listed.number, info.state, key, info.id, marker.access, info.owner, info.waits_for
    )


def _unreadable(places: Places) -> Iterable[Finding]:
    for table, error in places.failed.items():
        yield Finding("error", error.kind, error.message, table=table)
    for table, markers in places.markers.items():
        for listed, marker in markers:
            if isinstance(marker, Unreadable):
                key = marker_key(table, listed.number)
                error = marker.error
                yield Finding(_severity(error), error.kind, error.message, table=table, key=key)
    for txn, error in places.records.unreadable.items():
        key = record_key(txn)
        yield Finding(_severity(error), error.kind, error.message, txn_id=txn, key=key)


def _severity(error: LakeVillaError) -> Literal["warning", "error"]:
    # To be met by an older library is nothing that is wrong with the lake.
    return "warning" if isinstance(error, UnsupportedFormat) else "error"


def _reservations(head: Head, known: Mapping[str, TransactionInfo]) -> Iterable[Finding]:
    for reservation in head.reserved:
        info = known.get(reservation.txn)
        alive = "" if info is not None else "; it has no record any more, so nobody waits for it"
        tables = ", ".join(reservation.tables)
        yield Finding(
            "note",
            "reserved",
            f"transaction {reservation.txn} has reserved {tables}: those that write there let it "
            f"go first{alive}",
            txn_id=reservation.txn,
        )


def _cycles(rings: Iterable[tuple[str, ...]]) -> Iterable[Finding]:
    for ring in rings:
        yield Finding(
            "note",
            "cycle",
            f"transactions {', '.join(ring)} wait for each other: the youngest, {ring[-1]}, gives "
            "way when it looks next, within a third of its lease",
            txn_id=ring[-1],
        )


def _markers(queues: Iterable[TableQueue]) -> Iterable[Finding]:
    for queue in queues:
        void = [place for place in queue.places if place.state == "void"]
        if void:
            yield Finding(
                "note",
                "void",
                f"{len(void)} places in the queue of table {queue.table} are void, because their "
                "transactions have ended: nobody waits for them, and `lakevilla recover` deletes "
                "them",
                table=queue.table,
                key=void[0].key,
            )


def _silent(
    context: Context,
    places: Places,
    known: Mapping[str, TransactionInfo],
    queues: Iterable[TableQueue],
) -> Iterable[Finding]:
    """By the store's clock against this one's, so no more than a hint."""
    queued = {place.txn_id for queue in queues for place in queue.places}
    queued |= {txn for queue in queues for txn in queue.reserved_by}
    for txn, info in known.items():
        since = context.clock.now() - places.records.listed[txn].modified_seconds
        lease = lease_of(context, places.records.records[txn])
        if txn in queued and since > lease:
            yield Finding(
                "note",
                "silent",
                f"transaction {txn} ({info.owner}) holds places and has not renewed its record for "
                f"{since:.0f} s, by the store's clock; its lease is {lease:g} s: if its client is "
                "dead, those who wait for it give up its places, and so does `lakevilla recover`",
                txn_id=txn,
                key=record_key(txn),
            )


def _saved(places: Places, known: Mapping[str, TransactionInfo]) -> Iterable[Finding]:
    for txn, info in known.items():
        if info.state == "committed":
            yield Finding(
                "note",
                "ended",
                f"transaction {txn} has committed and its record is still there: `lakevilla gc` "
                "deletes it",
                txn_id=txn,
                key=record_key(txn),
            )
        elif info.state == "aborted":
            yield Finding(
                "note",
                "ended",
                f"transaction {txn} was aborted and its record is still there: its owner deletes "
                "it when it finds out, or `lakevilla gc`",
                txn_id=txn,
                key=record_key(txn),
            )
        elif places.records.records[txn].sublog:
            yield Finding(
                "note",
                "saved",
                f"transaction {txn} is saved: `lake.resume` continues it, "
                "`lakevilla abort` ends it",
                txn_id=txn,
                key=record_key(txn),
            )
