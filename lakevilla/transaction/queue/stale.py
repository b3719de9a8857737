"""Those of whom nothing is to be waited for: ended, silent for a lease, or of no known place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakevilla.errors import LakeVillaError
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.context import Event
from lakevilla.lake.publishing.publish import publish_table
from lakevilla.store.effects import Program, delete, parallel
from lakevilla.store.readback import same_object
from lakevilla.sublogs.record import RESERVATION
from lakevilla.transaction.queue.ahead import Ahead, Wait
from lakevilla.transaction.state.transaction import TransactionState


def dead(txn: TransactionState, wait: Wait, before: Iterable[Ahead]) -> list[Ahead]:
    """Those of whom nothing is to be waited for: ended, aborted, or silent for a lease.

    Who has no record has ended, if it has none at the second look either: a marker goes in one
    round with the record of its transaction, and may be there first (note 25).
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


def strays(wait: Wait, before: Iterable[Ahead]) -> list[Ahead]:
    """Markers of the living that they do not count among their places.

    Left by a process that died before it wrote them down, and whose transaction another
    has resumed; or by a create whose answer was lost. Their owner does not know of them, so no
    edge tells of a deadlock over them. Every replacement of a record names all places, and
    one may have been on its way when the marker was placed: so whoever is not named in the
    second after it was seen has lost a place at most.
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


def sweep(txn: TransactionState, wait: Wait, dead: Sequence[Ahead]) -> Program[None]:
    """Give up the places of the dead; their records stay, so that they may go on if they wake.

    A marker that was freed and placed again under the same number meanwhile is
    deleted with them: its owner finds out before it commits, and takes another.
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
        context.notify(Event("stale", txn.id, message, {"holder": holder}))
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


def finish_decided(txn: TransactionState, holders: set[str]) -> Program[None]:
    """Publish what the dead have decided."""
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


def have_moved(wait: Wait, before: Iterable[Ahead]) -> bool:
    """Whether somebody ahead has shifted away: its record, while it waits, names its tickets.

    Asked once for each state of a record: tickets lag behind while it does not wait.
    """
    moved = False
    for one in before:
        record, token = wait.records.get(one.txn, (None, None))
        if record is None or token is None or not record.edges or one.number == RESERVATION:
            continue
        held = any(t.table == one.table and t.number == one.number for t in record.tickets)
        if not held and (one.txn, one.number, token) not in wait.moved:
            wait.moved.add((one.txn, one.number, token))
            moved = True
    return moved
