"""Paths of tables that overlap other tables."""

from __future__ import annotations

import re

from lakevilla.errors import InvalidOperation
from lakevilla.formats.iceberg.metadata.definition import is_of_state
from lakevilla.global_log.bases import Base
from lakevilla.global_log.head import HEAD_KEY, NOWHERE, Head
from lakevilla.global_log.refs import clone_around, clone_below, is_at
from lakevilla.global_log.repo import fetch_leaves, load_names, load_tables, load_tables_below
from lakevilla.lake.context import owner_of
from lakevilla.lake.frozen.mounts import (
    load_clones,
    mount_of,
    mounted_at,
    mounted_below,
    places_of,
    tables_below,
)
from lakevilla.lake.tables.dotted_names import refuse_twin, twin_in_lake
from lakevilla.lake.tables.dropped import LOG, inner_tables, nested_tables, outer_paths, outer_table
from lakevilla.store.base import Missing, ObjectInfo
from lakevilla.store.effects import Program, list_objects, parallel
from lakevilla.store.effects import Stat as HeadOf
from lakevilla.store.location import is_external

# -------------------- overlaps
#
# Overlapping paths: a new table may not be inside a table, contain one, or be among foreign files.
#
# A VACUUM of the outer table, by any client, deletes the files of an inner table: the outer table's
# log does not name them. So a new table must have a directory of its own (note 22).


#: The part of a key after a directory that shows it to be an Iceberg table.
_METADATA = re.compile(r"/metadata/[^/]+\.metadata\.json")
#: The extensions of data files; Iceberg's other files have other extensions.
_DATA = (".parquet", ".orc", ".csv")


def in_the_way(location: str, head: Head | None) -> Program[str | None]:
    """Return why HEAD does not allow a new table at ``location``, as a sentence; else None.

    This is checked again for each newer HEAD before it is replaced: if two clients create tables at
    the same time, one inside the other, the one that is decided second is refused.
    """
    shown = yield from shown_by_clones(location, head)
    if shown is not None:
        return shown
    yield from load_names(head, [location])
    named = None if head is None else head.names.get(location)
    if named not in (None, NOWHERE, location):
        return (
            f"name {location!r} could mean two tables: the one at {named}, which is registered "
            "under it, and one made at this path; choose another name"
        )
    yield from load_tables(head, outer_paths(location))
    outer = outer_table(location, head)
    if outer is not None:
        return _within(location, f"table {outer}", outer)
    yield from load_tables_below(head, f"{location}/")
    inner = inner_tables(location, head)
    if inner and head is not None:
        if head.tables[inner[0]].dropped:
            return (
                f"the directory of table {location} would contain the files of table {inner[0]}, "
                "which was dropped and can be registered again: `register` it and drop it with "
                "delete_data=True, or choose a name outside of it"
            )
        return _around(location, f"table {inner[0]}")
    return (yield from twin_in_lake(head, location))


def refuse_overlaps(
    location: str, head: Head | None, txn_id: str, *, is_filled: bool = False
) -> Program[None]:
    """Refuse a location for a new table that overlaps others, by HEAD and by the store.

    ``is_filled``: the table's data files are there before the table is.

    Raises
    ------
    InvalidOperation
        The location is inside a table, or contains one, of this or another lake; or is inside
        another lake; or foreign files are stored there.
    """
    reason = yield from in_the_way(location, head)
    if reason is None:
        reason = yield from found_there(location, head, is_filled=is_filled)
    if reason is not None:
        raise InvalidOperation(reason, table=location, txn_id=txn_id)


def found_there(
    location: str, head: Head | None, *, is_filled: bool = False
) -> Program[str | None]:
    """Return why the store's objects don't allow a new table, by one round of requests."""
    outers = outer_paths(location)
    lakes = [HeadOf(f"{outer}/{HEAD_KEY}") for outer in outers]
    logs: list[Program[bool]] = [_is_table(outer) for outer in ("", *outers)]
    listings: list[HeadOf | Program[object]] = [list_objects(location), *lakes]
    results: list[object] = yield from parallel([*listings, *logs])
    listed = _keys(results[0])
    found_lakes, (at_root, *found_tables) = results[1 : 1 + len(outers)], results[1 + len(outers) :]
    if at_root:
        return (
            f"table {location} would be inside a table: the root of this lake is one itself, and "
            "a VACUUM of it deletes the files below it; connect to the directory above"
        )
    for outer, found in zip(outers, found_lakes, strict=True):
        if not isinstance(found, Missing):
            return (
                f"table {location} would be inside another lake, {outer}, which would not know of "
                "it: connect to that one, or choose a name outside of it"
            )
    for outer, found in zip(outers, found_tables, strict=True):
        if found:
            dropped = head is not None and head.tables.peek(outer) is not None
            what = (
                f"table {outer}, which was dropped"
                if dropped
                else f"a table outside of this lake, {outer}"
            )
            return _within(location, what, outer)
    metadata = [
        key
        for key in listed
        if _METADATA.fullmatch(key[len(location) :]) and not is_of_state(key.rpartition("/")[2])
    ]
    if metadata:
        return (
            f"{location} is the directory of an Iceberg table that is not opened here "
            f"({max(metadata)} is its metadata), and a VACUUM of either of two tables deletes the "
            "other's files: choose another name"
        )
    nested = nested_tables(location, listed, None)
    if nested:
        return _around(location, f"a table outside of this lake, {nested[0]}")
    strange = [key for key in listed if _is_strange(key.removeprefix(f"{location}/"))]
    if strange and not is_filled:
        return (
            f"{location} holds files that no table names, such as {strange[0]}: a VACUUM of a "
            "table that is made there deletes them; choose an empty directory, and append what "
            "is in them"
        )
    return None


def _is_table(directory: str) -> Program[bool]:
    """Return whether a directory is a table's, of either format; "" means the lake's root."""
    prefix = f"{directory}/" if directory else ""
    logs = [f"{prefix}_delta_log", f"{prefix}metadata"]
    found = yield from parallel([list_objects(log) for log in logs])
    keys = [info.key for listed in found for info in listed]
    return any(LOG.match(f"/{key[len(prefix) :]}") for key in keys)


def _is_strange(path: str) -> bool:
    """Return whether a file is foreign data, and not left by a failed attempt of LakeVilla."""
    hidden = any(part.startswith(("_", ".")) for part in path.split("/"))
    return path.lower().endswith(_DATA) and not hidden and owner_of(path) is None


def _keys(listed: object) -> list[str]:
    assert isinstance(listed, list | tuple)
    return [info.key for info in listed if isinstance(info, ObjectInfo)]


def _within(location: str, what: str, outer: str) -> str:
    return (
        f"table {location} would be inside the directory of {what}, where a VACUUM of {outer} by "
        "any client deletes its files: choose a name outside of it"
    )


def _around(location: str, what: str) -> str:
    return (
        f"the directory of table {location} would contain {what}, whose files a VACUUM of "
        f"{location} by any client deletes: choose a name outside of it"
    )


# -------------------- mount places
#
# The places where a clone may be mounted, and clones that overlap a new table.


def refuse_outside(to: str) -> None:
    """Refuse a place for a clone that is outside the root. Raises ``InvalidOperation``."""
    if is_external(to):
        raise InvalidOperation(
            f"clone: {to} is outside the root of the lake: give a path below it", table=to
        )


def refuse_place(head: Head, source: str, to: str) -> Program[None]:
    """Refuse a place for a clone, by the HEAD that will be replaced.

    Raises
    ------
    InvalidOperation
        The place is outside the root, or overlaps the source, a table or another clone.
    """
    reason = yield from _why_not(head, source, to)
    if reason is not None:
        raise InvalidOperation(f"clone: {reason}", table=to)


def _why_not(head: Head, source: str, to: str) -> Program[str | None]:
    if is_at(to, source):
        return f"{to} is inside its own source, {source}: choose a path outside of it"
    if is_at(source, to):
        return f"{to} contains its own source, {source}: choose a path outside of it"
    clones = yield from load_clones(head)
    other = clone_around(clones, to)
    if other is not None:
        what = "is a clone already" if other == to else f"is inside clone {other!r}"
        return f"{to} {what}: choose another place, or delete_ref({other!r}) first"
    below = clone_below(clones, to)
    if below is not None:
        return f"{to} contains clone {below!r}: choose another place"
    yield from load_tables(head, places_of(to))
    for location in places_of(to):
        state = head.tables.get(location)
        if state is None or (state.dropped and location != to):
            continue
        what = "was a table, which was dropped" if state.dropped else "is a table"
        if location == to:
            return f"{to} {what}: choose another place"
        return f"{to} is inside table {location}: choose a path outside of it"
    twin = yield from twin_in_lake(head, to)
    if twin is not None:
        return twin
    named = yield from _named(head, to)
    if named is not None:
        where = head.names[named] or "another path"
        return f"{named} is the name of a table at {where}: choose another place"
    yield from load_tables_below(head, f"{to}/")
    inner = sorted(head.tables.below(f"{to}/"))
    if inner:
        state = head.tables[inner[0]]
        what = ", which was dropped" if state.dropped else ""
        return f"{to} contains table {inner[0]}{what}: choose another place"
    return None


def refuse_twins(head: Head, base: Base, source: str, to: str) -> Program[None]:
    """Refuse a clone that would show a table whose name could also mean one that HEAD has.

    Raises
    ------
    InvalidOperation
    """
    dotted = f"{to.replace('/', '.')}."
    yield from load_tables_below(head, dotted)
    yield from fetch_leaves(head.names, head.names.missing_below(dotted))
    if not (head.tables.below(dotted) or head.names.below(dotted)):
        return
    for location in (yield from tables_below(base, source)):
        yield from refuse_twin(head, f"{to}{location[len(source) :]}")


def _named(head: Head, to: str) -> Program[str | None]:
    """Return a registered name that equals a place or is below it; None if there is none."""
    wanted = [*head.names.missing([to]), *head.names.missing_below(f"{to}/")]
    yield from fetch_leaves(head.names, list(dict.fromkeys(wanted)))
    return next((name for name in sorted(head.names.cached()) if is_at(name, to)), None)


def refuse_shown(head: Head, location: str) -> Program[None]:
    """Refuse to add a table, or a name, at or inside a table that a clone shows.

    Raises
    ------
    InvalidOperation
    """
    for place in places_of(location):
        mount = yield from mount_of(head, place)
        if mount is not None:
            where = "at" if place == location else "above"
            raise InvalidOperation(
                f"{location}: clone {mount.name!r} shows a table {where} it, {place}: choose "
                "another place, or drop that table first",
                table=location,
            )


def shown_by_clones(location: str, head: Head | None) -> Program[str | None]:
    """Return why clones don't allow a new table at ``location``, as a sentence; else None.

    A location below a clone at which the clone shows no table is allowed.
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
                f"table {location} would be inside table {place}, which clone {mount.name!r} "
                "shows: choose a name outside of it"
            )
    below = clone_below(clones, location)
    if below is None and location in clones:
        below = location
    if below is not None:
        return f"table {location} would contain clone {below!r}: choose a name outside of it"
    inner = yield from mounted_below(head, location)
    if inner:
        return (
            f"table {location} would contain table {min(inner)}, which a clone shows: choose a "
            "name outside of it"
        )
    return None
