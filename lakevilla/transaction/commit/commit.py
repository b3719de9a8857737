"""Ending a transaction: which commit point it takes, and what its caller is told."""

from __future__ import annotations

from lakevilla.errors import (
    CommitOutcomeUnknown,
    ForeignConflict,
    InvalidOperation,
    LakeVillaError,
    StoreError,
)
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.global_log.repo import commits_since, load_tables
from lakevilla.lake.context import Event
from lakevilla.publishing.publish import Published
from lakevilla.publishing.publish_once import publish_once
from lakevilla.results import CommitResult
from lakevilla.store.effects import Program, parallel
from lakevilla.transaction.commit.again import doubtful
from lakevilla.transaction.commit.by_log_entry import commit_by_entry
from lakevilla.transaction.commit.through_head import decide
from lakevilla.transaction.state.transaction import Transaction
from lakevilla.transaction.state.values import Decided
from lakevilla.transaction.validation.validate import validate_reads
from lakevilla.transaction.verbs.save import forget

__all__ = ["commit", "publish_decided", "publish_or_tell"]


def commit(txn: Transaction, *, publish: bool = True) -> Program[CommitResult]:
    """Commit: nothing written asks nothing of the store.

    With ``publish`` False it returns when decided, with ``versions`` None. Again after an
    interrupt that struck once it was decided, it goes on from there: nobody was told.

    Raises
    ------
    ConflictError, TransactionAborted, CommitOutcomeUnknown
        See ``decide`` and ``commit_by_entry``.
    ForeignConflict
        It is committed, and a client without LakeVilla interfered before it
        was published; ``result`` is set.
    """
    try:
        if txn.result is None or txn.answered:
            result = yield from _commit(txn, publish)
        elif txn.decided is not None:
            result = yield from _published(txn, txn.decided, publish)
        else:
            yield from _let_go(txn)
            result = txn.result
    except ForeignConflict:
        txn.answered = True
        raise
    txn.answered = True
    return result


def _commit(txn: Transaction, publish: bool) -> Program[CommitResult]:
    if txn.state == "failed":
        assert txn.failure is not None
        raise doubtful(txn, txn.failure) if txn.in_doubt else txn.failure
    if txn.state != "open":
        raise InvalidOperation(
            f"commit: transaction {txn.id} has {txn.state} already", txn_id=txn.id
        )
    if not txn.done:
        yield from validate_reads(txn)
        version = None if txn.head is None else txn.bound_sequence
        result = _committed(txn, {}, version)
        yield from _let_go(txn)
        return result
    if not txn.through_head:
        location = txn.done[0].table
        try:
            entry_version = yield from commit_by_entry(txn)
        except LakeVillaError as error:
            if txn.entry_tried is not None:
                raise doubtful(txn, error) from error
            if not isinstance(error, StoreError):
                raise
            # Safe to say so: where an entry may have landed it is in doubt.
            raise txn.fail(
                StoreError(
                    f"nothing of transaction {txn.id} was committed: {error.message}",
                    table=location,
                    txn_id=txn.id,
                )
            ) from error
        return _committed(txn, {location: entry_version}, None)
    try:
        decided = yield from decide(txn)
    except LakeVillaError as error:
        if txn.head_tried is not None:
            raise doubtful(txn, error) from error
        if not isinstance(error, StoreError):
            raise
        if not (txn.tried and txn.shared):
            # Each replacement of HEAD that was sent for it was refused: where one may have
            # landed it is ``CommitOutcomeUnknown`` (``group``).
            txn.fail(error)
            raise
        # Saved or resumed: another process may have been at its commit point as well, and
        # only whoever reads what became of that can tell.
        raise CommitOutcomeUnknown(
            f"could not settle whether transaction {txn.id} was committed "
            f"({error.message}): ask `lake.outcome({txn.id!r})`",
            txn_id=txn.id,
        ) from error
    # From here on it is committed: nothing below may undo it.
    txn.state, txn.head_tried = "committed", None
    txn.decided = decided
    return (yield from _published(txn, decided, publish))


def _published(txn: Transaction, decided: Decided, publish: bool) -> Program[CommitResult]:
    """What follows the decision; as often as it takes."""
    result = _committed(txn, None, decided.summary.sequence)
    if not publish:
        yield from _let_go(txn)
        return result
    return (yield from publish_decided(txn, decided))


def _let_go(txn: Transaction) -> Program[None]:
    """Give places, record and sublog back. What fails is found by others after a lease."""
    try:
        yield from forget(txn)
    except LakeVillaError as error:
        message = f"could not clean up after transaction {txn.id}: {error.message}"
        txn.context.notify(Event("retry", txn.id, message))


def publish_decided(txn: Transaction, decided: Decided) -> Program[CommitResult]:
    """Publish a decided transaction on all its tables at once, and tell what became of it.

    Its places in the queues go in the same round: it is decided, so whoever was
    behind it reads it in HEAD, and publishes it if it must.
    """
    context = txn.context
    head, summary = decided.held.head, decided.summary
    yield from load_tables(head, summary.tables)
    pending = [
        location
        for location in summary.tables
        if any(ref.sequence == summary.sequence for ref in head.tables[location].pending)
    ]
    publishing = [publish_or_tell(txn, head, location) for location in pending]
    outcomes = (yield from parallel([*publishing, _let_go(txn)]))[: len(pending)]
    versions: dict[str, int | None] = {}
    for location, published in zip(pending, outcomes, strict=True):
        versions[location] = None if published is None else published.version_of(summary.sequence)
    result = _committed(txn, versions, summary.sequence)
    looked_at = [p for p in outcomes if p is not None and (p.helped or p.head is not head)]
    if looked_at:
        newest = max((p.head for p in looked_at), key=lambda other: other.replacement)
        if newest.replacement <= head.replacement:
            held = yield from context.head()
            newest = newest if held is None else held.head
        yield from _report_foreign(txn, newest, summary, result)
    return result


def publish_or_tell(txn: Transaction, head: Head, location: str) -> Program[Published | None]:
    """Publishing may fail, and then it is left to the next client: the commit stands."""
    published = yield from publish_once(txn.context, head, location)
    if isinstance(published, LakeVillaError):
        txn.context.note_unpublished(txn.id, location, published)
        return None
    return published


def _report_foreign(
    txn: Transaction, head: Head, mine: CommitSummary, result: CommitResult
) -> Program[None]:
    commits = yield from commits_since(head, mine.sequence)
    # A reconcile commit may become unfit itself, and be replaced by the next: the worst is told.
    standing, ids = {mine.sequence}, {txn.id}
    worst, table, told = 0, "", ""
    for summary in commits or ():
        if summary.kind != "reconcile" or standing.isdisjoint(summary.replaces):
            continue
        commit = yield from txn.context.commit_object(summary.txn, summary.hash)
        reason = next((why for voided, why in commit.voided if voided in ids), None)
        is_touched = not ids.isdisjoint(commit.touched_reads)
        standing.add(summary.sequence)
        ids.add(summary.txn)
        rank = 0 if commit.quiet else 1 + is_touched if reason is None else 3
        if rank <= worst:
            continue
        worst, table = rank, next(iter(summary.tables))
        if reason is not None:
            told = f"its changes to the table could not be replayed and are void there: {reason}"
        elif is_touched:
            told = "its operations were replayed, and rows that it had read were changed"
        else:
            told = "its operations were replayed on the changed rows"
    if worst:
        raise ForeignConflict(
            f"transaction {txn.id} is committed, but a client without lakevilla changed table "
            f"{table} before it was published: {told}; check the table, and `guard` it to close "
            "this window",
            result=result,
            table=table,
            txn_id=txn.id,
        )


def _committed(
    txn: Transaction,
    versions: dict[str, int | None] | None,
    sequence: int | None,
) -> CommitResult:
    txn.state, txn.entry_tried = "committed", None
    txn.result = CommitResult(txn.id, versions, sequence, txn.retries + txn.redos, len(txn.done))
    return txn.result
