"""Commit groups, and commits in a crowd of processes that replace HEAD at the same time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from lakevilla.errors import LakeVillaError, StoreError
from lakevilla.global_log.head import Head, successor
from lakevilla.global_log.inbox.fold import Taken, fitting_intents, is_doubtful, take_along
from lakevilla.global_log.inbox.proposal import (
    FORMAT_WITH_INTENTS,
    MOST_COMMIT_BYTES,
    IntendedTable,
    Intent,
    Proposal,
    ProposedCommit,
    format_of,
    list_proposals,
    propose,
    read_proposals,
    seal_proposal,
)
from lakevilla.global_log.repo import HeldHead, load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.groups import lead_or_follow
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.phases import during
from lakevilla.store.codec import encode
from lakevilla.store.effects import Program, parallel, sleep
from lakevilla.sublogs.operations import tables_read
from lakevilla.transaction.commit.together.group import (
    CROWD,
    MOST,
    Answer,
    Batch,
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
    move_past,
    not_stored,
    proposed_commit,
    relies,
    unknown,
)
from lakevilla.transaction.state.transaction import TransactionState

# -------------------- crowd
#
# Commit in a crowd: propose the commits, and lead if no other process includes them (note 29).
#
# If many processes replace HEAD at the same time, one of them wins, and the other processes have
# read, validated and sent their replacements in vain. So a process first puts its commits into the
# inbox, and waits for a random time. The process whose wait ends first leads: it replaces HEAD by
# one with its own commits and all proposed commits of the inbox. The other processes then find
# their commits in HEAD.
#
# The leader has no lease: if it stops anywhere, the wait of the next process ends soon. Until HEAD
# reaches a number that the proposal names, any leader may include a proposed commit. So until then
# its own process does not report it as failed.


#: The time, more or less, between two reads of HEAD by a process that has proposed commits.
_POLL_SECONDS = 0.08
#: A process waits for a random time of up to this for each member of the crowd: about as long as a
#: leader needs to list the inbox and replace HEAD, so that few lead at once. The crowd's size is
#: the number of commits in the last shared replacement, with a minimum and a maximum.
_SPREAD_SECONDS = 0.1
_LEAST_SPREAD, _MOST_SPREAD = 4, 40
#: After so many reads in which no client has led, each further read halves the rest of the wait.
_PATIENT_LOOKS = 3
#: After so many reads, the owner of a proposal itself replaces HEAD until the proposal is over.
_LOOKS = 8


def commit_in_crowd(
    context: Context, group: CommitGroup, candidates: Sequence[Candidate]
) -> Program[bool]:
    """Propose a group's candidates and wait, until some are answered or the proposal is over.

    False if one of them can't be proposed: then the group competes for HEAD without a proposal.
    """
    if any(one.txn.combined is not None for one in candidates):
        return False  # its members may be proposed themselves
    if not group.has_proposed(candidates):
        group.forget_proposal(context)
        if not (yield from _propose(context, group, candidates)):
            return False
        if not group.has_proposed(group.present(len(candidates))):
            return True
    with during("wait"):
        leads = yield from wait_for_turn(context, partial(_look, context, group))
    if leads:
        yield from _lead_crowd(context, group)
    known = context.held
    assert known is not None
    if group.is_over(known.head):
        is_left = group.has_proposed(group.present(len(candidates)))
        if is_left and (yield from _is_doubtful(known.head, group.proposal)):
            group.note_doubt(context)
        group.forget_proposal(context)
    return True


def _is_doubtful(head: Head, proposal: Proposal | None) -> Program[bool]:
    """Return whether clients have not included a proposal because of rows on which it relies."""
    try:
        return proposal is not None and (yield from is_doubtful(head, proposal))
    except LakeVillaError:
        return True  # a leaf is missing or damaged: the next client that reads it gets the error


def _propose(
    context: Context, group: CommitGroup, candidates: Sequence[Candidate]
) -> Program[bool]:
    """Store a proposal with all candidates that fit; False if one of them can't be proposed."""
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
        return True  # a candidate has left the group: the others begin again
    group.proposal = proposal
    group.key, body = seal_proposal(proposal)
    # After an error it may be stored all the same; if not, this process leads in the end.
    with suppress(StoreError):
        yield from propose(group.key, body)
    return True


def as_proposed(base: HeldHead, candidate: Candidate) -> Program[ProposedCommit | Answer | None]:
    """Return the candidate's commit as proposed on top of ``base``, or its answer.

    None if the candidate can't be proposed and must compete for HEAD itself.
    """
    try:
        fits = yield from check_candidate(base, base.head, candidate)
        if not isinstance(fits, Fits):
            return fits
        if fits.found.views and relies(candidate.txn):
            # It fits, but HEAD does not show other clients why: the rows that it has read may be in
            # other files by now.
            return None
        # This HEAD only shows what the commit would be: no page is stored for it.
        new = yield from with_commit_of(base.head, candidate, fits)
        return (yield from proposed_commit(base.head, new, candidate))
    except Exception as error:
        return Failed(error)


def wait_for_turn(context: Context, look: Callable[[], Program[HeldHead | None]]) -> Program[bool]:
    """Read HEAD by ``look`` until that returns None, or the wait has ended; True if it has.

    Then this process leads.
    """
    clock, held, group = context.clock, context.held, commits_of(context)
    assert held is not None
    head, unchanged_reads = held.head, 0
    ends = clock.elapsed() + group.seconds_to_wait(context) + _patience(context, head)
    while True:
        left = ends - clock.elapsed()
        # Until the store takes a replacement again, there is nothing new to read.
        pause = max(
            group.seconds_to_wait(context), _POLL_SECONDS * (0.7 + 0.6 * context.ids.jitter())
        )
        yield from sleep(min(left, pause))
        if left <= pause:
            return True
        newer = yield from look()
        if newer is None:
            return False
        unchanged_reads += 1
        if newer.head.listed > head.listed:
            unchanged_reads = 0
            patience = group.seconds_to_wait(context) + _patience(context, newer.head) / 2
            ends = clock.elapsed() + patience
        elif unchanged_reads >= _PATIENT_LOOKS:
            ends -= max(0.0, ends - clock.elapsed()) / 2
        head = newer.head


def wait_for_limit(context: Context) -> Program[None]:
    """Wait until the store takes a replacement of HEAD, if it has turned one away before.

    Those that arrive meanwhile have part in it.
    """
    seconds = commits_of(context).seconds_to_wait(context)
    if seconds > 0:
        with during("wait"):
            yield from sleep(seconds)


def _failed(txn: TransactionState, error: LakeVillaError) -> Failed:
    """Return a waiting candidate's answer after an error of the store.

    It is unknown, or that nothing was committed if the commit was not sent.
    """
    if txn.ending.is_in_doubt_in_head:
        return unknown(txn, error.message)
    return not_stored(txn, error)


def _patience(context: Context, head: Head) -> float:
    crowd = min(max(head.crowd, _LEAST_SPREAD), _MOST_SPREAD)
    return _SPREAD_SECONDS * crowd * context.ids.jitter()


def _look(context: Context, group: CommitGroup) -> Program[HeldHead | None]:
    """Read HEAD and return it; None if it answers a candidate, or if the proposal is over."""
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
    """Replace HEAD by one with the commits of this process and of the inbox."""
    yield from wait_for_limit(context)
    try:
        base, proposals = yield from _read_inbox(context, group)
    except LakeVillaError as error:
        group.answer({one: _failed(one.txn, error) for one in group.present()})
        return
    batch = yield from form_batch(context, group, base)
    if any(one.txn.ending.proposed is not None for one in batch.answers):
        group.note_doubt(context)
    if not batch.accepted:
        return
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
        taken = Taken(batch.head, {})  # errors of other processes' proposals stop no commit here
    for digest, commit in taken.commits.items():
        context.keep_commit(digest, commit)
    crowd = _size_of(batch) + len(taken.commits)
    if proposals and group.is_limited(context):
        crowd = max(crowd, CROWD)  # a client that has never lost has to wait for the others, too
    new = msgspec.structs.replace(taken.head, crowd=crowd, listed=taken.head.replacement)
    attempt = yield from begin_replacing(group, base, new, batch.accepted)
    if attempt is not None:
        yield from carry_out(context, group, attempt)


def _size_of(batch: Batch) -> int:
    """Return how many transactions the crowd has committed in a batch."""
    combined = [one.txn.combined for one in batch.accepted]
    return sum(1 if one is None or not one.is_shared else len(one.members) for one in combined)


def _read_inbox(context: Context, group: CommitGroup) -> Program[tuple[HeldHead, list[Proposal]]]:
    """Read HEAD, and the proposals of other processes that may follow it."""
    known = context.held
    assert known is not None
    parts: list[Program[Any]] = [list_proposals(known.head.replacement), context.head()]
    keys: list[str] = (yield from parallel(parts))[0]
    base = context.held
    assert base is not None
    others = [key for key in keys if not group.has_stored(key)]
    group.read = yield from read_proposals(base.head, others, group.read)
    return base, [one for one in group.read.values() if one is not None]


# -------------------- intents
#
# Propose operations in place of commits: whoever leads performs them with his own (note 70).
#
# If many processes change the same rows, the commit of each is unfit after the commit of another
# one. So a process proposes what its transactions are to do, and the leader performs it on what his
# own transactions leave (``combine``).


@dataclass(frozen=True, slots=True)
class Offer:
    """Transactions of this process whose operations are proposed, and the key of the proposal."""

    key: str
    proposal: Proposal


def intent_of(txn: TransactionState, head: Head) -> Program[Intent | None]:
    """Return what a transaction is to do, as any leader may perform it; None if only its owner can.

    All its operations are deferred, and none of them reads more than it has (``is_for_others``).
    """
    operations = tuple(done.operation for done in txn.work.done)
    named = {table for one in operations for table in (one.table, *tables_read(one))}
    yield from load_tables(head, named)
    tables: dict[str, IntendedTable] = {}
    for table in sorted(named):
        state, snapshot = head.tables.get(table), txn.work.tables[table].snapshot
        if state is None or state.dropped or state.catalog:
            return None
        if state.table_id != snapshot.table_id:
            return None
        tables[table] = IntendedTable(snapshot.table_id, snapshot.contract)
    intent = Intent(txn.id, operations, tables)
    return intent if len(encode(intent)) <= MOST_COMMIT_BYTES else None


def offer(
    context: Context, base: HeldHead, intents: Iterable[Intent], begin: Callable[[Proposal], bool]
) -> Program[Offer | None]:
    """Store a proposal of operations; None if ``begin`` refuses, as a transaction has left.

    ``base`` has none of the transactions. From ``begin`` on any client may commit them.
    """
    head = base.head
    proposal = Proposal(
        FORMAT_WITH_INTENTS,
        context.ids.nonce(),
        head.lake_id,
        head.replacement,
        head.sequence,
        intents=tuple(intents),
    )
    if not begin(proposal):
        return None
    key, body = seal_proposal(proposal)
    # After an error it may be stored all the same; if not, this process leads in the end.
    with suppress(StoreError):
        yield from propose(key, body)
    return Offer(key, proposal)


def intents_of_others(
    context: Context, own: Offer | None, written: Collection[str], known: Collection[str]
) -> Program[list[tuple[Proposal, Intent]]]:
    """Read HEAD and the inbox; return the intents of other processes that this one may perform.

    ``written`` and ``known``: as in ``fitting_intents``. If the inbox can't be read, there are
    none: errors of other processes' proposals stop no commit here.
    """
    group = commits_of(context)
    try:
        base, proposals = yield from _read_inbox(context, group)
        others = [one for one in proposals if own is None or one != own.proposal]
        return (yield from fitting_intents(base.head, others, written, known))
    except LakeVillaError:
        return []


def announce(context: Context, members: int) -> Program[None]:
    """Tell in HEAD that processes change the same rows, unless HEAD tells it already.

    A process that wins each race would not find out, and the others would lose for ever.
    """

    def change(head: Head) -> Program[Head | None]:
        yield from ()
        if head.crowd >= CROWD:
            return None
        new = successor(head, nonce=context.ids.nonce(), now_ms=context.now_ms())
        return msgspec.structs.replace(new, crowd=max(members, CROWD), listed=new.replacement)

    with suppress(LakeVillaError):
        yield from replace_until_stored(context, change)


def wait_until_over(txn: TransactionState) -> Program[Settled | None]:
    """Wait until no client can include the transaction's proposal; return its commit, if any.

    Before that no answer is final. If no client replaces HEAD, this process does.
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
            yield from move_past(context, last)


# -------------------- group
#
# Group commit: transactions of one process that wait for HEAD share one replacement.
#
# The first to arrive leads. It validates the candidates one after the other, each against a HEAD
# with the candidates before it, as if they had been committed one by one; then it replaces HEAD
# once, by the last of these. So each candidate gets the answer that it would have got alone, and
# has its own sequence, commit object and outcome.
#
# A candidate that does not fit on top of the candidates before it is not refused, because they are
# not decided yet. It stays for the next batch. Only a HEAD in the store refuses a candidate.
#
# If many processes do this at the same time, one of them does it for all (``crowd``).


#: The longest wait after a lost race: about the time of two replacements of HEAD on S3. A longer
#: wait does not help, because new commits arrive meanwhile, so that as many compete after it.
_LONGEST_BACK_OFF_SECONDS = 0.15


def commit_together(candidate: Candidate) -> Program[Answer]:
    """Replace HEAD by one with the candidate's commit, and those that wait at the same time."""
    context = candidate.txn.context
    group = commits_of(context)
    return (yield from lead_or_follow(group, candidate, partial(_lead, context, group, candidate)))


# ---------------------------------------------------------------- the leader


def _lead(context: Context, group: CommitGroup, own: Candidate) -> Program[Answer]:
    """Replace HEAD, batch by batch, until the leader's own candidate has an answer; return it."""
    while own.answer is None:
        attempt = _left_behind(group)
        in_doubt = attempt is not None
        if (
            attempt is None
            and group.is_crowded(context)
            and (yield from commit_in_crowd(context, group, group.present(MOST)))
        ):
            continue
        if attempt is None and group.is_limited(context) and context.proposes():
            # The next replacement is a second away: take others along, who would never be first.
            yield from _lead_crowd(context, group)
            if own.answer is None:
                yield from _back_off(context, own.races)
            continue
        if attempt is None:
            yield from wait_for_limit(context)
            attempt = yield from _prepare_batch(context, group)
        if attempt is not None:
            yield from carry_out(context, group, attempt, in_doubt=in_doubt)
            if own.answer is None:
                yield from _back_off(context, own.races)
    return own.answer


def _left_behind(group: CommitGroup) -> Replacement | None:
    """Return the attempt of an earlier leader that was interrupted, or has failed, if there is one.

    The store may have stored it, or may yet store it. The new leader sends it again, which settles
    it for all of its candidates; before that none of them may be refused. If all of them have left
    the group, its outcome is not needed any more.
    """
    attempt: Replacement | None = group.unsettled
    if attempt is not None and all(candidate.has_left for candidate in attempt.candidates):
        group.answer({}, settled=True)
        return None
    return attempt


def _prepare_batch(context: Context, group: CommitGroup) -> Program[Replacement | None]:
    """Validate all waiting candidates; None if none fits, or if one has left the group."""
    candidates = group.present(MOST)
    base = newest_of(context, candidates[0].held, *(one.held for one in candidates))
    batch = yield from form_batch(context, group, base)
    if not batch.accepted:
        return None
    new = batch.head
    for one in batch.accepted:
        combined = one.txn.combined
        if combined is not None and combined.has_listed:
            # Nothing of other processes: then the crowd is over.
            crowd = len(batch.accepted) - 1 + len(combined.members) if combined.is_shared else 1
            new = msgspec.structs.replace(new, crowd=crowd, listed=new.replacement)
    return (yield from begin_replacing(group, base, new, batch.accepted))


def _back_off(context: Context, races: int) -> Program[None]:
    """Sleep for a random time after lost races, except after the first one."""
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
