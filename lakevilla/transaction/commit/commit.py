"""Commit a transaction, also again after an attempt whose outcome is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lakevilla.errors import (
    CommitOutcomeUnknown,
    ForeignConflict,
    InvalidOperation,
    LakeVillaError,
    StoreError,
)
from lakevilla.markers.ahead import Ahead, who_is_ahead
from lakevilla.markers.reservation import reserved_ahead
from lakevilla.phases import during
from lakevilla.results import CommitResult
from lakevilla.store.effects import Program, parallel
from lakevilla.transaction.commit.by_log_entry import commit_by_entry
from lakevilla.transaction.commit.decide import Redone, await_proposals, decide, decided_by
from lakevilla.transaction.commit.publish import publish_decided, release_claims
from lakevilla.transaction.commit.together.chain import commit_in_chain
from lakevilla.transaction.commit.together.combine import commit_combined, may_combine, note_counts
from lakevilla.transaction.commit.together.group import own_commit
from lakevilla.transaction.commit.upload import Sealed, check_files, seal_commit, upload
from lakevilla.transaction.queue.places import stand_for_deferred
from lakevilla.transaction.queue.wait import wait_for_turn
from lakevilla.transaction.redo.deferred import perform_deferred
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Decided
from lakevilla.transaction.validation.validate import catch_up, validate_reads
from lakevilla.transaction.verbs.bind import bind_to_head
from lakevilla.transaction.verbs.idempotency import note_over

# -------------------- commit
#
# The commit of a transaction, in seven steps (design, section 8).
#
# 1. Wait until no transaction is ahead in a queue, then perform deferred operations. If none is
#    known to be ahead, the queues are checked in the same round as step 3.
# 2. Make the commit object: the changes, table by table.
# 3. Upload it with the files that it names, and check in the same round for foreign commits.
# 4. Validate: compare what the transaction has read and written with the commits since.
# 5. Replace HEAD. This is the commit point: before it nothing is visible, after it any client can
#    publish the commit. A lost race repeats only 4 and 5.
# 6. Publish in the log of each table.
# 7. Give places and record back, in the same round as 6.
#
# A transaction on one table that needs no HEAD creates its log entry in place of steps 2 to 6
# (``by_log_entry``).


def commit(txn: TransactionState, *, publish: bool = True) -> Program[CommitResult]:
    """Commit; for a transaction that has written nothing this mostly sends no request.

    With ``publish`` False, return once HEAD has the commit, with ``versions`` None. A second call
    after an interruption that came when HEAD had the commit goes on from there.

    Raises
    ------
    ConflictError, TransactionAborted
        Nothing of the transaction is or will be visible.
    CommitOutcomeUnknown
        The commit may have been stored; the store has given no answer.
    ForeignConflict
        The transaction is committed, but a client without LakeVilla changed a table before the
        commit was published there; ``result`` is set.
    """
    with _answering(txn):
        if txn.ending.result is not None and not txn.ending.answered:
            return (yield from _finish(txn, publish))
        check_may_commit(txn)
        if txn.turn is None and not txn.work.commits:
            return (yield from _end_reading(txn))
        if not txn.through_head:
            with entry_errors(txn):
                version = yield from commit_by_entry(txn)
            return txn.note_committed({txn.work.done[0].table: version}, None)
        with head_errors(txn):
            decided = yield from _steps_1_to_5(txn)
        if decided is None:
            return (yield from _end_reading(txn))
        if decided.summary.members:
            yield from note_counts(txn, decided.summary)
        # From here on the transaction is committed: no error below may undo it.
        txn.ending.decided = decided
        txn.ending.head_tried = txn.ending.proposed = None
        return (yield from _finish(txn, publish))


def _steps_1_to_5(txn: TransactionState) -> Program[Decided | None]:
    """Run steps 1 to 5, up to the commit point; None if a member of a chain has only read."""
    landed = yield from found_in_head(txn)
    if landed is not None:
        return landed
    if txn.turn is not None:
        return (yield from commit_in_chain(txn, _performed_and_decided))
    while True:
        decided = yield from (
            commit_combined(txn, _performed_and_decided)
            if may_combine(txn)
            else _performed_and_decided(txn)
        )
        if decided is not None:
            return decided


def end_turn_without_changes(txn: TransactionState) -> Program[None]:
    """Drop what a member of a chain has changed, and wait until what it has read is decided.

    Raises
    ------
    ConflictError
        The states that it has read never became true: the transaction must run again.
    """
    yield from commit_in_chain(txn, _performed_and_decided, undo=True)


def _performed_and_decided(txn: TransactionState) -> Program[Decided | None]:
    """Perform what is deferred, store all that the commit names, and replace HEAD.

    None if its operations were deferred again after a conflict: it may be combined with others.
    """
    has_looked = yield from _take_turn(txn)  # 1
    while True:
        yield from perform_deferred(txn)
        with during("decide"):
            sealed = yield from seal_commit(txn)  # 2
        # With files to upload, the upload counts as the phase "data": the files take longest.
        with during("data" if txn.work.bodies else "decide"):
            ahead = yield from _upload(txn, sealed, looking=not has_looked)  # 3
        has_looked = True
        yield from check_files(txn)
        if ahead and (yield from wait_for_turn(txn, txn.head, ahead)):
            yield from catch_up(txn)
            continue  # operations may have been redone: make a new commit object
        match (yield from decide(txn, sealed)):  # 4 and 5
            case Decided() as decided:
                return decided
            case Redone():
                # The redone operations need a new commit object.
                if may_combine(txn):
                    return None


def _upload(txn: TransactionState, sealed: Sealed, *, looking: bool) -> Program[list[Ahead]]:
    """Upload; with ``looking``, list the queues in the same round, and return who is ahead."""
    if not looking:
        yield from upload(txn, sealed)
        return []
    parts: list[Program[Any]] = [upload(txn, sealed), who_is_ahead(txn, txn.head)]
    found: list[Any] = yield from parallel(parts)
    ahead: list[Ahead] = found[1]
    return ahead


def _take_turn(txn: TransactionState) -> Program[bool]:
    """Wait if other transactions are known to go first; return whether the queues were checked."""
    deferred = any(done.deferred for done in txn.work.done)
    if deferred and (yield from stand_for_deferred(txn)):
        deferred = False  # the transaction is bound to the newest HEAD, and no other is ahead
    queue = txn.claims.queue
    is_behind = queue is not None and any(queue.is_behind(table) for table in queue.tables)
    if not (deferred or is_behind or reserved_ahead(txn, txn.head)):
        return not txn.queues  # a transaction without queues has nothing to check
    waited = yield from wait_for_turn(txn, txn.head)
    if waited or deferred:
        yield from catch_up(txn)
    return True


def _finish(txn: TransactionState, publish: bool) -> Program[CommitResult]:
    """Run steps 6 and 7; after an interruption they can be repeated, as the decision is final."""
    if txn.ending.decided is not None:
        txn.note_committed(None, txn.ending.decided.summary.sequence)
        if publish:
            with during("publish"):
                return (yield from publish_decided(txn, txn.ending.decided))
    yield from release_claims(txn)
    assert txn.ending.result is not None
    return txn.ending.result


def _end_reading(txn: TransactionState) -> Program[CommitResult]:
    """End a transaction that has written nothing; raise if its reads do not fit together.

    If it is a batch of a stream whose batches are counted, note the batch, so that the next one
    does not seem to come after a gap.
    """
    key = txn.claims.key
    if key is not None and key.is_counted:
        yield from bind_to_head(txn)  # this enters the key
    yield from validate_reads(txn)
    if key is not None:
        yield from note_over(txn, key)
    result = txn.note_committed({}, None if txn.head is None else txn.bound.sequence)
    yield from release_claims(txn)
    return result


@contextmanager
def _answering(txn: TransactionState) -> Iterator[None]:
    """Note that the caller has got the final outcome, if the block returns it."""
    try:
        yield
    except ForeignConflict:
        txn.ending.answered = True
        raise
    txn.ending.answered = True


# -------------------- again
#
# A commit whose earlier write at the commit point got no answer (note 19; hazard 36).
#
# The store may have stored that write, or may yet store it. So the transaction first checks the
# version as which it tried its log entry, and all later ones; or the commits of a HEAD that is
# newer than the one that it tried to replace. If its commit is there, it has committed. If another
# client has that version, or has replaced that HEAD, the earlier write can never be stored, and the
# transaction goes on. Else it sends a write to the same place again: one of the two is refused.


def check_may_commit(txn: TransactionState) -> None:
    """Refuse to commit a transaction that has ended, or has failed."""
    if txn.state is Status.FAILED:
        assert txn.ending.failure is not None
        raise doubtful(txn, txn.ending.failure) if txn.ending.is_in_doubt else txn.ending.failure
    if txn.state is not Status.OPEN:
        raise InvalidOperation(
            f"commit: transaction {txn.id} has {txn.state} already", txn_id=txn.id
        )


def found_in_head(txn: TransactionState) -> Program[Decided | None]:
    """Return the transaction's commit in the newest HEAD, if an earlier write has stored it."""
    if not txn.ending.is_in_doubt_in_head:
        return None
    held = yield from txn.context.head()
    if held is None:
        return None
    own = yield from own_commit(txn, held.head)
    if own is not None:
        return decided_by(txn, held, own)
    txn.note_not_in(held.head)
    return (yield from await_proposals(txn))


# -------------------- doubt
#
# The errors at the commit point: they say that nothing was committed, or that it is unknown.


@contextmanager
def entry_errors(txn: TransactionState) -> Iterator[None]:
    """Translate the errors of a commit by a log entry."""
    try:
        yield
    except LakeVillaError as error:
        if txn.ending.entry_tried is not None:
            raise doubtful(txn, error) from error
        if not isinstance(error, StoreError):
            raise
        # This is certain: if an entry may have been stored, ``entry_tried`` is set.
        raise txn.fail(
            StoreError(
                f"nothing of transaction {txn.id} was committed: {error.message}",
                table=txn.work.done[0].table,
                txn_id=txn.id,
            )
        ) from error


@contextmanager
def head_errors(txn: TransactionState) -> Iterator[None]:
    """Translate the errors of a commit through HEAD."""
    try:
        yield
    except LakeVillaError as error:
        if txn.ending.is_in_doubt_in_head:
            raise doubtful(txn, error) from error
        if not isinstance(error, StoreError):
            raise
        if not (txn.ending.tried and txn.ending.shared):
            # Each replacement of HEAD with its commit was refused: if one may have been stored,
            # the error is ``CommitOutcomeUnknown`` (``together``).
            txn.fail(error)
            raise
        # It was saved or resumed: another process may have committed it as well, which only a later
        # read of HEAD can show.
        raise CommitOutcomeUnknown(
            f"could not settle whether transaction {txn.id} was committed ({error.message}): call "
            f"`lake.outcome({txn.id!r})`",
            txn_id=txn.id,
        ) from error


def doubtful(txn: TransactionState, error: LakeVillaError) -> CommitOutcomeUnknown:
    """Return the error to raise while an earlier write of the commit may still be stored."""
    if isinstance(error, CommitOutcomeUnknown):
        return error
    advice = (
        f"call `lake.outcome({txn.id!r})`"
        if txn.through_head
        else "look for it in the table's history"
    )
    unknown = CommitOutcomeUnknown(
        f"transaction {txn.id} may have committed: its commit was tried before, and that could "
        f"not be settled now ({error.message}); commit it again, or {advice}",
        table=error.table,
        txn_id=txn.id,
    )
    if txn.state is Status.FAILED:
        txn.fail(unknown)
    return unknown
