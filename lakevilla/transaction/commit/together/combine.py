"""Combined commits: transactions whose results nobody has seen are performed as one (note 68).

If many threads change the same rows, each lost race repeats all that a transaction has done: its
reads, its rewrite of a file, its uploads. A *combined* transaction has the operations of many
members, one member after the other, each performed on what those before it have left. It has one
new file for each table, one commit object, one replacement of HEAD, one log entry.

A member has only deferred operations, so there is nothing that it could have seen. The first
transaction to arrive leads. If it is alone, it commits as any other. Those that arrive meanwhile
make up the next combined transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from lakevilla.errors import CommitOutcomeUnknown, LakeVillaError
from lakevilla.global_log.head import CommitSummary
from lakevilla.lake.context import Context
from lakevilla.lake.groups import Group, Member, lead_or_follow
from lakevilla.phases import during, of
from lakevilla.results import Counts
from lakevilla.sql.expressions.bind import bind
from lakevilla.store.effects import Program
from lakevilla.sublogs.binding import evolves, locate
from lakevilla.sublogs.operations import (
    Delete,
    InlineSource,
    Insert,
    Merge,
    Operation,
    QuerySource,
    Source,
    Update,
    tables_read,
)
from lakevilla.transaction.commit.together.group import (
    Failed,
    MembersChanged,
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
from lakevilla.transaction.verbs.bind import touch
from lakevilla.transaction.verbs.read_write import execute

#: The most members of a combined transaction: 64 ids take 2.4 KB of HEAD's list.
MOST_MEMBERS = 64
#: For so long a lake is hot after transactions have changed the same rows.
_HOT_SECONDS = 2.0
#: So often the members that wait are performed together before each of them commits by itself.
_MOST_ATTEMPTS = 3


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


class Combining(Group[Waiting]):
    """The transactions of a lake that wait to be combined.

    The lake is *hot* in this process for some seconds after a transaction has lost a race for rows
    or was combined: then ``lake.run`` defers operations by itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self._hot_until = float("-inf")

    def note_hot(self, context: Context) -> None:
        self._hot_until = context.clock.elapsed() + _HOT_SECONDS

    def is_hot(self, context: Context) -> bool:
        return context.clock.elapsed() < self._hot_until


def defer_if_hot(txn: TransactionState) -> bool:
    """Defer the operations of a new transaction if it may be combined; return whether that is so.

    Its caller must be able to run it again: an error of an operation is raised at the commit.
    """
    is_hot = _group_of(txn.context).is_hot(txn.context)
    if txn.options.defer or not is_hot or not may_be_member(txn):
        return False
    txn.options = replace(txn.options, defer=True)
    return True


def may_be_member(txn: TransactionState) -> bool:
    """Return whether a transaction may become a member, by its options and by what was seen of it.

    Its caller has read no rows and no counts. It needs nothing of its own in HEAD or in a log: no
    place in a queue, no key, no metadata. (Rule K1.)
    """
    options, work, ending = txn.options, txn.work, txn.ending
    return (
        txn.context.settings.combine
        and txn.context.engine.spreads == 1  # an operation of Spark is a job
        and txn.combined is None
        and txn.through_head
        and all(_may_be_combined(done) for done in work.done)
        and not (work.reads or work.catalog or work.behind or work.merging)
        and not (ending.shared or ending.is_in_doubt)
        and txn.claims.key is None
        and txn.claims.queue is None
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
    operation = done.operation
    if done.observed or evolves(operation):
        return False
    match operation:
        case Update() | Delete():
            return True
        case Insert(source=source) | Merge(source=source):
            return _is_held(source)
        case _:
            return False


def _is_held(source: Source) -> bool:
    """Return whether the sublog has the rows of a source: the source reads no table and no file."""
    if isinstance(source, QuerySource):
        return not source.tables and all(map(_is_held, source.views.values()))
    return isinstance(source, InlineSource)


def defer_again(txn: TransactionState, found: Examination) -> bool:
    """Defer a transaction's operations again after a conflict, if it may be a member then.

    To redo them with those of other transactions costs less than to race against these. The
    transaction must still move to the state that ``found`` describes. False if it must redo its
    operations by itself.
    """
    context = txn.context
    if found.redo_from is None or found.remarked or not may_be_member(txn):
        return False
    group = _group_of(context)
    if not (group.present() or commits_of(context).present() or group.is_hot(context)):
        return False  # no other transaction of this process is about to commit
    if txn.work.redos >= context.settings.max_redos:
        return False
    defer(txn, {done.table for done in txn.work.done})
    txn.work.redos += 1
    found.redo_from = None
    group.note_hot(context)
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
    while own.answer is None:
        if group.unsettled is not None:
            yield from settle(context, group, group.unsettled)
            continue
        present = group.present(MOST_MEMBERS)
        if len(present) == 1:
            decided = yield from steps(own.txn)
            if decided is not None:
                return decided
            continue
        attempts += 1
        if attempts > _MOST_ATTEMPTS:
            group.answer(dict.fromkeys(present, Alone()))
            continue
        attempt = yield from _performed(context, group, present)
        if attempt is not None and (yield from commit_attempt(group, attempt, steps)):
            group.note_hot(context)
    return own.answer


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
    context: Context, group: Combining, present: Sequence[Waiting]
) -> Program[Attempt | None]:
    """Perform the members' operations, one member on what those before it have left (rule K2).

    A member that raises an error is performed by itself, where it raises the same in its own
    thread; nothing of it stays here (rule K5). None if no member is left.
    """
    options = Options(Feature.R | Feature.I)
    combined = begin(TransactionState(context, context.new_txn_id(), options, through_head=True))
    members: list[Waiting] = []
    small: set[str] = set()
    by_itself: list[Waiting] = []
    for one in present:
        before = len(combined.work.done)
        try:
            with of(one.txn.phases):
                yield from _perform(combined, one.txn, small)
            members.append(one)
        except Exception:
            by_itself.append(one)
            if combined.state is not Status.OPEN:
                by_itself, members = list(present), []
                break
            undo_since(combined, before)
    group.answer(dict.fromkeys(by_itself, Alone()))
    if not members:
        yield from abort(combined)
        return None
    attempt = Attempt(combined, members, partial(_alone_if_refused, members))
    combined.combined = Combined(
        tuple(MemberOfCombined(one.txn.id, len(one.txn.work.done), one.since) for one in members),
        begin=partial(begin_attempt, group, attempt),
        has_lost_one=lambda: any(one.has_left for one in members),
    )
    return attempt


def _alone_if_refused(members: Sequence[Waiting], error: Exception) -> Mapping[Waiting, Answer]:
    """Have each member find out by itself what is wrong, unless only one of them can't commit."""
    return {} if isinstance(error, MembersChanged) else dict.fromkeys(members, Alone())


def begin_attempt(group: Group[Waiting], attempt: Attempt, number: int) -> bool:
    """Note for each member that a replacement of HEAD ``number`` may commit it (rule K6)."""

    def note_tried(waiting: Waiting) -> None:
        waiting.txn.ending.tried = True
        waiting.txn.ending.head_tried = number
        # By these it recognizes the commit as its own if it is interrupted and tried again.
        waiting.txn.ending.digests |= attempt.txn.ending.digests

    return group.begin(attempt, [one for one in attempt.members if one.changes], note_tried)


def _perform(
    combined: TransactionState, member: TransactionState, small: set[str]
) -> Program[None]:
    """Perform a member's operations; ``small`` are tables whose size was checked before."""
    operations = [done.operation for done in member.work.done]
    tables = {table for one in operations for table in (one.table, *tables_read(one))}
    yield from touch(combined, sorted(tables), probing=True, access="write")
    for table in tables:
        snapshot = combined.work.tables[table].snapshot
        if snapshot.table_id != member.work.tables[table].snapshot.table_id:
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


def commit_attempt(group: Group[Waiting], attempt: Attempt, steps: Steps) -> Program[bool]:
    """Commit a combined transaction, and answer its members by the outcome; True if it is decided.

    If its leader has to settle it first, they have no answer yet.
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
        return True
    return False


def _in_doubt(attempt: Attempt, error: LakeVillaError) -> dict[Waiting, Answer]:
    """Return the answers if it is not known whether the combined transaction is committed."""
    refused = attempt.refused(error)
    return {
        one: unknown(one.txn, error.message) if one.changes else refused[one]
        for one in attempt.members
    }


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
            if member.txn == txn.id:
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
