"""What clones have shown at an older version of the lake, before somebody wrote or dropped there.

HEAD tells of clones as they are now, and from which version on each shows. That a table of one was
mounted at a version is told by the first commit after it that touches the table: it makes the
table with the id that only a clone gives, or drops what was never made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lakevilla.global_log.head import CommitSummary, TableState
from lakevilla.global_log.refs import RefMap
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.frozen import mounted_view
from lakevilla.lake.frozen.mounts import (
    Mount,
    load_clones,
    mounted,
    mounted_at,
    mounted_id,
    places_of,
)
from lakevilla.lake.past import Past, view_at
from lakevilla.lake.view import View
from lakevilla.store.effects import Program


def then_view(context: Context, past: Past, location: str) -> Program[View]:
    """A table's state at a global version, also where a clone has shown it. As ``view_at``."""
    mount = yield from mounted_then(past, location)
    if mount is not None:
        return (yield from mounted_view(context, mount, location))
    return (yield from view_at(context, past, location))


def with_clones(past: Past) -> Program[Past]:
    """The same, whose HEAD shows what clones have shown then, and marks what was dropped there."""
    clones = yield from load_clones(past.timeline.head)
    if not clones:
        return past
    dropped = yield from tombstones_then(past)
    head = msgspec.structs.replace(
        past.head,
        tables=past.head.tables.updated(dropped),
        refs=RefMap({name: one for name, one in clones.items() if one.since <= past.sequence}),
    )
    return Past(past.timeline, head)


def mounted_then(past: Past, location: str) -> Program[Mount | None]:
    """The clone that has shown a table at a version, if one did."""
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
    """The places of all tables that clones have shown at a version."""
    now = past.timeline.head
    clones = yield from load_clones(now)
    if not clones:
        return []
    later = yield from past.timeline.after(past.sequence)
    touched = {place for commit in later for place in commit.tables if _is_below(clones, place)}
    places = [*(yield from mounted(now)), *touched]
    found = []
    for place in dict.fromkeys(places):
        if (yield from mounted_then(past, place)) is not None:
            found.append(place)
    return found


def tombstones_then(past: Past) -> Program[dict[str, TableState]]:
    """What keeps clones from showing tables that were dropped by then, for a base of that state."""
    now = past.timeline.head
    clones = yield from load_clones(now)
    found: dict[str, TableState] = {}
    if not clones:
        return found
    yield from past.load_now()
    for place, state in now.tables.items():
        if not _is_below(clones, place) or past.head.tables.get(place) is not None:
            continue
        if (yield from mounted_then(past, place)) is None:
            found[place] = TableState(state.table_id, -1, dropped=True, format=state.format)
    return found


def _is_below(clones: Iterable[str], place: str) -> bool:
    return not set(places_of(place)).isdisjoint(clones)


def _was_mounted(later: Sequence[CommitSummary], location: str, table_id: str) -> bool:
    for commit in later:
        touch = commit.tables.get(location)
        if touch is not None:
            # A drop of what was never made takes nothing out, and has made nothing.
            return touch.entered == table_id or (touch.entered is None and touch.left is None)
    return False
