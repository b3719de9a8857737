"""Combined commits: transactions whose results nobody has seen are performed as one (note 68).

If many threads change the same rows, each lost race repeats all that a transaction has done: its
reads, its rewrite of a file, its uploads. A *combined* transaction has the operations of many
members, one member after the other, each performed on what those before it have left. It has one
new file for each table, one commit object, one replacement of HEAD, one log entry.

A member has only deferred operations, so there is nothing that it could have seen. The first
transaction to arrive leads. If it is alone, it commits as any other. Those that arrive meanwhile
make up the next combined transaction.

If many processes change the same rows, the leader also performs what other processes propose, and
proposes what its own members are to do before it leads (note 70).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from lakevilla.errors import CommitOutcomeUnknown, LakeVillaError, StoreError
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.global_log.inbox.proposal import (
    MOST_COMMITS,
    IntendedTable,
    Intent,
    Proposal,
    is_over,
)
from lakevilla.global_log.repo import HeldHead
from lakevilla.lake.context import Context
from lakevilla.lake.groups import Group, Member, lead_or_follow
from lakevilla.phases import during, of
from lakevilla.results import Counts
from lakevilla.sql.expressions.bind import bind
from lakevilla.store.effects import Program, wait_at
from lakevilla.store.formats import INTENTS, MEMBERS
from lakevilla.sublogs.binding import locate
from lakevilla.sublogs.operations import (
    Delete,
    Operation,
    Update,
    is_for_others,
    tables_read,
)
from lakevilla.transaction.commit.together.crowd import (
    Offer,
    intent_of,
    intents_of_others,
    offer,
    wait_for_limit,
    wait_for_turn,
    wait_until_over,
)
from lakevilla.transaction.commit.together.group import (
    Failed,
    MembersChanged,
    Pace,
    RowsBetween,
    commit_after,
    commits_of,
    own_commit,
)
from lakevilla.transaction.commit.together.replacing import move_past, unknown
from lakevilla.transaction.redo.deferred import defer
from lakevilla.transaction.redo.rebase import Examination
from lakevilla.transaction.redo.replay import undo_since
from lakevilla.transaction.state.parts import Combined, Done, MemberOfCombined, Options
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Decided, Feature
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.bind import bind_to_stored, touch
from lakevilla.transaction.verbs.read_write import execute

#: The most members of a combined transaction: 64 ids take 2.4 KB of HEAD's list.
MOST_MEMBERS = 64
#: For so long a lake is hot after transactions have changed the same rows.
_HOT_SECONDS = 2.0
#: For so long a lake is shared after other processes have changed the same rows. They may be busy.
_SHARED_SECONDS = 5.0
#: Until then a lake or table is hot whose rows no transaction has lost: never.
COLD = float("-inf")
#: So often the members that wait are performed together before each of them commits by itself.
_MOST_ATTEMPTS = 3
#: For so long a leader performs what other processes propose, while its own members wait.
_SECONDS_FOR_OTHERS = 0.5
#: After so many proposals in a row that no leader has performed, a process leads without a wait.
_MOST_LEFT = 2
#: A transaction that has lost its tables to so many commits loses them to other processes.
_MANY_LOST = 2
#: So many intents that could not be performed are remembered, so as not to perform them again.
_MOST_REFUSED = 1000


#: Perform and commit a transaction by itself, up to the commit point; None if its operations were
#: deferred again.
Steps = Callable[[TransactionState], Program[Decided | None]]


@dataclass(frozen=True, slots=True)
class Alone:
    """The answer that a member must perform and commit by itself."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The answer to a member of a chain that has only read: what it has read is true."""


Answer = Decided | Alone | Failed | Unchanged


@dataclass(slots=True, eq=False)
class Waiting(Member[Answer]):
    """A transaction that may be a member; ``since``: HEAD's commits up to here are not its own.

    ``changes``: it has operations. A member of a chain may have only read.
    """

    txn: TransactionState
    since: int
    changes: bool = True

    def as_member(self) -> MemberOfCombined:
        """Return it as a member of the transaction that performs its operations."""
        return MemberOfCombined(self.txn.id, len(self.txn.work.done), self.since)


class Combining(Group[Waiting]):
    """The transactions of a lake that wait to be combined.

    The lake is *hot* in this process for some seconds after a transaction has lost a race for rows
    or was combined: then ``lake.run`` defers operations by itself. So is each of its tables. It is
    *shared* while other processes change the same rows.

    Attributes
    ----------
    offer : Offer or None
        The last proposal of operations, as long as a client may perform them.
    left : int
        How many proposals in a row were over before any client had performed them.
    refused : dict
        Ids of other processes' transactions that this one could not perform, the oldest first.
    rows : RowsBetween
        The rows that the next combined transaction is likely to change.
    pace : Pace
        For how long a leader waits for others.
    """

    def __init__(self) -> None:
        super().__init__()
        self._hot_until = COLD
        self._hot_tables: dict[str, float] = {}
        self._shared_until = float("-inf")
        self.offer: Offer | None = None
        self.left = 0
        self.refused: dict[str, None] = {}
        self.rows = RowsBetween()
        self.pace = Pace()

    def release(self) -> None:
        """Drop the rows; see ``lake.groups.Group``."""
        self.rows.drop()

    def note_hot(self, context: Context, tables: Iterable[str] = ()) -> None:
        until = context.clock.elapsed() + _HOT_SECONDS
        self._hot_until = max(self._hot_until, until)
        for table in tables:
            self._hot_tables[table] = max(self._hot_tables.get(table, until), until)

    def is_hot(self, context: Context, tables: Iterable[str] = ()) -> bool:
        now = context.clock.elapsed()
        ends = [self._hot_until, *(self._hot_tables.get(table, COLD) for table in tables)]
        return now < max(min(ends), COLD)

    def note_shared(self, context: Context, tables: Iterable[str]) -> None:
        self._shared_until = self._hot_until = context.clock.elapsed() + _SHARED_SECONDS
        self._hot_tables.update(dict.fromkeys(tables, self._shared_until))

    def note_unshared(self) -> None:
        self._shared_until = float("-inf")

    def is_shared(self, context: Context) -> bool:
        is_crowded = commits_of(context).is_crowded(context)
        return is_crowded or (context.proposes() and context.clock.elapsed() < self._shared_until)

    def refuse(self, txn_id: str) -> None:
        """Note that another process's transaction could not be performed here."""
        self.refused[txn_id] = None
        while len(self.refused) > _MOST_REFUSED:
            self.refused.pop(next(iter(self.refused)), None)

    def forget_if_left(self, context: Context) -> None:
        """Forget the last proposal if none of its transactions waits any more."""
        waiting = {one.txn.id for one in self.present()}
        if self.offer is not None and waiting.isdisjoint(
            intent.txn for intent in self.offer.proposal.intents
        ):
            self.forget_offer(context)

    def forget_offer(self, context: Context) -> None:
        """Forget the last proposal of operations: this process does not need it any more."""
        if self.offer is not None:
            commits_of(context).drop(context, self.offer.key)
        self.offer = None


def defer_if_hot(txn: TransactionState) -> bool:
    """Defer the operations of a new transaction if it may be combined; return whether that is so.

    Its caller must be able to run it again: an error of an operation is raised at the commit.
    """
    group = _group_of(txn.context)
    is_hot = group.is_hot(txn.context)
    if not is_hot:
        group.rows.drop()
    if txn.options.defer or not is_hot or not may_be_member(txn):
        return False
    txn.options = replace(txn.options, defer=True)
    return True


def may_be_member(txn: TransactionState) -> bool:
    """Return whether a transaction may become a member, by its options and by what was seen of it.

    Its caller has read no rows and no counts. It needs nothing of its own in HEAD or in a log: no
    place in a queue, no reservation, no key, no metadata. (Rule K1.)
    """
    options, work, ending = txn.options, txn.work, txn.ending
    return (
        txn.context.settings.combine
        and txn.context.settings.allows(MEMBERS.lake)
        and txn.context.engine.spreads == 1  # an operation of Spark is a job
        and txn.combined is None
        and txn.through_head
        and all(_may_be_combined(done) for done in work.done)
        and not (work.reads or work.catalog or work.behind or work.merging)
        and not (ending.shared or ending.is_in_doubt)
        and txn.claims.key is None
        and txn.claims.queue is None
        # Who leads waits for a reservation of a member, which waits for its leader.
        and txn.claims.record is None
        and not txn.queues
        and options.validation == "precise"
        and not (options.slack or options.verify or options.read_only)
        and not (options.metadata or options.applications or options.alone)
        and not txn.bound.revived
    )


def may_combine(txn: TransactionState) -> bool:
    """Return whether a transaction may be performed together with others of this process.

    Besides ``may_be_member``, all its operations are deferred.
    """
    work = txn.work
    is_deferred = bool(work.done) and all(done.deferred for done in work.done)
    return is_deferred and not work.bodies and may_be_member(txn)


def _may_be_combined(done: Done) -> bool:
    return not done.observed and is_for_others(done.operation)


def defer_again(txn: TransactionState, found: Examination, head: Head) -> bool:
    """Defer a transaction's operations again after a conflict, if it may be a member then.

    To redo them with those of other transactions costs less than to race against these. The
    transaction must still move to ``head``, the state that ``found`` describes. False if it must
    redo its operations by itself.
    """
    context = txn.context
    if found.redo_from is None or found.remarked:
        return False
    group, commits = _group_of(context), commits_of(context)
    if txn.combined is not None:
        group.note_shared(context, txn.written)  # with its own process it does not compete
    if not may_be_member(txn):
        return False
    written = txn.written
    lost = sum(
        commit.sequence > txn.bound.sequence and not written.isdisjoint(commit.tables)
        for commit in head.commits
    )
    is_alone = not (group.present() or commits.present())
    if is_alone and txn.work.redos + lost >= _MANY_LOST:
        group.note_shared(context, written)
    if is_alone and not (group.is_hot(context) or group.is_shared(context)):
        return False  # no other transaction is about to commit
    if txn.work.redos >= context.settings.max_redos:
        return False
    defer(txn, {done.table for done in txn.work.done})
    txn.work.redos += 1
    found.redo_from = None
    group.note_hot(context, written)
    return True


def commit_combined(
    txn: TransactionState,
    steps: Steps,
) -> Program[Decided | None]:
    """Commit a transaction, with others that wait for the same if there are any.

    None if its operations were deferred again after a conflict.

    Raises
    ------
    ConflictError, TransactionAborted, CommitOutcomeUnknown
        As ``steps`` does for the transaction by itself.
    """
    context = txn.context
    known = context.held
    since = txn.bound.began if txn.ending.tried or known is None else known.head.sequence
    waiting, group = Waiting(txn, since), _group_of(context)
    group.pace.note_arrival(context.clock.elapsed())
    with during("wait"):
        answer = yield from lead_or_follow(
            group, waiting, partial(_lead, context, group, waiting, steps)
        )
    match answer:
        case Decided():
            return answer
        case Failed(error):
            raise error
        case _:
            # Until then another process may commit it: it is not refused before (note 70).
            if txn.ending.proposed is not None:
                settled = yield from wait_until_over(txn)
                if settled is not None:
                    return Decided(settled.held, settled.summary)
            return (yield from steps(txn))


def _group_of(context: Context) -> Combining:
    group = context.groups.named("combine", Combining)
    assert isinstance(group, Combining)
    return group


# ---------------------------------------------------------------- the leader


def _lead(
    context: Context,
    group: Combining,
    own: Waiting,
    steps: Steps,
) -> Program[Answer]:
    """Commit all that wait, until the leader's own transaction has its answer; return it."""
    attempts = 0
    group.forget_if_left(context)
    while own.answer is None:
        if group.unsettled is not None:
            yield from settle(context, group, group.unsettled)
            continue
        present = group.present(MOST_MEMBERS)
        others: Sequence[tuple[Proposal, Intent]] | None = None
        if _is_shared(context, group, present):
            others = yield from _await_others(context, group, present)
            if others is None:
                continue
            present = group.present(MOST_MEMBERS)
        else:
            yield from _await_members(context, group, len(present))
            present = group.present(MOST_MEMBERS)
        if others is None and len(present) == 1:
            if group.is_hot(context):
                group.rows.lend(own.txn)
            decided = yield from _measured(context, group, 1, steps, own.txn)
            if decided is not None:
                group.rows.take_back(own.txn)
                return decided
            continue
        attempts += 1
        if attempts > _MOST_ATTEMPTS:
            group.answer(dict.fromkeys(present, Alone()))
            continue
        group.pace.note_beginning(context.clock.elapsed())
        attempt = yield from _performed(context, group, present, others)
        if attempt is not None:
            measured = partial(_measured, context, group, len(present), steps)
            summary = yield from commit_attempt(group, attempt, measured)
            if summary is not None:
                group.rows.take_back(attempt.txn)
                _note_hot(context, group, attempt, summary)
    group.forget_if_left(context)
    return own.answer


def _await_members(context: Context, group: Combining, present: int) -> Program[None]:
    """Wait a moment for those that the last group has released, if that pays."""
    yield from wait_for_limit(context)
    found = group.pace.to_wait(context.clock.elapsed(), present)
    if found is not None:
        with during("wait"):
            yield from wait_at(*found)


def _measured(
    context: Context, group: Combining, members: int, steps: Steps, txn: TransactionState
) -> Program[Decided | None]:
    """Run ``steps``, and note when the transaction of so many members is decided."""
    if members == 1:
        group.pace.note_beginning(context.clock.elapsed())
    decided = yield from steps(txn)
    if decided is not None:
        group.pace.note_decision(context.clock.elapsed(), members)
    return decided


@dataclass(frozen=True, slots=True)
class Attempt:
    """A combined transaction that is performed, and may have been sent.

    ``members`` are in the order of their operations. ``refused`` returns their answers after an
    error that proves that it is not committed; a member without one is performed once more.
    """

    txn: TransactionState
    members: Sequence[Waiting]
    refused: Callable[[Exception], Mapping[Waiting, Answer]]


def _performed(
    context: Context,
    group: Combining,
    present: Sequence[Waiting],
    others: Sequence[tuple[Proposal, Intent]] | None,
) -> Program[Attempt | None]:
    """Perform the members' operations, one member on what those before it have left (rule K2).

    A member that raises an error is performed by itself, where it raises the same in its own
    thread; nothing of it stays here (rule K5). None if no member is left. ``others`` are what other
    processes propose; None if the inbox was not read.
    """
    options = Options(Feature.R | Feature.I)
    combined = begin(TransactionState(context, context.new_txn_id(), options, through_head=True))
    group.rows.lend(combined)
    stored = commits_of(context).newest_if_stored(context)
    if stored is not None and others is None and group.is_hot(context):
        yield from bind_to_stored(combined, stored)
    members: list[Waiting] = []
    small: set[str] = set()
    by_itself: list[Waiting] = []
    for one in present:
        before = len(combined.work.done)
        try:
            with of(one.txn.phases):
                yield from _perform_own(combined, one.txn, small)
            members.append(one)
        except Exception:
            by_itself.append(one)
            if combined.state is not Status.OPEN:
                by_itself, members = list(present), []
                break
            undo_since(combined, before)
    group.answer(dict.fromkeys(by_itself, Alone()))
    further = (yield from _perform_others(group, combined, others, small)) if members else None
    if further is None:
        yield from abort(combined)
        return None
    own = [one.as_member() for one in members]
    attempt = Attempt(combined, members, partial(_alone_if_refused, group, combined, members))
    combined.combined = Combined(
        (*own, *further),
        begin=partial(begin_attempt, group, attempt),
        has_lost_one=lambda: any(one.has_left for one in members),
        has_listed=others is not None,
    )
    return attempt


def _perform_others(
    group: Combining,
    combined: TransactionState,
    others: Sequence[tuple[Proposal, Intent]] | None,
    small: set[str],
) -> Program[list[MemberOfCombined] | None]:
    """Perform what other processes propose, after the members of this one; return the members.

    What can't be performed here is left to its owner, and nothing of it stays. None if it has
    ended the combined transaction: then all is performed again, without it.
    """
    clock = combined.context.clock
    until = clock.elapsed() + _SECONDS_FOR_OTHERS
    members: list[MemberOfCombined] = []
    for proposal, intent in others or ():
        if clock.elapsed() > until:
            break
        before = len(combined.work.done)
        try:
            yield from _perform(combined, intent.operations, intent.tables, small)
            count = len(combined.work.done) - before
            if count != len(intent.operations):
                raise _Unfit
        except Exception as error:
            if not isinstance(error, StoreError):
                group.refuse(intent.txn)
            if combined.state is not Status.OPEN:
                return None
            undo_since(combined, before)
            continue
        members.append(
            MemberOfCombined(intent.txn, count, proposal.sequence, proposal.last_replaced)
        )
    return members


def _alone_if_refused(
    group: Combining, combined: TransactionState, members: Sequence[Waiting], error: Exception
) -> Mapping[Waiting, Answer]:
    """Have each member find out by itself what is wrong, unless only one of them can't commit.

    Those of other processes are left to their owners then.
    """
    if isinstance(error, MembersChanged):
        return {}
    if combined.combined is not None:
        for one in combined.combined.members:
            if not one.is_own:
                group.refuse(one.txn)
    return dict.fromkeys(members, Alone())


def begin_attempt(group: Group[Waiting], attempt: Attempt, number: int) -> bool:
    """Note for each member that a replacement of HEAD ``number`` may commit it (rule K6)."""

    def note_tried(waiting: Waiting) -> None:
        waiting.txn.ending.tried = True
        waiting.txn.ending.head_tried = number
        # By these it recognizes the commit as its own if it is interrupted and tried again.
        waiting.txn.ending.digests |= attempt.txn.ending.digests

    return group.begin(attempt, [one for one in attempt.members if one.changes], note_tried)


def _perform_own(
    combined: TransactionState, member: TransactionState, small: set[str]
) -> Program[None]:
    """Perform the operations of a member of this process."""
    operations = [done.operation for done in member.work.done]
    named = {table for one in operations for table in (one.table, *tables_read(one))}
    tables = {
        table: IntendedTable(member.work.tables[table].snapshot.table_id, "") for table in named
    }
    yield from _perform(combined, operations, tables, small)


def _perform(
    combined: TransactionState,
    operations: Sequence[Operation],
    tables: Mapping[str, IntendedTable],
    small: set[str],
) -> Program[None]:
    """Perform a member's operations; ``small`` are tables whose size was checked before.

    The tables must be those that the member has seen and, where that is stated, require the same of
    rows as then.
    """
    yield from touch(combined, sorted(tables), probing=True, access="write")
    for table, intended in tables.items():
        snapshot = combined.work.tables[table].snapshot
        is_changed = intended.contract and intended.contract != snapshot.contract
        if snapshot.table_id != intended.table_id or is_changed:
            raise _Unfit
    for operation in operations:
        layout = combined.work.tables[operation.table].snapshot.layout
        located = locate(operation, layout)
        if operation.table not in small and (yield from _check_small(combined, located)):
            small.add(operation.table)
        yield from execute(combined, located, type(operation).__name__.lower())


class _Unfit(Exception):
    """A table is not the one that the member has seen, or can't be changed by many at once."""


def _check_small(combined: TransactionState, operation: Operation) -> Program[bool]:
    """Refuse an operation that may read large files, or whose table has a change feed.

    A change feed has the changes of one commit in one place. Return whether all files of the table
    are small together.
    """
    snapshot = combined.work.tables[operation.table].snapshot
    if snapshot.layout.change_data_feed:
        raise _Unfit
    limit = combined.context.settings.in_memory_file_limit_bytes
    if _size((yield from snapshot.files())) <= limit:
        return True
    if isinstance(operation, Update | Delete):
        where = bind(operation.where, snapshot.layout.schema)
        if _size((yield from snapshot.files(where))) <= limit:
            return False
    raise _Unfit


def _size(files: pa.Table) -> int:
    return sum(files.column("size").to_pylist())


def commit_attempt(
    group: Group[Waiting], attempt: Attempt, steps: Steps
) -> Program[CommitSummary | None]:
    """Commit a combined transaction, answer its members by the outcome, and return its commit.

    None if it is not committed, or not known to be. If its leader has to settle it first, the
    members have no answer yet.
    """
    combined = attempt.txn
    try:
        decided = yield from steps(combined)
        assert decided is not None, "a combined transaction is redone by itself"
    except CommitOutcomeUnknown as error:
        group.answer(_in_doubt(attempt, error), settled=True)
    except Exception as error:
        if not combined.ending.is_in_doubt_in_head:  # else the attempt is settled first
            # Nothing of it was committed, or will be.
            yield from _drop(group, attempt, error)
    else:
        group.answer(_decided(attempt, decided), settled=True)
        return decided.summary
    return None


def _in_doubt(attempt: Attempt, error: LakeVillaError) -> Mapping[Waiting, Answer]:
    """Return the answers if it is not known whether the combined transaction is committed."""
    unsure: dict[Waiting, Answer] = {
        one: unknown(one.txn, error.message) for one in attempt.members if one.changes
    }
    if len(unsure) == len(attempt.members):
        return unsure
    return {**attempt.refused(error), **unsure}


def _note_hot(context: Context, group: Combining, attempt: Attempt, summary: CommitSummary) -> None:
    """Note that rows are contended, if other transactions were performed in the same commit."""
    group.left = 0
    if len(summary.members) > 1:
        group.note_hot(context, attempt.txn.written)
    combined = attempt.txn.combined
    if len(summary.members) > len(attempt.members):
        group.note_shared(context, attempt.txn.written)
    elif combined is not None and combined.has_listed:
        group.note_unshared()


def _drop(group: Group[Waiting], attempt: Attempt, error: Exception) -> Program[None]:
    """Give up a combined transaction that certainly is not committed."""
    for one in attempt.members:
        if not one.has_left:
            one.txn.ending.head_tried = None
    group.answer(attempt.refused(error), settled=True)
    with suppress(LakeVillaError):  # the members have their answers, and gc deletes what is left
        yield from abort(attempt.txn)


def _decided(attempt: Attempt, decided: Decided) -> dict[Waiting, Answer]:
    together = decided.together.union(one.txn.id for one in attempt.members)
    answer = Decided(decided.held, decided.summary, together)
    return dict.fromkeys(attempt.members, answer)


def note_counts(txn: TransactionState, summary: CommitSummary) -> Program[None]:
    """Note in a member what its operations have changed, as the commit object has it (rule K4).

    If the object can't be read, the counts stay unknown: the transaction is committed all the same.
    """
    with suppress(LakeVillaError):
        commit = yield from txn.context.commit_object(summary.txn, summary.hash)
        for member in commit.members:
            if member.txn == txn.id and len(member.counts) == len(txn.work.done):
                for done, counts in zip(txn.work.done, member.counts, strict=True):
                    done.counts, done.deferred = Counts(*counts), False


def settle(context: Context, group: Group[Waiting], attempt: Attempt) -> Program[None]:
    """Settle an attempt whose leader was interrupted: it may have been stored, or may yet be.

    Until then none of its members is performed again, or refused (rule K9). HEAD is replaced by one
    with the same content, unless it has moved already: from then on the attempt is in HEAD, or can
    never be stored.
    """
    combined = attempt.txn
    tried = combined.ending.head_tried
    try:
        head = context.held.head if context.held is not None else None
        if tried is not None:
            head = yield from move_past(context, tried)
        found = None if head is None else (yield from own_commit(combined, head))
    except LakeVillaError as error:
        group.answer(_in_doubt(attempt, error), settled=True)
        return
    if found is None:
        combined.ending.head_tried = None
        yield from _drop(group, attempt, MembersChanged())
        return
    held = context.held
    assert held is not None
    group.answer(_decided(attempt, Decided(held, found)), settled=True)


# ---------------------------------------------------------------- other processes


def _is_shared(context: Context, group: Combining, present: Collection[Waiting]) -> bool:
    """Return whether other processes may perform the members' operations, or do so already.

    So it is if many processes replace HEAD, and this one has lost the rows of these tables.
    """
    if any(one.txn.ending.proposed is not None for one in present):
        return True
    if not context.settings.allows(INTENTS.lake):
        return False
    written = {table for one in present for table in one.txn.written}
    return group.is_shared(context) and group.is_hot(context, written)


def _await_others(
    context: Context, group: Combining, present: Sequence[Waiting]
) -> Program[list[tuple[Proposal, Intent]] | None]:
    """Propose the members' operations, and wait until a leader has performed some, or to lead.

    Then return what other processes propose on the same tables, for this process to perform. None
    if a member was answered, or if the proposal is over.
    """
    base = context.held
    assert base is not None, "a transaction with operations has read HEAD"
    if (yield from _answer_committed(context, group, base)):
        return None
    if group.offer is not None and not any(one.txn.ending.proposed is not None for one in present):
        group.left += 1
        group.forget_offer(context)
    if group.offer is None and not (yield from _offer(context, group, present, base)):
        return None
    if group.offer is not None and group.left < _MOST_LEFT:
        with during("wait"):
            leads = yield from wait_for_turn(context, partial(_look, context, group))
        if not leads:
            return None
    present = group.present(MOST_MEMBERS)
    known = {*group.refused, *(one.txn.id for one in present)}
    written = {table for one in present for table in one.txn.written}
    room = MOST_MEMBERS - len(present)
    found = yield from intents_of_others(context, group.offer, written, known)
    base = context.held or base
    return None if (yield from _answer_committed(context, group, base)) else found[:room]


def _offer(
    context: Context, group: Combining, present: Sequence[Waiting], base: HeldHead
) -> Program[bool]:
    """Propose the operations of all members whose operations any leader may perform.

    ``base`` has none of them: leaders look only at later commits. False if a member has left
    meanwhile: then the leader begins anew.
    """
    intents: dict[Waiting, Intent] = {}
    for one in present[:MOST_COMMITS]:
        intent = None
        with suppress(LakeVillaError):
            intent = yield from intent_of(one.txn, base.head)
        if intent is not None:
            intents[one] = intent
    if not intents:
        return True

    def begin(proposal: Proposal) -> bool:
        def note_proposed(waiting: Waiting) -> None:
            waiting.txn.ending.tried = True
            waiting.txn.ending.proposed = proposal.last_replaced

        return group.begin(None, intents, note_proposed)

    group.offer = yield from offer(context, base, intents.values(), begin)
    return group.offer is not None


def _look(context: Context, group: Combining) -> Program[HeldHead | None]:
    """Read HEAD and return it; None if it answers a member, or if the proposal is over."""
    held = yield from context.head()
    assert held is not None, "a lake with a commit under way has a HEAD"
    made = group.offer
    if made is None or (yield from _answer_committed(context, group, held)):
        return None
    return None if is_over(made.proposal.replacement, held.head) else held


def _answer_committed(context: Context, group: Combining, held: HeldHead) -> Program[bool]:
    """Answer the proposed members whose commits HEAD has; return whether there are any."""
    found: dict[Waiting, CommitSummary] = {}
    answers: dict[Waiting, Answer] = {}
    for one in group.present():
        if one.txn.ending.proposed is None:
            continue
        try:
            summary = yield from commit_after(one.txn, held.head, one.since)
        except LakeVillaError as error:
            answers[one] = Failed(error)
            continue
        if summary is None:
            one.txn.note_not_in(held.head)
        else:
            found[one] = summary
    together = frozenset(one.txn.id for one in found)
    for one, summary in found.items():
        group.left = 0
        group.note_shared(context, one.txn.written)
        answers[one] = Decided(held, summary, together)
    group.answer(answers)
    group.forget_if_left(context)
    return bool(answers)
