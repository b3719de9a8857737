"""The five values of a transaction's state: each is written by one part of its life.

``Options`` never change. ``Binding`` is written where a transaction is bound and moved, ``Work`` by
verbs and redo, ``Standing`` by queues, saving and keys, ``Ending`` by the commit.
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
from lakevilla.results import CommitResult, Counts
from lakevilla.sql.catalog import CatalogRead
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sublogs.operations import Detach, Operation, ReadRecord, Rename
from lakevilla.transaction.state.life import Life
from lakevilla.transaction.state.values import (
    Decided,
    Feature,
    HeldRecord,
    KeyUse,
    Merging,
    Queue,
    Saved,
)


@dataclass(frozen=True, slots=True)
class Options:
    """What its caller has asked for.

    Attributes
    ----------
    isolation, validation, slack
        How it is validated; see ``global_log.rules``.
    defer
        Whether operations are put off until the commit, or until their rows are looked at.
    verify
        Whether data files that it reads are compared with their hashes.
    metadata, applications
        Go into each table's commit; ``applications`` are idempotency keys with their versions.
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
    """Which state of the lake it sees.

    Attributes
    ----------
    held : HeldHead or None
        The HEAD it is bound to; None without Feature.I, or while the lake has none.
    past : Past or None
        The global version that it is bound to for good, if that was asked for. It never
        moves, and sees nothing that came later.
    own : OwnVersion or None
        The state of the table's own past that it is bound to for good, if that was asked for.
    frozen : Frozen or None
        The ref that it is bound to for good, if that was asked for.
    began : int
        The sequence of HEAD when it began: no commit of it is older.
    fresh : set of str
        Tables whose logs it has looked at beyond what HEAD tells.
    current : set of str
        Tables in whose queues it has taken a place, with a HEAD that goes with it.
    unconfirmed_at : int or None
        How many operations it had done when it last took a place with HEAD in the same round:
        somebody may have committed between the two. None once a later HEAD has told.
    paths : set of str
        Tables that its caller has called by their paths before it was bound.
    saw_no_lake : bool
        Whether it has read that there is no lake here.
    revived : set of str
        Tables that its HEAD has dropped, and that are in the lake again by it.
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
    saw_no_lake: bool = False
    revived: set[str] = field(default_factory=set)

    @property
    def is_past(self) -> bool:
        """Whether it is bound to a state for good, and sees nothing that came later."""
        return not (self.past is None and self.own is None and self.frozen is None)


@dataclass(slots=True)
class Done:
    """An operation: the sublog's entry, logical and physical side.

    ``deferred``: it is put off, so it has no physical side yet. ``fitted``: it has
    fitted a state that others have changed since, so if it does not fit when it
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
    """A state with an operation of the transaction's own; ``view`` is the table's bound one.

    To make what a clone shows begins from nothing, whatever was shown.
    """
    before = view.base if isinstance(done.operation, Detach) else snapshot
    return before.apply(done.change)


@dataclass(slots=True)
class Working:
    """A table as the transaction sees it: the bound view, and its own changes laid over.

    ``candidates``: see ``overlap``; of the bound view.
    """

    view: View
    snapshot: TableSnapshot
    probed: bool
    candidates: dict[Expr | None, frozenset[int] | None] = field(default_factory=dict)


@dataclass(slots=True)
class Work:
    """What it has done and read.

    Attributes
    ----------
    done : list of Done
        Its sublog.
    reads : dict
        What its caller has seen, in order.
    behind : dict of str to int
        Tables whose rows it has read at an older state than the one it has moved to, and
        how many versions older (told under ``slack`` only). Whatever is made from other
        rows than those reads go with is in conflict.
    bodies : dict
        Files, by key, that are made and still to be stored.
    held_bytes : int
        How large these files are, with those that an undo has dropped.
    stored : list of str
        Keys that it has asked the store to keep.
    merging : Merging or None
        The branch that it merges.
    catalog : list of CatalogRead
        What its caller has seen of the lake's catalog.
    """

    tables: dict[str, Working] = field(default_factory=dict)
    done: list[Done] = field(default_factory=list)
    reads: dict[tuple[str, Expr | None], ReadRecord] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    held_bytes: int = 0
    stored: list[str] = field(default_factory=list)
    redos: int = 0
    merging: Merging | None = None
    catalog: list[CatalogRead] = field(default_factory=list)

    @property
    def renames(self) -> list[Rename]:
        """In one plain expression: each of a script's thousands of statements comes by."""
        return [x.operation for x in self.done if type(x.operation) is Rename]


@dataclass(slots=True)
class Standing:
    """What it holds among others: its record, key, what it has saved, its places in queues.

    Attributes
    ----------
    impatient : bool
        Whether its caller was told that it waits no longer.
    ousted : bool
        Whether the heartbeat has found the record gone, or another's.
    beside : set of str
        Transactions of the same thread that it did not wait for.
    used : set of str
        Tables of earlier attempts of it, where ``lake.run`` has run it again.
    """

    record: HeldRecord | None = None
    claim: str = ""
    key: KeyUse | None = None
    saved: Saved | None = None
    queue: Queue | None = None
    patience_ends: float | None = None
    impatient: bool = False
    ousted: bool = False
    beside: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class EntryTried:
    """A number of its table's log under which a transaction has tried its entry.

    ``seen_at`` is when the number before it was last read, by the client's own clock.
    """

    version: int
    seen_at: float


@dataclass(slots=True)
class Ending:
    """How it ends, and what may have become of it.

    Attributes
    ----------
    tried : bool
        Whether it may have reached its commit point: then its files are not its
        own to delete any more (hazard 20).
    entry_tried : EntryTried or None
        Where its entry may stand, or may yet come to: see ``commit.again``.
    head_tried : int or None
        Which replacement of HEAD may be its own, or the one after it: see ``commit.again``.
    proposed : int or None
        The last HEAD, by its number, that another may replace by one with its commit in it.
    shared : bool
        Whether it was saved: another process may have resumed it and committed
        the files that this one has made, so only gc may tell whose they are.
    digests : set of str
        Of the commit objects that were sent to be in HEAD.
    id_was_seen : bool
        Whether its caller has seen the id: from then on it is kept, even where it
        can't commit any more, because somebody may ask what became of it.
    answered : bool
        Whether its caller was told how it ended.
    """

    life: Life = Life.OPEN
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
        """Whether its commit point was tried and nobody has told what became of that."""
        return self.entry_tried is not None or self.is_in_doubt_in_head

    @property
    def is_in_doubt_in_head(self) -> bool:
        """Whether a later HEAD may hold it, by what it or another has sent or may yet send."""
        return self.head_tried is not None or self.proposed is not None

    @property
    def may_delete_its_files(self) -> bool:
        """Whether nobody can have committed them, nor can any more."""
        return not (self.tried or self.shared)

    @property
    def may_run_again(self) -> bool:
        """Whether others came first, and it would do no harm to do all of it again."""
        return self.life is Life.FAILED and isinstance(self.failure, ConflictError)
