"""Chains: transactions that read what they change, one after the other in one commit (note 69).

Where many threads read and then change the same rows, all but one of them conflict: to perform them
side by side buys nothing. In a *chain* each of them waits for its turn, and performs its verbs on
what those before it have left, in memory: it reads their rows, though they are not committed yet.
At its end it passes the turn on and waits for its answer. Once nobody waits for the turn, all are
committed as one combined transaction (note 68). If that fails, all of them run again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from lakevilla.errors import ConflictError, LakeVillaError
from lakevilla.lake.context import Context
from lakevilla.lake.groups import lead_or_follow
from lakevilla.phases import during
from lakevilla.store.effects import Gate, Program, wait_at
from lakevilla.sublogs.operations import Append, Delete, Insert, Merge, Update
from lakevilla.transaction.commit.together.combine import (
    MOST_MEMBERS,
    Answer,
    Attempt,
    Combining,
    Steps,
    Unchanged,
    Waiting,
    begin_attempt,
    commit_attempt,
    may_be_member,
    settle,
)
from lakevilla.transaction.commit.together.group import Failed
from lakevilla.transaction.redo.replay import undo_since
from lakevilla.transaction.state.parts import (
    Binding,
    Combined,
    Options,
    Work,
)
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState, Turn
from lakevilla.transaction.state.values import Decided, Feature
from lakevilla.transaction.validation.validate import extend
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.begin import begin

#: For so long a function waits for the turn after it met others on the same rows, in the chain or
#: outside.
_HOT_SECONDS = 5.0
#: For so long a transaction may have the turn while others wait. Then the chain goes on without it,
#: and its function is performed outside for some time.
_TURN_SECONDS = 5.0
_SLOW_SECONDS = 60.0
#: So many times as long a transaction waits for the turn.
_MOST_WAITS = 10
#: For so long all wait for a verb of the turn's holder.
_VERB_SECONDS = 30.0
#: A chain of this age takes no further member: the longer it is, the more others change beside it.
_CHAIN_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class _Open:
    """A chain that is not decided: the transaction that performs all members, and the members.

    ``is_torn``: it was moved to a newer HEAD in a turn of which nothing is left.
    """

    txn: TransactionState
    began_at: float
    members: list[Waiting] = field(default_factory=list)
    is_torn: bool = False


class Chain(Combining):
    """The turn of a lake's transactions in this process, and the members whose turn has ended.

    Attributes
    ----------
    most : int
        The most members of a chain: fewer after one was refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.most = MOST_MEMBERS
        self._hot: dict[Hashable, float] = {}
        self._unfit: dict[Hashable, float] = {}
        self._holder: Turn | None = None
        self._asking: list[Turn] = []
        self._open: _Open | None = None
        self._is_closed = False
        self._quiet = Gate()

    # -- functions ---------------------------------------------------------------

    def note_conflict(self, context: Context, function: Hashable) -> None:
        """Note that a function met others on the same rows: for some time it waits for its turn."""
        self._hot[function] = context.clock.elapsed() + _HOT_SECONDS

    def note_unfit(self, function: Hashable) -> None:
        """Note that a function calls verbs that can't be performed in a chain."""
        self._unfit[function] = math.inf

    def has_conflicts(self, context: Context, function: Hashable) -> bool:
        """Return whether a function shall wait for its turn."""
        now = context.clock.elapsed()
        if now >= max(self._hot.values(), default=-math.inf):
            self.rows.drop()
        return self._unfit.get(function, -math.inf) <= now < self._hot.get(function, -math.inf)

    # -- the turn ----------------------------------------------------------------

    def ask(self, turn: Turn) -> None:
        """Ask for the turn, behind those that have asked before."""
        with self._lock:
            self._asking.append(turn)
            self._pass_on(turn.now())

    def _pass_on(self, now: float) -> None:
        """Give a free turn to the first that asks, or let the leader commit."""
        if self._holder is not None:
            return
        if self._asking and not self._is_closed and not self._is_full(now):
            self._holder = self._asking.pop(0)
            self._holder.since = now
            self._holder.gate.open()
        else:
            self._quiet.open()

    def _is_full(self, now: float) -> bool:
        found = self._open
        if found is None or not found.members:
            return False
        return len(found.members) >= self.most or now - found.began_at >= _CHAIN_SECONDS

    def join(self, turn: Turn) -> bool:
        """Let the holder of the turn work on what those before it have left.

        False if the turn was taken away.
        """
        with self._lock:
            if self._holder is not turn:
                return False
            found, context = self._open, turn.member.context
            if found is None or not found.members:
                # Without members, nothing holds a chain to the HEAD that it has read.
                txn_id, options = context.new_txn_id(), Options(Feature.R | Feature.I)
                made = begin(TransactionState(context, txn_id, options, through_head=True))
                self.rows.lend(made)
                found = self._open = _Open(made, turn.now())
            turn.first = len(found.txn.work.done)
            turn.reads, turn.held = dict(found.txn.work.reads), found.txn.bound.held
            turn.names_files_by = found.txn.id
            turn.member.turn = turn  # first: with it, Ctrl-C here takes the rest back
            turn.member.work, turn.member.bound = found.txn.work, found.txn.bound
            return True

    @contextmanager
    def used(self, turn: Turn) -> Iterator[None]:
        """Enter a verb of the turn's holder: meanwhile nobody takes the turn away."""
        with self._lock:
            turn.is_used = True
        try:
            yield
        finally:
            with self._lock:
                turn.is_used = False
                if turn.is_abandoned and turn.member.state is Status.OPEN:
                    turn.member.fail(_over_time(turn.member))

    def give_back(self, turn: Turn) -> None:
        """Take a transaction out of the chain, with all that it has done; may be called twice."""
        with self._lock:
            self._asking = [other for other in self._asking if other is not turn]
            if self._holder is turn:
                self._take_out(turn)

    def take_away(self, now: float) -> None:
        """Take the turn from a transaction that has had it for too long.

        While a verb of it runs, its state can't be taken away. If the verb takes very long, the
        whole chain is left to it: all members run again.
        """
        with self._lock:
            turn = self._holder
            longest = _TURN_SECONDS if turn is None or not turn.is_used else _VERB_SECONDS
            if turn is None or now - turn.since < longest:
                return
            self._unfit[turn.function] = now + _SLOW_SECONDS
            if not turn.is_used:
                turn.member.fail(_over_time(turn.member))
                self._take_out(turn)
                return
            members = [] if self._open is None else self._open.members
            turn.is_abandoned = True
            self._open = self._holder = None
            self._pass_on(now)
        self.answer(_all_refused(self, members, _over_time(turn.member)))

    def _take_out(self, turn: Turn) -> None:
        found = self._open
        if turn.member.turn is turn and found is not None:
            self._undo(turn, found)
            found.txn.work.reads = turn.reads
            found.is_torn = found.is_torn or found.txn.bound.held is not turn.held
        self._holder = None
        self._drop_if_left()
        self._pass_on(turn.now())

    def _undo(self, turn: Turn, found: _Open) -> None:
        turn.member.work, turn.member.bound = Work(), Binding(began=turn.began)
        undo_since(found.txn, turn.first)

    # -- the members -------------------------------------------------------------

    def end_turn(self, turn: Turn, *, undo: bool) -> None:
        """Make the holder of the turn a member of the chain, and pass the turn on.

        ``undo``: without its operations; what it has read is validated all the same.
        """
        with self._lock:
            if self._holder is not turn:
                return  # it has ended before, or was taken away
            found, txn, waiting = self._open, turn.member, turn.waiting
            assert found is not None
            assert isinstance(waiting, Waiting)
            if undo:
                self._undo(turn, found)
            else:
                work = found.txn.work
                txn.work = Work(dict(work.tables), work.done[turn.first :])
                txn.bound = replace(found.txn.bound, began=waiting.since)
            waiting.changes = bool(txn.work.done)
            found.members.append(waiting)
            self._holder = None
            self._pass_on(turn.now())

    def holds(self, waiting: Waiting) -> bool:
        """Return whether a transaction is a member of the chain that is not decided yet."""
        found = self._open
        return found is not None and waiting in found.members

    def close(self) -> _Open | Gate:
        """Return the chain, which takes no further members; or the gate to wait at before."""
        with self._lock:
            found = self._open
            if found is None or self._holder is not None:
                self._quiet = Gate()
                if self._holder is None:
                    self._quiet.open()
                return self._quiet
            self._is_closed = True
            return found

    def reopen(self, decided: TransactionState, now: float) -> None:
        """Let the next chain begin, if ``decided`` is the transaction of this one."""
        with self._lock:
            if self._open is not None and self._open.txn is decided:
                self._open, self._is_closed = None, False
                self._pass_on(now)

    def _leave(self, member: Waiting) -> None:
        super()._leave(member)
        with self._lock:
            if self._drop_if_left():
                self._pass_on(member.txn.context.clock.elapsed())

    def _drop_if_left(self) -> bool:
        """Drop a chain that nobody waits for, so that the next one can begin.

        If it was sent, the next leader settles that.
        """
        found = self._open
        if found is None or not found.members or self._members or self._holder is not None:
            return False
        if not all(one.has_left for one in found.members):
            return False
        self._open, self._is_closed = None, False
        return True


def chain_of(context: Context) -> Chain:
    """Return the chain of a lake in this process."""
    chain = context.groups.named("chain", Chain)
    assert isinstance(chain, Chain)
    return chain


def may_take_turn(txn: TransactionState) -> bool:
    """Return whether a new transaction may be a member of a chain, by its options (rule H1)."""
    options = txn.options
    return (
        may_be_member(txn)
        and not (txn.work.done or options.defer)
        and options.isolation == "serializable"
        and options.features == Feature.R | Feature.I
    )


def may_run_in_turn(txn: TransactionState) -> bool:
    """Return whether what a transaction has done may be done in a chain, too."""
    changes = (Append, Insert, Update, Delete, Merge)
    return not txn.ending.shared and all(isinstance(x.operation, changes) for x in txn.work.done)


def take_turn(txn: TransactionState, function: Hashable) -> Program[bool]:
    """Wait for the turn, and perform the transaction of a function in the chain from then on.

    False if it got none, because a verb of the turn's holder takes too long.

    Raises
    ------
    ConflictError
        It did not use its turn in time.
    """
    chain, clock = chain_of(txn.context), txn.context.clock
    turn = Turn(txn, function, txn.bound.began, clock.elapsed)
    turn.give_back, turn.used = partial(chain.give_back, turn), partial(chain.used, turn)
    is_member = False
    try:
        chain.ask(turn)
        with during("wait"):
            for _ in range(_MOST_WAITS):
                if turn.gate.is_open:
                    break
                yield from wait_at(turn.gate, _TURN_SECONDS)
                if not turn.gate.is_open:
                    chain.take_away(clock.elapsed())
        is_member = turn.gate.is_open and chain.join(turn)
    finally:
        if not is_member:
            chain.give_back(turn)
    if txn.ending.failure is not None:
        raise txn.ending.failure
    return is_member


def commit_in_chain(
    txn: TransactionState, steps: Steps, *, undo: bool = False
) -> Program[Decided | None]:
    """End the transaction's turn, and wait until the chain is decided.

    None if it has changed nothing, and what it has read is true. ``undo``: drop its operations.

    Raises
    ------
    ConflictError
        The chain was refused: the transaction must run again.
    CommitOutcomeUnknown
        The chain may have been stored.
    """
    turn, context = txn.turn, txn.context
    assert turn is not None
    chain = chain_of(context)
    if turn.waiting is None:
        known = context.held
        turn.waiting = Waiting(txn, turn.began if known is None else known.head.sequence)
    waiting = turn.waiting
    assert isinstance(waiting, Waiting)
    if waiting.has_left:  # it was interrupted before
        waiting.has_left, waiting.gate = False, Gate()
    try:
        chain.end_turn(turn, undo=undo)
        with during("wait"):
            answer = yield from lead_or_follow(
                chain, waiting, partial(_lead, context, chain, waiting, steps)
            )
    finally:
        chain.leave(waiting)  # also if Ctrl-C came before it began to wait
    match answer:
        case Decided(summary=summary):
            if waiting.changes:
                return answer
            # What it has read of others is true in their version, not in the one before.
            txn.bound.sequence = max(txn.bound.sequence, summary.sequence)
            return None
        case Failed(error):
            if isinstance(error, ConflictError) and txn.state is Status.OPEN:
                txn.fail(error)
            raise error
        case Unchanged():
            return None
    raise AssertionError("a member of a chain is not performed by itself")


def _lead(context: Context, chain: Chain, own: Waiting, steps: Steps) -> Program[Answer]:
    """Commit the chain once nobody has the turn; return the answer to the leader's transaction."""
    clock = context.clock
    while own.answer is None:
        attempt = chain.unsettled
        if attempt is not None:
            yield from settle(context, chain, attempt)
            chain.reopen(attempt.txn, clock.elapsed())
            continue
        if not chain.holds(own):
            return Failed(_refused(own.txn, "its commit was interrupted"))
        found = chain.close()
        if isinstance(found, Gate):
            yield from wait_at(found, _TURN_SECONDS)
            chain.take_away(clock.elapsed())
            continue
        yield from _commit(chain, found, steps)
        if len(found.members) > 1:
            for one in found.members:
                if one.txn.turn is not None:
                    chain.note_conflict(context, one.txn.turn.function)
        if chain.unsettled is None:
            chain.reopen(found.txn, clock.elapsed())
    return own.answer


def _commit(chain: Chain, found: _Open, steps: Steps) -> Program[None]:
    """Commit a chain, and answer its members."""
    members = tuple(found.members)
    refused = partial(_all_refused, chain, members)
    if found.is_torn or found.txn.state is not Status.OPEN:
        # In a turn, or in the redo of a leader that was interrupted.
        chain.answer(refused(_refused(found.txn, "it was moved halfway")))
        with suppress(LakeVillaError):  # gc deletes what is left
            yield from abort(found.txn)
        return
    changing = [one for one in members if one.changes]
    if not changing:
        yield from _only_read(chain, found, refused)
        return
    attempt = Attempt(found.txn, members, refused)
    found.txn.combined = Combined(
        tuple(one.as_member() for one in changing),
        begin=partial(begin_attempt, chain, attempt),
        has_lost_one=lambda: any(one.has_left for one in changing),
    )
    if (yield from commit_attempt(chain, attempt, steps)) is not None:
        chain.rows.take_back(found.txn)
        chain.most = min(MOST_MEMBERS, 2 * chain.most)


def _only_read(
    chain: Chain, found: _Open, refused: Callable[[Exception], Mapping[Waiting, Answer]]
) -> Program[None]:
    """Answer members none of which has changed anything: what they have read must be true now."""
    error: LakeVillaError = _refused(found.txn, "what it has read has changed")
    try:
        is_true = yield from extend(found.txn)
    except LakeVillaError as raised:
        error, is_true = raised, False
    chain.answer(dict.fromkeys(found.members, Unchanged()) if is_true else refused(error))
    chain.rows.take_back(found.txn)  # those of files that are stored
    yield from abort(found.txn)


def _all_refused(
    chain: Chain, members: Sequence[Waiting], error: Exception
) -> Mapping[Waiting, Answer]:
    """Have all members run again after an error that proves that the chain is not committed."""
    chain.most = max(1, len(members) // 2)
    why = error.message if isinstance(error, LakeVillaError) else "one of them can't commit"
    return {one: Failed(_refused(one.txn, why)) for one in members}


def _refused(txn: TransactionState, why: str) -> ConflictError:
    return ConflictError(
        f"transaction {txn.id} was performed after others, and with them it is not committed "
        f"({why}): run it again (`lake.run` does so by itself)",
        txn_id=txn.id,
    )


def _over_time(txn: TransactionState) -> ConflictError:
    return ConflictError(
        f"transaction {txn.id} kept others that change the same rows waiting for more than "
        f"{_TURN_SECONDS:g} s: run it again (`lake.run` does so by itself)",
        txn_id=txn.id,
    )
