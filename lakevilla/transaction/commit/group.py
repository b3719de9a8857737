"""Group commit: transactions of one process that wait for HEAD go in one replacement.

The first to come leads. It validates one candidate after the other, each against a
HEAD that holds those before it, as if they had been committed one by one; then it
replaces HEAD once, by the last of these. So a candidate is told exactly what it
would have been told alone, and keeps its own sequence, commit object and outcome.

A candidate that does not fit behind those before it is not refused: nobody has
decided them yet. It stays for the next round, where HEAD holds them or does not.
Only a HEAD that was read from the store, or stored, refuses anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import partial

from lakevilla.errors import CommitOutcomeUnknown, ConflictError, LakeVillaError, StoreError
from lakevilla.global_log.head import (
    CommitSummary,
)
from lakevilla.global_log.lineage import check_lineage
from lakevilla.global_log.repo import (
    HeldHead,
    head_found,
    replace_head,
    store_leaves,
)
from lakevilla.lake.context import Context, Event
from lakevilla.lake.lanes import Lane, pass_through
from lakevilla.phases import during
from lakevilla.store.base import PutOutcome, Stored, Unknown
from lakevilla.store.effects import Program, sleep
from lakevilla.transaction.commit.candidate import (
    Answer,
    Candidate,
    Failed,
    Replacement,
    Settled,
    newest_of,
    own_commit,
)
from lakevilla.transaction.commit.join import join
from lakevilla.transaction.state.transaction import TransactionState

#: Candidates in one replacement; with more, one that fails would hold up too many.
MOST = 32
#: Races lost in a row before a commit gives up; each one means that others advanced.
_MAX_RACES = 1000
#: Times that the same replacement is sent while nobody can tell what became of it.
_MAX_UNKNOWN = 5
#: How long a lost race may hold a commit back, at most: about two replacements of HEAD on S3. Who
#: waits longer loses to those who come meanwhile, and they are not fewer then.
_LONGEST_BACK_OFF_SECONDS = 0.15


def commits_of(context: Context) -> Lane[Candidate]:
    """Where the commits of a lake meet."""
    return context.lanes.named("commits")


def commit_together(candidate: Candidate) -> Program[Answer]:
    """Replace HEAD with the candidate, and with those who wait at the same time."""
    context = candidate.txn.context
    lane = commits_of(context)
    yield from pass_through(lane, candidate, partial(_lead, context, lane, candidate))
    assert candidate.answer is not None
    return candidate.answer


# ---------------------------------------------------------------- the leader


def _lead(context: Context, lane: Lane[Candidate], mine: Candidate) -> Program[None]:
    """Replace HEAD until the leader's own candidate is answered."""
    while mine.answer is None:
        attempt = _left_behind(lane)
        in_doubt = attempt is not None
        if attempt is None:
            attempt = yield from _prepare(context, lane)
        if attempt is not None:
            yield from _carry_out(context, lane, attempt, in_doubt=in_doubt)
            if mine.answer is None:
                yield from _back_off(context, mine.races)


def _left_behind(lane: Lane[Candidate]) -> Replacement | None:
    """An attempt whose leader was interrupted, or has failed: it may have landed, or may yet.

    To send it again settles it for all of its candidates, and until then none of them
    may be told no. Where none of them is left, nobody asks any more, and it is as
    any other client's replacement that is under way.
    """
    attempt: Replacement | None = lane.unsettled
    if attempt is not None and all(candidate.has_left for candidate in attempt.candidates):
        lane.answer({}, settled=True)
        return None
    return attempt


def _prepare(context: Context, lane: Lane[Candidate]) -> Program[Replacement | None]:
    """Validate whoever is there; None if nobody fits, or if one has left meanwhile."""
    candidates = lane.present(MOST)
    base = newest_of(context, candidates[0].held, *(one.held for one in candidates))
    answers: dict[Candidate, Answer] = {}
    for candidate in candidates:
        found = yield from _looked_for(candidate, base)
        if found is not None:
            answers[candidate] = found
    joined = yield from join(context, base, [one for one in candidates if one not in answers])
    lane.answer({**answers, **joined.answers})
    if not joined.accepted:
        return None
    try:
        yield from store_leaves(joined.head)
    except StoreError as error:
        # Nothing names them yet: it is sure that nobody is committed.
        lane.answer({one: Failed(StoreError(error.message)) for one in joined.accepted})
        return None
    attempt = Replacement(base, joined.head, joined.accepted)
    # From here on it may be committed, whatever becomes of its thread.

    def note_tried(candidate: Candidate) -> None:
        candidate.txn.ending.tried = True
        candidate.txn.ending.head_tried = base.head.replacement

    return attempt if lane.begin(attempt, joined.accepted, note_tried) else None


def _looked_for(candidate: Candidate, base: HeldHead) -> Program[Answer | None]:
    """What is known of a candidate once its own commit was looked for in ``base``."""
    if candidate.held.head.replacement >= base.head.replacement:
        return None
    try:
        found = yield from own_commit(candidate.txn, base.head)
    except Exception as error:
        return Failed(error)
    if found is not None:
        return Settled(base, found)
    candidate.held = base
    tried = candidate.txn.ending.head_tried
    if tried is not None and tried < base.head.replacement:
        candidate.txn.ending.head_tried = (
            None  # what it was to replace is gone: it can't land any more
        )
    return None


def _carry_out(
    context: Context, lane: Lane[Candidate], attempt: Replacement, *, in_doubt: bool = False
) -> Program[None]:
    """Send the replacement of HEAD, and tell its candidates what became of it.

    ``in_doubt``: it was sent before, and may have landed or may yet. Then an error of this
    sending says nothing of that one; else it says that nothing was committed.

    Safe if this is cut short anywhere: the attempt is left behind for the next leader.
    """
    held, new = attempt.held, attempt.new
    try:
        outcome = yield from replace_head(held, new)
        for _ in range(_MAX_UNKNOWN):
            if not isinstance(outcome, Unknown):
                break
            # The very same write again: it can land once at most, because it
            # matches a HEAD that it replaces itself.
            in_doubt = True
            outcome = yield from replace_head(held, new)
        if isinstance(outcome, Stored):
            decided = HeldHead(new, outcome.token)
            context.remember(decided)
            lane.answer(_decided(decided, attempt.candidates), settled=True)
            return
        newer = yield from _met(context, outcome)
    except LakeVillaError as error:
        # The store failed, or HEAD is damaged or was set back. Where nothing was in doubt it is
        # sure that this write was refused, or never sent.
        lane.answer(
            {
                one: _unknown(one.txn, error.message) if in_doubt else _refused(one.txn, error)
                for one in attempt.candidates
            },
            settled=True,
        )
        return
    if newer is None or (
        isinstance(outcome, Unknown) and newer.head.replacement == held.head.replacement
    ):
        lane.answer({one: _unknown(one.txn) for one in attempt.candidates}, settled=True)
        return
    yield from _lost(context, lane, attempt, newer, in_doubt=in_doubt)


def _decided(
    held: HeldHead, candidates: Mapping[Candidate, CommitSummary]
) -> dict[Candidate, Answer]:
    together = frozenset(one.txn.id for one in candidates)
    return {one: Settled(held, summary, together) for one, summary in candidates.items()}


def _met(context: Context, outcome: PutOutcome) -> Program[HeldHead | None]:
    """The HEAD that the replacement has met."""
    newer = head_found(outcome)
    known = context.held
    if newer is None or (known is not None and newer.head.replacement < known.head.replacement):
        # Older than what is known: overtaken by another thread, or set back. A look at it tells.
        return (yield from context.head())
    if known is not None:
        check_lineage(known.head, newer.head)
    context.remember(newer)
    return newer


def _unknown(txn: TransactionState, why: str = "") -> Failed:
    return Failed(
        CommitOutcomeUnknown(
            f"could not settle whether transaction {txn.id} was committed"
            + (f" ({why})" if why else "")
            + f": commit it again, or ask `lake.outcome({txn.id!r})`",
            txn_id=txn.id,
        )
    )


def _refused(txn: TransactionState, error: LakeVillaError) -> Failed:
    """Each is told by an error of its own: it is raised in a thread of its own."""
    own = copy(error)
    own.txn_id = txn.id
    own.message = f"nothing of transaction {txn.id} was committed: {error.message}"
    own.args = (own.message,)
    return Failed(own)


def _lost(
    context: Context,
    lane: Lane[Candidate],
    attempt: Replacement,
    newer: HeldHead,
    *,
    in_doubt: bool,
) -> Program[None]:
    """Another HEAD came first, or is our own whose acknowledgement was lost: look for each."""
    answers: dict[Candidate, Answer] = {}
    for candidate in attempt.candidates:
        if candidate.has_left:
            continue
        txn = candidate.txn
        found = yield from _looked_for(candidate, newer)
        if in_doubt and isinstance(found, Failed):
            found = _unknown(txn, str(found.error))  # it may be in what could not be read
        if found is not None:
            answers[candidate] = found
            continue
        candidate.races += 1
        txn.ending.retries += 1
        context.notify(
            Event("retry", txn.id, f"lost a race for HEAD ({candidate.races} times)", {})
        )
        if candidate.races >= _MAX_RACES:
            answers[candidate] = Failed(
                ConflictError(
                    f"transaction {txn.id} lost {_MAX_RACES} races for HEAD in a row: "
                    "run it again later",
                    txn_id=txn.id,
                )
            )
    lane.answer(answers, settled=True)


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
