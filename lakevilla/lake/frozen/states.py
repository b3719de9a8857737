"""States of a lake by ref, version or time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Protocol

import msgspec

from lakevilla.errors import (
    InvalidOperation,
    LakeVillaError,
    RefNotFound,
    StoreError,
    VersionNotFound,
)
from lakevilla.global_log.bases import Base, load_base, load_base_tables
from lakevilla.global_log.head import CommitSummary, Head, TableMap, TableState
from lakevilla.global_log.history import Timeline
from lakevilla.global_log.refs import RefEntry, RefMap, parsed
from lakevilla.global_log.repo import fetch_leaves, load_all, load_refs, load_tables
from lakevilla.lake.context import Context, Event
from lakevilla.lake.frozen.branch_head import branch_at, frozen_now, open_branch
from lakevilla.lake.frozen.frozen import frozen_view, mounted_view
from lakevilla.lake.frozen.mounts import (
    Mount,
    load_clones,
    mount_of,
    mounted,
    mounted_at,
    mounted_id,
    mounted_in_base,
    places_of,
    shown_by,
    state_in,
)
from lakevilla.lake.past import Past, past_at, view_at
from lakevilla.lake.table_log import refresh
from lakevilla.lake.view import View, build_view
from lakevilla.store.effects import Program, parallel
from lakevilla.store.location import at_home

# -------------------- states
#
# Frozen states of the lake: its state at a global version, or the state that a ref keeps.
#
# When two states are compared, only the tables in which they may differ are opened.


#: The most tables whose logs are checked for foreign commits; in a larger lake only HEAD is read.
MOST_TABLES = 256
#: The most refs that an error for a missing ref names.
_OFFERED = 20

#: A state, given by its version, its time in milliseconds, or a ref's name; None: HEAD's state.
StateName = tuple[str, int | str] | None


class LakeState(Protocol):
    """The state of all tables of a lake at one time; it never changes.

    ``version``: the global version of main that has this state.
    """

    @property
    def version(self) -> int: ...

    @property
    def name(self) -> str:
        """The name of the state in messages."""

    def tables(self) -> Program[Iterable[str]]:
        """Return the locations of all tables in the state."""

    def views(self, context: Context, locations: Sequence[str]) -> Program[dict[str, View | None]]:
        """Return the states of these tables; None for a table that this state does not have.

        Raises
        ------
        VersionNotFound
            The state of a table is not known any more.
        """


@dataclass(frozen=True, slots=True)
class AtVersion:
    """The lake at a global version of main."""

    timeline: Timeline
    version: int

    @property
    def name(self) -> str:
        return f"global version {self.version}"

    def tables(self) -> Program[Iterable[str]]:
        past = yield from past_at(self.timeline, self.version)
        return [*past.head.tables, *(yield from all_mounted_then(past))]

    def views(self, context: Context, locations: Sequence[str]) -> Program[dict[str, View | None]]:
        past = yield from past_at(self.timeline, self.version, locations)
        views = yield from parallel([self._view(context, past, location) for location in locations])
        return dict(zip(locations, views, strict=True))

    def _view(self, context: Context, past: Past, location: str) -> Program[View | None]:
        if location in past.head.tables:
            return (yield from view_at(context, past, location))
        mount = yield from mounted_then(past, location)
        return None if mount is None else (yield from mounted_view(context, mount, location))


@dataclass(frozen=True, slots=True)
class AtHead:
    """The lake's present state: HEAD, and foreign entries in logs that HEAD does not know."""

    head: Head

    @property
    def version(self) -> int:
        return self.head.sequence

    @property
    def name(self) -> str:
        return "now"

    def tables(self) -> Program[Iterable[str]]:
        yield from load_tables(self.head)
        own = [location for location, state in self.head.tables.items() if not state.dropped]
        return [*own, *(yield from mounted(self.head))]

    def views(self, context: Context, locations: Sequence[str]) -> Program[dict[str, View | None]]:
        yield from load_tables(self.head, locations)
        views = yield from parallel([self._view(context, location) for location in locations])
        return dict(zip(locations, views, strict=True))

    def _view(self, context: Context, location: str) -> Program[View | None]:
        state = self.head.tables.get(location)
        if state is None:
            mount = yield from mount_of(self.head, location)
            return None if mount is None else (yield from mounted_view(context, mount, location))
        if state.dropped:
            return None
        tail = yield from refresh(context, location)
        return (yield from build_view(context, self.head, location, tail))


@dataclass(frozen=True, slots=True)
class AtBase:
    """The lake in the state of a base: that of a tag, or of a branch's present state."""

    base: Base

    @property
    def version(self) -> int:
        return self.base.sequence

    @property
    def name(self) -> str:
        return f"{self.base.kind} {self.base.name!r}"

    def tables(self) -> Program[Iterable[str]]:
        yield from load_base_tables(self.base)
        own = [location for location in self.base.tables if self.base.has(location)]
        return [*own, *(yield from mounted_in_base(self.base))]

    def views(self, context: Context, locations: Sequence[str]) -> Program[dict[str, View | None]]:
        views = yield from parallel([self._view(context, location) for location in locations])
        return dict(zip(locations, views, strict=True))

    def _view(self, context: Context, location: str) -> Program[View | None]:
        if (yield from state_in(self.base, location)) is None:
            return None
        return (yield from frozen_view(context, self.base, location))


@dataclass(frozen=True, slots=True)
class SeenBase(AtBase):
    """The lake in the state of a base, always read in the context of the lake itself.

    In the context of a branch, each log ends with the branch's own base, which may be another base.
    """

    seen_by: Context

    def views(self, context: Context, locations: Sequence[str]) -> Program[dict[str, View | None]]:
        return (yield from AtBase.views(self, self.seen_by, locations))


def same_tables(before: Base, after: Base) -> Program[bool]:
    """Return whether two bases have the same tables under the same names."""
    yield from fetch_leaves(before.names, before.names.missing())
    yield from fetch_leaves(after.names, after.names.missing())
    if before.names != after.names or (yield from shown_in_one(before.clones, after.clones)):
        return False
    return not (yield from _unequal(before.tables, after.tables, {**before.clones, **after.clones}))


def state_of(head: Head, name: StateName) -> Program[LakeState]:
    """Return the state that a name means, by a HEAD that is at least as new as the state.

    Raises
    ------
    VersionNotFound, RefNotFound
    """
    timeline = Timeline.of(head)
    match name:
        case None:
            return AtHead(head)
        case ("version", int(version)):
            timeline.check(version)
            return AtVersion(timeline, version)
        case ("time", int(instant)):
            return AtVersion(timeline, (yield from timeline.by(instant)))
        case ("ref", str(ref)):
            return AtBase((yield from base_of(head, ref)))
    raise AssertionError(name)


def base_of(head: Head, ref: str) -> Program[Base]:
    """Return the state of a ref as a base: of a tag, a branch, or a branch's version (``etl@57``).

    Raises
    ------
    RefNotFound
    VersionNotFound
        The branch has no such version.
    InvalidOperation
        The ref is a clone.
    """
    name, version = parsed(ref)
    yield from load_refs(head, [name])
    entry = head.refs.get(name)
    if entry is None:
        raise (yield from not_found(head, name))
    if entry.kind == "clone":
        raise InvalidOperation(
            f"{name!r} is a clone, whose tables are at {name}/... in the lake itself, and no state "
            "of the lake: give a version, a tag or a branch"
        )
    if entry.kind != "branch":
        base = yield from load_base(entry.base)
        if version not in (None, base.sequence):
            raise VersionNotFound(
                f"{entry.kind} {name!r} is global version {base.sequence} alone: leave out "
                f"@{version}, or read it from the lake itself"
            )
        return base
    branch = yield from open_branch(name, entry)
    if version is None:
        return (yield from frozen_now(branch))
    return (yield from at_home(entry.epoch, branch_at(branch, version)))


def commit_of(head: Head, name: StateName) -> Program[CommitSummary | None]:
    """Return the commit that made a version of the lake or of a branch; None if it is not kept.

    Raises
    ------
    RefNotFound
        The branch is not there any more.
    """
    match name:
        case ("version", int(version)):
            return (yield from Timeline.of(head).at(version))
        case ("ref", str(ref)):
            branch, number = parsed(ref)
            yield from load_refs(head, [branch])
            entry = head.refs.get(branch)
            if entry is not None and entry.kind == "branch" and number is not None:
                own = (yield from open_branch(branch, entry)).held.head
                return (yield from at_home(entry.epoch, Timeline.of(own).at(number)))
    return None


def not_found(head: Head | None, name: str) -> Program[RefNotFound]:
    """Return the error for a name that no ref has."""
    yield from load_refs(head)
    names = [] if head is None else sorted(head.refs)
    if not names:
        return RefNotFound(
            f"this lake has no ref {name!r}: there are none yet, and branch({name!r}) or "
            f"tag({name!r}) makes one"
        )
    near = get_close_matches(name, names, _OFFERED)
    shown = [*near, *(other for other in names if other not in near)][:_OFFERED]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    there = f"there are {', '.join(map(repr, shown))}{more}"
    return RefNotFound(f"this lake has no ref {name!r}: {there}")


@dataclass(frozen=True, slots=True)
class Between:
    """The tables in which two states may differ.

    ``made`` are the tables that were created between the states. If any other table is in only one
    of the states, it was added to the lake with an existing log.
    """

    tables: tuple[str, ...]
    made: frozenset[str]


def between(context: Context, head: Head, before: LakeState, after: LakeState) -> Program[Between]:
    """Return the tables in which two states may differ, without opening tables that are equal.

    Versions that are kept are compared by the commits between them, other states by their table
    maps. If one state is HEAD's, the log of each table is checked for foreign commits that HEAD
    does not know, unless there are very many tables.
    """
    tables: set[str] = set()
    if isinstance(before, AtHead) != isinstance(after, AtHead):
        tables |= yield from _hidden(context, head)
    one, other = (yield from _clones(head, before)), (yield from _clones(head, after))
    mounted = yield from shown_in_one(one, other)
    tables |= mounted
    if isinstance(before, AtBase) and isinstance(after, AtBase):
        clones = {**one, **other}
        tables |= yield from _unequal(before.base.tables, after.base.tables, clones)
    elif isinstance(before, AtBase) or isinstance(after, AtBase):
        for state in (before, after):
            tables |= yield from _since(head, state)
    else:
        last = max(before.version, after.version)
        commits = yield from Timeline.of(head).after(min(before.version, after.version))
        tables |= {location for one in commits if one.sequence <= last for location in one.tables}
    made = yield from _made(head, before, after)
    return Between(tuple(sorted(tables)), made | mounted)


def _clones(head: Head, state: LakeState) -> Program[dict[str, RefEntry]]:
    """Return the clones that a state shows."""
    if isinstance(state, AtBase):
        return state.base.clones
    clones = yield from load_clones(head)
    return clones if isinstance(state, AtHead) else since_version(clones, state.version)


def _since(head: Head, state: LakeState) -> Program[set[str]]:
    """Return the tables that may have another state in HEAD than in ``state``."""
    if isinstance(state, AtBase):
        clones = {**state.base.clones, **(yield from load_clones(head))}
        return (yield from _unequal(state.base.tables, head.tables, clones))
    commits = yield from Timeline.of(head).after(state.version)
    return {location for commit in commits for location in commit.tables}


def _unequal(one: TableMap, other: TableMap, clones: Iterable[str]) -> Program[set[str]]:
    """Return the tables whose entries in two maps differ; leaves that both share are not read."""
    common = {ref.hash for ref in one.refs} & {ref.hash for ref in other.refs}
    for found in (one, other):
        yield from fetch_leaves(found, [r for r in found.missing() if r.hash not in common])
    before, after = one.beyond(common), other.beyond(common)
    locations = {*before, *after}
    differ = {
        location
        for location in locations
        if _shown(before.get(location)) != _shown(after.get(location))
    }
    return differ | hidden_in_one(clones, before, after)


def _shown(state: TableState | None) -> object:
    """Return the parts of a table's entry that determine the table's state."""
    if state is None or state.dropped:
        return None
    return state.table_id, state.published, state.pending


def _made(head: Head, before: LakeState, after: LakeState) -> Program[frozenset[str]]:
    """Return the tables that were created between two states, as far as that is known."""
    made: set[str] = set()
    for state in (before, after):
        if isinstance(state, AtBase):
            cached = state.base.tables.cached()
            # A tombstone means that the table was dropped in this state.
            made |= {p for p, known in cached.items() if known.published < 0 or known.dropped}
    first = min(before.version, after.version)
    try:
        commits = yield from Timeline.of(head).after(first)
    except VersionNotFound:
        return frozenset(made)
    return frozenset(made | _created(commits))


def _created(commits: Iterable[CommitSummary]) -> set[str]:
    """Return the tables that were added to the lake with the first entry of their log."""
    return {
        location
        for commit in commits
        for location, touch in commit.tables.items()
        if touch.entered is not None and touch.left is None and touch.published < 0
    }


def _hidden(context: Context, head: Head) -> Program[set[str]]:
    """Return the tables whose logs hold entries that HEAD does not know."""
    if head.tables.missing() or len(head.tables) > MOST_TABLES:
        context.notify(
            Event(
                "left_out",
                None,
                f"the lake has more than {MOST_TABLES} tables: commits of other clients are "
                "included only for tables that a transaction has written since",
                {"tables": MOST_TABLES},
            )
        )
        return set()
    live = [location for location, state in head.tables.items() if not state.dropped]
    views = yield from parallel([_view_or_none(context, head, location) for location in live])
    return {view.location for view in views if view is not None and view.placement.hidden}


def _view_or_none(context: Context, head: Head, location: str) -> Program[View | None]:
    """Return a table's present state; None if it can't be read, so that other tables can be."""
    try:
        tail = yield from refresh(context, location)
        return (yield from build_view(context, head, location, tail))
    except StoreError:
        raise
    except LakeVillaError:
        return None


def chosen_places(
    head: Head, locations: Iterable[str], patterns: Sequence[str] | None
) -> Program[list[str]]:
    """Return the locations of tables that match one of the patterns; all if there are no patterns.

    A pattern may match a name of the table or its path. Raises ``InvalidOperation`` if no table
    matches a pattern.
    """
    if patterns is None:
        return list(locations)
    yield from load_all(head)
    wanted = list(locations)
    called = called_by([*head.tables, *(yield from mounted(head))], head.names)
    for location in wanted:
        called.setdefault(location, {location})
    fitting = that_fit(called, patterns)
    return [location for location in wanted if location in fitting]


# -------------------- patterns
#
# Patterns for tables, which match a table's names or its path.


def called_by(locations: Iterable[str], names: Mapping[str, str]) -> dict[str, set[str]]:
    """Return all names of each of these tables, including its path; ``names`` must be cached."""
    called = {location: {location} for location in locations}
    for name, location in names.items():
        if location in called:
            called[location].add(name)
    return called


def that_fit(
    called: Mapping[str, Iterable[str]], patterns: Sequence[str], argument: str = "tables"
) -> set[str]:
    """Return the tables that match one of the patterns.

    Raises ``InvalidOperation`` if no table matches a pattern.
    """
    found: set[str] = set()
    for pattern in patterns:
        fitting = {
            location
            for location, names in called.items()
            if any(fnmatchcase(name, pattern) for name in names)
        }
        if not fitting:
            raise InvalidOperation(f"{argument}: no table name of the lake matches {pattern!r}")
        found |= fitting
    return found


# -------------------- mounted then
#
# Tables that clones showed at an older version of the lake, before a commit wrote or dropped them.
#
# HEAD has the present clones, each with the version since which it exists. The first commit after a
# version that touches a table shows whether a clone showed the table at that version: if so, the
# commit adds the table with the id that its clone determines, or drops a table that was never
# added.


def then_view(context: Context, past: Past, location: str) -> Program[View]:
    """Return a table's state at a global version like ``view_at``, also if a clone showed it."""
    mount = yield from mounted_then(past, location)
    if mount is not None:
        return (yield from mounted_view(context, mount, location))
    return (yield from view_at(context, past, location))


def with_clones(past: Past) -> Program[Past]:
    """Return ``past`` with a HEAD that has the clones of that version.

    Tables of clones that had been dropped at that version have tombstones in this HEAD.
    """
    clones = yield from load_clones(past.timeline.head)
    if not clones:
        return past
    dropped = yield from tombstones_then(past)
    head = msgspec.structs.replace(
        past.head,
        tables=past.head.tables.updated(dropped),
        refs=RefMap({name: one for name, one in clones.items() if one.since <= past.sequence}),
    )
    return Past(past.timeline, head, past.known)


def mounted_then(past: Past, location: str) -> Program[Mount | None]:
    """Return the clone that showed a table at a version, or None."""
    now = past.timeline.head
    if not now.refs or past.head.tables.get(location) is not None:
        return None
    mount = yield from mounted_at(now, location)
    if mount is None or mount.entry.since > past.sequence:
        return None
    yield from past.load_now([location])
    if now.tables.get(location) is None:
        return mount
    later = yield from past.timeline.after(past.sequence)
    return mount if _was_mounted(later, location, mounted_id(mount.entry.id, location)) else None


def all_mounted_then(past: Past) -> Program[list[str]]:
    """Return the places of all tables that clones showed at a version."""
    now = past.timeline.head
    clones = yield from load_clones(now)
    if not clones:
        return []
    later = yield from past.timeline.after(past.sequence)
    touched = {
        location for commit in later for location in commit.tables if _is_below(clones, location)
    }
    locations = [*(yield from mounted(now)), *touched]
    found = []
    for location in dict.fromkeys(locations):
        if (yield from mounted_then(past, location)) is not None:
            found.append(location)
    return found


def tombstones_then(past: Past) -> Program[dict[str, TableState]]:
    """Return tombstones for tables of clones that had been dropped at a version.

    A base of that state needs the tombstones, so that its clones do not show these tables.
    """
    now = past.timeline.head
    clones = yield from load_clones(now)
    found: dict[str, TableState] = {}
    if not clones:
        return found
    yield from past.load_now()
    for location, state in now.tables.items():
        if not _is_below(clones, location) or past.head.tables.get(location) is not None:
            continue
        if (yield from mounted_then(past, location)) is None:
            found[location] = TableState(state.table_id, -1, dropped=True, format=state.format)
    return found


def _is_below(clones: Iterable[str], location: str) -> bool:
    return not set(places_of(location)).isdisjoint(clones)


def _was_mounted(later: Sequence[CommitSummary], location: str, table_id: str) -> bool:
    for commit in later:
        touch = commit.tables.get(location)
        if touch is not None:
            # The drop of a table that was never made has neither ``left`` nor ``entered``.
            return touch.entered == table_id or (touch.entered is None and touch.left is None)
    return False


# -------------------- mounts between
#
# The locations at which clones may show different tables in two states of the lake.


def shown_in_one(
    before: Mapping[str, RefEntry], after: Mapping[str, RefEntry]
) -> Program[set[str]]:
    """Return the tables that only one of two sets of clones shows, or that both show differently.

    The tables are given by their locations.
    """
    ids = {name: entry.id for name, entry in before.items()}
    same = {name for name, entry in after.items() if ids.get(name) == entry.id}
    found: set[str] = set()
    for clones in (before, after):
        others = {name: entry for name, entry in clones.items() if name not in same}
        found |= (yield from shown_by(others)).keys()
    return found


def since_version(clones: Mapping[str, RefEntry], version: int) -> dict[str, RefEntry]:
    """Return those of ``clones`` that existed at a version."""
    return {name: entry for name, entry in clones.items() if entry.since <= version}


def hidden_in_one(
    clones: Iterable[str], before: Mapping[str, TableState], after: Mapping[str, TableState]
) -> set[str]:
    """Return the locations below clones for which only one of two maps of tables has an entry.

    The entry may be a tombstone. If a map has no entry, the clone may show a table there.
    """
    names = set(clones)
    if not names:
        return set()
    return {
        location
        for location in before.keys() ^ after.keys()
        if not names.isdisjoint(places_of(location))
    }
