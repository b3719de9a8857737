"""The five values of a transaction's state: each is written by one part of the code.

``Options`` never change. ``Binding`` is written where a transaction is bound and moved, ``Work`` by
verbs and redo, ``Claims`` by queues, saving and keys, ``Ending`` by the commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
        The way in which it is validated; see ``global_log.rules``.
    defer
        Whether operations are deferred until the commit, or until their rows are read.
    verify
        Whether data files that the transaction reads are compared with their hashes.
    metadata, applications
        Stored in each table's commit; ``applications`` are idempotency keys with their versions.
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
    metadata: dict[str, str] = field(default_factory=dict)
    applications: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Binding:
    """The state of the lake that the transaction sees.

    Attributes
    ----------
    held : HeldHead or None
        The HEAD to which it is bound; None without Feature.I, or while the lake has none.
    past : Past or None
        The global version to which it is bound for good, if that was requested. It never
        moves, and sees nothing that was committed later.
    own : OwnVersion or None
        The state of the table's own past to which it is bound for good, if that was requested.
    frozen : Frozen or None
        The ref to which it is bound for good, if that was requested.
    began : int
        The sequence of HEAD when it began: no commit of it is older.
    fresh : set of str
        Tables whose logs it has listed or probed beyond what HEAD knows.
    current : set of str
        Tables in whose queues it has taken a place, with a HEAD that goes with it.
    unconfirmed_at : int or None
        How many operations it had done when it last took a place with HEAD in the same round:
        another client may have committed between the two. None once a later HEAD was read.
    paths : set of str
        Tables that its caller has named by their paths before it was bound.
    meant : dict
        The table that each name of its caller's led to first, and the registered name by which it
        was found (``""`` if by its path): within the transaction the name means that table. It
        holds for tables that were taken in.
    names_at : int
        The replacement of HEAD in which these names were last found to lead there.
    saw_no_lake : bool
        Whether it has read that no lake exists here.
    revived : set of str
        Tables that its HEAD has dropped, and that are in the lake again by this transaction.
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
        """True if it is bound to a state for good, and sees nothing that was committed later."""
        return not (self.past is None and self.own is None and self.frozen is None)


@dataclass(slots=True)
class Done:
    """An operation: the sublog's entry, logical and physical side.

    ``deferred``: it waits for the commit, so it has no physical side yet. ``fitted``: it has
    fitted a state that other clients have changed since, so if it does not fit when it
    is performed, that is a conflict with them and no mistake of the caller's. ``kept_under``: the
    marks of the HEAD at which the files that it brings back were found to be kept.
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

    The operation that makes an own table of what a clone shows begins from nothing, no matter what
    was shown.
    """
    before = view.base if isinstance(done.operation, Detach) else snapshot
    return before.apply(done.change)


@dataclass(slots=True)
class Working:
    """A table as the transaction sees it: the bound view, and its own changes applied over it.

    ``candidates``: see ``overlap``; those of the bound view.
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
        Tables whose rows it has read at an older state than the one it has moved to, and
        how many versions older (known under ``slack`` only). Anything made from rows other
        than those to which these reads belong is in conflict.
    bodies : dict
        Files, by key, that are made and not stored yet.
    held_bytes : int
        The size of these files, with those that an undo has dropped.
    stored : list of str
        Keys that it has sent to the store to be stored.
    noted : set of str
        Tables that it creates and has noted, so that gc finds their files if its process dies.
    merging : Merging or None
        The branch that it merges.
    catalog : list of CatalogRead
        The reads of the lake's catalog that its caller has seen.
    """

    tables: dict[str, Working] = field(default_factory=dict)
    done: list[Done] = field(default_factory=list)
    reads: dict[tuple[str, Expr | None], ReadRecord] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    held_bytes: int = 0
    stored: list[str] = field(default_factory=list)
    noted: set[str] = field(default_factory=set)
    redos: int = 0
    merging: Merging | None = None
    catalog: list[CatalogRead] = field(default_factory=list)

    @property
    def commits(self) -> bool:
        """True if there is something to commit: operations, or the keys of a branch that it merges.

        The keys belong to the lake from a commit on, also where the lake has the rows already.
        """
        return bool(self.done) or (self.merging is not None and bool(self.merging.keys))

    @property
    def renames(self) -> list[Rename]:
        """The renames among its operations.

        It is one plain expression: each of a script's thousands of statements evaluates it.
        """
        return [x.operation for x in self.done if type(x.operation) is Rename]


@dataclass(slots=True)
class Claims(PlaceClaims):
    """The claims of a transaction: its record, key, what it has saved, its places in queues.

    Attributes
    ----------
    used : set of str
        Tables of earlier attempts of it, where ``lake.run`` has run it again.
    """

    key: KeyUse | None = None
    saved: Saved | None = None
    used: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class EntryTried:
    """A number of its table's log under which a transaction has tried its entry.

    ``seen_at`` is the time when the number before it was last read, by the client's own clock.
    """

    version: int
    seen_at: float


@dataclass(slots=True)
class Ending:
    """The end of a transaction, and its possible outcomes.

    Attributes
    ----------
    tried : bool
        Whether it may have reached its commit point: then its files are not its
        own to delete any more (hazard 20).
    entry_tried : EntryTried or None
        Where its entry may be, or may yet be stored: see ``commit.again``.
    head_tried : int or None
        The replacement of HEAD that may be its own, or the one after it: see ``commit.again``.
    proposed : int or None
        The last HEAD, by its number, that another client may replace by one with its commit in it.
    shared : bool
        Whether it was saved: another process may have resumed it and committed
        the files that this one has made, so only gc may decide whose they are.
    digests : set of str
        The digests of the commit objects that were sent to be in HEAD.
    id_was_seen : bool
        Whether its caller has seen the id: from then on it is kept, even where it
        can't commit any more, because its outcome may be queried.
    answered : bool
        Whether its outcome was reported to its caller.
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
        """True if its commit point was tried and the outcome is not known."""
        return self.entry_tried is not None or self.is_in_doubt_in_head

    @property
    def is_in_doubt_in_head(self) -> bool:
        """True if a later HEAD may hold it, by a write that any client has sent or may yet send."""
        return self.head_tried is not None or self.proposed is not None

    @property
    def may_delete_its_files(self) -> bool:
        """True if no client can have committed them, nor can any more."""
        return not (self.tried or self.shared)

    @property
    def may_run_again(self) -> bool:
        """True if other transactions were first, and it would do no harm to do all of it again."""
        return self.status is Status.FAILED and isinstance(self.failure, ConflictError)
