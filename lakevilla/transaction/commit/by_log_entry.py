"""Commit by a log entry: on one table, without Feature.I and Feature.CT (design, section 8).

An append to a table whose log is cached costs two requests: the data file and the entry. For
transactions that commit through HEAD this is a foreign commit.
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
from lakevilla.transaction.state.files import found_in_log, held_and_needed, store_held
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
    """The outcome that the transaction has committed, as this version of its table."""

    version: int


@dataclass(frozen=True, slots=True)
class Behind:
    """The outcome that the entry was not created, because the known tip is outdated."""

    raced: bool = False


def commit_by_entry(txn: TransactionState) -> Program[int]:
    """Create the table's next log entry; return its version.

    Raises
    ------
    ConflictError
        Other commits since its reads have changed rows on which the transaction relies.
    CommitOutcomeUnknown
        The entry may have been stored; the store has given no answer.
    """
    context = txn.context
    location = txn.work.done[0].table
    # These are stored in HEAD alone: a log entry would be acknowledged without them.
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
    """Try to create the entry after the known tip, and return the outcome."""
    context = txn.context
    with during("validate", location):
        tail = yield from _seen_tip(txn, location)
    if isinstance(tail, Landed):
        return tail
    if tail.snapshot.guarded:
        # On a guarded table all commits go through HEAD: no client checks for other log entries.
        reason = "it was guarded meanwhile, so that commits go through the lake's HEAD"
        raise txn.fail(conflict(txn, location, reason))
    with during("data" if txn.work.bodies else "decide", location):
        ready = yield from _prepared(txn, tail)
    if isinstance(ready, Behind):
        return ready
    yield from _refuse_by_head(txn, location)
    yield from check_files(txn)
    if context.clock.elapsed() - tail.seen_at > context.settings.trusted_tip_seconds:
        return Behind()  # the upload of the files took so long that the tip may be outdated
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
            # The entry sent now was not stored; an entry sent before may have been.
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
    """Return the tip against which the transaction was validated; the entry must follow it.

    If the cached log is further, since another thread of this process has read more of it, the
    transaction is validated against that first. A tip that was read long ago is read again.
    """
    tail = yield from open_tail(txn.context, location)
    while not _is_seen(txn, tail):
        landed = yield from _move(txn, location)
        if isinstance(landed, Landed):
            return landed
        tail = yield from open_tail(txn.context, location)
    return tail


def _prepared(txn: TransactionState, tail: Tail) -> Program[Attempt | Behind]:
    """Prepare the entry, and store the files that it names before the entry itself is created."""
    context, location = txn.context, tail.location
    info = _info(txn, location)
    change = yield from entry_change(txn, location, txn.work.done)
    table_format = context.formats.of(tail.snapshot)
    parts: list[Program[Any]] = [
        store_held(txn, held_and_needed(txn, {location: change})),
        table_format.prepare(tail.snapshot, change, info, context.now_ms()),
        ask_now_and_then(txn),
    ]
    try:
        ready: Attempt = (yield from parallel(parts))[1]
        return ready
    except VersionNotFound:
        # Clean-up has deleted objects that the known tip names: there is a newer tip.
        yield from probe(context, tail)
    except TableNotFound:
        # Another client has dropped the table, or created another in its place.
        yield from context.head()
        yield from _refuse_by_head(txn, location)
        yield from opened_again(context, tail)
    txn.ending.retries += 1
    return Behind()


def _refuse_by_head(txn: TransactionState, location: str) -> Program[None]:
    """Refuse a commit that the cached HEAD forbids: main is protected, or the table was dropped."""
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

    At most one of the writes is stored. By the time of the second, another table may have been
    created in place of this one: so HEAD is read before it.
    """
    ending = txn.ending
    ending.tried = True
    before = ending.entry_tried
    ending.entry_tried = before or tried
    try:
        outcome = yield from put(ready.key, ready.body, ready.condition)
    except StoreError:
        ending.entry_tried = before  # this entry was certainly not stored
        raise
    while isinstance(outcome, Unknown) and next(resends, None) is not None:
        try:
            yield from txn.context.head()
            yield from refuse_dropped(txn, txn.work.done[0].table)
            outcome = yield from put(ready.key, ready.body, ready.condition)
        except LakeVillaError:
            break  # this write was not stored; the first one may have been
    return outcome


def _acknowledged(txn: TransactionState, tail: Tail, entry: Entry) -> Program[Landed | Behind]:
    """Note a stored entry as the new tip, unless it was stored under a number that no client reads.

    The new tip counts as read when the tip before it was: the creation of the entry does not show
    that the entries below it still exist.
    """
    context, location = txn.context, tail.location
    table_format = context.formats.of(tail.snapshot)
    newer = tail.extended(entry, table_format.advance(tail.snapshot, entry), tail.seen_at)
    if is_cleaned_up_soon(context, tail) and not (
        yield from table_format.is_accepted(newer.snapshot)
    ):
        # Clean-up had removed an entry of that number: no client reads an entry there.
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
    """Return whether the transaction was validated against this tip of its own table."""
    view = txn.work.tables[tail.location].view
    return tail.tip == view.probed and not view.is_anothers(tail)


def _move(txn: TransactionState, location: str) -> Program[Landed | Behind]:
    """Move the transaction to the table's known tip, if all on which it relied is unchanged there.

    Return ``Landed`` if the log has an entry of the transaction itself, from an earlier try.
    """
    examination = yield from examine(txn, None, exact=True)
    # The search for its own entry ends at the tip to which it moves; the next try goes on there.
    own_version = yield from found_in_log(txn, examination.tails[location])
    if own_version is not None:
        return Landed(own_version)
    if examination.conflict is not None:
        raise txn.fail(examination.conflict)
    for place, view in examination.views.items():
        if view.base.table_id != txn.work.tables[place].view.base.table_id:
            # The transaction's files, even appended ones, may have been deleted with the old table.
            raise txn.fail(conflict(txn, place, "it was replaced, or dropped and created again"))
    yield from rebase(txn, None, examination)
    return Behind()


def _read_back(txn: TransactionState, tail: Tail) -> Program[int]:
    """Return the version that a catalog has given to the commit, which an error here can't undo."""
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
    """Return ``Landed`` if a version from ``first`` to ``tip`` is an entry of the transaction."""
    tail = yield from open_tail(txn.context, location)
    # The log of a table that was created again is shorter: `_move` finds that it is another table.
    for version in range(first, min(tip, tail.tip) + 1):
        entry = yield from entry_at(txn.context, tail, version)
        if entry is not None and txn.id in entry.txn_ids:
            return Landed(version)
    return Behind()


def _is_newest(txn: TransactionState, location: str, version: int) -> Program[None]:
    """Check that a created entry is the log's newest, if its tip was read long before (hazard 10).

    Log clean-up may have freed the entry's number meanwhile, so that the entry was created where no
    client reads it: below a checkpoint that does not include it. Such an entry has later entries
    above it. A valid entry may have them, too, and the log does not show the difference. So only an
    entry that is the newest one is certain.
    """
    context = txn.context
    context.tails.pop(location, None)
    entry = None
    try:
        tail = yield from open_tail(context, location)
        if tail.tip == version:
            entry = yield from entry_at(context, tail, version)
    except StoreError:
        pass  # the entry is stored, but it is not known whether clients read it
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
