"""Waiting for a turn, and giving way in a cycle (design, sections 7 and 8, step 1).

Nothing here is needed for safety: a transaction that continues too early loses a
race for HEAD or redoes its work. So in every doubt the transaction continues.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakevilla.deadlock.give_way import OnShift, give_way
from lakevilla.errors import LakeVillaError
from lakevilla.global_log.head import Head
from lakevilla.ids import is_txn_id
from lakevilla.markers.ahead import Ahead, who_is_ahead
from lakevilla.markers.claims import Claimant
from lakevilla.markers.reservation import reserved_by
from lakevilla.markers.stale import Wait, dead, have_moved, left_behind, sweep, without_records
from lakevilla.phases import UNMEASURED, during
from lakevilla.store.base import Found, Missing
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program, delete, get, parallel, sleep
from lakevilla.sublogs.own_record import change_record
from lakevilla.sublogs.record import Edge, TxnRecord, record_key

#: The number of transactions at the front of a queue whose records a waiter reads, and of which its
#: own record has edges: a queue drains from its front, so no deadlock lasts without one of these.
_FRONT = 24
#: The most edges in one record; further edges are left out, so a cycle over them is found late.
_MOST_EDGES = 256
#: The most records that are read to find a cycle; a larger cycle ends when a wait times out.
_MOST_RECORDS = 4096
#: The factor by which the pause between two checks grows: small, since a queue advances only as
#: fast as its waiters check.
_GROWTH = 1.2
#: A wait that is longer than this is reported again, as long: a user may have to act.
_LONG_SECONDS = 10.0


def wait_until_first(
    txn: Claimant, head: Head | None, ahead: Sequence[Ahead] | None, on_shift: OnShift
) -> Program[Wait]:
    """Wait until no transaction is ahead, or the transaction's time-out for waits has passed.

    ``head`` has the reservations; ``ahead`` are the transactions that a list has just found ahead,
    or None if the queues were not listed.
    """
    context = txn.context
    settings = context.settings
    if txn.claims.patience_ends is None:
        limit = txn.wait_timeout_seconds
        limit = settings.wait_timeout_seconds if limit is None else limit
        txn.claims.patience_ends = context.clock.elapsed() + limit
    pause = min(settings.wait_poll_seconds, settings.wait_poll_cap_seconds)
    now = context.clock.elapsed()
    wait = Wait(txn.claims.patience_ends, pause, now, now + _LONG_SECONDS)
    may_wait = txn.queues or (head is not None and bool(head.reserved))
    with during("wait") if may_wait else UNMEASURED:
        yield from _until_first(txn, wait, head, ahead, on_shift)
    return wait


def _until_first(
    txn: Claimant,
    wait: Wait,
    head: Head | None,
    ahead: Sequence[Ahead] | None,
    on_shift: OnShift,
) -> Program[None]:
    context = txn.context
    while True:
        if context.clock.elapsed() >= wait.deadline:
            if wait.waited:
                _give_up(txn)
            return
        before = (yield from who_is_ahead(txn, head)) if ahead is None else ahead
        ahead = None
        if not before:
            return
        wait.waited = True
        yield from _wait(txn, wait, before, head, on_shift)
        if head is not None and head.reserved:
            held_head = yield from context.head()
            head = None if held_head is None else held_head.head


def _wait(
    txn: Claimant,
    wait: Wait,
    before: Sequence[Ahead],
    head: Head | None,
    on_shift: OnShift,
) -> Program[None]:
    """Wait until it is worth listing the queues again.

    The transaction writes its edges before it reads the records of other transactions: so of the
    members of a cycle, the last one to write its edges sees the whole cycle.
    """
    context = txn.context
    lease = context.settings.lease_seconds
    list_again = context.clock.elapsed() + lease
    polled = max(before, key=lambda one: (one.txn != "", one.number))
    front = _front(before)
    is_waited_for = txn.claims.record is not None and (
        txn.claims.queue is not None or bool(reserved_by(head, txn.id))
    )
    if is_waited_for:
        yield from _write_edges(txn, front)
    while True:
        watched = before if wait.wide or polled in front else [*front, polled]
        wait.wide = False
        yield from _read_records(wait, watched, txn)
        found_dead = dead(txn, wait, watched)
        if found_dead:
            left = left_behind(wait, found_dead)
            if left:
                yield from sweep(txn, wait, left)
            # A process that has died may have left more places, whose lease then runs at once.
            wait.wide = bool(left)
            wait.pause = context.settings.wait_poll_seconds
            return
        stray = without_records(wait, watched)
        if stray:
            yield from parallel([delete(one.key) for one in stray])
            return
        if is_waited_for and (yield from give_way(txn, wait, head, on_shift)):
            return
        if have_moved(wait, watched):
            return
        _announce(txn, wait, before)
        look_again = context.clock.elapsed() + lease / 3
        while True:
            now = context.clock.elapsed()
            if now >= min(wait.deadline, list_again):
                return
            if now >= min(look_again, wait.tell_again):
                break
            pause = wait.pause * (0.5 + context.ids.jitter() / 2)
            yield from sleep(min(pause, wait.deadline - now, list_again - now))
            wait.pause = min(context.settings.wait_poll_cap_seconds, _GROWTH * wait.pause)
            if not polled.txn:
                break
            if txn.claims.ousted:
                yield from change_record(txn)  # raises the reason
            changed = yield from _poll(txn, wait, polled.txn)
            if polled.txn not in wait.records:
                wait.pause = context.settings.wait_poll_seconds
                return
            if changed:
                break


def _front(before: Sequence[Ahead]) -> Sequence[Ahead]:
    """Return the first of the transactions ahead at each table, as many as a waiter watches.

    The others are behind these, and wait for some of them or for a transaction that is not waiting.
    So if no transaction can go on, the first ones of the queues form a cycle, which each of its
    members sees (note 5).
    """
    numbers: dict[str, list[int]] = {}
    for one in before:
        numbers.setdefault(one.table, []).append(one.number)
    last = {table: sorted(found)[:_FRONT][-1] for table, found in numbers.items()}
    return [one for one in before if one.number <= last[one.table]]


def _write_edges(txn: Claimant, before: Iterable[Ahead]) -> Program[None]:
    if txn.claims.record is None:
        return  # then no place of it counts, and no transaction waits for it
    edges = [Edge(txn.id, one.mine, one.txn, one.number, one.table) for one in before if one.txn]
    edges = edges[:_MOST_EDGES]
    record = txn.claims.record.record
    # An edge to a transaction that has ended does not count: only new edges must be written.
    if not set(edges) <= set(record.edges) or record.tickets != txn.tickets:
        yield from change_record(txn, edges=tuple(edges))


def _poll(txn: Claimant, wait: Wait, holder: str) -> Program[bool]:
    """Read a holder's record by a conditional GET; return whether it has changed or is stale."""
    before = wait.records.get(holder)
    yield from _read(txn, wait, holder)
    return wait.records.get(holder) != before or txn.context.leases.is_stale(
        holder, txn.context.clock.elapsed()
    )


def _read_records(wait: Wait, before: Iterable[Ahead], txn: Claimant) -> Program[None]:
    """Read the records of the transactions ahead, and of those that these wait for in turn."""
    seen: set[str] = {txn.id}
    frontier = {one.txn for one in before if one.txn} - seen
    while frontier and len(seen) < _MOST_RECORDS:
        yield from parallel([_read(txn, wait, holder) for holder in sorted(frontier)])
        seen |= frontier
        further: set[str] = set()
        for holder in frontier:
            record = wait.records.get(holder, (None, None))[0]
            if record is not None:
                further.update(edge.holder for edge in record.edges)
        frontier = further - seen


def _read(txn: Claimant, wait: Wait, holder: str) -> Program[None]:
    context = txn.context
    key = record_key(holder)
    known = wait.records.get(holder)
    outcome = yield from get(key, None if known is None else known[1])
    if isinstance(outcome, Missing):
        wait.records.pop(holder, None)
        context.leases.forget(holder)
        return
    if isinstance(outcome, Found):
        known = (_record(key, holder, outcome.body), outcome.token)
        wait.records[holder] = known
    assert known is not None
    lease = context.settings.lease_seconds if known[0] is None else known[0].lease_seconds
    context.leases.observe(holder, known[1], lease, context.clock.elapsed())


def _record(key: str, holder: str, body: bytes) -> TxnRecord | None:
    """Return the record; None if it can't be read.

    A record that can't be read counts as one without edges, but its lease still runs.

    The ids in a record become parts of keys: a malformed id must not reach the store.
    """
    try:
        record = decode(key, body, TxnRecord)
    except LakeVillaError:
        return None
    if record.txn != holder or not all(is_txn_id(edge.holder) for edge in record.edges):
        return None
    return record


def _announce(txn: Claimant, wait: Wait, before: Sequence[Ahead]) -> None:
    """Report the holders that the transaction waits for: once per set, and again if it is long."""
    holders = frozenset(one.txn or one.key for one in before)
    now = txn.context.clock.elapsed()
    is_long = now >= wait.tell_again
    if holders == wait.named and not is_long:
        return
    wait.named = holders
    first = before[-1]
    record = wait.records.get(first.txn, (None, None))[0]
    owner = "" if record is None else f" ({record.owner})"
    more = "" if len(holders) == 1 else f" and {len(holders) - 1} more"
    message = f"transaction {txn.id} waits for {first.txn or first.key}{owner}{more}"
    detail = {
        "table": first.table,
        "holders": sorted(holders),
        "owner": None if record is None else record.owner,
        "long": is_long,
    }
    still = ""
    if is_long:
        # The time between two reports doubles.
        since = wait.began
        wait.tell_again = now + (now - since)
        still = f", since {now - since:.0f} s: `lakevilla txns` shows it, `lakevilla abort` ends it"
    txn.context.report("waiting", txn.id, f"{message} on table {first.table}{still}", detail)


def _give_up(txn: Claimant) -> None:
    """Report, once, that the transaction stops waiting."""
    if not txn.claims.impatient:
        txn.claims.impatient = True
        message = f"transaction {txn.id} stops waiting and commits optimistically"
        txn.context.report("waiting", txn.id, message, {})
