"""The names of a lake's tables, a page at a time: of HEAD's leaves as few as that takes."""

from __future__ import annotations

from dataclasses import dataclass

from lakevilla.formats.iceberg.metadata.pointer import name_in_catalog
from lakevilla.global_log.head import NOWHERE, Head, TableState, shown_tables
from lakevilla.global_log.leaves import HIGHEST
from lakevilla.global_log.repo import fetch_leaves, load_names
from lakevilla.lake.frozen.mounts import mounted, mounted_between
from lakevilla.store.effects import Program

#: Of a large lake each leaf has so many tables, or more.
_IN_A_LEAF = 200


@dataclass(frozen=True, slots=True)
class ListedName:
    """A table in a list: ``key`` is what the list is in the order of, and goes on after."""

    key: str
    name: str
    location: str
    state: TableState


def listed(
    head: Head, prefix: str, after: str | None, limit: int | None
) -> Program[tuple[list[ListedName], bool]]:
    """The next tables after ``after`` that ``prefix`` begins, and whether there are more.

    They are in the order of their registered names, or else of their locations. Both stay what
    they are as long as a table is not renamed, so each that is there throughout comes once,
    whatever others commit between two pages.
    """
    yield from load_names(head)
    called: dict[str, str] = {}
    for name, place in head.names.items():
        if place != NOWHERE:
            called.setdefault(place, name)
    first = max(prefix, "" if after is None else f"{after}\0")
    last = prefix + HIGHEST
    registered = sorted((name, place) for place, name in called.items() if first <= name < last)
    yield from fetch_leaves(head.tables, head.tables.missing(place for _, place in registered))
    mounted = yield from mounted_between(head, first, last)
    found: list[ListedName] = []
    ranges = head.tables.ranges(first, last)
    at_once = len(ranges) if limit is None else 1 + limit // _IN_A_LEAF
    for number, (start, end) in enumerate(ranges):
        if number % at_once == 0:
            # Up to where the page is likely to end, in one round.
            until = ranges[min(number + at_once, len(ranges)) - 1][0]
            yield from fetch_leaves(head.tables, head.tables.missing_between(start, until))
        there = [
            ListedName(place, _name_of(place, state), place, state)
            for place, state in head.tables.within(start, end).items()
            if not state.dropped and place not in called
        ]
        there += [
            ListedName(place, place, place, state)
            for place, state in mounted.items()
            if start <= place < end
        ]
        there += [
            ListedName(name, name, place, head.tables[place])
            for name, place in registered
            if start <= name < end and not head.tables[place].dropped
        ]
        found += sorted(there, key=lambda one: one.key)
        if limit is not None and len(found) > limit:
            return found[:limit], True
    return found, False


def all_shown(head: Head) -> Program[dict[str, str]]:
    """The locations of all tables by the names that are shown, those of clones among them.

    All leaves of the HEAD are at hand.
    """
    own = shown_tables(head)
    there = yield from mounted(head)
    if not there:
        return own
    found = [*own.items(), *((place, place) for place in there)]
    return dict(sorted(found, key=lambda one: one[1]))


def _name_of(location: str, state: TableState) -> str:
    return name_in_catalog(state.catalog) if state.catalog else location
