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

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial

import msgspec

from lakevilla.errors import CommitOutcomeUnknown, ConflictError, LakeVillaError, StoreError
from lakevilla.formats.layout import Layout
from lakevilla.global_log.commits import CommitObject, TablePart
from lakevilla.global_log.head import (
    CommitSummary,
    Head,
    PendingRef,
    Reservation,
    TableState,
    Touch,
    find_commit,
    successor,
)
from lakevilla.global_log.lineage import check_lineage
from lakevilla.global_log.repo import (
    HeldHead,
    commits_since,
    head_found,
    make_room,
    replace_head,
    store_leaves,
)
from lakevilla.global_log.summaries import SUMMARY_BYTES, summarize
from lakevilla.lake.absorb import absorb
from lakevilla.lake.context import Context, Event
from lakevilla.lake.lanes import Lane, Member, pass_through
from lakevilla.lake.view import is_another
from lakevilla.store.base import PutOutcome, Stored, Unknown
from lakevilla.store.effects import Program, sleep
from lakevilla.transaction.queue.reservation import remaining, reserved_ahead
from lakevilla.transaction.redo.rebase import Examination
from lakevilla.transaction.state.errors import conflict
from lakevilla.transaction.state.transaction import Transaction
from lakevilla.transaction.validation.validate import examine

__all__ = [
    "Candidate",
    "Declined",
    "Failed",
    "Joined",
    "Settled",
    "commit_together",
    "join",
    "newest_of",
    "own_commit",
]

#: Candidates in one replacement; with more, one that fails would hold up too many.
MOST = 32
#: Races lost in a row before a commit gives up; each one means that others advanced.
_MAX_RACES = 1000
#: Times that the same replacement is sent while nobody can tell what became of it.
_MAX_UNKNOWN = 5


@dataclass(frozen=True, slots=True)
class Settled:
    """HEAD holds a commit of the transaction: its own, or that of whoever has resumed it."""

    held: HeldHead
    summary: CommitSummary


@dataclass(frozen=True, slots=True)
class Declined:
    """It does not fit ``held`` as it is. No ``found``: it is fenced, or others go first."""

    held: HeldHead
    found: Examination | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Nobody could go on with it.

    ``error`` is of any type: what the examination of one candidate meets is its own caller's
    to see, and no matter of the others nor of their leader.
    """

    error: Exception


Answer = Settled | Declined | Failed


@dataclass(slots=True, eq=False)
class Candidate(Member[Answer]):
    """A transaction with its stored commit object.

    ``held`` is the newest HEAD that is known not to hold a commit of it, ``let_pass``
    are the reservations that it has waited for as long as it will.
    """

    txn: Transaction
    commit: CommitObject
    digest: str
    held: HeldHead
    let_pass: tuple[Reservation, ...] = ()
    races: int = field(default=0, init=False)


@dataclass(frozen=True, slots=True)
class Joined:
    """The HEAD that holds ``accepted``, and what others are told, who do not fit ``base``.

    Each with its commit, which may have moved to a page again behind those after it.
    """

    head: Head
    accepted: Mapping[Candidate, CommitSummary]
    answers: Mapping[Candidate, Answer]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One replacement of HEAD. It may be sent any number of times and is stored once at most."""

    held: HeldHead
    new: Head
    candidates: Mapping[Candidate, CommitSummary]


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


def join(context: Context, base: HeldHead, candidates: Iterable[Candidate]) -> Program[Joined]:
    """The successor of ``base`` that holds all candidates that fit, in their order.

    The same as committing them one after the other, but for the replacements that
    HEAD counts. It asks the store only for what is not cached and never changes.
    """
    head = base.head
    accepted: dict[Candidate, CommitSummary] = {}
    answers: dict[Candidate, Answer] = {}
    for candidate in candidates:
        step: Head | Answer
        try:
            step = yield from _admit(base, head, candidate)
        except Exception as error:
            step = Failed(error)
        if isinstance(step, Head):
            head = step
            accepted[candidate] = head.commits[-1]
        elif not accepted:
            answers[candidate] = step
    if accepted:
        head = msgspec.structs.replace(head, replacement=base.head.replacement + 1)
    return Joined(head, accepted, answers)


def newest_of(context: Context, held: HeldHead, *others: HeldHead) -> HeldHead:
    """The newest HEAD among some, and the one that this process has seen last."""
    known = [context.held] if context.held is not None else []
    same = [one for one in (*known, *others) if one.head.lake_id == held.head.lake_id]
    return max((held, *same), key=lambda one: one.head.replacement)


def own_commit(txn: Transaction, head: Head) -> Program[CommitSummary | None]:
    """The transaction's commit, if one of its attempts did land (an id commits at most once).

    All commits since it began are looked at: a resumed transaction may have
    been committed by the process that began it.
    """
    commits = yield from commits_since(head, txn.began)
    if commits is None:
        raise CommitOutcomeUnknown(
            f"the lake's history since transaction {txn.id} began is gone: "
            "it can't be told whether it was committed",
            txn_id=txn.id,
        )
    return find_commit(commits, txn.id)


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


def _left_behind(lane: Lane[Candidate]) -> _Attempt | None:
    """An attempt whose leader was interrupted, or has failed: it may have landed, or may yet.

    To send it again settles it for all of its candidates, and until then none of them
    may be told no. Where none of them is left, nobody asks any more, and it is as
    any other client's replacement that is under way.
    """
    attempt: _Attempt | None = lane.unsettled
    if attempt is not None and all(candidate.gone for candidate in attempt.candidates):
        lane.answer({}, settled=True)
        return None
    return attempt


def _prepare(context: Context, lane: Lane[Candidate]) -> Program[_Attempt | None]:
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
    attempt = _Attempt(base, joined.head, joined.accepted)
    # From here on it may be committed, whatever becomes of its thread.

    def note_tried(candidate: Candidate) -> None:
        candidate.txn.tried = True
        candidate.txn.head_tried = base.head.replacement

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
    tried = candidate.txn.head_tried
    if tried is not None and tried < base.head.replacement:
        candidate.txn.head_tried = None  # what it was to replace is gone: it can't land any more
    return None


def _carry_out(
    context: Context, lane: Lane[Candidate], attempt: _Attempt, *, in_doubt: bool = False
) -> Program[None]:
    """Send the replacement, and tell its candidates what became of it.

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
    return {one: Settled(held, summary) for one, summary in candidates.items()}


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


def _unknown(txn: Transaction, why: str = "") -> Failed:
    return Failed(
        CommitOutcomeUnknown(
            f"could not settle whether transaction {txn.id} was committed"
            + (f" ({why})" if why else "")
            + f": commit it again, or ask `lake.outcome({txn.id!r})`",
            txn_id=txn.id,
        )
    )


def _refused(txn: Transaction, error: LakeVillaError) -> Failed:
    """Each is told by an error of its own: it is raised in a thread of its own."""
    told = copy(error)
    told.txn_id = txn.id
    told.message = f"nothing of transaction {txn.id} was committed: {error.message}"
    told.args = (told.message,)
    return Failed(told)


def _lost(
    context: Context, lane: Lane[Candidate], attempt: _Attempt, newer: HeldHead, *, in_doubt: bool
) -> Program[None]:
    """Another HEAD came first, or is our own whose acknowledgement was lost: look for each."""
    answers: dict[Candidate, Answer] = {}
    for candidate in attempt.candidates:
        if candidate.gone:
            continue
        txn = candidate.txn
        found = yield from _looked_for(candidate, newer)
        if in_doubt and isinstance(found, Failed):
            found = _unknown(txn, str(found.error))  # it may be in what could not be read
        if found is not None:
            answers[candidate] = found
            continue
        candidate.races += 1
        txn.retries += 1
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
    longest = min(settings.retry_cap_seconds, settings.retry_base_seconds * 2 ** min(races - 1, 4))
    yield from sleep(longest * context.ids.jitter())


# ------------------------------------------------------------- one candidate


def _admit(base: HeldHead, head: Head, candidate: Candidate) -> Program[Head | Answer]:
    """``head`` with the candidate's commit, or why it can't be in it.

    ``head`` is ``base`` with those before the candidate. Their commit objects are
    stored and known, so they are validated against as any other client's would be.
    """
    txn = candidate.txn
    if is_fenced(head, txn.id):
        return Declined(base)
    before = (commit for commit in head.commits if commit.sequence > base.head.sequence)
    if find_commit(before, txn.id) is not None:
        return Declined(base)  # begun here and resumed here, and both commit: one does
    if not set(reserved_ahead(txn, head)) <= _written_of(txn, candidate.let_pass):
        return Declined(base)
    found = yield from examine(txn, head)
    if found.conflict is None and found.redo_from is None:
        found.conflict = yield from _of_another(txn, head, found)
    if found.conflict is not None or found.redo_from is not None:
        return Declined(base, found)
    page = yield from make_room(head, txn.context.ids)
    commits, tables = yield from _entries(txn, head, found, candidate.commit, candidate.digest)
    return successor(
        head,
        nonce=txn.context.ids.nonce(),
        now_ms=txn.context.now_ms(),
        commits=commits,
        tables=tables,
        page=page,
        reserved=remaining(txn, head),
    )


def _of_another(txn: Transaction, head: Head, found: Examination) -> Program[ConflictError | None]:
    """The conflict of a transaction whose table is not the one that HEAD means.

    Validation has found it to be the same. This is looked at once more where it would be written
    down: with the id of another table in HEAD its log is nobody's, and its rows are lost.
    """
    for location, tail in found.tails.items():
        known = head.tables.get(location)
        table_id = _table_id(txn, found, location)
        if known is None or known.dropped or known.table_id == table_id:
            continue
        # Another client may have replaced the table in its own log, which is the same table.
        replaced = table_id == tail.snapshot.table_id and tail.tip >= 0
        if not replaced or (yield from is_another(txn.context, known, tail)):
            return conflict(txn, location, "it was dropped or replaced, and made anew")
    return None


def _table_id(txn: Transaction, found: Examination, location: str) -> str:
    """The table's id as it was examined: a client may have replaced it since it was read."""
    view = found.views.get(location)
    return (txn.tables[location] if view is None else view).snapshot.table_id


def is_fenced(head: Head, txn_id: str) -> bool:
    """Looked at in the very HEAD that is replaced: so a fence that is stored holds."""
    return head.is_fenced(txn_id)


def _written_of(txn: Transaction, reserved: Iterable[Reservation]) -> set[Reservation]:
    """Reservations as far as the transaction writes what they have reserved."""
    written = {done.table for done in txn.done}
    return {Reservation(r.txn, tuple(sorted(written.intersection(r.tables)))) for r in reserved}


def _entries(
    txn: Transaction,
    head: Head,
    found: Examination,
    commit: CommitObject,
    digest: str,
) -> Program[tuple[list[CommitSummary], dict[str, TableState]]]:
    """The commits and table states that the transaction adds to ``head``.

    The tails are those that were examined, and nothing newer: a foreign commit
    above them was not validated, so it must count as one that came after.
    """
    absorbed = yield from absorb(txn.context, head, found.tails)
    sequence = head.sequence + len(absorbed.commits) + 1
    tables: dict[str, TableState] = {}
    touches: dict[str, Touch] = {}
    for location, placement in absorbed.placements.items():
        part = commit.tables.get(location)
        pending = placement.overlay
        if part is not None and not part.change.is_empty:
            pending = (*pending, PendingRef(sequence, commit.txn, digest, placement.logged))
        if part is not None:
            layout = txn.tables[location].snapshot.layout
            share = SUMMARY_BYTES // len(commit.tables)
            touches[location] = _touch(part, placement.logged, layout, share)
        elif location not in head.tables:
            # Only read, and new to HEAD: it enters, so that what it was read
            # at is held against later commits by everyone.
            touches[location] = Touch(published=placement.logged, data_change=False)
        working = txn.tables[location]
        state = TableState(
            table_id=_table_id(txn, found, location),
            published=placement.logged,
            pending=pending,
            guarded=working.view.base.guarded and working.snapshot.guarded,
            dropped=part is not None and part.dropped,
            format=working.snapshot.format,
            catalog=working.snapshot.catalog,
        )
        if state != head.tables.get(location):
            tables[location] = state
    own = CommitSummary(sequence, 0, "transaction", commit.txn, digest, touches)
    return [*absorbed.commits, own], tables


def _touch(part: TablePart, published: int, layout: Layout, allowance: int) -> Touch:
    change = part.change
    return Touch(
        published=published,
        adds=bool(change.adds),
        removes=bool(change.removes),
        metadata=change.metadata is not None or change.protocol is not None or part.dropped,
        data_change=change.changes_data,
        summary=summarize([change], layout.statistics_schema.names, allowance),
    )
