"""The five parts of a transaction's state, each of which one part of the code changes.

``Options`` never change. ``Binding`` is changed by the code that binds or moves a transaction,
``Work`` by verbs and redo, ``Claims`` by queues, saving and keys, ``Ending`` by the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lakevilla.engines.base import KeptRows
from lakevilla.errors import ConflictError, LakeVillaError
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.global_log.repo import HeldHead
from lakevilla.global_log.rules import Isolation, Validation
from lakevilla.lake.frozen.frozen import Frozen
from lakevilla.lake.own_versions import OwnVersion
from lakevilla.lake.past import Past
from lakevilla.lake.view import View
from lakevilla.markers.claims import PlaceClaims
from lakevilla.results import CommitResult, Counts
from lakevilla.sql.catalog import CatalogRead
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sublogs.operations import Detach, Operation, ReadRecord, Rename
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.values import (
    Decided,
    Feature,
    KeyUse,
    Merging,
    Saved,
)


@dataclass(frozen=True, slots=True)
class Options:
    """The options that the caller has requested.

    Attributes
    ----------
    isolation, validation, slack
        The way in which the transaction is validated; see ``global_log.rules``.
    defer
        Whether operations are deferred until the commit, or until their rows are read.
    verify
        Whether data files that the transaction reads are compared with their hashes.
    alone
        Whether the commit must be a global version of its own, not shared with other transactions.
    metadata, applications
        What each table's log entry stores; ``applications`` are idempotency keys with versions.
    """

    features: Feature
    owner: str = ""
    read_only: bool = False
    isolation: Isolation = "serializable"
    validation: Validation = "precise"
    slack: int = 0
    wait_timeout_seconds: float | None = None
    defer: bool = False
    verify: bool = False
    alone: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    applications: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Binding:
    """The state of the lake that the transaction sees.

    Attributes
    ----------
    held : HeldHead or None
        The HEAD to which the transaction is bound; None if it commits by a log entry, or while the
        lake has no HEAD.
    past : Past or None
        The global version to which it is bound for good, if its caller has requested one. Such a
        transaction never moves, and sees nothing that was committed later.
    own : OwnVersion or None
        The version of a table's own log to which it is bound for good, if one was requested.
    frozen : Frozen or None
        The ref to which it is bound for good, if one was requested.
    began : int
        The sequence of HEAD when the transaction began: its commit can't have a lower one.
    fresh : set of str
        Tables whose logs it has listed or probed, to see versions that HEAD does not know.
    current : set of str
        Tables in whose queues it has taken a place, and read HEAD with it.
    unconfirmed_at : int or None
        The number of its operations when it last took a place and read HEAD in the same round:
        another client may have committed between the two. None once it has read a later HEAD.
    paths : set of str
        Tables that the caller has named by their paths before the transaction was bound.
    meant : dict
        By name that the caller has used: the table to which it led first, and the registered name
        by which that table was found (``""`` if by its path). Within the transaction the name
        keeps this meaning, for tables that are part of it.
    names_at : int
        The replacement of HEAD in which all names of ``meant`` were last found unchanged.
    saw_no_lake : bool
        Whether the transaction has read that no lake exists here.
    revived : set of str
        Tables that its HEAD has dropped and that it brings back into the lake.
    """

    is_bound: bool = False
    held: HeldHead | None = None
    past: Past | None = None
    own: OwnVersion | None = None
    frozen: Frozen | None = None
    sequence: int = 0
    began: int = 0
    began_at: float = 0.0
    started_ms: int = 0
    fresh: set[str] = field(default_factory=set)
    current: set[str] = field(default_factory=set)
    unconfirmed_at: int | None = None
    paths: set[str] = field(default_factory=set)
    meant: dict[str, tuple[str, str]] = field(default_factory=dict)
    names_at: int = -1
    saw_no_lake: bool = False
    revived: set[str] = field(default_factory=set)

    @property
    def is_past(self) -> bool:
        """True if the transaction is bound to a past state or a ref for good, and never moves."""
        return not (self.past is None and self.own is None and self.frozen is None)


@dataclass(slots=True)
class Done:
    """An operation as the sublog has it: what was requested, and the change that it has made.

    ``deferred``: the operation is not performed yet, so ``change`` is empty. ``fitted``: the
    operation fitted a state that other clients have changed since; if it can't be performed later,
    the error is a conflict with them and no mistake of the caller's. ``kept_under``: the marks of
    the HEAD in which the files that the operation brings back were found to be kept.
    """

    operation: Operation
    change: Change
    counts: Counts
    metrics: dict[str, str]
    observed: bool = False
    deferred: bool = False
    fitted: bool = False
    kept_under: tuple[object, ...] | None = None

    @property
    def table(self) -> str:
        return self.operation.table


def laid_over(view: View, snapshot: TableSnapshot, done: Done) -> TableSnapshot:
    """Return ``snapshot`` with the operation ``done`` applied; ``view`` is the table's bound view.

    A ``Detach``, by which a table that a clone shows becomes a table of the lake, is applied to the
    empty table, not to what the clone shows.
    """
    before = view.base if isinstance(done.operation, Detach) else snapshot
    return before.apply(done.change)


@dataclass(slots=True)
class Working:
    """A table as the transaction sees it: the bound view, and its own changes laid over it.

    ``candidates``: by predicate, the files of the bound view that may match (``overlap``).
    """

    view: View
    snapshot: TableSnapshot
    probed: bool
    candidates: dict[Expr | None, frozenset[int] | None] = field(default_factory=dict)


@dataclass(slots=True)
class Work:
    """The operations and reads of a transaction.

    Attributes
    ----------
    done : list of Done
        Its sublog: the operations that it has done.
    reads : dict
        The reads whose rows its caller has seen, in order.
    behind : dict of str to int
        Tables whose rows the transaction has read at an older state than the one to which it has
        moved, and how many versions older (known under ``slack`` only). An operation that would be
        made from newer rows than these reads have seen is in conflict.
    bodies : dict
        New files, by key, that are not stored yet.
    held_bytes : int
        The size of these files, and of those that an undo has dropped.
    kept : dict of str to KeptRows
        By table, the engine's memory in which operations change rows one after another.
    keeps_first : bool
        Whether the engine keeps the rows of a table from the first change on, not from the second.
    promised : dict of str to KeptRows
        New files, by key, that are not made yet, and the memory of which they can be made.
    stored : list of str
        Keys that the transaction has sent to the store, of files and other objects.
    noted : set of str
        Tables that it creates and has noted, so that gc finds their files if its process dies.
    lost : int
        The number of races for HEAD after which it had to fit its operations to a newer state.
    merging : Merging or None
        The branch that the transaction merges.
    catalog : list of CatalogRead
        The reads of the lake's catalog whose rows the caller has seen.
    """

    tables: dict[str, Working] = field(default_factory=dict)
    done: list[Done] = field(default_factory=list)
    reads: dict[tuple[str, Expr | None], ReadRecord] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    held_bytes: int = 0
    kept: dict[str, KeptRows] = field(default_factory=dict)
    keeps_first: bool = False
    promised: dict[str, KeptRows] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)
    noted: set[str] = field(default_factory=set)
    redos: int = 0
    lost: int = 0
    merging: Merging | None = None
    catalog: list[CatalogRead] = field(default_factory=list)

    def drop_all_files(self) -> None:
        """Drop the files in memory, and the rows of which others can be made."""
        self.bodies.clear()
        self.promised.clear()
        self.kept.clear()

    @property
    def commits(self) -> bool:
        """True if there is something to commit: operations, or the keys of a branch that it merges.

        The keys become the lake's by a commit, even if the lake has all rows of the branch already.
        """
        return bool(self.done) or (self.merging is not None and bool(self.merging.keys))

    @property
    def renames(self) -> list[Rename]:
        """The renames among its operations.

        This is one cheap expression: each statement of a script of thousands evaluates it.
        """
        return [x.operation for x in self.done if type(x.operation) is Rename]


@dataclass(slots=True)
class Claims(PlaceClaims):
    """The claims of a transaction: its record, key, last save, and places in queues.

    Attributes
    ----------
    used : set of str
        Tables that its earlier attempts have used, if ``lake.run`` has run it again.
    """

    key: KeyUse | None = None
    saved: Saved | None = None
    used: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class EntryTried:
    """The version as which a transaction has tried to create its entry in a table's log.

    ``seen_at`` is the time, by the client's own clock, when it last saw the version before as tip.
    """

    version: int
    seen_at: float


@dataclass(slots=True)
class Ending:
    """The end of a transaction, and its possible outcomes.

    Attributes
    ----------
    tried : bool
        Whether the transaction may have reached its commit point: then it must not delete its files
        any more (hazard 20).
    entry_tried : EntryTried or None
        The version as which its log entry may be stored, now or later: see ``commit.commit``.
    head_tried : int or None
        The number of the HEAD that it tried to replace, while the outcome is in doubt: see
        ``commit.commit``.
    proposed : int or None
        The number of the last HEAD that another client may replace by one that includes the
        transaction's proposed commit.
    shared : bool
        Whether the transaction was saved: another process may have resumed it and committed the
        files that this process has made, so only gc may delete them.
    digests : set of str
        The digests of its commit objects that may be named in HEAD.
    id_was_seen : bool
        Whether the caller has seen the transaction's id: from then on the id stays, even if it
        can't commit any more, because the caller may query its outcome.
    answered : bool
        Whether the outcome was reported to the caller.
    """

    status: Status = Status.OPEN
    failure: LakeVillaError | None = None
    result: CommitResult | None = None
    decided: Decided | None = None
    tried: bool = False
    entry_tried: EntryTried | None = None
    head_tried: int | None = None
    proposed: int | None = None
    shared: bool = False
    digests: set[str] = field(default_factory=set)
    retries: int = 0
    id_was_seen: bool = False
    answered: bool = False

    @property
    def is_in_doubt(self) -> bool:
        """True if the transaction has tried its commit point and does not know the outcome."""
        return self.entry_tried is not None or self.is_in_doubt_in_head

    @property
    def is_in_doubt_in_head(self) -> bool:
        """True if a later HEAD may hold its commit, which a client has sent or may yet send."""
        return self.head_tried is not None or self.proposed is not None

    @property
    def may_delete_its_files(self) -> bool:
        """True if no client has committed the transaction's files, and none can any more."""
        return not (self.tried or self.shared)

    @property
    def may_run_again(self) -> bool:
        """True if a conflict has ended the transaction, so that it can safely be run again."""
        return self.status is Status.FAILED and isinstance(self.failure, ConflictError)


@dataclass(frozen=True, slots=True)
class MemberOfCombined:
    """One transaction of a combined one: its id, its operations, the sequence when it began.

    ``until``: of a transaction of another process, the number of the last HEAD that may be replaced
    by one with it (note 70).
    """

    txn: str
    operations: int
    began: int
    until: int | None = None

    @property
    def is_own(self) -> bool:
        """True if the transaction is one of this process."""
        return self.until is None


@dataclass(frozen=True, slots=True)
class Combined:
    """The transactions whose operations a combined transaction performs (note 68).

    Attributes
    ----------
    members : tuple of MemberOfCombined
        In the order of their operations.
    begin : callable
        Note for each member that a replacement of the HEAD with this number may commit it; False,
        and no note, if one of them has left.
    has_lost_one : callable
        Whether one of them has left.
    has_listed : bool
        Whether its leader has listed the inbox.
    """

    members: tuple[MemberOfCombined, ...]
    begin: Callable[[int], bool]
    has_lost_one: Callable[[], bool]
    has_listed: bool = False

    @property
    def is_shared(self) -> bool:
        """True if it performs operations of another process."""
        return not all(one.is_own for one in self.members)

    def is_too_late(self, number: int) -> bool:
        """Return whether the HEAD with this number must not be replaced for one of the members."""
        return any(one.until is not None and one.until < number for one in self.members)
