"""Steps 4 and 5 of a commit, repeated until HEAD has the commit or the commit has failed.

The transactions of a process that commit at the same time form a group (``together``): its leader
validates them (``join``) and replaces HEAD for all.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    LakeVillaError,
    TransactionAborted,
    VersionNotFound,
)
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.global_log.inbox.fold import MOST_PENDING
from lakevilla.global_log.repo import HeldHead, load_tables
from lakevilla.lake.publishing.outcome import result_of
from lakevilla.lake.publishing.publish import publish_once
from lakevilla.markers.reservation import reserved_ahead
from lakevilla.phases import during
from lakevilla.store.effects import Program
from lakevilla.transaction.commit.together.combine import defer_again
from lakevilla.transaction.commit.together.crowd import announce, commit_together, wait_until_over
from lakevilla.transaction.commit.together.group import (
    Candidate,
    Declined,
    Failed,
    Settled,
    commits_of,
    newest_of,
    own_commit,
)
from lakevilla.transaction.commit.upload import Sealed
from lakevilla.transaction.queue.reservation import reserve
from lakevilla.transaction.queue.wait import wait_for_turn
from lakevilla.transaction.redo.rebase import Examination, rebase
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Decided
from lakevilla.transaction.validation.others import name_commit
from lakevilla.transaction.validation.validate import catch_up

#: A transaction that has lost so many races, after each of which it had to redo operations or to
#: mark its rows again, reserves its tables. Equal clients seldom lose as many, and a slower one
#: would lose for ever.
_MOST_LOST = 16


@dataclass(frozen=True, slots=True)
class Redone:
    """No commit: the transaction has moved to a newer HEAD, where operations may be redone."""


def decide(txn: TransactionState, sealed: Sealed) -> Program[Decided | Redone]:
    """Replace HEAD by one with the commit, and with other commits of this process.

    Raises
    ------
    ConflictError, TransactionAborted
        Nothing of the transaction is or will be visible.
    CommitOutcomeUnknown
        The replacement may have been stored; the store has given no answer.
    """
    assert txn.bound.held is not None, "a transaction that writes through HEAD is bound to one"
    held = txn.bound.held
    txn.context.keep_commit(sealed.digest, sealed.commit, len(sealed.body))
    txn.ending.digests.add(sealed.digest)
    landed = yield from _landed(txn, held)
    if landed is not None:
        return landed
    while True:
        txn.check_not_fenced(held.head)
        if reserved_ahead(txn, held.head) and (yield from wait_for_turn(txn, held.head)):
            # The transaction that went first has ended: HEAD has moved.
            landed = yield from await_proposals(txn)
            if landed is not None:
                return landed
            yield from catch_up(txn)
            return Redone()
        try:
            # Publish before the validation: publishing may find foreign commits.
            yield from _relieve(txn, newest_of(txn.context, held))
        except VersionNotFound:
            # This HEAD was replaced long ago, and gc has deleted a leaf of it: read a newer HEAD.
            with during("version"):
                yield from txn.context.head()
            continue
        before = txn.ending.head_tried
        candidate = Candidate(
            txn,
            sealed.commit,
            sealed.digest,
            held,
            held.head.reserved,
            sealed.body,
            sealed.squashes,
        )
        # The leader may be another thread, so its answer is raised here, in this thread.
        with during("decide"):
            answer = yield from commit_together(candidate)
        match answer:
            case Settled(held, summary, together):
                return decided_by(txn, held, summary, together)
            case Declined(held, found):
                if found is None:
                    continue  # the id is fenced in that HEAD, or other transactions go first
                return (yield from _declined(txn, held, found))
            case Failed(error):
                if not isinstance(error, CommitOutcomeUnknown):
                    txn.ending.head_tried = before  # the write sent now was not stored
                if isinstance(error, ConflictError):
                    txn.fail(error)
                raise error


def _declined(
    txn: TransactionState, held: HeldHead, found: Examination
) -> Program[Decided | Redone]:
    """Move a transaction that does not fit ``held`` there, or raise its conflict."""
    # Another client may still include the proposed commit in HEAD, or has done so.
    landed = yield from await_proposals(txn)
    if landed is not None:
        return landed
    if found.conflict is not None:
        raise txn.fail(name_commit(txn, held.head, found.conflict))
    defer_again(txn, found, held.head)
    if txn.combined is not None and txn.combined.is_shared:
        yield from announce(txn.context, len(txn.combined.members))
    with during("validate"):
        yield from rebase(txn, held, found)
    yield from _go_first(txn)
    return Redone()


def _go_first(txn: TransactionState) -> Program[None]:
    """Reserve the tables of a transaction that has lost many races: others let it commit first.

    A branch, and a lake whose HEAD is a log, have no reservations. The members of a combined commit
    and of a chain lose their races together. A transaction that has just been deferred is about to
    be one: its leader would wait for its reservation, while it waits for its leader.
    """
    context, work = txn.context, txn.work
    if any(done.deferred for done in work.done):
        return
    work.lost += 1
    if (
        work.lost == _MOST_LOST
        and txn.combined is None
        and txn.turn is None
        and not (context.epoch or (yield from context.is_only_creating()))
    ):
        yield from reserve(txn, txn.written)


def await_proposals(txn: TransactionState) -> Program[Decided | None]:
    """Wait until no client can include the transaction's proposal; return its commit, if any."""
    if txn.ending.proposed is None:
        return None
    with during("wait"):
        settled = yield from wait_until_over(txn)
    return None if settled is None else decided_by(txn, settled.held, settled.summary)


def decided_by(
    txn: TransactionState,
    held: HeldHead,
    summary: CommitSummary,
    together: frozenset[str] = frozenset(),
) -> Decided:
    """Return the decision for a HEAD with a commit of this transaction's id.

    Raise if the commit was made by another process, which has resumed the transaction. Not so if it
    is a member: only a transaction that was never saved is one, so its operations are its own.
    """
    txn.ending.head_tried = txn.ending.proposed = None
    if summary.hash not in txn.ending.digests and txn.id not in summary.members:
        raise txn.fail(
            TransactionAborted(
                f"transaction {txn.id} was resumed and committed by another process: "
                "what it did here since its last save is undone",
                txn_id=txn.id,
            )
        )
    return Decided(held, summary, together)


def _landed(txn: TransactionState, held: HeldHead) -> Program[Decided | None]:
    """Return the transaction's commit in the bound HEAD, if an earlier attempt has stored it."""
    if txn.ending.is_in_doubt_in_head:
        own = yield from own_commit(txn, held.head)
        if own is not None:
            return decided_by(txn, held, own)
        txn.note_not_in(held.head)
    if txn.ending.shared:
        with during("validate"):
            yield from _refuse_committed(txn, held.head)
    return None


def _refuse_committed(txn: TransactionState, head: Head) -> Program[None]:
    """Refuse a saved transaction if ``head`` has its commit, made by another process."""
    own = yield from own_commit(txn, head)
    if own is not None:
        result = yield from result_of(txn.context, head, own, txn.id)
        error = AlreadyCommitted(
            f"transaction {txn.id} was committed by another process that resumed it: "
            "nothing is left to do",
            result=result,
            txn_id=txn.id,
        )
        raise txn.fail(error)


def _relieve(txn: TransactionState, held: HeldHead) -> Program[None]:
    """Publish tables with more pending commits than HEAD should have; nothing on a branch."""
    if txn.context.epoch:
        return
    crowded = commits_of(txn.context).is_crowded(txn.context)
    limit = MOST_PENDING if crowded else txn.context.settings.max_pending
    yield from load_tables(held.head, txn.work.tables)
    for location in txn.work.tables:
        state = held.head.tables.get(location)
        if state is not None and len(state.pending) > limit:
            with during("publish", location):
                published = yield from publish_once(txn.context, held.head, location)
            if isinstance(published, LakeVillaError):
                raise published
