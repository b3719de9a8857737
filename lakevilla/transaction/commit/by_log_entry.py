"""Committing by the table's own log entry: one table, without Feature.I (design, section 8).

A warm append costs two requests: the data file and the entry. To transactions
with Feature.I such a commit is a foreign one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lakevilla.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    LakeVillaError,
    StoreError,
    TableNotFound,
    VersionNotFound,
)
from lakevilla.formats.base import Attempt, CommitInfo, Entry
from lakevilla.lake.context import Tail
from lakevilla.lake.table_log import entry_at, is_cleaned_up_soon, open_tail, opened_again, probe
from lakevilla.phases import during
from lakevilla.store.base import PutOutcome, Refused, Stored, Unknown
from lakevilla.store.effects import Program, parallel, put, sleep
from lakevilla.sublogs.describe import describe, summed
from lakevilla.sublogs.operations import Create, Drop, Rename, is_blind, tables_read
from lakevilla.transaction.commit.upload import check_files
from lakevilla.transaction.redo.deferred import perform_deferred
from lakevilla.transaction.redo.rebase import rebase
from lakevilla.transaction.redo.replay import entry_change
from lakevilla.transaction.state.files import found_in_log, store_files
from lakevilla.transaction.state.parts import EntryTried
from lakevilla.transaction.state.transaction import TransactionState, conflict
from lakevilla.transaction.validation.checks import ask_now_and_then, direct_write, refuse_dropped
from lakevilla.transaction.validation.validate import examine

#: The most races in a row that a commit loses to entries of other clients before it gives up.
_MAX_RACES = 1000
#: The most times that an entry is sent again while its outcome is unknown.
_MAX_UNKNOWN = 5


@dataclass(frozen=True, slots=True)
class Landed:
    """The transaction has committed, as this version of its table."""

    version: int


@dataclass(frozen=True, slots=True)
class Behind:
    """Nothing of the transaction is in the log; the tip that it was to follow is not its end."""

    raced: bool = False


def commit_by_entry(txn: TransactionState) -> Program[int]:
    """Create the table's next log entry; return its version.

    Raises
    ------
    ConflictError
        Commits in between changed rows on which the transaction relied.
    CommitOutcomeUnknown
        The entry may have been stored, and the store does not say.
    """
    context = txn.context
    location = txn.work.done[0].table
    # An entry of the log would be acknowledged, and say nothing of it.
    of_head = [one for one in txn.work.done if isinstance(one.operation, Create | Drop | Rename)]
    assert not of_head, f"transaction {txn.id} changes what HEAD alone records: {of_head}"
    resends = iter(range(_MAX_UNKNOWN))
    for attempt in range(_MAX_RACES):
        yield from perform_deferred(txn)
        match (yield from _attempt(txn, location, resends)):
            case Landed(version):
                return version
            case Behind(raced=True) if attempt:
                with during("wait"):
                    yield from sleep(context.settings.retry_base_seconds * context.ids.jitter())
    raise txn.fail(
        ConflictError(
            f"transaction {txn.id} lost {_MAX_RACES} races for table {location}: "
            "run it again later",
            table=location,
            txn_id=txn.id,
        )
    )


def _attempt(
    txn: TransactionState, location: str, resends: Iterator[int]
) -> Program[Landed | Behind]:
    """Create the entry on top of the known tip, and return the outcome."""
    context = txn.context
    with during("validate", location):
        tail = yield from _seen_tip(txn, location)
    if isinstance(tail, Landed):
        return tail
    if tail.snapshot.guarded:
        # Since then all commits go through HEAD, and no client checks for entries that do not.
        reason = "it was guarded meanwhile, so that commits go through the lake's HEAD"
        raise txn.fail(conflict(txn, location, reason))
    with during("data" if txn.work.bodies else "decide", location):
        ready = yield from _prepared(txn, tail)
    if isinstance(ready, Behind):
        return ready
    yield from _refuse_by_head(txn, location)
    yield from check_files(txn)
    if context.clock.elapsed() - tail.seen_at > context.settings.trusted_tip_seconds:
        return Behind()  # the files took so long that the tip must be read again
    before, version = txn.ending.entry_tried, tail.tip + 1
    with during("decide", location):
        outcome = yield from _sent(txn, ready, EntryTried(version, tail.seen_at), resends)
    match outcome:
        case Stored():
            if ready.entry is None:
                with during("decide", location):
                    return Landed((yield from _read_back(txn, tail)))
            with during("publish", location):
                landed = yield from _acknowledged(txn, tail, ready.entry)
            if isinstance(landed, Behind):
                txn.ending.entry_tried = before
            return landed
        case Refused():
            # The entry sent now was not stored, whatever the outcome of entries sent before.
            txn.ending.entry_tried = before
            with during("validate", location):
                newer = yield from probe(context, tail)
                landed = yield from _own_version(txn, location, version, newer.tip)
                if isinstance(landed, Behind):
                    landed = yield from _move(txn, location)
            if isinstance(landed, Behind):
                txn.ending.retries += 1
                return Behind(raced=True)
            return landed
        case _:
            raise CommitOutcomeUnknown(
                f"could not settle whether transaction {txn.id} became version {version} of "
                f"table {location}: the table's history shows it if it did",
                table=location,
                txn_id=txn.id,
            )


def _seen_tip(txn: TransactionState, location: str) -> Program[Tail | Landed]:
    """Return the tip against which the transaction was validated.

    The entry may be stored only on top of it. Another thread of this process, or its publishing in
    the background, may have followed the log further; and a tip that was read long ago is listed
    once more.
    """
    tail = yield from open_tail(txn.context, location)
    while not _is_seen(txn, tail):
        landed = yield from _move(txn, location)
        if isinstance(landed, Landed):
            return landed
        tail = yield from open_tail(txn.context, location)
    return tail


def _prepared(txn: TransactionState, tail: Tail) -> Program[Attempt | Behind]:
    """Prepare the entry, and store the files that it names: no file counts before the entry."""
    context, location = txn.context, tail.location
    info = _info(txn, location)
    change = yield from entry_change(txn, location, txn.work.done)
    table_format = context.formats.of(tail.snapshot)
    parts: list[Program[Any]] = [
        store_files(txn),
        table_format.prepare(tail.snapshot, change, info, context.now_ms()),
        ask_now_and_then(txn),
    ]
    try:
        ready: Attempt = (yield from parallel(parts))[1]
        return ready
    except VersionNotFound:
        # Objects that the known tip names are cleaned up: there is a newer tip.
        yield from probe(context, tail)
    except TableNotFound:
        # Another client has dropped the table, or created another in its place.
        yield from context.head()
        yield from _refuse_by_head(txn, location)
        yield from opened_again(context, tail)
    txn.ending.retries += 1
    return Behind()


def _refuse_by_head(txn: TransactionState, location: str) -> Program[None]:
    """Refuse what the known HEAD does not allow: only a guard makes all clients read HEAD."""
    held = txn.context.held
    protected = None if held is None else direct_write(txn, held.head)
    if protected is not None:
        raise txn.fail(protected)
    try:
        yield from refuse_dropped(txn, location)
    except TableNotFound as error:
        raise txn.fail(conflict(txn, location, error.message)) from error


def _sent(
    txn: TransactionState, ready: Attempt, tried: EntryTried, resends: Iterator[int]
) -> Program[PutOutcome]:
    """Create the entry; if the outcome is unknown, send the same bytes under the same number again.

    Whichever of the writes is stored, it is one entry. So much time may have passed by then that
    another table was created in place of this one: so HEAD is read before.
    """
    ending = txn.ending
    ending.tried = True
    before = ending.entry_tried
    ending.entry_tried = before or tried
    try:
        outcome = yield from put(ready.key, ready.body, ready.condition)
    except StoreError:
        ending.entry_tried = before  # it is sure that this one was not stored
        raise
    while isinstance(outcome, Unknown) and next(resends, None) is not None:
        try:
            yield from txn.context.head()
            yield from refuse_dropped(txn, txn.work.done[0].table)
            outcome = yield from put(ready.key, ready.body, ready.condition)
        except LakeVillaError:
            break  # this one was not stored; the one before it may be
    return outcome


def _acknowledged(txn: TransactionState, tail: Tail, entry: Entry) -> Program[Landed | Behind]:
    """Note the new tip of a stored entry, unless it was stored where no client reads it.

    The created entry says nothing of the entries below it: the tip counts from when these were
    seen.
    """
    context, location = txn.context, tail.location
    table_format = context.formats.of(tail.snapshot)
    newer = tail.extended(entry, table_format.advance(tail.snapshot, entry), tail.seen_at)
    if is_cleaned_up_soon(context, tail) and not (
        yield from table_format.is_accepted(newer.snapshot)
    ):
        # The number was an old one that clean-up had removed: no client sees the entry there.
        context.tails.pop(location, None)
        txn.ending.retries += 1
        return Behind()
    context.keep_tail(newer)
    if context.clock.elapsed() - tail.seen_at > context.settings.trusted_tip_seconds:
        yield from _is_newest(txn, location, newer.tip)
    yield from table_format.announce(newer.snapshot)
    if table_format.checkpoint_due(newer.tip, newer.snapshot):
        context.checkpoints_due.append((location, newer.tip))
    return Landed(newer.tip)


def _is_seen(txn: TransactionState, tail: Tail) -> bool:
    """Return whether the transaction was validated against the tip, and the tip is of its table."""
    view = txn.work.tables[tail.location].view
    return tail.tip == view.probed and not view.is_anothers(tail)


def _move(txn: TransactionState, location: str) -> Program[Landed | Behind]:
    """Go on at the table's known tip, if nothing on which it relied has changed up to there.

    The transaction has landed if its own entry was added: it was tried before.
    """
    examination = yield from examine(txn, None, exact=True)
    # The search ends at the very tip to which it moves: later entries are checked later.
    own_version = yield from found_in_log(txn, examination.tails[location])
    if own_version is not None:
        return Landed(own_version)
    if examination.conflict is not None:
        raise txn.fail(examination.conflict)
    for place, view in examination.views.items():
        if view.base.table_id != txn.work.tables[place].view.base.table_id:
            # Its files, even appended ones, may have been deleted with the old table's data.
            raise txn.fail(conflict(txn, place, "it was replaced, or dropped and created again"))
    yield from rebase(txn, None, examination)
    return Behind()


def _read_back(txn: TransactionState, tail: Tail) -> Program[int]:
    """Return the version that a catalog has made of the commit: it counts, whatever fails here."""
    location = tail.location
    try:
        newest = yield from probe(txn.context, tail)
        landed = yield from _own_version(txn, location, tail.tip + 1, newest.tip)
    except StoreError as error:
        raise CommitOutcomeUnknown(
            f"transaction {txn.id} is committed to table {location}, and its catalog did not "
            f"report the version ({error.message}): check the table for its rows",
            table=location,
            txn_id=txn.id,
        ) from error
    return landed.version if isinstance(landed, Landed) else newest.tip


def _own_version(
    txn: TransactionState, location: str, first: int, tip: int
) -> Program[Landed | Behind]:
    """Return ``Landed`` if an attempt was stored, as a version from ``first`` to ``tip``."""
    tail = yield from open_tail(txn.context, location)
    # A log that was created again since is shorter: `_move` finds that it is another table's.
    for version in range(first, min(tip, tail.tip) + 1):
        entry = yield from entry_at(txn.context, tail, version)
        if entry is not None and txn.id in entry.txn_ids:
            return Landed(version)
    return Behind()


def _is_newest(txn: TransactionState, location: str, version: int) -> Program[None]:
    """List again after more than an hour between reading the tip and the create (hazard 10).

    Log clean-up may have removed the entry's number meanwhile, and then the entry was
    created where no client reads it: below a checkpoint that does not hold it. Such
    an entry has later entries above it. So may a good one, and the log does not show which of
    the two it is; only as the newest entry it is certain.
    """
    context = txn.context
    context.tails.pop(location, None)
    entry = None
    try:
        tail = yield from open_tail(context, location)
        if tail.tip == version:
            entry = yield from entry_at(context, tail, version)
    except StoreError:
        pass  # the entry is stored, but whether readers find it can't be known now
    if entry is None or txn.id not in entry.txn_ids:
        raise CommitOutcomeUnknown(
            f"transaction {txn.id} took so long to commit that table {location} may have been "
            f"cleaned up meanwhile: its version {version} can't be relied on; check the table for "
            "its rows",
            table=location,
            txn_id=txn.id,
        )


def _info(txn: TransactionState, location: str) -> CommitInfo:
    operation, parameters = describe([done.operation for done in txn.work.done])
    blind = not txn.work.reads and all(
        is_blind(done.operation) and not tables_read(done.operation) for done in txn.work.done
    )
    return CommitInfo(
        operation=operation,
        parameters=parameters,
        metrics=summed(done.metrics for done in txn.work.done),
        is_blind_append=blind,
        txn_ids=(txn.id,),
        nonce=txn.context.ids.nonce(),
        metadata=txn.options.metadata,
        applications=txn.options.applications,
    )
