"""Lists of a lake's tables, page by page, all pages in one state (docs/design/0085-paging.md).

As few of HEAD's leaves as possible are read. If the lake was changed since the first page, the
tables of its state follow from the present leaves and from the commits since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
from blake3 import blake3

from lakevilla.errors import VersionNotFound
from lakevilla.formats.iceberg.metadata.file import name_in_catalog
from lakevilla.global_log.head import NOWHERE, CommitSummary, Head, TableState
from lakevilla.global_log.history import Timeline
from lakevilla.global_log.leaves import HIGHEST
from lakevilla.global_log.refs import RefEntry, RefMap
from lakevilla.global_log.repo import fetch_leaves, load_names
from lakevilla.lake.frozen.mounts import load_clones, mounted_between
from lakevilla.lake.frozen.states import since_version, with_clones
from lakevilla.lake.past import check_known, past_at, tables_before
from lakevilla.store.effects import Program

#: The number of tables that a leaf of a large lake has at least.
_IN_A_LEAF = 200


@dataclass(frozen=True, slots=True)
class ListedName:
    """A table in a list sorted by ``key``; the next page begins after the last ``key``."""

    key: str
    name: str
    location: str
    state: TableState


@dataclass(frozen=True, slots=True)
class ListedState:
    """The state that a list shows: that of ``head`` before the commits ``later``, oldest first.

    ``version`` is its global version. ``marks`` is a digest of what no commit summary describes:
    the registered names, and the clones.
    """

    head: Head
    version: int
    marks: str
    called: Mapping[str, str]
    later: Sequence[CommitSummary] = ()


class KnownState(Protocol):
    """The state that the first page was of, as a token names it."""

    @property
    def version(self) -> int: ...

    @property
    def marks(self) -> str: ...


def present_state(head: Head) -> Program[ListedState]:
    """Return the state of a HEAD, for a first page."""
    yield from load_names(head)
    called = _called(head)
    marks = _marks(called, (yield from load_clones(head)))
    return ListedState(head, head.sequence, marks, called)


def state_again(head: Head, known: KnownState) -> Program[ListedState]:
    """Return the state of the pages before, at their version.

    Raises
    ------
    VersionNotFound
        The version is not kept any more, or names have changed in a way that HEAD does not tell.
    """
    yield from load_names(head)
    later: Sequence[CommitSummary] = ()
    if known.version != head.sequence:
        timeline = Timeline.of(head)
        check_known(timeline, known.version)
        later = yield from timeline.after(known.version)
    called = _called(head)
    for location in _entered(later):
        called.pop(location, None)
    clones = since_version((yield from load_clones(head)), known.version)
    marks = _marks(called, clones)
    if marks != known.marks:
        raise VersionNotFound(
            f"tables were renamed, or clones made or deleted, since global version {known.version}"
        )
    if later and clones:
        # What a clone showed depends on tables that were written or dropped since.
        past = yield from with_clones((yield from past_at(timeline, known.version)))
        return ListedState(past.head, known.version, marks, called)
    then = msgspec.structs.replace(head, refs=RefMap(clones))
    return ListedState(then, known.version, marks, called, later)


def listed(
    state: ListedState, prefix: str, after: str | None, limit: int | None
) -> Program[tuple[list[ListedName], bool]]:
    """Return the tables after ``after`` that begin with ``prefix``, and whether there are more.

    A table is sorted by its registered name, or else by its location.
    """
    head, called = state.head, state.called
    first = max(prefix, "" if after is None else f"{after}\0")
    last = prefix + HIGHEST
    registered = sorted(
        (name, location) for location, name in called.items() if first <= name < last
    )
    yield from fetch_leaves(
        head.tables, head.tables.missing(location for _, location in registered)
    )
    there = _at(state, [location for _, location in registered])
    shown = [
        ListedName(name, name, location, there[location])
        for name, location in registered
        if location in there
    ]
    mounted = yield from mounted_between(head, first, last)
    found: list[ListedName] = []
    ranges = head.tables.ranges(first, last)
    at_once = len(ranges) if limit is None else 1 + limit // _IN_A_LEAF
    for number, (start, end) in enumerate(ranges):
        if number % at_once == 0:
            # Fetch the leaves up to the likely end of the page in one round.
            until = ranges[min(number + at_once, len(ranges)) - 1][0]
            yield from fetch_leaves(head.tables, head.tables.missing_between(start, until))
        in_range = [
            ListedName(location, _name_of(location, one), location, one)
            for location, one in _within(state, start, end).items()
            if location not in called
        ]
        in_range += [
            ListedName(location, location, location, one)
            for location, one in mounted.items()
            if not one.view and start <= location < end
        ]
        in_range += [one for one in shown if start <= one.name < end]
        found += sorted(in_range, key=lambda one: one.key)
        if limit is not None and len(found) > limit:
            return found[:limit], True
    return found, False


def _called(head: Head) -> dict[str, str]:
    """Return the shown name of each location that has a registered one."""
    called: dict[str, str] = {}
    for name, location in head.names.items():
        if location != NOWHERE:
            called.setdefault(location, name)
    return called


def _marks(called: Mapping[str, str], clones: Mapping[str, RefEntry]) -> str:
    names = {location: name for location, name in called.items() if name != location}
    if not names and not clones:
        return ""
    ids = {name: entry.id for name, entry in clones.items()}
    body = msgspec.json.encode([sorted(names.items()), sorted(ids.items())])
    return blake3(body).hexdigest(8)


def _entered(later: Iterable[CommitSummary]) -> set[str]:
    """Return the tables that were not in the lake before these commits, and entered it then."""
    seen: set[str] = set()
    entered: set[str] = set()
    for commit in later:
        for location, touch in commit.tables.items():
            if touch.left is None and touch.entered is None:
                continue
            if location not in seen and touch.left is None:
                entered.add(location)
            seen.add(location)
    return entered


def _at(state: ListedState, locations: Iterable[str]) -> dict[str, TableState]:
    """Return the listed ones of these tables, which were in the lake then."""
    now = {location: state.head.tables.get(location) for location in locations}
    return _shown(state, now)


def _within(state: ListedState, start: str, end: str) -> dict[str, TableState]:
    """Return the listed tables of a range that were in the lake then."""
    now: dict[str, TableState | None] = dict(state.head.tables.within(start, end))
    for location in _touched(state.later):
        if start <= location < end:
            now.setdefault(location, None)
    return _shown(state, now)


def _shown(state: ListedState, now: Mapping[str, TableState | None]) -> dict[str, TableState]:
    later = [one for one in state.later if not now.keys().isdisjoint(one.tables)]
    changed = {location for location in _touched(later) if location in now}
    before = tables_before(state.head.tables, later, changed) if changed else {}
    found = {location: one for location, one in now.items() if location not in changed}
    found |= before
    return {
        location: one
        for location, one in found.items()
        if one is not None and not (one.dropped or one.view)
    }


def _touched(commits: Iterable[CommitSummary]) -> Iterator[str]:
    for commit in commits:
        yield from commit.tables


def _name_of(location: str, state: TableState) -> str:
    return name_in_catalog(state.catalog) if state.catalog else location
