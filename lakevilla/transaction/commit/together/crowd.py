"""Commits that compete with other commits for HEAD, and groups of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from lakevilla.errors import LakeVillaError, StoreError
from lakevilla.global_log.head import Head, successor
from lakevilla.global_log.inbox.fold import Taken, is_doubtful, take_along
from lakevilla.global_log.inbox.proposal import (
    Proposal,
    ProposedCommit,
    format_of,
    list_proposals,
    propose,
    read_proposals,
    seal_proposal,
)
from lakevilla.global_log.repo import HeldHead
from lakevilla.lake.context import Context
from lakevilla.lake.groups import lead_or_follow
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.phases import during
from lakevilla.store.effects import Program, parallel, sleep
from lakevilla.transaction.commit.together.group import (
    MOST,
    Answer,
    Candidate,
    CommitGroup,
    Failed,
    Replacement,
    Settled,
    commits_of,
    newest_of,
    own_commit,
)
from lakevilla.transaction.commit.together.join import (
    Fits,
    answer_committed,
    check_candidate,
    form_batch,
    look_for,
    with_commit_of,
)
from lakevilla.transaction.commit.together.replacing import (
    begin_replacing,
    carry_out,
    not_stored,
    proposed_commit,
    relies,
    unknown,
)
from lakevilla.transaction.state.transaction import TransactionState

# -------------------- crowd
#
# Committing in a crowd: propose, see which client includes it, and lead if none does (note 29).
#
# While many processes replace HEAD at once, each replacement has one winner, and the other
# processes have read, validated and sent theirs in vain. So here a process first puts its commits
# into the inbox, and waits, a little longer or shorter by chance. The process whose time is over
# first replaces HEAD by one with its own commits and all other commits that it finds there. The
# other processes find theirs in HEAD.
#
# There is no lease and no office: a leader may stop anywhere, and the next one's time is over
# soon. Once proposed, a commit may be in any HEAD up to a number that its proposal names, whatever
# its owner does; so until then this process refuses none.


#: HEAD is read once in about this time, to see whether it holds what was proposed.
_POLL_SECONDS = 0.08
#: The next leader has waited, by chance, for up to this time for each of so many in the crowd:
#: about as long as a leader's list and replacement take, so that few lead at once. The last group
#: shows how many they are. Leaders that lead in vain make small groups: so a minimum counts.
_SPREAD_SECONDS = 0.1
_LEAST_SPREAD, _MOST_SPREAD = 4, 40
#: Reads of a HEAD on which no client leads, after which the rest of the wait is halved each time.
_PATIENT_LOOKS = 3
#: Reads of HEAD before the owner itself moves it past what the owner has proposed.
_LOOKS = 8


def commit_in_crowd(
    context: Context, group: CommitGroup, candidates: Sequence[Candidate]
) -> Program[bool]:
    """Run one round for the candidates of a group: until some are answered, or HEAD has moved.

    False if one of them can't be proposed: then they race for HEAD as usual.
    """
    if not group.has_proposed(candidates):
        group.forget_proposal()
        if not (yield from _propose(context, group, candidates)):
            return False
        if not group.has_proposed(group.present(len(candidates))):
            return True
    with during("wait"):
        leads = yield from _wait(context, group)
    if leads:
        yield from _lead_crowd(context, group)
    known = context.held
    assert known is not None
    if group.is_over(known.head):
        is_left = group.has_proposed(group.present(len(candidates)))
        if is_left and (yield from _is_doubtful(known.head, group.proposal)):
            group.note_doubt(context)
        group.forget_proposal()
    return True


def _is_doubtful(head: Head, proposal: Proposal | None) -> Program[bool]:
    """Return whether other clients have left a proposal because of what it relies on."""
    try:
        return proposal is not None and (yield from is_doubtful(head, proposal))
    except LakeVillaError:
        return True  # a leaf is gone or damaged: the next reader of it gets the error


def _propose(
    context: Context, group: CommitGroup, candidates: Sequence[Candidate]
) -> Program[bool]:
    """Store a proposal with all that fit; False if a candidate can't be in any."""
    base = newest_of(context, candidates[0].held, *(one.held for one in candidates))
    answers: dict[Candidate, Answer] = {}
    commits: dict[Candidate, ProposedCommit] = {}
    may_propose = True
    for candidate in candidates:
        found: ProposedCommit | Answer | None = yield from look_for(candidate, base)
        if found is None:
            found = yield from as_proposed(base, candidate)
        if isinstance(found, ProposedCommit):
            commits[candidate] = found
        elif found is None:
            may_propose = False
        else:
            answers[candidate] = found
    group.answer(answers)
    if not may_propose or not commits:
        return may_propose
    head = base.head
    proposal = Proposal(
        format_of(commits.values()),
        context.ids.nonce(),
        head.lake_id,
        head.replacement,
        head.sequence,
        tuple(commits.values()),
    )

    def note_proposed(candidate: Candidate) -> None:
        candidate.txn.ending.tried = True
        candidate.txn.ending.proposed = proposal.last_replaced

    if not group.begin(None, commits, note_proposed):
        return True  # one has left: the other candidates begin again
    group.proposal = proposal
    group.key, body = seal_proposal(proposal)
    # After an error it may be stored all the same: HEAD shows that, or this process leads.
    with suppress(StoreError):
        yield from propose(group.key, body)
    return True


def as_proposed(base: HeldHead, candidate: Candidate) -> Program[ProposedCommit | Answer | None]:
    """Return the candidate as a proposal behind ``base``, or its answer; None: it races."""
    try:
        fits = yield from check_candidate(base, base.head, candidate)
        if not isinstance(fits, Fits):
            return fits
        if fits.found.views and relies(candidate.txn):
            # It fits there, but for reasons that other clients can't see in HEAD: the files in
            # which it has found its rows may be other files by now.
            return None
        # This only finds out what the commit would be: no page is stored for it.
        new = yield from with_commit_of(base.head, candidate, fits)
        return (yield from proposed_commit(base.head, new, candidate))
    except Exception as error:
        return Failed(error)


def _wait(context: Context, group: CommitGroup) -> Program[bool]:
    """Read HEAD until some are answered or it has moved too far; True if it is time to lead."""
    clock, held = context.clock, context.held
    assert held is not None
    head, unchanged_reads = held.head, 0
    ends = clock.elapsed() + _patience(context, head)
    while True:
        left = ends - clock.elapsed()
        pause = _POLL_SECONDS * (0.7 + 0.6 * context.ids.jitter())
        yield from sleep(min(left, pause))
        if left <= pause:
            return True
        newer = yield from _look(context, group)
        if newer is None:
            return False
        unchanged_reads += 1
        if newer.head.listed > head.listed:
            unchanged_reads, ends = 0, clock.elapsed() + _patience(context, newer.head) / 2
        elif unchanged_reads >= _PATIENT_LOOKS:
            ends -= max(0.0, ends - clock.elapsed()) / 2
        head = newer.head


def _failed(txn: TransactionState, error: LakeVillaError) -> Failed:
    """Return the answer for an error of the store to one that waits: no, if it was not sent."""
    if txn.ending.is_in_doubt_in_head:
        return unknown(txn, error.message)
    return not_stored(txn, error)


def _patience(context: Context, head: Head) -> float:
    crowd = min(max(head.crowd, _LEAST_SPREAD), _MOST_SPREAD)
    return _SPREAD_SECONDS * crowd * context.ids.jitter()


def _look(context: Context, group: CommitGroup) -> Program[HeldHead | None]:
    """Read HEAD; None if that has answered a candidate, or has ended the proposal."""
    candidates = group.present()
    try:
        held = yield from context.head()
        assert held is not None, "a lake with a commit under way has a HEAD"
    except LakeVillaError as error:
        group.answer({one: _failed(one.txn, error) for one in candidates})
        return None
    left = yield from answer_committed(group, candidates, held)
    return None if len(left) < len(candidates) or group.is_over(held.head) else held


def _lead_crowd(context: Context, group: CommitGroup) -> Program[None]:
    """Replace HEAD by one with the commits that wait here and in the inbox."""
    known = context.held
    assert known is not None
    try:
        parts: list[Program[Any]] = [list_proposals(known.head.replacement), context.head()]
        keys: list[str] = (yield from parallel(parts))[0]
        base = context.held
        assert base is not None
        others = [key for key in keys if key != group.key]
        group.read = yield from read_proposals(base.head, others, group.read)
    except LakeVillaError as error:
        group.answer({one: _failed(one.txn, error) for one in group.present()})
        return
    batch = yield from form_batch(context, group, base)
    if any(one.txn.ending.proposed is not None for one in batch.answers):
        group.note_doubt(context)
    if not batch.accepted:
        return
    proposals = [one for one in group.read.values() if one is not None]
    try:
        taken = yield from take_along(
            base.head,
            batch.head,
            proposals,
            context.ids,
            context.now_ms(),
            context.settings.checked_tip_seconds,
        )
    except LakeVillaError:
        taken = Taken(batch.head, {})  # errors in other proposals' tables stop no commit here
    for digest, commit in taken.commits.items():
        context.keep_commit(digest, commit)
    new = msgspec.structs.replace(
        taken.head,
        crowd=len(batch.accepted) + len(taken.commits),
        listed=taken.head.replacement,
    )
    attempt = yield from begin_replacing(group, base, new, batch.accepted)
    if attempt is not None:
        yield from carry_out(context, group, attempt)


def wait_until_over(txn: TransactionState) -> Program[Settled | None]:
    """Wait until no client can include a transaction any more; return its commit, if one has.

    Before that no answer is final. Where no client moves HEAD, the owner does.
    """
    context = txn.context
    reads = 0
    while True:
        held = yield from context.head()
        assert held is not None
        found = yield from own_commit(txn, held.head)
        if found is not None:
            return Settled(held, found)
        txn.note_not_in(held.head)
        last = txn.ending.proposed
        if last is None:
            return None
        reads += 1
        if reads <= _LOOKS:
            yield from sleep(_POLL_SECONDS * (0.7 + 0.6 * context.ids.jitter()))
        else:
            yield from _move(context, last)


def _move(context: Context, last: int) -> Program[None]:
    """Replace HEAD by one with the same content, unless it is past ``last``."""

    def change(head: Head) -> Program[Head | None]:
        yield from ()
        if head.replacement > last:
            return None
        return successor(head, nonce=context.ids.nonce(), now_ms=context.now_ms())

    yield from replace_until_stored(context, change)


# -------------------- group
#
# Group commit: transactions of one process that wait for HEAD share one replacement.
#
# The first to arrive leads. It validates one candidate after the other, each against a
# HEAD that holds those before it, as if they had been committed one by one; then it
# replaces HEAD once, by the last of these. So a candidate gets exactly the answer that it
# would have got alone, and keeps its own sequence, commit object and outcome.
#
# A candidate that does not fit behind those before it is not refused: they are
# not decided yet. It stays for the next round, where HEAD holds them or does not.
# Only a HEAD that was read from the store, or stored, refuses a candidate.
#
# Where many processes do this at once, a process does it for the other ones, or one of them does
# it for this process (``crowd``).


#: The longest time for which a lost race may delay a commit: about two replacements of HEAD on S3.
#: A longer wait does not help: other commits arrive meanwhile, and as many compete after it.
_LONGEST_BACK_OFF_SECONDS = 0.15


def commit_together(candidate: Candidate) -> Program[Answer]:
    """Replace HEAD with the candidate, and with the candidates that wait at the same time."""
    context = candidate.txn.context
    group = commits_of(context)
    return (yield from lead_or_follow(group, candidate, partial(_lead, context, group, candidate)))


# ---------------------------------------------------------------- the leader


def _lead(context: Context, group: CommitGroup, own: Candidate) -> Program[Answer]:
    """Replace HEAD, batch by batch, until the leader's own candidate is answered; return that."""
    while own.answer is None:
        attempt = _left_behind(group)
        in_doubt = attempt is not None
        if (
            attempt is None
            and group.is_crowded(context)
            and (yield from commit_in_crowd(context, group, group.present(MOST)))
        ):
            continue
        if attempt is None:
            attempt = yield from _prepare_batch(context, group)
        if attempt is not None:
            yield from carry_out(context, group, attempt, in_doubt=in_doubt)
            if own.answer is None:
                yield from _back_off(context, own.races)
    return own.answer


def _left_behind(group: CommitGroup) -> Replacement | None:
    """Return an attempt whose leader was interrupted, or has failed.

    It may have been stored, or may yet be. To send it again settles it for all of its candidates,
    and until then none of them may be refused. If none of them is left, its outcome is not needed
    any more, and it is like any other client's replacement that is under way.
    """
    attempt: Replacement | None = group.unsettled
    if attempt is not None and all(candidate.has_left for candidate in attempt.candidates):
        group.answer({}, settled=True)
        return None
    return attempt


def _prepare_batch(context: Context, group: CommitGroup) -> Program[Replacement | None]:
    """Validate all present candidates; None if none fits, or if one has left meanwhile."""
    candidates = group.present(MOST)
    base = newest_of(context, candidates[0].held, *(one.held for one in candidates))
    batch = yield from form_batch(context, group, base)
    if not batch.accepted:
        return None
    return (yield from begin_replacing(group, base, batch.head, batch.accepted))


def _back_off(context: Context, races: int) -> Program[None]:
    """Spread the processes that lost the same race; the first repeat goes at once."""
    if races <= 1:
        return
    settings = context.settings
    longest = min(
        _LONGEST_BACK_OFF_SECONDS,
        settings.retry_cap_seconds,
        settings.retry_base_seconds * 2 ** min(races - 1, 4),
    )
    with during("wait"):
        yield from sleep(longest * context.ids.jitter())
