"""Sending a replacement of HEAD, and telling its candidates what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from lakevilla.errors import CommitOutcomeUnknown, ConflictError, LakeVillaError, StoreError
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.global_log.lineage import check_lineage
from lakevilla.global_log.repo import HeldHead, head_found, replace_head, store_leaves
from lakevilla.lake.context import Context, Event
from lakevilla.store.base import PutOutcome, Stored, Unknown
from lakevilla.store.effects import Program
from lakevilla.transaction.commit.together.behind import look_for
from lakevilla.transaction.commit.together.candidate import (
    Answer,
    Candidate,
    Failed,
    Replacement,
    Settled,
)
from lakevilla.transaction.commit.together.lane import CommitLane
from lakevilla.transaction.state.transaction import TransactionState

#: Races lost in a row before a commit gives up; each one means that others advanced.
_MAX_RACES = 1000
#: Times that the same replacement is sent while nobody can tell what became of it.
_MAX_UNKNOWN = 5


def begin_replacing(
    lane: CommitLane, base: HeldHead, new: Head, accepted: Mapping[Candidate, CommitSummary]
) -> Program[Replacement | None]:
    """What is to be sent, with its leaves in the store; None if a member has left meanwhile."""
    try:
        yield from store_leaves(new)
    except StoreError as error:
        # Nothing names them yet: it is sure that nobody is committed by them.
        lane.answer({one: not_stored(one.txn, error) for one in accepted})
        return None
    attempt = Replacement(base, new, accepted)
    # From here on it may be committed, whatever becomes of its thread.

    def note_tried(candidate: Candidate) -> None:
        candidate.txn.ending.tried = True
        candidate.txn.ending.head_tried = base.head.replacement

    return attempt if lane.begin(attempt, accepted, note_tried) else None


def carry_out(
    context: Context, lane: CommitLane, attempt: Replacement, *, in_doubt: bool = False
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
            lane.races = 0
            lane.answer(_decided(decided, attempt.candidates), settled=True)
            return
        newer = yield from _met(context, outcome)
    except LakeVillaError as error:
        # The store failed, or HEAD is damaged or was set back. Where nothing was in doubt it is
        # sure that this write was refused, or never sent.
        lane.answer(
            {
                one: unknown(one.txn, error.message) if in_doubt else not_stored(one.txn, error)
                for one in attempt.candidates
            },
            settled=True,
        )
        return
    if newer is None or (
        isinstance(outcome, Unknown) and newer.head.replacement == held.head.replacement
    ):
        lane.answer({one: unknown(one.txn) for one in attempt.candidates}, settled=True)
        return
    yield from _lost(context, lane, attempt, newer, in_doubt=in_doubt)


def unknown(txn: TransactionState, why: str = "") -> Failed:
    """Nobody can tell whether the transaction was committed."""
    return Failed(
        CommitOutcomeUnknown(
            f"could not settle whether transaction {txn.id} was committed"
            + (f" ({why})" if why else "")
            + f": commit it again, or ask `lake.outcome({txn.id!r})`",
            txn_id=txn.id,
        )
    )


def not_stored(txn: TransactionState, error: LakeVillaError) -> Failed:
    """What the error of a replacement that was refused, or not sent, means to one of its members.

    Each is told by an error of its own: it is raised in a thread of its own.
    """
    if txn.ending.proposed is not None:
        return unknown(txn, error.message)  # another may have taken it along
    own = copy(error)
    own.txn_id = txn.id
    own.message = f"nothing of transaction {txn.id} was committed: {error.message}"
    own.args = (own.message,)
    return Failed(own)


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


def _lost(
    context: Context,
    lane: CommitLane,
    attempt: Replacement,
    newer: HeldHead,
    *,
    in_doubt: bool,
) -> Program[None]:
    """Another HEAD came first, or is our own whose acknowledgement was lost: look for each."""
    lane.note_lost(context)
    answers: dict[Candidate, Answer] = {}
    for candidate in attempt.candidates:
        if candidate.has_left:
            continue
        txn = candidate.txn
        found = yield from look_for(candidate, newer)
        if in_doubt and isinstance(found, Failed):
            found = unknown(txn, str(found.error))  # it may be in what could not be read
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
