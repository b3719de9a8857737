"""Where a clone may be mounted, and what clones have in the way of tables that are made."""

from __future__ import annotations

from lakevilla.errors import InvalidOperation
from lakevilla.global_log.head import Head
from lakevilla.global_log.refs import clone_around, clone_below, is_at
from lakevilla.global_log.repo import fetch_leaves, load_tables, load_tables_below
from lakevilla.lake.frozen.mounts import (
    load_clones,
    mount_of,
    mounted_at,
    mounted_below,
    places_of,
)
from lakevilla.store.effects import Program
from lakevilla.store.location import is_external


def refuse_outside(to: str) -> None:
    """Refuse a place for a clone that is outside the root. Raises ``InvalidOperation``."""
    if is_external(to):
        raise InvalidOperation(
            f"clone: {to} is outside the root of the lake: give a path below it", table=to
        )


def refuse_place(head: Head, source: str, to: str) -> Program[None]:
    """Refuse a place for a clone, by the HEAD that is to be replaced.

    Raises
    ------
    InvalidOperation
        It is outside the root, in or around the source, or in, around or at a table or a clone.
    """
    reason = yield from _why_not(head, source, to)
    if reason is not None:
        raise InvalidOperation(f"clone: {reason}", table=to)


def _why_not(head: Head, source: str, to: str) -> Program[str | None]:
    if is_at(to, source):
        return f"{to} is inside its own source, {source}: choose a place beside it"
    if is_at(source, to):
        return f"{to} is around its own source, {source}: choose a place beside it"
    clones = yield from load_clones(head)
    other = clone_around(clones, to)
    if other is not None:
        what = "is a clone already" if other == to else f"is inside clone {other!r}"
        return f"{to} {what}: choose another place, or delete_ref({other!r}) first"
    below = clone_below(clones, to)
    if below is not None:
        return f"{to} is around clone {below!r}: choose another place"
    yield from load_tables(head, places_of(to))
    for place in places_of(to):
        state = head.tables.get(place)
        if state is None or (state.dropped and place != to):
            continue
        what = "was a table, which was dropped" if state.dropped else "is a table"
        if place == to:
            return f"{to} {what}: choose another place"
        return f"{to} is inside table {place}: choose a place beside it"
    named = yield from _named(head, to)
    if named is not None:
        where = head.names[named] or "another path"
        return f"{named} is the name of a table at {where}: choose another place"
    yield from load_tables_below(head, f"{to}/")
    inner = sorted(place for place in head.tables.at_hand() if place.startswith(f"{to}/"))
    if inner:
        state = head.tables[inner[0]]
        what = ", which was dropped" if state.dropped else ""
        return f"{to} is around table {inner[0]}{what}: choose another place"
    return None


def _named(head: Head, to: str) -> Program[str | None]:
    """A name at or below a place that leads elsewhere."""
    wanted = [*head.names.missing([to]), *head.names.missing_below(f"{to}/")]
    yield from fetch_leaves(head.names, list(dict.fromkeys(wanted)))
    return next((name for name in sorted(head.names.at_hand()) if is_at(name, to)), None)


def refuse_shown(head: Head, location: str) -> Program[None]:
    """Refuse to bring in a table, or a name, where a clone shows a table, or within one.

    Raises
    ------
    InvalidOperation
    """
    for place in places_of(location):
        mount = yield from mount_of(head, place)
        if mount is not None:
            where = "at" if place == location else "around"
            raise InvalidOperation(
                f"{location}: clone {mount.name!r} shows a table {where} it, {place}: choose "
                "another place, or drop that table first",
                table=location,
            )


def shown_by_clones(location: str, head: Head | None) -> Program[str | None]:
    """What clones have in the way of a table that is made at ``location``, as a sentence.

    A free place below a clone is free, as one below any other directory is.
    """
    clones = yield from load_clones(head)
    if head is None or not clones:
        return None
    for place in places_of(location):
        yield from load_tables(head, [place])
        if head.tables.get(place) is not None:
            continue
        mount = yield from mounted_at(head, place)
        if mount is not None and place == location:
            return (
                f"clone {mount.name!r} shows a table at {location}: write to it, or drop it first"
            )
        if mount is not None:
            return (
                f"table {location} would lie inside table {place}, which clone {mount.name!r} "
                "shows: choose a name beside it"
            )
    below = clone_below(clones, location)
    if below is None and location in clones:
        below = location
    if below is not None:
        return f"table {location} would lie around clone {below!r}: choose a name beside it"
    inner = yield from mounted_below(head, location)
    if inner:
        return (
            f"table {location} would lie around table {min(inner)}, which a clone shows: choose a "
            "name beside it"
        )
    return None
