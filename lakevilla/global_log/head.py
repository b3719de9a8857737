"""HEAD: the newest global version, as a value and as pure functions on it.

Nothing here does I/O. Only ``successor`` makes a HEAD that replaces another, so that
``replacement`` counts every replacement and no two HEADs have equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from lakevilla.formats.iceberg.metadata.file import name_in_catalog
from lakevilla.formats.sizes import NOTHING, UNKNOWN, Size
from lakevilla.global_log.leaves import Leaf, LeafMap
from lakevilla.global_log.refs import (
    BaseCopies,
    BaseRef,
    Policy,
    RefEntry,
    RefMap,
    number_of_epoch,
)
from lakevilla.global_log.summaries import Summary
from lakevilla.ids import NO_TXN
from lakevilla.store.codec import refuse_unknown

HEAD_KEY = "_lakevilla/HEAD.json"
PAGES_PREFIX = "_lakevilla/pages"
#: Number of commits in a page of older commits.
PAGE_LENGTH = 48
#: HEAD lists fewer commits than this. Once it names a page it lists 64 or more, as many as one
#: replacement may add: those of the newest replacement are in HEAD, and none of them is in a page.
COMMITS_IN_HEAD = 112
#: So many pages make a block, and so many blocks a larger one.
PAGES_IN_BLOCK = 16
#: Limit of the size of HEAD's list of commits: commits to many tables move to a page sooner. The
#: last commit alone may exceed the limit.
COMMITS_BYTES = 80 * 1024
#: HEAD's format once it has a ref, or a table's vacuum or size: a client that does not know of
#: these would drop them.
FORMAT_WITH_REFS = 2
#: HEAD's format once it has a clone: a client that does not know of clones would create tables at
#: their places.
FORMAT_WITH_CLONES = 3
#: HEAD's format once it has a combined commit: a client that does not look for members in it could
#: commit one of them again.
FORMAT_WITH_MEMBERS = 4
#: HEAD's format once it has the commit of an Iceberg REST client: a client that does not know such
#: commits could neither publish them nor read what is pending.
FORMAT_WITH_GIVEN = 5
#: HEAD's format once it has a view: a client that does not know of views would list it as a table,
#: and drop what says that it is one.
FORMAT_WITH_VIEWS = 6
#: HEAD's format once it has fields that a client keeps although it does not know them, or names
#: what a client must know: a client that does not know of ``kept`` would drop them. So it would
#: drop a branch's ``earlier`` epochs (docs/design/0087-versions-side-by-side.md).
FORMAT_WITH_KEPT = 7


class Touch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The effect of one commit on one table, in short.

    ``published`` is the value of the table's ``published`` that the commit set: the commit was
    validated against all log entries up to it. Where the log held foreign entries that no HEAD had
    known before, ``first`` is the first version that the commit absorbed, and ``published`` is the
    last.

    ``left`` and ``entered`` are the ids of the table that this commit removed from the lake, and of
    the table that it added: later HEADs do not state which commit did that.

    ``summary`` describes what the commit wrote to the table, where there was room for it. ``grown``
    is the change of the table's size by the commit (docs/design/0035-catalog-tables.md).
    ``refreshed``: the commit object lists the tags of all files that a refresh may keep
    (docs/design/0038-reuse.md).
    """

    published: int
    adds: bool = False
    removes: bool = False
    metadata: bool = False
    data_change: bool = True
    first: int | None = None
    left: str | None = None
    entered: str | None = None
    summary: Summary | None = None
    grown: Size | None = None
    refreshed: bool = False

    @property
    def growth(self) -> Size:
        """The change of the table's size; unknown where a commit of an older client changed files.

        A missing ``grown`` counts as unknown only where the commit added or removed files.
        """
        if self.grown is not None:
            return self.grown
        return UNKNOWN if self.adds or self.removes else NOTHING


class CommitSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """One commit in HEAD's list.

    ``hash`` names the commit object ``_lakevilla/commits/<txn>-<hash>.json``; it is empty for a
    ``foreign`` commit, whose content is in the table's log. ``replaces``: the sequences of the
    commits that a ``reconcile`` commit replaces. ``members``: the transactions whose operations a
    combined commit has performed, in their order; ``txn`` is none of them
    (docs/design/0068-combined-commits.md).
    """

    sequence: int
    timestamp_ms: int
    kind: Literal["transaction", "foreign", "reconcile", "register"]
    txn: str
    hash: str
    tables: dict[str, Touch]
    replaces: tuple[int, ...] = ()
    members: tuple[str, ...] = ()

    @property
    def transactions(self) -> tuple[str, ...]:
        """The ids of the transactions of which this is the commit."""
        return self.members or (self.txn,)

    @property
    def newest_txn(self) -> str:
        """The largest of the ids that the commit settles."""
        return max((self.txn, *self.members))


class PendingRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decided commit that HEAD does not know to be in the table's log.

    ``base``: the log version up to which the commit was validated; only foreign entries above it
    can make the commit unfit. ``epoch``: the epoch of a branch in whose directory the commit object
    is stored; ``""`` for the lake's directory.
    """

    sequence: int
    txn: str
    hash: str
    base: int
    epoch: str = msgspec.field(default="", name="life")


class CommitRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A commit object and its directory: that of a branch's epoch, or of the lake (``""``)."""

    txn: str
    hash: str
    epoch: str = msgspec.field(default="", name="life")


class TableState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table in HEAD: its state is always log[..published] plus the ``pending`` commits.

    ``emptied_ms``: when a client last noted that it deletes the data of a dropped table. The
    deletion is complete once ``emptying`` is false again (docs/design/0013-names-used-again.md).
    ``catalog`` is the key of the table's pointer in a catalog (docs/design/0016-catalogs.md).
    ``vacuumed_ms``: a vacuum may have deleted, or may still delete, files that no state since this
    time needs (docs/design/0030-refs.md). ``size`` is the size of the state; None if it is unknown.
    ``changed``: the last commit that changed the table's rows or metadata; 0 if HEAD did not record
    it yet. ``refreshed``: for an Iceberg table, the commit object that lists the tags of its files
    (docs/design/0038-reuse.md). ``released_by``: the ``unregister`` that releases the table's claim
    (docs/design/0051-claims-let-go.md). ``view``: it is a view, whose definition its log has
    (docs/design/0077-views-of-sql.md). ``needs``: what a client must know to use the table.
    ``kept``: what a client keeps as long as the table is the same, although it does not know it
    (docs/design/0087-versions-side-by-side.md).
    """

    table_id: str
    published: int
    pending: tuple[PendingRef, ...] = ()
    guarded: bool = False
    dropped: bool = False
    format: Literal["delta", "iceberg"] = "delta"
    emptying: bool = False
    emptied_ms: int | None = None
    catalog: str = ""
    vacuumed_ms: int | None = None
    size: Size | None = None
    changed: int = 0
    refreshed: CommitRef | None = None
    released_by: str = msgspec.field(default="", name="let_go")
    view: bool = False
    needs: tuple[str, ...] = ()
    kept: dict[str, Any] = {}


class TableMap(LeafMap[TableState]):
    """The tables in HEAD, by location."""

    __slots__ = ()
    value = TableState
    leaf = Leaf[TableState]


#: The location for a path that was renamed: it names no table (docs/design/0023-renames.md).
NOWHERE = ""


class NameMap(LeafMap[str]):
    """The tables' locations by registered name; ``NOWHERE`` for the path of a renamed table."""

    __slots__ = ("_shown",)
    #: The result of ``shown``, with the number of leaves that were cached when it was computed.
    _shown: tuple[int, dict[str, str]]
    value = str
    leaf = Leaf[str]

    def shown(self) -> Mapping[str, str]:
        """Return the first name of each location, as far as it is cached."""
        fetched = len(self._leaves)
        if not hasattr(self, "_shown") or self._shown[0] != fetched:
            shown: dict[str, str] = {}
            for name, location in self.cached().items():
                shown.setdefault(location, name)
            self._shown = (fetched, shown)
        return self._shown[1]


#: Empty maps, which lakes may share: an empty map is never cut into leaves.
_NO_TABLES, _NO_NAMES, _NO_REFS, _NO_COPIES = TableMap(), NameMap(), RefMap(), BaseCopies()
_NO_POLICY = Policy()


class Reservation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reservation of tables by an escalated transaction (design, section 7).

    ``guest``: it is for the next commit of any Iceberg client, and nobody's
    (docs/design/0075-fairness-of-the-gateway.md).
    """

    txn: str
    tables: tuple[str, ...]
    guest: bool = False


class BranchEpoch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The branch that a HEAD belongs to, in one epoch (docs/design/0031-branches.md).

    ``ref_id`` is the id of the branch's entry in the lake's HEAD, ``base`` the state that the
    branch was made from. ``closed``: the reason why nothing can be committed in this epoch any
    more. A branch that is ``moved`` continues in another epoch (docs/design/0034-rebase.md).
    ``keyed``: a commit of the branch has an idempotency key. ``separate_bases``: the base keeps
    states of tables in objects of their own (docs/design/0037-upkeep.md). ``earlier``: the epochs
    whose files the first HEAD of this one names. Those of a restored branch had another id.
    """

    id: str
    name: str
    ref_id: str
    base: BaseRef
    closed: Literal["", "deleted", "moved"] = ""
    keyed: bool = False
    separate_bases: bool = msgspec.field(default=False, name="apart")
    earlier: tuple[str, ...] = ()

    @property
    def begins_with_base(self) -> bool:
        """True if the epoch's first HEAD had exactly the tables of the base."""
        return number_of_epoch(self.id) == self.base.made

    @property
    def is_first(self) -> bool:
        """True if this is the branch's first epoch."""
        return str(number_of_epoch(self.id)) == self.ref_id.partition("-")[0]


class PageRef(msgspec.Struct, frozen=True, array_like=True):
    """An immutable page of older commits, with the range that it covers.

    ``level``: the page ends a block of pages of this level, and names those of the block that HEAD
    named before: a block of level n + 1 has ``PAGES_IN_BLOCK`` blocks of level n, and a single page
    is a block of level 0.
    """

    hash: str
    first_sequence: int
    last_sequence: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    level: int = 0

    @property
    def key(self) -> str:
        return f"{PAGES_PREFIX}/{self.first_sequence:020}-{self.hash}.json"


class Page(msgspec.Struct, frozen=True, omit_defaults=True):
    """Older commits that were moved out of HEAD, oldest first.

    ``older``: if the page ends a block, the refs of the block's other pages, oldest first.
    ``later`` and ``tables``: the other commits of the HEAD out of which the commits were moved, and
    its tables; empty and None if the page does not describe this HEAD. From them the state at each
    commit of the page follows without a newer object (docs/design/0007-history.md).
    """

    format: int
    nonce: str
    commits: tuple[CommitSummary, ...]
    older: tuple[PageRef, ...] = ()
    later: tuple[CommitSummary, ...] = ()
    tables: TableMap | None = None


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """``_lakevilla/HEAD.json`` (design, section 9).

    ``history_start`` is the last commit that is no longer kept. ``forgotten`` is the largest
    transaction id of the commits that are not kept: the kept history has all commits with a larger
    id. ``adopted`` is the last commit of the lake that this lake was copied from: commits published
    up to then are marked in the logs with that lake's id, not with this one's. ``as_log``: HEAD is
    not replaced; its successor is created next to it (``head_log``). ``rebuilt`` is the commit with
    which a lost HEAD was created again, from objects that the lakes ``former`` had left at this
    root; a lake that was adopted has its earlier id in ``former``, too. ``unconfirmed`` is true
    until a user has checked what the rebuild could not determine (docs/design/0021-head-lost.md).
    ``keys_lost``: only tables were left, so no client can determine which idempotency keys were
    used; it is true until a user has confirmed that, too. ``crowd`` and ``listed`` are hints
    (docs/design/0029-inbox.md): the number of commits that the last replacement with a list of the
    inbox has added, and the number of that replacement. A client that has not listed the inbox
    leaves both unchanged. ``epoch``: the epoch of the branch that the HEAD belongs to; None for the
    lake's own HEAD. ``policy`` and ``copies`` exist only in the lake's own HEAD. ``copies`` saves
    requests, and a client may drop it. ``needs``: what a client must know to use the lake, or the
    branch. ``kept``: what a client keeps although it does not know it
    (docs/design/0087-versions-side-by-side.md).
    """

    FORMAT = FORMAT_WITH_KEPT
    REMEDY = "restore the newest copy, or rebuild it with `lakevilla recover ROOT --rebuild-head`"

    format: int
    lake_id: str
    root: str
    nonce: str
    replacement: int = 0
    sequence: int = 0
    floor: str = NO_TXN
    aborted: tuple[str, ...] = ()
    history_start: int = 0
    forgotten: str = NO_TXN
    adopted: int = 0
    tables: TableMap = _NO_TABLES
    names: NameMap = _NO_NAMES
    commits: tuple[CommitSummary, ...] = ()
    pages: tuple[PageRef, ...] = ()
    reserved: tuple[Reservation, ...] = ()
    as_log: bool = False
    rebuilt: int = 0
    former: tuple[str, ...] = ()
    unconfirmed: bool = False
    keys_lost: bool = False
    crowd: int = 0
    listed: int = 0
    refs: RefMap = _NO_REFS
    epoch: BranchEpoch | None = msgspec.field(default=None, name="life")
    policy: Policy = _NO_POLICY
    copies: BaseCopies = _NO_COPIES
    needs: tuple[str, ...] = ()
    kept: dict[str, Any] = {}

    @property
    def home(self) -> str:
        """The epoch in whose directory new leaves and commit objects of this HEAD are stored."""
        return "" if self.epoch is None else self.epoch.id

    @property
    def page(self) -> PageRef | None:
        """The page of the newest commits that HEAD does not hold itself."""
        return self.pages[-1] if self.pages else None

    @property
    def is_protected(self) -> bool:
        """True if the lake refuses transactions that write directly to ``main``."""
        return self.policy.direct_writes == "refuse"

    def is_fenced(self, txn: str) -> bool:
        """Return whether ``txn`` can never commit through HEAD (any more)."""
        return txn <= self.floor or txn in self.aborted


def shown_names(head: Head) -> dict[str, str]:
    """Return for each location the one name that is shown for it, as far as HEAD is cached.

    A registered table is shown by its first name in HEAD: names are in the order of their
    registration, or, if they are so many that they are stored in leaves, in alphabetical order.
    Either way all clients show the same name. A table that a catalog keeps, and that has no
    registered name, is shown by its name in the catalog. All other tables are shown by location.
    """
    shown = dict(head.names.shown())
    for location, state in head.tables.cached().items():
        if state.catalog and location not in shown:
            name = shown_name(head, location)
            if name != location:
                shown[location] = name
    return shown


def shown_name(head: Head, location: str) -> str:
    """Return the name that ``shown_names`` gives a location, or else the location."""
    name = head.names.shown().get(location)
    if name is not None:
        return name
    state = head.tables.peek(location)
    if state is None or not state.catalog:
        return location
    name = name_in_catalog(state.catalog)
    is_taken = head.names.peek(name) is not None or head.tables.peek(name) is not None
    return location if is_taken else name


def shown_tables(head: Head) -> dict[str, str]:
    """Return the locations of the tables by their shown names, as far as HEAD is cached."""
    names = shown_names(head)
    return {
        names.get(location, location): location
        for location, state in sorted(head.tables.cached().items())
        if not (state.dropped or state.view)
    }


def application_id(head: Head) -> str:
    """Return the application id under which a table's log names the lake's newest commit in it."""
    return f"lakevilla/{head.lake_id}"


def empty_head(
    lake_id: str, root: str, nonce: str, format_version: int, *, as_log: bool = False
) -> Head:
    return Head(format=format_version, lake_id=lake_id, root=root, nonce=nonce, as_log=as_log)


def successor(
    head: Head,
    *,
    nonce: str,
    now_ms: int,
    commits: Iterable[CommitSummary] = (),
    tables: Mapping[str, TableState] | None = None,
    names: Mapping[str, str | None] | None = None,
    aborted: tuple[str, ...] | None = None,
    floor: str | None = None,
    history_start: int | None = None,
    forgotten: str | None = None,
    page: PageRef | None = None,
    reserved: tuple[Reservation, ...] | None = None,
    sizes: Mapping[str, Size] | None = None,
) -> Head:
    """Return the HEAD that replaces ``head``.

    ``commits`` must carry consecutive sequences from ``head.sequence + 1``; their timestamps are
    raised so that they grow strictly. If ``page`` is given, it has the oldest commits of ``head``,
    which the new HEAD omits. ``tables`` and ``names`` are the changed entries; None removes a name.
    ``sizes`` has the tables whose size is newly known. Every other table keeps its size, plus the
    growth that the commits state.

    Raises
    ------
    UnsupportedFormat
        One of the changed tables needs something that this library does not know.
    """
    kept = head.commits
    if page is not None:
        kept = tuple(commit for commit in kept if commit.sequence > page.last_sequence)
    last = timestamp_of_newest(head)
    sequence = head.sequence
    added: list[CommitSummary] = []
    for commit in commits:
        sequence += 1
        assert commit.sequence == sequence, (commit.sequence, sequence)
        last = max(now_ms, last + 1)
        added.append(msgspec.structs.replace(commit, timestamp_ms=last))
    added = _with_table_changes(head.tables, tables or {}, added)
    tables = {name: _with_kept(head.tables, name, one) for name, one in (tables or {}).items()}
    if tables and head.format >= FORMAT_WITH_REFS:
        tables = {name: _with_vacuum(head.tables, name, state) for name, state in tables.items()}
    tables = with_sizes(head.tables, tables or {}, added, sizes or {}, head.home)
    is_newer = any(one.vacuumed_ms is not None or one.size is not None for one in tables.values())
    format_ = max(head.format, FORMAT_WITH_REFS) if is_newer else head.format
    if any(one.view for one in tables.values()):
        format_ = max(format_, FORMAT_WITH_VIEWS)
    if any(one.needs or one.kept for one in tables.values()):
        format_ = max(format_, FORMAT_WITH_KEPT)
    return msgspec.structs.replace(
        head,
        format=format_,
        nonce=nonce,
        replacement=head.replacement + 1,
        sequence=sequence,
        commits=(*kept, *added),
        tables=head.tables if not tables else head.tables.updated(tables),
        names=head.names if not names else head.names.updated(names),
        aborted=head.aborted if aborted is None else aborted,
        floor=head.floor if floor is None else floor,
        history_start=head.history_start if history_start is None else history_start,
        forgotten=head.forgotten if forgotten is None else forgotten,
        pages=head.pages if page is None else with_page(head.pages, page),
        reserved=head.reserved if reserved is None else reserved,
    )


def timestamp_of_newest(head: Head) -> int:
    """Return the timestamp of the newest commit that a HEAD holds; 0 for an empty lake."""
    if head.commits:
        return head.commits[-1].timestamp_ms
    return 0 if head.epoch is None else head.epoch.base.timestamp_ms


def first_head(
    now: Head,
    epoch: BranchEpoch,
    tables: TableMap,
    names: NameMap,
    nonce: str,
    sequence: int = 0,
    clones: Mapping[str, RefEntry] | None = None,
    kept: dict[str, Any] | None = None,
) -> Head:
    """Return the first HEAD of an epoch of a branch: its tables and the version to continue from.

    The version is that of the base, or ``sequence`` if the branch had a higher version before.
    ``now`` is the lake's HEAD. The branch's history has no commits before this version. ``clones``
    are those of the base. ``kept`` is what the branch's HEAD before has to be kept.
    """
    sequence = max(sequence, epoch.base.sequence)
    states = tables.cached().values()
    needed = [FORMAT_WITH_CLONES if clones else FORMAT_WITH_REFS]
    if now.format >= FORMAT_WITH_VIEWS or any(one.view for one in states):
        needed.append(FORMAT_WITH_VIEWS)
    if now.format >= FORMAT_WITH_KEPT or epoch.earlier or kept or any(x.kept for x in states):
        needed.append(FORMAT_WITH_KEPT)
    return Head(
        max(needed),
        now.lake_id,
        now.root,
        nonce,
        sequence=sequence,
        history_start=sequence,
        tables=tables,
        names=names,
        as_log=now.as_log,
        refs=RefMap(clones),
        epoch=epoch,
        needs=now.needs,
        kept=kept or {},
    )


def with_refs(new: Head, refs: Mapping[str, RefEntry | None]) -> Head:
    """Return a HEAD that is about to be stored, with changed refs; None removes a ref."""
    has_clone = any(entry is not None and entry.kind == "clone" for entry in refs.values())
    needed = FORMAT_WITH_CLONES if has_clone else FORMAT_WITH_REFS
    return msgspec.structs.replace(new, format=max(new.format, needed), refs=new.refs.updated(refs))


def with_policy(new: Head, policy: Policy) -> Head:
    """Return a HEAD that is about to be stored, with another policy.

    Clients that do not know of policies refuse a HEAD of this format.
    """
    return msgspec.structs.replace(new, format=max(new.format, FORMAT_WITH_REFS), policy=policy)


def _with_table_changes(
    before: Mapping[str, TableState],
    after: Mapping[str, TableState],
    commits: Sequence[CommitSummary],
) -> list[CommitSummary]:
    """Return the commits of one replacement, each with the tables that it added or removed.

    Of the commits that touch the same table, the first adds it and the last removes it.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for commit in commits:
        for location in commit.tables:
            first.setdefault(location, commit.sequence)
            last[location] = commit.sequence
    recorded = []
    for commit in commits:
        touches = dict(commit.tables)
        for location, touch in commit.tables.items():
            old, new = before.get(location), after.get(location, before.get(location))
            is_first = first[location] == commit.sequence
            is_last = last[location] == commit.sequence
            was, now = _live_id(old), _live_id(new)
            if was is None and now is None and new is not None and not (is_first and is_last):
                # The table was made by one commit of the replacement and dropped by a later one.
                was = new.table_id if is_last else None
                now = new.table_id if is_first else None
            if was == now:
                continue
            has_left = was is not None and (is_last if now is None else is_first)
            has_entered = now is not None and is_first
            touches[location] = msgspec.structs.replace(
                touch, left=was if has_left else None, entered=now if has_entered else None
            )
        recorded.append(msgspec.structs.replace(commit, tables=touches))
    return recorded


def _with_kept(before: Mapping[str, TableState], name: str, state: TableState) -> TableState:
    """Return a table's new state with what clients keep of it, which callers may omit.

    Another table at the same place begins without.
    """
    known = before.get(name)
    if known is None:
        return state
    refuse_unknown(f"table {name}", known.needs)
    if known.table_id != state.table_id or not (known.needs or known.kept):
        return state
    return msgspec.structs.replace(
        state, needs=state.needs or known.needs, kept=state.kept or known.kept
    )


def _with_vacuum(before: Mapping[str, TableState], name: str, state: TableState) -> TableState:
    """Return a table's new state with the time of its last vacuum, which callers may omit."""
    known = before.get(name)
    if known is None or known.vacuumed_ms is None or state.vacuumed_ms is not None:
        return state
    return msgspec.structs.replace(state, vacuumed_ms=known.vacuumed_ms)


def with_sizes(
    before: Mapping[str, TableState],
    after: Mapping[str, TableState],
    commits: Sequence[CommitSummary],
    known: Mapping[str, Size],
    epoch: str = "",
) -> dict[str, TableState]:
    """Return the new states of tables, with their sizes and last changing and refreshing commits.

    Callers that make states may omit these values.

    The commits are counted one after the other, so it does not matter which of them are in the same
    replacement of HEAD.
    """
    sized = {}
    for location, state in after.items():
        was = before.get(location)
        size = known.get(location)
        changed = 0 if was is None else was.changed
        refreshed = None if was is None or was.table_id != state.table_id else was.refreshed
        if size is None and was is not None and not was.dropped and was.size is not None:
            size = was.size + sum(
                (touch.growth for _, touch in _touches(commits, location)), NOTHING
            )
        for commit, touch in _touches(commits, location):
            if touch.adds or touch.removes or touch.metadata or touch.entered is not None:
                changed = commit.sequence
            if touch.refreshed and state.format == "iceberg":
                refreshed = CommitRef(commit.txn, commit.hash, epoch)
        size = UNKNOWN if size is None or state.dropped else size.possible
        sized[location] = msgspec.structs.replace(
            state,
            size=None if size.is_unknown else size,
            changed=changed,
            refreshed=refreshed,
        )
    return sized


def _touches(commits: Sequence[CommitSummary], location: str) -> list[tuple[CommitSummary, Touch]]:
    """Return the commits that touch one table, each with its effect there."""
    return [(commit, commit.tables[location]) for commit in commits if location in commit.tables]


def _live_id(state: TableState | None) -> str | None:
    return None if state is None or state.dropped else state.table_id


def overfull(head: Head) -> bool:
    """Return whether the oldest commits must move to a page before more are added."""
    return _leaving(head.commits) > 0


def split_page(head: Head, nonce: str, format_version: int) -> Page:
    """Return the oldest commits of an ``overfull`` HEAD as a page.

    Only a page of the lake itself that has all tables in HEAD describes them: gc deletes leaves
    that HEAD does not name any more, and a branch derives its past from its base.
    """
    leaving = _leaving(head.commits)
    level = level_of_next(head.pages)
    older = tuple(ref for ref in head.pages if ref.level < level)
    page = Page(format_version, nonce, head.commits[:leaving], older)
    if head.home or head.tables.refs:
        return page
    return msgspec.structs.replace(page, later=head.commits[leaving:], tables=head.tables)


def level_of_next(pages: Sequence[PageRef]) -> int:
    """Return the level of the block that the next page after ``pages`` ends."""
    level = 0
    while sum(ref.level == level for ref in pages) >= PAGES_IN_BLOCK - 1:
        level += 1
    return level


def with_page(pages: Iterable[PageRef], page: PageRef) -> tuple[PageRef, ...]:
    """Return what HEAD names after one more page: of a block that is complete, the last page."""
    return (*(ref for ref in pages if ref.level >= page.level), page)


def _leaving(commits: Sequence[CommitSummary]) -> int:
    """Return how many of the oldest commits must move to a page."""
    by_number = PAGE_LENGTH if len(commits) >= COMMITS_IN_HEAD - 1 else 0
    # Encoding all commits at once is several times faster, and nearly always sufficient.
    if len(msgspec.json.encode(commits)) <= COMMITS_BYTES:
        return by_number
    sizes = [len(msgspec.json.encode(commit)) for commit in commits]
    # Reduce the list to three quarters of the limit, so that not every further commit makes a
    # page. The last commit stays: it states the time of HEAD.
    by_size, left = 0, sum(sizes)
    while left > COMMITS_BYTES * 3 // 4 and by_size < len(sizes) - 1:
        left -= sizes[by_size]
        by_size += 1
    return max(by_number, by_size)


def commits_after(head: Head, sequence: int) -> tuple[CommitSummary, ...] | None:
    """Return the commits of ``head`` after ``sequence``; None if some have moved to pages."""
    first = head.commits[0].sequence if head.commits else head.sequence + 1
    if sequence + 1 < first:
        return None
    return head.commits[sequence + 1 - first :]


def find_commit(commits: Iterable[CommitSummary], txn: str) -> CommitSummary | None:
    """Return the transaction's own commit among ``commits``, or the one of which it is a member."""
    for commit in commits:
        if (commit.txn == txn or txn in commit.members) and commit.kind == "transaction":
            return commit
    return None
