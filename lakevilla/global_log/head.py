"""HEAD: the newest global version, as a value and as pure functions on it.

Nothing here does I/O. ``successor`` is the only way a new HEAD comes about, so
that ``replacement`` counts every replacement and no two HEADs have equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from lakevilla.formats.iceberg.metadata.file import name_in_catalog
from lakevilla.formats.sizes import NOTHING, UNKNOWN, Size
from lakevilla.global_log.leaves import Leaf, LeafMap
from lakevilla.global_log.refs import BaseRef, Policy, RefEntry, RefMap, made_of_life
from lakevilla.global_log.summaries import Summary
from lakevilla.ids import NO_TXN

HEAD_KEY = "_lakevilla/HEAD.json"
PAGES_PREFIX = "_lakevilla/pages"
#: Older commits move to pages of this many, so HEAD keeps this many to twice less one.
PAGE_LENGTH = 64
COMMITS_IN_HEAD = 2 * PAGE_LENGTH
#: Wide commits leave sooner: the list takes no more than this, but for what came last.
COMMITS_BYTES = 80 * 1024
#: From the first ref, vacuum or size of a table on: a client that does not know of them would
#: drop them.
FORMAT_WITH_REFS = 2
#: From the first clone on: a client that does not know of them would take their places for free.
FORMAT_WITH_CLONES = 3


class Touch(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one commit did to one table, in short.

    ``published`` is the table's ``published`` that the commit set: all log
    entries up to it were validated against. Where the log held foreign entries that
    no HEAD had known before, ``first`` is the first version that the commit took in
    (``published`` the last).

    ``left`` and ``entered`` are the ids of the table that went out of the lake by this
    commit, and of the one that came in: no later HEAD tells when that was.

    ``summary`` is what it wrote there, where there was room to tell. ``grown``: by how much the
    table has grown by it (docs/design/0035-catalog-tables.md). ``refreshed``: it tells the tags of
    all files that a refresh may keep (docs/design/0038-reuse.md).
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
        """By how much the table has grown; unknown where a commit of an older client added files.

        What is not there counts as unknown only where something was done.
        """
        if self.grown is not None:
            return self.grown
        return UNKNOWN if self.adds or self.removes else NOTHING


class CommitSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """One commit in HEAD's list.

    ``hash`` names the commit object ``_lakevilla/commits/<txn>-<hash>.json``;
    it is empty for a ``foreign`` commit whose content is in the table's log.
    ``replaces``: the sequences that a ``reconcile`` commit stands in for.
    """

    sequence: int
    timestamp_ms: int
    kind: Literal["transaction", "foreign", "reconcile", "register"]
    txn: str
    hash: str
    tables: dict[str, Touch]
    replaces: tuple[int, ...] = ()


class PendingRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decided commit that HEAD does not know to be in the table's log.

    ``base``: the log version up to which the commit was validated; only
    foreign entries above it can make it unfit. ``life``: whose commit object it is, a branch's or
    ``""``, the lake's own.
    """

    sequence: int
    txn: str
    hash: str
    base: int
    life: str = ""


class CommitRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A commit object, and under whose directory it lies: a branch's, or the lake's (``""``)."""

    txn: str
    hash: str
    life: str = ""


class TableState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table in HEAD: log[..published] plus ``pending``, and never anything else.

    ``emptied_ms``: when somebody last noted that he deletes the data of a table that was
    dropped; until ``emptying`` is taken out again he is not through
    (docs/design/0013-names-used-again.md). ``catalog`` is the key of the table's pointer in a
    catalog (docs/design/0016-catalogs.md). ``vacuumed_ms``: files that no state since then needs
    may have been deleted, or may be yet (docs/design/0030-refs.md). ``size`` is how much the
    state holds; None where nothing of that is known. ``changed``: the last commit that changed its
    rows or metadata; 0 where that was before HEAD told. ``refreshed``: of an Iceberg table, the
    commit object that tells the tags of its files (docs/design/0038-reuse.md). ``let_go``: which
    ``unregister`` gives its claim away (docs/design/0051-claims-let-go.md).
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
    let_go: str = ""


class TableMap(LeafMap[TableState]):
    """The tables in HEAD, by location."""

    __slots__ = ()
    value = TableState
    leaf = Leaf[TableState]


#: Where a path leads that is no name of its table any more (docs/design/0023-renames.md).
NOWHERE = ""


class NameMap(LeafMap[str]):
    """Where the tables with a registered name are; ``NOWHERE`` for the path of a renamed one."""

    __slots__ = ()
    value = str
    leaf = Leaf[str]


#: Shared by all lakes without any: what is empty is never cut into leaves.
_NO_TABLES, _NO_NAMES, _NO_REFS = TableMap(), NameMap(), RefMap()
_NO_POLICY = Policy()


class Reservation(msgspec.Struct, frozen=True):
    """An escalated transaction that others let go first in these tables (design, section 7)."""

    txn: str
    tables: tuple[str, ...]


class BranchLife(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which branch a HEAD is of (docs/design/0031-branches.md).

    ``ref_id`` is the id of its entry in the lake's HEAD, ``base`` the state that it was made of.
    ``closed``: nothing is committed on it any more, and why. One that is ``moved`` goes on in
    another life (docs/design/0034-rebase.md). ``keyed``: a commit of it has an idempotency key.
    ``apart``: its base keeps tables apart from their logs (docs/design/0037-upkeep.md).
    """

    id: str
    name: str
    ref_id: str
    base: BaseRef
    closed: Literal["", "deleted", "moved"] = ""
    keyed: bool = False
    apart: bool = False

    @property
    def begins_with_base(self) -> bool:
        """Whether its first HEAD had the tables of its base, and no others besides."""
        return made_of_life(self.id) == self.base.made

    @property
    def is_first(self) -> bool:
        """Whether the branch had no life before."""
        return str(made_of_life(self.id)) == self.ref_id.partition("-")[0]


class PageRef(msgspec.Struct, frozen=True):
    """An immutable page of older commits and what it covers."""

    hash: str
    first_sequence: int
    last_sequence: int
    first_timestamp_ms: int
    last_timestamp_ms: int

    @property
    def key(self) -> str:
        return f"{PAGES_PREFIX}/{self.first_sequence:020}-{self.hash}.json"


class Page(msgspec.Struct, frozen=True):
    """Commits that left HEAD, oldest first, and the page before them."""

    format: int
    nonce: str
    commits: tuple[CommitSummary, ...]
    previous: PageRef | None


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """``_lakevilla/HEAD.json`` (design, section 9).

    ``history_start`` is the last commit that is no longer kept, ``forgotten`` the
    largest id among those: about a larger one the history that is kept tells all.
    ``adopted`` is the last commit of the lake that this one was copied from: what was
    published before then is marked in the logs with that lake's id, not with this one's.
    ``as_log``: it is not replaced, its successor is created beside it (``head_log``).
    ``rebuilt`` is the commit with which it was created again after it was lost, from what lakes
    ``former`` had left at this root; ``unconfirmed`` until somebody has looked at what could not
    be told (docs/design/0021-head-lost.md). ``keys_lost``: nothing but tables was left, so nobody
    can tell which idempotency keys were used; until somebody has confirmed that, too.
    ``crowd`` and ``listed`` are hints (docs/design/0029-inbox.md): how many commits the last HEAD
    held that was made by a look at the inbox, and that HEAD's ``replacement``. Whoever has not
    looked there leaves both as they are.
    ``life``: whose HEAD it is; None for the lake's own. ``policy`` is of the lake's own alone.
    """

    FORMAT = FORMAT_WITH_CLONES
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
    page: PageRef | None = None
    reserved: tuple[Reservation, ...] = ()
    as_log: bool = False
    rebuilt: int = 0
    former: tuple[str, ...] = ()
    unconfirmed: bool = False
    keys_lost: bool = False
    crowd: int = 0
    listed: int = 0
    refs: RefMap = _NO_REFS
    life: BranchLife | None = None
    policy: Policy = _NO_POLICY

    @property
    def home(self) -> str:
        """The life that its leaves and commit objects are of."""
        return "" if self.life is None else self.life.id

    @property
    def is_protected(self) -> bool:
        """Whether it takes no transaction that writes directly."""
        return self.policy.direct_writes == "refuse"

    def is_fenced(self, txn: str) -> bool:
        """Whether ``txn`` can never commit through HEAD (any more)."""
        return txn <= self.floor or txn in self.aborted


def shown_names(head: Head) -> dict[str, str]:
    """Per location the one name by which it is shown, as far as HEAD is at hand.

    The first that it was registered under: HEAD keeps names in that order; those of a lake so
    large that they lie in leaves are in the order of the alphabet. Either way all clients show
    the same. A table that a catalog keeps, and that has no such name, has its name there. The
    others have their location for one.
    """
    shown: dict[str, str] = {}
    names, tables = head.names.at_hand(), head.tables.at_hand()
    for name, location in names.items():
        shown.setdefault(location, name)
    for location, state in tables.items():
        if state.catalog and location not in shown:
            name = name_in_catalog(state.catalog)
            if name not in names and name not in tables:
                shown[location] = name
    return shown


def shown_tables(head: Head) -> dict[str, str]:
    """The locations of the tables by the names that are shown, as far as HEAD is at hand."""
    names = shown_names(head)
    return {
        names.get(location, location): location
        for location, state in sorted(head.tables.at_hand().items())
        if not state.dropped
    }


def application_id(head: Head) -> str:
    """The application id of Delta's ``txn`` action that proves publishing."""
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
    """The HEAD that replaces ``head``.

    ``commits`` must carry consecutive sequences from ``head.sequence + 1``;
    their timestamps are raised so that they grow strictly. With ``page`` the
    oldest commits of ``head`` have moved there. ``tables`` and ``names`` are what
    changes; None takes a name out. ``sizes`` are of tables whose size is known anew; that of
    each other one is what it was, with what the commits say of its growth.
    """
    kept = head.commits
    if page is not None:
        kept = tuple(commit for commit in kept if commit.sequence > page.last_sequence)
    last = moment_of(head)
    sequence = head.sequence
    added: list[CommitSummary] = []
    for commit in commits:
        sequence += 1
        assert commit.sequence == sequence, (commit.sequence, sequence)
        last = max(now_ms, last + 1)
        added.append(msgspec.structs.replace(commit, timestamp_ms=last))
    added = _with_lives(head.tables, tables or {}, added)
    if tables and head.format >= FORMAT_WITH_REFS:
        tables = {name: _with_vacuum(head.tables, name, state) for name, state in tables.items()}
    tables = with_sizes(head.tables, tables or {}, added, sizes or {}, head.home)
    is_newer = any(one.vacuumed_ms is not None or one.size is not None for one in tables.values())
    return msgspec.structs.replace(
        head,
        format=max(head.format, FORMAT_WITH_REFS) if is_newer else head.format,
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
        page=head.page if page is None else page,
        reserved=head.reserved if reserved is None else reserved,
    )


def moment_of(head: Head) -> int:
    """When the newest commit that a HEAD holds was made; 0 for an empty lake."""
    if head.commits:
        return head.commits[-1].timestamp_ms
    return 0 if head.life is None else head.life.base.timestamp_ms


def first_head(
    now: Head,
    life: BranchLife,
    tables: TableMap,
    names: NameMap,
    nonce: str,
    sequence: int = 0,
    clones: Mapping[str, RefEntry] | None = None,
) -> Head:
    """The first HEAD of a life of a branch: its tables, and the version that it goes on from.

    That is its base's, or ``sequence`` if the branch had come further before. ``now`` is the lake's
    HEAD. Nothing from before is in the branch's history. ``clones`` are those of its base.
    """
    sequence = max(sequence, life.base.sequence)
    return Head(
        FORMAT_WITH_CLONES if clones else FORMAT_WITH_REFS,
        now.lake_id,
        now.root,
        nonce,
        sequence=sequence,
        history_start=sequence,
        tables=tables,
        names=names,
        as_log=now.as_log,
        refs=RefMap(clones),
        life=life,
    )


def with_refs(new: Head, refs: Mapping[str, RefEntry | None]) -> Head:
    """A HEAD that is about to be stored, with other refs; None takes one out."""
    has_clone = any(entry is not None and entry.kind == "clone" for entry in refs.values())
    asked = FORMAT_WITH_CLONES if has_clone else FORMAT_WITH_REFS
    return msgspec.structs.replace(new, format=max(new.format, asked), refs=new.refs.updated(refs))


def with_policy(new: Head, policy: Policy) -> Head:
    """A HEAD that is about to be stored, with another policy. Who knows of none is refused."""
    return msgspec.structs.replace(new, format=max(new.format, FORMAT_WITH_REFS), policy=policy)


def _with_lives(
    before: Mapping[str, TableState],
    after: Mapping[str, TableState],
    commits: Sequence[CommitSummary],
) -> list[CommitSummary]:
    """The commits of one replacement, each telling which tables it took out or brought in.

    Of those that touch the same table the first brings it in, and the last takes it out.
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
                # Made by one commit of the replacement and dropped by a later one.
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


def _with_vacuum(before: Mapping[str, TableState], name: str, state: TableState) -> TableState:
    """A new state of a table, with the last vacuum: whoever makes one need not think of it."""
    known = before.get(name)
    if known is None or known.vacuumed_ms is None or state.vacuumed_ms is not None:
        return state
    return msgspec.structs.replace(state, vacuumed_ms=known.vacuumed_ms)


def with_sizes(
    before: Mapping[str, TableState],
    after: Mapping[str, TableState],
    commits: Sequence[CommitSummary],
    known: Mapping[str, Size],
    life: str = "",
) -> dict[str, TableState]:
    """The new states of tables with their sizes, and who has changed and refreshed them last.

    Whoever makes a state need not think of these.

    The commits of one replacement are added one after the other, so it does not matter which of
    them come together in one.
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
                refreshed = CommitRef(commit.txn, commit.hash, life)
        size = UNKNOWN if size is None or state.dropped else size.possible
        sized[location] = msgspec.structs.replace(
            state,
            size=None if size.is_unknown else size,
            changed=changed,
            refreshed=refreshed,
        )
    return sized


def _touches(commits: Sequence[CommitSummary], location: str) -> list[tuple[CommitSummary, Touch]]:
    """What the commits did to one table."""
    return [(commit, commit.tables[location]) for commit in commits if location in commit.tables]


def _live_id(state: TableState | None) -> str | None:
    return None if state is None or state.dropped else state.table_id


def overfull(head: Head) -> bool:
    """Whether the oldest commits must move to a page before more are added."""
    return _leaving(head.commits) > 0


def split_page(head: Head, nonce: str, format_version: int) -> Page:
    """The oldest commits of an ``overfull`` HEAD as a page."""
    return Page(format_version, nonce, head.commits[: _leaving(head.commits)], head.page)


def _leaving(commits: Sequence[CommitSummary]) -> int:
    """How many of the oldest commits must go."""
    by_number = PAGE_LENGTH if len(commits) >= COMMITS_IN_HEAD - 1 else 0
    # All at once is several times faster than one by one, and nearly always enough.
    if len(msgspec.json.encode(commits)) <= COMMITS_BYTES:
        return by_number
    sizes = [len(msgspec.json.encode(commit)) for commit in commits]
    # Down to three quarters, so that not every commit from now on makes a page.
    # The last one stays: it tells what time HEAD is of.
    by_size, left = 0, sum(sizes)
    while left > COMMITS_BYTES * 3 // 4 and by_size < len(sizes) - 1:
        left -= sizes[by_size]
        by_size += 1
    return max(by_number, by_size)


def commits_after(head: Head, sequence: int) -> tuple[CommitSummary, ...] | None:
    """The commits of ``head`` after ``sequence``; None if some have moved to pages."""
    first = head.commits[0].sequence if head.commits else head.sequence + 1
    if sequence + 1 < first:
        return None
    return head.commits[sequence + 1 - first :]


def find_commit(commits: Iterable[CommitSummary], txn: str) -> CommitSummary | None:
    """The transaction's own commit among ``commits``."""
    for commit in commits:
        if commit.txn == txn and commit.kind == "transaction":
            return commit
    return None
