"""Give up the places of dead clients, without waiting in a queue, for ``recover``.

Places are hints: if a live client is taken for dead, it only loses its place, and takes a new one
at the end. All leases are watched at the same time, so this takes one lease, however many clients
are dead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from lakevilla.global_log.head import Head, successor
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.tables.dropped import held_back
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.maintenance.transactions import Places, lease_of, list_records, look
from lakevilla.markers.marker import Listed, Marker, Unreadable, marker_key
from lakevilla.markers.repo import free, list_markers
from lakevilla.results import Finding
from lakevilla.store.base import ObjectInfo
from lakevilla.store.effects import Program, parallel, sleep
from lakevilla.store.readback import same_object
from lakevilla.sublogs.record import TxnRecord

#: The number of reads of the records within one lease; a live owner renews its record within a
#: third of it.
_LOOKS = 6
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a sweep.

    ``stale`` are dead transactions whose decided commits must be published.
    """

    findings: list[Finding] = field(default_factory=list)
    stale: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Held:
    """A place that may be given up, and its owner; None if the marker can't be read."""

    table: str
    listed: Listed
    txn: str | None


def give_up_places(
    context: Context, head: Head, owner: str, among: Collection[str] | None = None
) -> Program[Swept]:
    """Delete the markers of transactions that have ended, or that don't renew their record for a
    lease.

    This waits for a lease at most, and only if other clients with places may be dead. Records and
    sublogs stay, so that clients which were only suspended can continue. The places of ``owner``,
    this process, are skipped. With ``among``, only tables in it are checked, and those that the
    record of a transaction names.
    """
    places = yield from look(context, head, among)
    swept = Swept()
    swept.findings.extend((yield from _left_alone(context, head, places)))
    for table, error in places.failed.items():
        swept.findings.append(Finding("error", error.kind, error.message, table=table))
    held_places = [
        _Held(table, listed, marker.txn if isinstance(marker, Marker) else None)
        for table, markers in places.markers.items()
        for listed, marker in markers
        if not (isinstance(marker, Unreadable) and marker.newer)
    ]
    swept.findings.extend(_newer(places))
    holders = {one.txn for one in held_places if one.txn is not None}
    holders |= {reservation.txn for reservation in head.reserved}
    ended = {txn for txn in holders if txn not in places.records.listed or head.is_fenced(txn)}
    void = [one for one in held_places if one.txn in ended]
    yield from free([(one.table, one.listed.number) for one in void])
    swept.findings.extend(_freed(void, "void", "of transactions that have ended"))
    held_places = [one for one in held_places if one.txn not in ended]

    records = places.records.records
    own = {txn for txn, record in records.items() if owner and record.owner == owner}
    watched = {txn: places.records.listed[txn] for txn in holders - ended - own}
    # Markers never change, so an unreadable one that still exists after a lease is an old one.
    damaged = any(one.txn is None for one in held_places)
    dead, ended_since, silent = yield from watch_records(context, watched, records, waits=damaged)
    swept.stale.update(dead)
    over = {None, *dead, *ended_since}
    given_up = yield from _delete([one for one in held_places if one.txn in over])
    for kind, txns, whose in (
        ("stale", dead, "of transactions that have shown no sign of life for their lease"),
        ("void", ended_since, "of transactions that have ended"),
        ("unreadable", {None}, "whose markers can't be read"),
    ):
        swept.findings.extend(_freed([one for one in given_up if one.txn in txns], kind, whose))
    for txn in sorted(silent):
        swept.findings.append(
            Finding(
                "warning",
                "silent",
                f"transaction {txn} has not renewed its record for "
                f"{context.settings.lease_seconds:g} s, but has a lease of "
                f"{lease_of(context, records.get(txn)):g} s: recover again later, or "
                "`lakevilla abort` it",
                txn_id=txn,
            )
        )
    reserving = {reservation.txn for reservation in head.reserved}
    context.given_up.holders.update(reserving & {*ended, *dead, *ended_since})
    if reserving & context.given_up.holders:
        yield from drop_reservations(context, context.given_up.holders)
        for txn in sorted(reserving & context.given_up.holders):
            message = f"the reservation of transaction {txn} was taken out of HEAD"
            swept.findings.append(Finding("note", "reserved", message, txn_id=txn))
    return swept


def _left_alone(context: Context, head: Head, places: Places) -> Program[list[Finding]]:
    """Remove from ``places`` the queues of tables in which this lake may delete nothing; report
    them.
    """
    findings = []
    yield from load_tables(head, places.markers)
    for table in sorted(places.markers):
        state = head.tables.get(table)
        table_id = None if state is None else state.table_id
        if why := (yield from held_back(context, head, table, table_id)):
            del places.markers[table]
            message = f"the queue of table {table} was skipped: {why}"
            findings.append(Finding("warning", "elsewhere", message, table=table))
    return findings


def still_there(table: str, seen: Iterable[Listed]) -> Program[list[int]]:
    """Return the numbers of the markers in ``seen`` that are neither freed nor replaced since."""
    listed = yield from list_markers(table)
    tokens = {one.number: one.token for one in listed}
    return [
        one.number
        for one in seen
        if one.number in tokens and same_object(tokens[one.number], one.token)
    ]


def drop_reservations(context: Context, departed: Collection[str]) -> Program[None]:
    """Remove from HEAD the reservations of transactions that have ended or are dead."""

    def change(head: Head) -> Program[Head | None]:
        rest = tuple(one for one in head.reserved if one.txn not in departed)
        if rest == head.reserved:
            return None
        yield from ()
        return successor(head, nonce=context.ids.nonce(), now_ms=context.now_ms(), reserved=rest)

    yield from replace_until_stored(context, change)


def watch_records(
    context: Context,
    watched: dict[str, ObjectInfo],
    records: dict[str, TxnRecord],
    *,
    waits: bool,
) -> Program[tuple[set[str], set[str], set[str]]]:
    """Watch records for a lease; return the dead, the ended, and the undecided transactions.

    A dead transaction has not changed its record for its lease, by ``Leases``, which knows what
    this process has seen before. An undecided one has a longer lease. ``waits``: wait for the whole
    lease in any case.
    """
    leases, lease = context.leases, context.settings.lease_seconds
    began = {txn: info.token for txn, info in watched.items()}
    open_ = dict(began)
    dead: set[str] = set()
    ended: set[str] = set()
    now = context.clock.elapsed()
    deadline = now + lease
    while True:
        for txn, token in list(open_.items()):
            if leases.observe(txn, token, lease_of(context, records.get(txn)), now):
                dead.add(txn)
                del open_[txn]
        if now >= deadline or not (open_ or waits):
            return dead, ended, set(open_)
        yield from sleep(min(lease / _LOOKS, max(deadline - now, 0.001)))
        listed = yield from list_records()
        now = context.clock.elapsed()
        for txn in list(open_):
            info = listed.get(txn)
            if info is None:
                leases.forget(txn)
                ended.add(txn)
                del open_[txn]
            elif not same_object(info.token, began[txn]):
                del open_[txn]  # its record has changed, so the owner is alive


def _delete(places: Collection[_Held]) -> Program[list[_Held]]:
    """Delete markers that were listed some time ago; return those that were deleted.

    The markers are listed again, because a number may have been freed and taken by another
    transaction since.
    """
    tables: dict[str, list[Listed]] = {}
    for one in places:
        tables.setdefault(one.table, []).append(one.listed)
    left = yield from parallel([still_there(table, seen) for table, seen in tables.items()])
    present = {(table, number) for table, some in zip(tables, left, strict=True) for number in some}
    yield from free(sorted(present))
    return [one for one in places if (one.table, one.listed.number) in present]


def _newer(places: Places) -> Iterable[Finding]:
    for table, markers in places.markers.items():
        for listed, marker in markers:
            if isinstance(marker, Unreadable) and marker.newer:
                key = marker_key(table, listed.number)
                message = f"{key} was skipped: {marker.error.message}"
                yield Finding("warning", marker.error.kind, message, table=table, key=key)


def _freed(freed: Iterable[_Held], kind: str, owners: str) -> Iterable[Finding]:
    """Yield one finding for each table; it names some of the transactions."""
    tables: dict[str, list[_Held]] = {}
    for one in freed:
        tables.setdefault(one.table, []).append(one)
    for table, of_table in sorted(tables.items()):
        txns = sorted({one.txn for one in of_table if one.txn is not None})
        named = ", ".join(txns[:_NAMED])
        more = f" and {len(txns) - _NAMED} more" if len(txns) > _NAMED else ""
        places = "1 place" if len(of_table) == 1 else f"{len(of_table)} places"
        about = f": {named}{more}" if txns else ""
        yield Finding(
            "note",
            kind,
            f"{places} in the queue of table {table}, {owners}, "
            f"{'was' if len(of_table) == 1 else 'were'} released{about}",
            table=table,
            txn_id=txns[0] if len(txns) == 1 else None,
            key=marker_key(table, of_table[0].listed.number) if len(of_table) == 1 else None,
        )
