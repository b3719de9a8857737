"""What those who wait in a lane are told of a HEAD, and the successor that holds the others."""

from __future__ import annotations

from collections.abc import Iterable

from lakevilla.global_log.repo import HeldHead
from lakevilla.lake.context import Context
from lakevilla.store.effects import Program
from lakevilla.transaction.commit.together.candidate import (
    Answer,
    Candidate,
    Failed,
    Joined,
    Settled,
    commit_after,
)
from lakevilla.transaction.commit.together.join import join
from lakevilla.transaction.commit.together.lane import MOST, CommitLane


def joined_behind(context: Context, lane: CommitLane, base: HeldHead) -> Program[Joined]:
    """The successor of ``base`` with all who fit; who is in ``base``, or does not fit, is told."""
    left = yield from tell_who_is_in(lane, lane.present(MOST), base)
    joined = yield from join(context, base, left)
    lane.answer(joined.answers)
    return joined


def tell_who_is_in(
    lane: CommitLane, candidates: Iterable[Candidate], held: HeldHead
) -> Program[list[Candidate]]:
    """Answer those whose commits are in HEAD; the others."""
    answers: dict[Candidate, Answer] = {}
    left = []
    for candidate in candidates:
        found = yield from look_for(candidate, held)
        if found is None:
            left.append(candidate)
        else:
            answers[candidate] = found
    # Whoever is first of them may publish for all at once.
    together = frozenset(
        one.txn.id for one, answer in answers.items() if isinstance(answer, Settled)
    )
    lane.answer(
        {
            one: Settled(answer.held, answer.summary, together)
            if isinstance(answer, Settled)
            else answer
            for one, answer in answers.items()
        }
    )
    return left


def look_for(candidate: Candidate, base: HeldHead) -> Program[Answer | None]:
    """What is known of a candidate once its own commit was looked for in ``base``."""
    if candidate.held.head.replacement >= base.head.replacement:
        return None
    try:
        # No commit of it was in the HEAD that was looked at before.
        found = yield from commit_after(candidate.txn, base.head, candidate.held.head.sequence)
    except Exception as error:
        return Failed(error)
    if found is not None:
        return Settled(base, found)
    candidate.held = base
    candidate.txn.note_not_in(base.head)
    return None
