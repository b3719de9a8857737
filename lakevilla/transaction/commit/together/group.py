"""Group commit: transactions of one process that wait for HEAD go in one replacement.

The first to come leads. It validates one candidate after the other, each against a
HEAD that holds those before it, as if they had been committed one by one; then it
replaces HEAD once, by the last of these. So a candidate is told exactly what it
would have been told alone, and keeps its own sequence, commit object and outcome.

A candidate that does not fit behind those before it is not refused: nobody has
decided them yet. It stays for the next round, where HEAD holds them or does not.
Only a HEAD that was read from the store, or stored, refuses anybody.

Where many processes do this at once it does so for them, or has it done (``crowd``).
"""

from __future__ import annotations

from functools import partial

from lakevilla.lake.context import Context
from lakevilla.lake.lanes import pass_through
from lakevilla.phases import during
from lakevilla.store.effects import Program, sleep
from lakevilla.transaction.commit.together.behind import joined_behind
from lakevilla.transaction.commit.together.candidate import (
    Answer,
    Candidate,
    Replacement,
    newest_of,
)
from lakevilla.transaction.commit.together.crowd import commit_in_crowd
from lakevilla.transaction.commit.together.lane import MOST, CommitLane, commits_of
from lakevilla.transaction.commit.together.replacing import begin_replacing, carry_out

#: How long a lost race may hold a commit back, at most: about two replacements of HEAD on S3. Who
#: waits longer loses to those who come meanwhile, and they are not fewer then.
_LONGEST_BACK_OFF_SECONDS = 0.15


def commit_together(candidate: Candidate) -> Program[Answer]:
    """Replace HEAD with the candidate, and with those who wait at the same time."""
    context = candidate.txn.context
    lane = commits_of(context)
    yield from pass_through(lane, candidate, partial(_lead, context, lane, candidate))
    assert candidate.answer is not None
    return candidate.answer


# ---------------------------------------------------------------- the leader


def _lead(context: Context, lane: CommitLane, mine: Candidate) -> Program[None]:
    """Replace HEAD until the leader's own candidate is answered."""
    while mine.answer is None:
        attempt = _left_behind(lane)
        in_doubt = attempt is not None
        if (
            attempt is None
            and lane.is_crowded(context)
            and (yield from commit_in_crowd(context, lane, lane.present(MOST)))
        ):
            continue
        if attempt is None:
            attempt = yield from _prepare(context, lane)
        if attempt is not None:
            yield from carry_out(context, lane, attempt, in_doubt=in_doubt)
            if mine.answer is None:
                yield from _back_off(context, mine.races)


def _left_behind(lane: CommitLane) -> Replacement | None:
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


def _prepare(context: Context, lane: CommitLane) -> Program[Replacement | None]:
    """Validate whoever is there; None if nobody fits, or if one has left meanwhile."""
    candidates = lane.present(MOST)
    base = newest_of(context, candidates[0].held, *(one.held for one in candidates))
    joined = yield from joined_behind(context, lane, base)
    if not joined.accepted:
        return None
    return (yield from begin_replacing(lane, base, joined.head, joined.accepted))


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
