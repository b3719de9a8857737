"""Committing by the table's own log entry: one table, without Feature.I (design, section 8).

Two requests for a warm append: the data file and the entry. To transactions
with Feature.I such a commit is a foreign one.
"""

from __future__ import annotations

from typing import Any

from lakevilla.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    StoreError,
    TableNotFound,
    VersionNotFound,
)
from lakevilla.formats.base import Attempt, CommitInfo
from lakevilla.lake.table_log import entry_at, is_cleaned_up_soon, open_tail, opened_again, probe
from lakevilla.lake.tail import Tail
from lakevilla.store.base import Refused, Stored
from lakevilla.store.effects import Program, parallel, put, sleep
from lakevilla.sublogs.describe import describe, summed
from lakevilla.sublogs.operations import is_blind, tables_read
from lakevilla.transaction.commit.staged import check_files
from lakevilla.transaction.redo.deferred import perform_deferred
from lakevilla.transaction.redo.entry import entry_change
from lakevilla.transaction.redo.rebase import adopt
from lakevilla.transaction.state.errors import conflict
from lakevilla.transaction.state.files import store_files
from lakevilla.transaction.state.own_entry import found_in_log
from lakevilla.transaction.state.transaction import EntryTried, Transaction
from lakevilla.transaction.validation.validate import examine

__all__ = ["commit_by_entry"]

_MAX_RACES = 1000
_MAX_UNKNOWN = 5


def commit_by_entry(txn: Transaction) -> Program[int]:
    """Create the table's next log entry; returns its version.

    Raises
    ------
    ConflictError
        What came between changed rows that the transaction relied on.
    CommitOutcomeUnknown
        The entry may have been stored, and the store does not say.
    """
    context = txn.context
    location = txn.done[0].table
    unclear = 0
    for attempt in range(_MAX_RACES):
        yield from perform_deferred(txn)
        # The next number may be taken only on top of the tip that the
        # transaction was held against. Another thread of this process, or its
        # publishing in the background, may have followed the log further; and
        # a tip that was read long ago is listed anew.
        tail = yield from open_tail(context, location)
        while not _is_seen(txn, tail):
            mine = yield from _move(txn, location)
            if mine is not None:
                return mine
            tail = yield from open_tail(context, location)
        if tail.snapshot.guarded:
            # Since then all go through HEAD, and nobody looks for entries that do not.
            reason = "it was guarded meanwhile, so that commits go through the lake's HEAD"
            raise txn.fail(conflict(txn, location, reason))
        version = tail.tip + 1
        info = _info(txn, location)
        change = yield from entry_change(txn, location)
        table_format = context.formats.of(tail.snapshot)
        parts: list[Program[Any]] = [
            store_files(txn),
            table_format.prepare(tail.snapshot, change, info, context.now_ms()),
        ]
        # What the entry names is stored beside the files that it names: none counts before it.
        try:
            ready: Attempt = (yield from parallel(parts))[1]
        except VersionNotFound:
            # What the known tip names is cleaned up: there is a newer one.
            yield from probe(context, tail)
            txn.retries += 1
            continue
        except TableNotFound:
            # Another client has dropped the table, or made another in its place.
            yield from opened_again(context, tail)
            txn.retries += 1
            continue
        yield from check_files(txn)
        if context.clock.elapsed() - tail.seen_at > context.settings.trusted_tip_seconds:
            continue  # the files took so long that the tip has to be looked for again
        started = context.clock.elapsed()
        txn.tried = True
        before = txn.entry_tried
        txn.entry_tried = before or EntryTried(version, tail.seen_at)
        try:
            outcome = yield from put(ready.key, ready.body, ready.condition)
        except StoreError:
            txn.entry_tried = before  # it is sure that this one was not stored
            raise
        while not isinstance(outcome, Stored | Refused) and unclear < _MAX_UNKNOWN:
            # The very same bytes under the very same number again: whichever
            # of the attempts lands, it is one entry.
            unclear += 1
            try:
                outcome = yield from put(ready.key, ready.body, ready.condition)
            except StoreError:
                break  # this one was not stored; the one before it may be
        if isinstance(outcome, Stored) and ready.entry is None:
            return (yield from _read_back(txn, tail))
        if isinstance(outcome, Stored):
            assert ready.entry is not None
            newer = tail.extended(
                ready.entry, table_format.advance(tail.snapshot, ready.entry), started
            )
            if is_cleaned_up_soon(context, tail) and not (
                yield from table_format.stands(newer.snapshot)
            ):
                # The number was an old one that had been taken away: nobody sees what is there.
                context.tails.pop(location, None)
                txn.entry_tried = before
                txn.retries += 1
                continue
            context.keep_tail(newer)
            if context.clock.elapsed() - tail.seen_at > context.settings.trusted_tip_seconds:
                yield from _is_newest(txn, location, version)
            yield from table_format.announce(newer.snapshot)
            if table_format.checkpoint_due(version, newer.snapshot):
                context.checkpoints_due.append((location, version))
            return version
        if not isinstance(outcome, Refused):
            raise CommitOutcomeUnknown(
                f"could not settle whether transaction {txn.id} became version {version} of "
                f"table {location}: the table's history shows it if it did",
                table=location,
                txn_id=txn.id,
            )
        # Refused: what was sent now has not landed, whatever became of what was sent before.
        txn.entry_tried = before
        tail = yield from probe(context, tail)
        mine = yield from _own_version(txn, location, version, tail.tip)
        if mine is None:
            mine = yield from _move(txn, location)
        if mine is not None:
            return mine
        txn.retries += 1
        if attempt:
            settings = context.settings
            yield from sleep(settings.retry_base_seconds * context.ids.jitter())
    raise txn.fail(
        ConflictError(
            f"transaction {txn.id} lost {_MAX_RACES} races for table {location}: "
            "run it again later",
            table=location,
            txn_id=txn.id,
        )
    )


def _is_seen(txn: Transaction, tail: Tail) -> bool:
    """Whether the transaction was held against the tip: of this table, not of another there."""
    view = txn.tables[tail.location].view
    return tail.tip == view.probed and not view.is_anothers(tail)


def _move(txn: Transaction, location: str) -> Program[int | None]:
    """Go on at the table's known tip, if nothing that was relied on has changed up to there.

    Returns the version of the transaction's own entry if that is what came: it was tried before.
    """
    found = yield from examine(txn, None, exact=True)
    # Held against the very tip that it is moved to: what is followed later is looked at later.
    mine = yield from found_in_log(txn, found.tails[location])
    if mine is not None:
        return mine
    if found.conflict is not None:
        raise txn.fail(found.conflict)
    for where, view in found.views.items():
        if view.base.table_id != txn.tables[where].view.base.table_id:
            # Its files may have gone with the old one's data, even appended ones.
            raise txn.fail(conflict(txn, where, "it was replaced, or dropped and made anew"))
    yield from adopt(txn, None, found)
    return None


def _read_back(txn: Transaction, tail: Tail) -> Program[int]:
    """The version that a catalog has made of the commit: it counts, whatever is met here."""
    location = tail.location
    try:
        newest = yield from probe(txn.context, tail)
        mine = yield from _own_version(txn, location, tail.tip + 1, newest.tip)
    except StoreError as error:
        raise CommitOutcomeUnknown(
            f"transaction {txn.id} is committed to table {location}, and its catalog can't tell as "
            f"which version ({error.message}): look for its rows",
            table=location,
            txn_id=txn.id,
        ) from error
    return newest.tip if mine is None else mine


def _own_version(txn: Transaction, location: str, first: int, tip: int) -> Program[int | None]:
    """The version that holds this transaction, if an attempt landed after all."""
    tail = yield from open_tail(txn.context, location)
    # A log that was made anew since is shorter: `_move` finds that it is another table's.
    for version in range(first, min(tip, tail.tip) + 1):
        entry = yield from entry_at(txn.context, tail, version)
        if entry is not None and txn.id in entry.txn_ids:
            return version
    return None


def _is_newest(txn: Transaction, location: str, version: int) -> Program[None]:
    """After more than an hour between reading the tip and the create, list again (hazard 10).

    Log clean-up may have removed our number meanwhile, and then our entry was
    created where nobody looks: below a checkpoint that does not hold it. Such
    an entry has others above it. So may a good one, and which of the two it is
    the log does not tell; only as the newest it is certain.
    """
    context = txn.context
    context.tails.pop(location, None)
    entry = None
    try:
        tail = yield from open_tail(context, location)
        if tail.tip == version:
            entry = yield from entry_at(context, tail, version)
    except StoreError:
        pass  # stored it is, and whether that counts nobody can tell now
    if entry is None or txn.id not in entry.txn_ids:
        raise CommitOutcomeUnknown(
            f"transaction {txn.id} took so long to commit that table {location} may have been "
            f"cleaned up meanwhile: its version {version} can't be relied on; look for its rows",
            table=location,
            txn_id=txn.id,
        )


def _info(txn: Transaction, location: str) -> CommitInfo:
    operation, parameters = describe([done.operation for done in txn.done])
    blind = not txn.reads and all(
        is_blind(done.operation) and not tables_read(done.operation) for done in txn.done
    )
    return CommitInfo(
        operation=operation,
        parameters=parameters,
        metrics=summed(done.metrics for done in txn.done),
        is_blind_append=blind,
        txn_ids=(txn.id,),
        nonce=txn.context.ids.nonce(),
        metadata=txn.metadata,
        applications=txn.applications,
    )
