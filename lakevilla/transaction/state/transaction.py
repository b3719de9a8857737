"""The state of a transaction."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from lakevilla.engines.base import FileNamer
from lakevilla.errors import ConflictError, InvalidOperation, LakeVillaError, TransactionAborted
from lakevilla.formats.base import TableSnapshot
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import HeldHead
from lakevilla.lake.context import Context, file_namer
from lakevilla.lake.operations.comparing.computed import Beneath
from lakevilla.lake.view import View
from lakevilla.phases import Phases
from lakevilla.results import CommitResult
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Gate, Program
from lakevilla.sublogs.operations import Detach, ReadRecord, is_append
from lakevilla.sublogs.record import Ticket
from lakevilla.transaction.state.parts import (
    Binding,
    Claims,
    Combined,
    Ending,
    Options,
    Work,
    Working,
)
from lakevilla.transaction.state.status import TERMINAL, Status, StatusEvent, advance
from lakevilla.transaction.state.values import Feature

# -------------------- transaction
#
# The state of one transaction: its bound state, its operations, the reads of its caller.
#
# This section has data, and functions that compute something from the data without a request to the
# store. The verbs that a caller uses are in ``transaction.verbs``; the commit is in
# ``transaction.commit``. After a ``ConflictError`` a transaction can't commit (design, section 12).


def _no_lookup(location: str) -> Program[TableSnapshot]:
    raise AssertionError(f"{location} was looked up in a transaction that was not begun")


@dataclass(slots=True, weakref_slot=True)
class TransactionState:
    """The state of one transaction; used by one thread at a time.

    Attributes
    ----------
    through_head : bool
        Whether the transaction commits through HEAD; else by its one table's log entry.
    lookup : callable
        Return the state of a table as the transaction's verbs read it; set by ``verbs.begin``.
    phases : Phases or None
        The time that the transaction spends in each phase; None if no listener needs it.
    combined : Combined or None
        The transactions whose operations this one performs, if it is a combined one.
    turn : Turn or None
        Its turn in a chain, if it is performed in one.
    """

    context: Context
    id: str
    options: Options
    through_head: bool = False
    bound: Binding = field(default_factory=Binding)
    work: Work = field(default_factory=Work)
    claims: Claims = field(default_factory=Claims)
    ending: Ending = field(default_factory=Ending)
    lookup: Callable[[str], Program[TableSnapshot]] = _no_lookup
    phases: Phases | None = None
    combined: Combined | None = None
    turn: Turn | None = None

    @property
    def state(self) -> Status:
        return self.ending.status

    @property
    def head(self) -> Head | None:
        return None if self.bound.held is None else self.bound.held.head

    @property
    def file_namer(self) -> FileNamer:
        """The names of its new files, by which gc finds whose they are."""
        return file_namer(self.context, self.names_files_by, self.through_head)

    @property
    def names_files_by(self) -> str:
        """The id in the names of its files: its own, or that of its chain."""
        return self.id if self.turn is None else self.turn.names_files_by

    # -- binding ---------------------------------------------------------------

    @property
    def queues(self) -> bool:
        return Feature.CT in self.options.features and not self.options.read_only

    @property
    def defers(self) -> bool:
        """True if operations are deferred until the commit, so that one round reads their data."""
        return self.options.defer and self.through_head

    @property
    def has_one_state(self) -> bool:
        """True if all its reads see one state of the lake; else only validation makes them fit."""
        return Feature.I in self.options.features or len(self.work.tables) <= 1

    @property
    def reads_newest(self) -> bool:
        return Feature.CT in self.options.features and Feature.I not in self.options.features

    def is_behind(self, location: str) -> bool:
        """Return whether other transactions go first on the table, so that operations there are
        deferred.
        """
        return self.claims.queue is not None and self.claims.queue.is_behind(location)

    def add_table(self, location: str, view: View) -> None:
        """Make a table that this transaction creates part of the transaction."""
        self.work.tables[location] = Working(view, view.snapshot, probed=True)

    def forget_table(self, location: str) -> None:
        """Forget a table on which no read or operation relies: its next use opens it again."""
        del self.work.tables[location]
        self.bound.fresh.discard(location)
        self.bound.revived.discard(location)

    def revives(self, location: str) -> bool:
        """Return whether this transaction brings back a table that its HEAD has dropped."""
        working = self.work.tables.get(location)
        return location in self.bound.revived or (working is not None and working.view.revives)

    # -- what its record and its queues need (``Owner``, ``Claimant``) -----------

    @property
    def owner(self) -> str:
        return self.options.owner

    @property
    def began(self) -> int:
        return self.bound.began

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(sorted(self.work.tables))

    @property
    def tickets(self) -> tuple[Ticket, ...]:
        return () if self.claims.queue is None else self.claims.queue.tickets

    @property
    def appended(self) -> list[str]:
        tables = (done.table for done in self.work.done if is_append(done.operation))
        return list(dict.fromkeys(tables))

    @property
    def written(self) -> set[str]:
        return {done.table for done in self.work.done}

    @property
    def wait_timeout_seconds(self) -> float | None:
        return self.options.wait_timeout_seconds

    @property
    def has_ended(self) -> bool:
        return self.state in TERMINAL

    @property
    def has_committed(self) -> bool:
        return self.state is Status.COMMITTED

    @property
    def is_shared(self) -> bool:
        return self.ending.shared

    # -- what listeners are told ------------------------------------------------

    def known_as(self, first: int = 0) -> list[tuple[str, int]]:
        """Return the ids by which listeners know the transaction.

        With each id is the operation of its transaction that is the first at or after ``first``.
        A combined transaction is told as those of this process's members that have one.
        """
        if self.combined is None:
            return [(self.id, first)]
        found, start = [], 0
        for member in self.combined.members:
            if member.is_own and start + member.operations > first:
                found.append((member.txn, max(first - start, 0)))
            start += member.operations
        return found

    # -- what verbs need ---------------------------------------------------------

    def check_open(self, verb: str) -> None:
        """Refuse a verb after the transaction has ended or failed, or may have committed."""
        self.check_alive(verb)
        if self.ending.is_in_doubt:
            raise InvalidOperation(
                f"{verb}: transaction {self.id} may have committed, and what is done now would "
                "not be in it: commit it again to find out",
                txn_id=self.id,
            )

    def check_alive(self, verb: str) -> None:
        """Refuse a verb after the transaction has ended or failed."""
        if self.state is Status.FAILED:
            assert self.ending.failure is not None
            raise self.ending.failure
        if self.state is not Status.OPEN:
            raise InvalidOperation(
                f"{verb}: transaction {self.id} has {self.state}: begin a new one", txn_id=self.id
            )
        if self.work.behind:
            # A commit was tried and did not complete; new reads would not fit the earlier reads.
            raise InvalidOperation(
                f"{verb}: transaction {self.id} was moved to newer versions than those that it "
                "has read: commit it again, or begin a new one",
                txn_id=self.id,
            )

    def check_write(self, location: str, verb: str) -> None:
        """Refuse a write that the transaction's features do not allow, before any of it is done."""
        self.check_open(verb)
        if self.options.read_only:
            raise InvalidOperation(
                f"{verb} {location}: transaction {self.id} is read-only: write in another one",
                table=location,
                txn_id=self.id,
            )
        if Feature.I in self.options.features or Feature.CT in self.options.features:
            return
        others = sorted({done.table for done in self.work.done} - {location})
        if others:
            raise InvalidOperation(
                f"{verb}: transaction {self.id} has written {others[0]} and would write {location} "
                "too: a transaction over two tables needs Feature.I or Feature.CT",
                table=location,
                txn_id=self.id,
            )
        is_first = all(isinstance(done.operation, Detach) for done in self.work.done)
        if not is_first and Feature.R not in self.options.features:
            raise InvalidOperation(
                f"{verb}: transaction {self.id} has done one operation already: several in one "
                "transaction need Feature.R (or Feature.CT or Feature.I)",
                table=location,
                txn_id=self.id,
            )

    def note_committed(
        self, versions: dict[str, int | None] | None, sequence: int | None
    ) -> CommitResult:
        """Note that the transaction has committed; return its result, as far as it is known."""
        ending = self.ending
        was_committed = ending.status is Status.COMMITTED
        ending.status = advance(
            ending.status, StatusEvent.IS_PUBLISHED if was_committed else StatusEvent.COMMITS
        )
        ending.entry_tried = None
        self.work.drop_all_files()  # a later operation has replaced them, and nothing is redone
        repeats = ending.retries + self.work.redos
        ending.result = CommitResult(self.id, versions, sequence, repeats, len(self.work.done))
        return ending.result

    def note_aborted(self) -> None:
        """Note that the transaction has ended, and that this process won't commit it."""
        self.ending.status = advance(self.ending.status, StatusEvent.ABORTS)

    def fail(self, error: LakeVillaError) -> LakeVillaError:
        """Note an error after which the transaction can't commit; return the error."""
        self.ending.status = advance(self.ending.status, StatusEvent.FAILS)
        self.ending.failure = error
        return error

    # -- ending ------------------------------------------------------------------

    def note_not_in(self, head: Head) -> None:
        """Note that ``head`` lacks the commit: a write that replaces an older HEAD will fail."""
        ending, passed = self.ending, head.replacement
        if ending.head_tried is not None and ending.head_tried < passed:
            ending.head_tried = None
        if ending.proposed is not None and (ending.proposed < passed or head.is_fenced(self.id)):
            ending.proposed = None

    def check_not_fenced(self, head: Head) -> None:
        """Raise if another client has aborted this transaction, or gc has fenced it by its age."""
        if head.is_fenced(self.id):
            raise self.fail(
                TransactionAborted(
                    f"transaction {self.id} was aborted by another client, or is older than "
                    "max_age: run it again",
                    txn_id=self.id,
                )
            )


@dataclass(slots=True, eq=False)
class Turn:
    """A transaction's turn in a chain (note 69): meanwhile it shares the chain's work and binding.

    Attributes
    ----------
    member : TransactionState
    function : hashable
        What stands for the function that runs in the transaction.
    began : int
        The sequence of HEAD when the transaction began.
    now : callable
        The time, by the client's own clock.
    gate : Gate
        Opens when the transaction gets the turn, at the time ``since``.
    first, reads, held
        The number of operations, the reads, and the HEAD, that the chain had then.
    names_files_by : str
        The id of the transaction that performs all members; their files are named by it.
    is_used, is_unfit, is_abandoned : bool
        Whether a verb of the transaction runs; whether one was called that no chain can have;
        whether others go on in another chain, as a verb takes too long.
    waiting : object
        Its membership in the chain, once its turn has ended.
    give_back : callable
        Take the transaction out of the chain, with all that it has done.
    used : callable
        Return the block in which a verb runs.
    """

    member: TransactionState
    function: Hashable
    began: int
    now: Callable[[], float]
    gate: Gate = field(default_factory=Gate)
    since: float = 0.0
    first: int = 0
    reads: dict[tuple[str, Expr | None], ReadRecord] = field(default_factory=dict)
    held: HeldHead | None = None
    names_files_by: str = ""
    is_used: bool = False
    is_unfit: bool = False
    is_abandoned: bool = False
    waiting: object = None
    give_back: Callable[[], None] = lambda: None
    used: Callable[[], AbstractContextManager[None]] = nullcontext


# -------------------- errors
#
# Errors that end a transaction.


def conflict(txn: TransactionState, table: str, reason: str) -> ConflictError:
    """Return the error of a transaction whose conflict no redo can repair."""
    return ConflictError(
        f"transaction {txn.id} conflicts on table {table}: {reason}; run it again "
        "(`lake.run` does so by itself)",
        table=table,
        txn_id=txn.id,
    )


def entered(txn: TransactionState, location: str) -> ConflictError:
    """Return the error of a transaction that began before a table entered the lake."""
    return ConflictError(
        f"table {location} entered the lake after transaction {txn.id} began: "
        "run the transaction again",
        table=location,
        txn_id=txn.id,
    )


# -------------------- beneath
#
# The parts that make up a table's state as a transaction sees it.


def beneath_of(txn: TransactionState, location: str) -> Beneath | None:
    """Return the parts that make up a table's state in the transaction; None without a HEAD."""
    head = txn.head
    if head is None:
        return None
    return Beneath(
        head.sequence if head.epoch is None else head.epoch.base.sequence,
        tuple(done.operation for done in txn.work.done if done.table == location),
        txn.work.tables[location].view.placement.hidden,
    )
