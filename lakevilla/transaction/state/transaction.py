"""One transaction: what it is bound to, what it has done, what its caller has seen.

Data, and what can be told from it without a request. What a caller asks of it is in
``transaction.verbs``; how it commits in ``transaction.commit``. After ``ConflictError`` nothing
can commit (design, section 12).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from lakevilla.errors import (
    InvalidOperation,
    LakeVillaError,
    TransactionAborted,
)
from lakevilla.expressions.tree import Expr
from lakevilla.formats.base import Change, Snapshot
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import HeldHead
from lakevilla.global_log.rules import Isolation, Validation
from lakevilla.lake.context import Context
from lakevilla.lake.past import Past
from lakevilla.lake.view import View
from lakevilla.results import CommitResult, Counts
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import (
    Operation,
    ReadRecord,
)
from lakevilla.transaction.state.features import Feature
from lakevilla.transaction.state.values import Decided, HeldRecord, KeyUse, Queue, Saved

__all__ = ["Done", "EntryTried", "Transaction", "Working"]

State = Literal["open", "failed", "committed", "aborted"]


@dataclass(slots=True)
class Done:
    """An operation: the sublog's entry, logical and physical side.

    ``deferred``: it is put off, so it has no physical side yet. ``fitted``: it has
    fitted a state that others have changed since, so if it does not fit when it
    is performed, that is a conflict with them and no mistake of the caller's.
    """

    operation: Operation
    change: Change
    counts: Counts
    metrics: dict[str, str]
    observed: bool = False
    deferred: bool = False
    fitted: bool = False

    @property
    def table(self) -> str:
        return self.operation.table


@dataclass(slots=True)
class Working:
    """A table as the transaction sees it: the bound view, and its own changes laid over.

    ``candidates``: see ``overlap``; of the bound view.
    """

    view: View
    snapshot: Snapshot
    probed: bool
    candidates: dict[Expr | None, frozenset[int] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EntryTried:
    """A number of its table's log under which a transaction has tried its entry.

    ``seen_at`` is when the number before it was last read, by the client's own clock.
    """

    version: int
    seen_at: float


def _no_lookup(location: str) -> Program[Snapshot]:
    raise AssertionError(f"{location} was looked up in a transaction that was not begun")


@dataclass(slots=True, weakref_slot=True)
class Transaction:
    """The state of one transaction; used by one thread at a time.

    Attributes
    ----------
    held : HeldHead or None
        The HEAD it is bound to; None without Feature.I, or while the lake has none.
    done : list of Done
        Its sublog.
    reads : dict
        What its caller has seen, in order.
    bodies : dict
        Files, by key, that are made and still to be stored.
    tried : bool
        Whether it may have reached its commit point: then its files are not its
        own to delete any more (hazard 20).
    entry_tried : EntryTried or None
        Where its entry may stand, or may yet come to: see ``again``.
    head_tried : int or None
        Which replacement of HEAD may be its own, or the one after it: see ``again``.
    impatient : bool
        Whether its caller was told that it waits no longer.
    ousted : bool
        Whether the heartbeat has found the record gone, or another's.
    beside : set of str
        Transactions of the same thread that it did not wait for.
    used : set of str
        Tables of earlier attempts of it, where ``lake.run`` has run it again.
    told : bool
        Whether its caller has seen the id: from then on it is kept, even where it
        can't commit any more, because somebody may ask what became of it.
    isolation, validation, slack
        How it is validated; see ``global_log.rules``.
    behind : dict of str to int
        Tables whose rows it has read at an older state than the one it has moved to, and
        how many versions older (told under ``slack`` only). Whatever is made from other
        rows than those reads go with is in conflict.
    past : Past or None
        The global version that it is bound to for good, if that was asked for. It never
        moves, and sees nothing that came later.
    shared : bool
        Whether it was saved: another process may have resumed it and committed
        the files that this one has made, so only gc may tell whose they are.
    """

    context: Context
    features: Feature
    id: str
    owner: str = ""
    read_only: bool = False
    isolation: Isolation = "serializable"
    validation: Validation = "precise"
    slack: int = 0
    metadata: dict[str, str] = field(default_factory=dict)
    applications: dict[str, int] = field(default_factory=dict)
    key: KeyUse | None = None
    through_head: bool = False
    held: HeldHead | None = None
    past: Past | None = None
    bound: bool = False
    bound_sequence: int = 0
    began: int = 0
    began_at: float = 0.0
    record: HeldRecord | None = None
    claim: str = ""
    saved: Saved | None = None
    queue: Queue | None = None
    wait_timeout_seconds: float | None = None
    patience_ends: float | None = None
    impatient: bool = False
    ousted: bool = False
    beside: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    tables: dict[str, Working] = field(default_factory=dict)
    done: list[Done] = field(default_factory=list)
    reads: dict[tuple[str, Expr | None], ReadRecord] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)
    tried: bool = False
    entry_tried: EntryTried | None = None
    head_tried: int | None = None
    shared: bool = False
    told: bool = False
    state: State = "open"
    failure: LakeVillaError | None = None
    result: CommitResult | None = None
    answered: bool = False
    decided: Decided | None = None
    retries: int = 0
    redos: int = 0
    started_ms: int = 0

    @property
    def head(self) -> Head | None:
        return None if self.held is None else self.held.head

    @property
    def in_doubt(self) -> bool:
        """Whether its commit point was tried and nobody has told what became of that."""
        return self.entry_tried is not None or self.head_tried is not None

    # -- binding ---------------------------------------------------------------

    @property
    def queues(self) -> bool:
        return Feature.CT in self.features and not self.read_only

    @property
    def has_one_state(self) -> bool:
        """Whether all that it reads is of one moment; else only validation makes it fit."""
        return Feature.I in self.features or len(self.tables) <= 1

    @property
    def reads_newest(self) -> bool:
        return Feature.CT in self.features and Feature.I not in self.features

    def is_behind(self, location: str) -> bool:
        """Whether others go first on the table: then operations there are put off."""
        return self.queue is not None and self.queue.is_behind(location)

    def add_table(self, location: str, view: View) -> None:
        """Take in a table that this transaction creates."""
        self.tables[location] = Working(view, view.snapshot, probed=True)

    def forget_table(self, location: str) -> None:
        """Let go of a table that nothing relies on: it is opened anew when it is next used."""
        del self.tables[location]
        self.fresh.discard(location)

    # -- what verbs need ---------------------------------------------------------

    def check_open(self, verb: str) -> None:
        """Refuse a verb after the transaction has ended or failed, or may have committed."""
        self.check_alive(verb)
        if self.in_doubt:
            raise InvalidOperation(
                f"{verb}: transaction {self.id} may have committed, and what is done now would "
                "not be in it: commit it again, which tells",
                txn_id=self.id,
            )

    def check_alive(self, verb: str) -> None:
        """Refuse a verb after the transaction has ended or failed."""
        if self.state == "failed":
            assert self.failure is not None
            raise self.failure
        if self.state != "open":
            raise InvalidOperation(
                f"{verb}: transaction {self.id} has {self.state}: begin a new one", txn_id=self.id
            )
        if self.behind:
            # Its commit was tried and did not end; what is read now would not fit the reads.
            raise InvalidOperation(
                f"{verb}: transaction {self.id} was moved past what it has read: commit it again, "
                "or begin a new one",
                txn_id=self.id,
            )

    def check_write(self, location: str, verb: str) -> None:
        """Refuse writes that the transaction's features do not cover, before anything is done."""
        self.check_open(verb)
        if self.read_only:
            raise InvalidOperation(
                f"{verb} {location}: transaction {self.id} is read-only: write in another one",
                table=location,
                txn_id=self.id,
            )
        if Feature.I in self.features or Feature.CT in self.features:
            return
        others = sorted({done.table for done in self.done} - {location})
        if others:
            raise InvalidOperation(
                f"{verb}: transaction {self.id} has written {others[0]} and would write {location} "
                "too: a transaction over two tables needs Feature.I or Feature.CT",
                table=location,
                txn_id=self.id,
            )
        if self.done and Feature.R not in self.features:
            raise InvalidOperation(
                f"{verb}: transaction {self.id} has done one operation already: several in one "
                "transaction need Feature.R (or Feature.CT or Feature.I)",
                table=location,
                txn_id=self.id,
            )

    def fail(self, error: LakeVillaError) -> LakeVillaError:
        """Note an error after which nothing can commit; returns it to be raised."""
        self.state = "failed"
        self.failure = error
        return error

    # -- verbs -------------------------------------------------------------------

    # -- ending ------------------------------------------------------------------

    def check_not_fenced(self, head: Head) -> None:
        """Raise if somebody has aborted this transaction, or gc has passed its age."""
        if head.is_fenced(self.id):
            raise self.fail(
                TransactionAborted(
                    f"transaction {self.id} was aborted by another client, or is older than "
                    "max_age: run it again",
                    txn_id=self.id,
                )
            )

    #: The state of a table, as its own verbs read it: handed in by ``verbs.begin``.
    lookup: Callable[[str], Program[Snapshot]] = _no_lookup
    #: Tables whose tails this transaction has probed.
    fresh: set[str] = field(default_factory=set)
    #: It has taken a place after it was bound.
    placed_since: bool = False
