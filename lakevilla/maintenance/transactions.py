"""Read the records, places and states of all clients' transactions.

The results may be outdated at once, so they are used only in reports.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from lakevilla.deadlock.graph import live_edges
from lakevilla.errors import CorruptObject, LakeVillaError
from lakevilla.global_log.head import CommitSummary, Head, shown_names
from lakevilla.global_log.repo import HeldHead, commits_since, load_names, load_tables
from lakevilla.ids import is_txn_id, started_at
from lakevilla.lake.context import Context
from lakevilla.markers.marker import Marker, Present
from lakevilla.markers.repo import list_markers, load_markers
from lakevilla.results import TransactionInfo
from lakevilla.settings import MOST_LEASE_SECONDS
from lakevilla.store.base import Found, Missing, ObjectInfo
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program, get, list_objects, parallel, some_at_once
from lakevilla.store.effects import stat as object_info
from lakevilla.sublogs.record import TXNS_PREFIX, Edge, Ticket, TxnRecord, record_key


@dataclass(frozen=True, slots=True)
class Records:
    """The objects in ``_lakevilla/txns``, by transaction; ``unreadable`` has those without a
    readable record.
    """

    listed: dict[str, ObjectInfo]
    records: dict[str, TxnRecord]
    unreadable: dict[str, LakeVillaError]


@dataclass(frozen=True, slots=True)
class Places:
    """The queues: markers by table, and the records of all transactions.

    ``failed`` has the tables whose markers could not be listed, with the errors.
    """

    markers: dict[str, list[Present]]
    records: Records
    failed: dict[str, LakeVillaError]


def transactions(context: Context) -> Program[list[TransactionInfo]]:
    """Return all transactions that have a record, oldest first: one LIST, and one round of GETs."""
    listed = yield from list_records()
    records, held = yield from parallel([read_records(listed), context.head()])
    if held is None:
        return []
    assert isinstance(records, Records)
    assert isinstance(held, HeldHead)
    described = yield from describe(context, held.head, records)
    return sorted(described.values(), key=lambda info: info.id)


def list_records() -> Program[dict[str, ObjectInfo]]:
    """List the existing records, by transaction."""
    infos = yield from list_objects(TXNS_PREFIX)
    named = (
        (info.key.removeprefix(f"{TXNS_PREFIX}/").removesuffix(".json"), info) for info in infos
    )
    return {txn: info for txn, info in named if is_txn_id(txn) and info.key == record_key(txn)}


def read_records(listed: dict[str, ObjectInfo]) -> Program[Records]:
    """Read the records in ``listed`` in one round; transactions that have ended meanwhile are left
    out.
    """
    outcomes = yield from parallel([get(info.key) for info in listed.values()])
    found = Records({}, {}, {})
    for (txn, info), outcome in zip(listed.items(), outcomes, strict=True):
        if not isinstance(outcome, Found):
            continue
        found.listed[txn] = info
        try:
            record = decode(info.key, outcome.body, TxnRecord)
            if record.txn != txn:
                raise CorruptObject(
                    f"{info.key} is the record of another transaction, {record.txn!r}: delete it",
                    key=info.key,
                    txn_id=txn,
                )
        except LakeVillaError as error:
            found.unreadable[txn] = error
        else:
            found.records[txn] = record
    return found


def look(context: Context, head: Head, among: Collection[str] | None = None) -> Program[Places]:
    """Read the queues of all tables in HEAD, and of the tables that records name.

    With ``among``, of HEAD's tables only those in it.

    If a transaction has a marker but no listed record, its record is requested again. The record
    was created before the marker, so if it does not exist now, the transaction has ended.
    """
    listed = yield from list_records()
    records = yield from read_records(listed)
    yield from load_tables(head, among)
    tables = _tables(head, records.records.values(), among)
    results = yield from some_at_once(_markers(context, table) for table in tables)
    markers: dict[str, list[Present]] = {}
    failed: dict[str, LakeVillaError] = {}
    for table, result in zip(tables, results, strict=True):
        if isinstance(result, LakeVillaError):
            failed[table] = result
        elif result:
            markers[table] = result
    named = {one.txn for some in markers.values() for _, one in some if isinstance(one, Marker)}
    named |= {reservation.txn for reservation in head.reserved if is_txn_id(reservation.txn)}
    unseen = sorted(named - records.listed.keys())
    infos = yield from parallel([object_info(record_key(txn)) for txn in unseen])
    late = {
        txn: info for txn, info in zip(unseen, infos, strict=True) if not isinstance(info, Missing)
    }
    more = yield from read_records(late)
    records.listed.update(more.listed)
    records.records.update(more.records)
    records.unreadable.update(more.unreadable)
    return Places(markers, records, failed)


def describe(context: Context, head: Head, records: Records) -> Program[dict[str, TransactionInfo]]:
    """Return the description of each transaction whose record can be read."""
    committed = yield from _committed(head, records.records)
    edges = waits(head, records)
    yield from load_names(head)
    names = shown_names(head)
    infos = {}
    for txn, record in records.records.items():
        waits_for = tuple(sorted({edge.holder for edge in edges if edge.waiter == txn}))
        seen = records.listed[txn].modified_seconds
        state: Literal["running", "waiting", "saved", "committed", "aborted"] = "running"
        if txn in committed:
            state = "committed"
        elif head.is_fenced(txn):
            state = "aborted"
        elif waits_for:
            state = "waiting"
        elif record.sublog and context.clock.now() - seen > lease_of(context, record):
            state = "saved"
        tables = {*record.tables, *(ticket.table for ticket in record.tickets)}
        tables |= {table for owner, table in _reserved(head) if owner == txn}
        tables |= {edge.table for edge in edges if txn in (edge.holder, edge.waiter)}
        infos[txn] = TransactionInfo(
            txn,
            state,
            record.owner,
            _to_datetime(started_at(txn)),
            _to_datetime(seen),
            tuple(sorted(names.get(table, table) for table in tables)),
            waits_for,
        )
    return infos


def waits(head: Head, records: Records) -> frozenset[Edge]:
    """Return the present waits between transactions, for reports.

    A transaction that does not wait itself may have more tickets than its record names, since the
    record is updated with the next heartbeat. For such a transaction, the tickets that its waiters
    name are used as well.
    """
    recorded: dict[str, set[Ticket]] = {}
    for record in records.records.values():
        for edge in record.edges:
            ticket = Ticket(edge.table, edge.holder_ticket, "write")
            recorded.setdefault(edge.holder, set()).add(ticket)
    exact = {
        txn: record
        if record.edges
        else msgspec.structs.replace(record, tickets=(*record.tickets, *recorded.get(txn, ())))
        for txn, record in records.records.items()
    }
    return live_edges(exact, _reserved(head))


def _reserved(head: Head) -> frozenset[tuple[str, str]]:
    """Return HEAD's reservations as the graph of waits takes them."""
    return frozenset((one.txn, table) for one in head.reserved for table in one.tables)


def lease_of(context: Context, record: TxnRecord | None) -> float:
    """Return the lease in a record, within limits, or this process's own if it is invalid."""
    own = context.settings.lease_seconds
    claimed = own if record is None else record.lease_seconds
    if not 0 < claimed < math.inf:  # also for NaN, all comparisons with which are False
        return own
    return min(claimed, max(own, MOST_LEASE_SECONDS))


def _tables(head: Head, records: Iterable[TxnRecord], among: Collection[str] | None) -> list[str]:
    """Return the tables whose queues must be read.

    A transaction may also have a place in the queue of a table that HEAD lacks.
    """
    cached = head.tables.cached(among)
    tables = {location for location, state in cached.items() if not state.dropped}
    for record in records:
        named = {*record.tables, *(ticket.table for ticket in record.tickets)}
        # A damaged record may name anything: ignore places outside of the root that HEAD does not
        # have.
        tables |= {table for table in named if "://" not in table and not table.startswith("/")}
    return sorted(tables)


def _markers(context: Context, table: str) -> Program[list[Present] | LakeVillaError]:
    try:
        listed = yield from list_markers(table)
        return (yield from load_markers(table, listed, context.known_markers()))
    except LakeVillaError as error:
        return error


def _committed(head: Head, records: Mapping[str, TxnRecord]) -> Program[set[str]]:
    """Return the transactions with a record that have a commit in the lake's history.

    Pages are read back only to the version at which the oldest open transaction began. A record
    without that version (0) is so young that a commit of it would be in HEAD itself.
    """
    known = _ids_of(head.commits)
    open_ = [
        record.began
        for txn, record in records.items()
        if txn not in known and not head.is_fenced(txn) and record.began > 0
    ]
    if open_:
        since = max(min(open_), head.history_start)
        try:
            commits = yield from commits_since(head, since)
        except LakeVillaError:
            commits = None  # a page is damaged, which the doctor reports
        known |= _ids_of(commits or ())
    return known & records.keys()


def _ids_of(commits: Iterable[CommitSummary]) -> set[str]:
    return {txn for one in commits if one.kind == "transaction" for txn in one.transactions}


def _to_datetime(seconds: float) -> datetime:
    """Return an aware datetime; clamp times out of its range, which a damaged id may have."""
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return datetime.max.replace(tzinfo=UTC)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
