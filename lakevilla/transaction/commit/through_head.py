"""Committing through HEAD: store, validate, one conditional write, publish (design, section 8).

The commit point is the replacement of HEAD. Before it nothing is visible and
all can be undone; after it anyone can finish the work. A lost race repeats the
validation and the commit point alone: the commit object names no parent.
"""

from __future__ import annotations

from typing import Any

from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    LakeVillaError,
    StoreError,
    TransactionAborted,
    VersionNotFound,
)
from lakevilla.formats.registry import refuse_two_tables
from lakevilla.global_log.commits import CommitObject, TablePart, commit_key, seal
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import HeldHead, claim_table, load_tables
from lakevilla.lake.table_log import look_above
from lakevilla.publishing.outcome import result_of
from lakevilla.publishing.publish_once import publish_once
from lakevilla.store.base import ABSENT, ANY, Stored
from lakevilla.store.codec import FORMAT
from lakevilla.store.effects import Program, Put, parallel
from lakevilla.sublogs.describe import describe, summed
from lakevilla.sublogs.operations import Create, Drop, is_blind, tables_read
from lakevilla.transaction.commit.again import found_in_head
from lakevilla.transaction.commit.group import (
    Answer,
    Candidate,
    Declined,
    Failed,
    Settled,
    commit_together,
    newest_of,
    own_commit,
)
from lakevilla.transaction.commit.staged import check_files
from lakevilla.transaction.queue.reservation import reserved_ahead
from lakevilla.transaction.queue.wait import wait_for_turn
from lakevilla.transaction.redo.deferred import perform_deferred
from lakevilla.transaction.redo.entry import entry_change
from lakevilla.transaction.redo.rebase import adopt
from lakevilla.transaction.state.transaction import Transaction
from lakevilla.transaction.state.values import Decided
from lakevilla.transaction.validation.validate import catch_up
from lakevilla.transaction.verbs.idempotency import bind_key

__all__ = ["decide"]


def decide(txn: Transaction) -> Program[Decided]:
    """Bring a transaction to its commit point.

    Raises
    ------
    ConflictError, TransactionAborted
        Nothing of it is or will be visible.
    CommitOutcomeUnknown
        The replacement may have been stored, and the store does not say.
    """
    assert txn.held is not None, "a transaction that writes through HEAD is bound to one"
    landed = yield from found_in_head(txn)
    if landed is not None:
        return Decided(_settled(txn, landed), landed.summary)
    waited = yield from wait_for_turn(txn, txn.head)
    if waited or any(done.deferred for done in txn.done):
        yield from catch_up(txn)
    while True:
        yield from perform_deferred(txn)
        commit = yield from _commit_object(txn)
        digest, body = seal(commit)
        yield from _store(txn, commit.txn, digest, body)
        yield from check_files(txn)
        txn.context.keep_commit(digest, commit)
        decided = yield from _race(txn, commit, digest)
        if decided is not None:
            return decided
        # Something was redone on a newer HEAD: its files make a new commit object.


def _commit_object(txn: Transaction) -> Program[CommitObject]:
    tables = {}
    for table in _written(txn):
        tables[table] = yield from _table_part(txn, table)
    return CommitObject(
        FORMAT,
        txn.context.ids.nonce(),
        txn.id,
        tables,
        operations=tuple(done.operation for done in txn.done),
        reads=tuple(txn.reads.values()),
        metadata=txn.metadata,
        applications=txn.applications,
        started_ms=txn.started_ms,
    )


def _written(txn: Transaction) -> list[str]:
    return list(dict.fromkeys(done.table for done in txn.done))


def _table_part(txn: Transaction, table: str) -> Program[TablePart]:
    mine = [done for done in txn.done if done.table == table]
    change = yield from entry_change(txn, table)
    operations = [done.operation for done in mine]
    name, parameters = describe(operations)
    was_read = any(table in tables_read(done.operation) for done in txn.done)
    was_seen = any(record.table == table for record in txn.reads.values())
    dropped = bool(mine) and isinstance(mine[-1].operation, Drop)
    return TablePart(
        table_id=txn.tables[table].snapshot.table_id,
        change=change,
        blind=all(is_blind(operation) for operation in operations)
        and not was_read
        and not was_seen,
        created=any(isinstance(operation, Create) for operation in operations),
        dropped=dropped,
        operation=name,
        parameters=parameters,
        metrics=summed(done.metrics for done in mine),
    )


def _store(txn: Transaction, txn_id: str, digest: str, body: bytes) -> Program[None]:
    """Data files, commit object, claims, and probes for foreign commits, all in one round."""
    context = txn.context
    assert txn.held is not None
    head = txn.held.head
    yield from load_tables(head, txn.tables)
    key = commit_key(txn_id, digest)
    files = list(txn.bodies)
    parts: list[Any] = [Put(file, txn.bodies[file], ANY) for file in files]
    parts.append(Put(key, body, ABSENT))
    unguarded = [where for where, working in txn.tables.items() if not working.view.guarded]
    parts.extend(look_above(context, location) for location in unguarded)
    for location in _written(txn):
        tail = context.tails.get(location)
        if tail is not None and not txn.read_only:
            parts.append(context.formats.of(tail.snapshot).check_whole(tail.snapshot))
    for location in txn.tables:
        state = head.tables.get(location)
        if (state is None or state.dropped) and not txn.read_only:
            # One that was dropped may have been let go, with its lake.json.
            catalog = txn.tables[location].snapshot.catalog
            parts.append(claim_table(location, head, context.ids, catalog=catalog))
            if state is None:
                parts.append(refuse_two_tables(txn.tables[location].snapshot))
    if txn.key is not None:
        parts.append(bind_key(txn, txn.key))
    # Noted before they are asked for: an interruption in between leaves some of
    # them stored, and an abort must find them.
    txn.stored.extend([*files, key])
    outcomes = yield from parallel(parts)
    made = len(files) + 1
    for name, outcome in zip([*files, key], outcomes[:made], strict=True):
        if not isinstance(outcome, Stored):
            raise StoreError(
                f"could not store {name}: nothing was committed, run the transaction again",
                txn_id=txn.id,
            )
    for file in files:
        del txn.bodies[file]
    outdated = [where for where, newer in zip(unguarded, outcomes[made:], strict=False) if newer]
    if outdated:
        # The race is lost: the newer HEAD tells what was published, and from where to look on.
        yield from context.head()
        yield from parallel([look_above(context, where, again=True) for where in outdated])


def _race(txn: Transaction, commit: CommitObject, digest: str) -> Program[Decided | None]:
    """Replace HEAD, with others of this process; None if operations had to be redone."""
    assert txn.held is not None
    held = txn.held
    txn.digests.add(digest)
    if txn.shared:
        yield from _refuse_committed(txn, held.head)
    while True:
        txn.check_not_fenced(held.head)
        if reserved_ahead(txn, held.head) and (yield from wait_for_turn(txn, held.head)):
            # The one that was let go first is through: HEAD has moved.
            yield from catch_up(txn)
            return None
        try:
            # Before the examination: publishing may meet foreign commits.
            yield from _relieve(txn, newest_of(txn.context, held))
        except VersionNotFound:
            # It was replaced so long ago that gc has let go of a leaf: a newer one tells.
            yield from txn.context.head()
            continue
        before = txn.head_tried
        candidate = Candidate(txn, commit, digest, held, let_pass=held.head.reserved)
        answer = yield from commit_together(candidate)
        if isinstance(answer, Failed) and not isinstance(answer.error, CommitOutcomeUnknown):
            txn.head_tried = before  # what was sent now was not stored
        held = _settled(txn, answer)
        if isinstance(answer, Settled):
            return Decided(held, answer.summary)
        if isinstance(answer, Declined) and answer.found is not None:
            yield from adopt(txn, held, answer.found)
            return None


def _settled(txn: Transaction, answer: Answer) -> HeldHead:
    """The HEAD on which the transaction was accepted or declined.

    The leader works for other threads, so what it finds is raised here, in the
    transaction's own.
    """
    match answer:
        case Settled(held, summary):
            txn.head_tried = None
            if summary.hash not in txn.digests:
                raise txn.fail(
                    TransactionAborted(
                        f"transaction {txn.id} was resumed and committed by another process: "
                        "what it did here since its last save is undone",
                        txn_id=txn.id,
                    )
                )
            return held
        case Declined(held, found):
            if found is not None and found.conflict is not None:
                raise txn.fail(found.conflict)
            return held
        case Failed(error):
            if isinstance(error, ConflictError):
                txn.fail(error)
            raise error


def _refuse_committed(txn: Transaction, head: Head) -> Program[None]:
    """A saved transaction may have been committed elsewhere before this HEAD was read."""
    mine = yield from own_commit(txn, head)
    if mine is not None:
        result = yield from result_of(txn.context, head, mine)
        error = AlreadyCommitted(
            f"transaction {txn.id} was committed by another process that resumed it: "
            "nothing is left to do",
            result=result,
            txn_id=txn.id,
        )
        raise txn.fail(error)


def _relieve(txn: Transaction, held: HeldHead) -> Program[None]:
    """Publish first where more is pending than HEAD should carry."""
    limit = txn.context.settings.max_pending
    yield from load_tables(held.head, txn.tables)
    for location in txn.tables:
        state = held.head.tables.get(location)
        if state is not None and len(state.pending) > limit:
            published = yield from publish_once(txn.context, held.head, location)
            if isinstance(published, LakeVillaError):
                raise published
