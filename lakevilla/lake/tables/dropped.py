"""Dropped tables, tables inside other tables, and the files that may be deleted there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from lakevilla.errors import (
    InvalidOperation,
    LakeVillaError,
    StoreError,
    TableExists,
    TableNotFound,
)
from lakevilla.formats.base import Leftovers
from lakevilla.global_log.head import Head, TableState
from lakevilla.global_log.repo import claim_of, lake_key, load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.kept import refuse_kept
from lakevilla.lake.newer import refuse_older_head
from lakevilla.results import Finding
from lakevilla.store.effects import Program, parallel
from lakevilla.store.location import is_external, normalise_location

# -------------------- dropped
#
# Tables whose data was deleted: objects written to their logs later, and when their paths are free.
#
# Nothing here writes: ``drop_data`` deletes. docs/design/0013-names-used-again.md says why a path
# can't be used again at once.


def leftovers(context: Context, location: str, state: TableState) -> Program[Leftovers]:
    """Return the objects that are stored in the log of a table whose data was deleted."""
    return (yield from context.formats[state.format].leftovers(location, state.table_id))


def is_emptied(state: TableState | None) -> bool:
    """Return whether the table was dropped and the deletion of its data was at least begun."""
    return state is not None and state.dropped and (state.emptying or state.emptied_ms is not None)


def is_abandoned(context: Context, state: TableState, now_ms: int) -> bool:
    """Return whether a deletion seems interrupted: its client has not noted the time for long."""
    return state.emptying and now_ms >= _free_ms(context, state)


def is_half_deleted(context: Context, location: str) -> Program[bool]:
    """Return whether HEAD states that the data of a dropped table is being deleted."""
    held = yield from context.head()
    if held is None:
        return False
    yield from load_tables(held.head, [location])
    state = held.head.tables.get(location)
    return state is not None and state.dropped and state.emptying


def refuse_to_delete(context: Context, location: str) -> Program[None]:
    """Refuse to delete a table's data that a ref, a catalog or another lake may need.

    A catalog would still point to the table. HEAD must not be set back: a newer HEAD may have refs
    that keep the table.

    Raises
    ------
    InvalidOperation
        A ref keeps the table, it is in a catalog, or its place does not belong to the lake.
    CorruptObject
        HEAD was set back.
    """
    what = f"drop_table with delete_data: table {location}"
    yield from refuse_older_head(context, what, [location], waits=False)
    held = yield from context.head()
    head = None if held is None else held.head
    if head is not None:
        yield from refuse_kept(head, location, "drop_table with delete_data: table")
    yield from load_tables(head, [location])
    state = None if head is None else head.tables.get(location)
    if context.catalogs.get(location) if state is None else state.catalog:
        raise InvalidOperation(
            f"table {location} is in a catalog, so its data is not deleted here: drop it without "
            "delete_data, and purge it with the catalog",
            table=location,
        )
    if state is not None and not state.emptying:
        yield from refuse_held_back(context, head, location, state.table_id)


def refuse_until_free(context: Context, location: str, state: TableState) -> None:
    """Refuse to create a table at a path where writes to a deleted table may be under way.

    Raises
    ------
    TableExists
    """
    if state.emptying:
        raise TableExists(
            f"table {location} was dropped and its data is being deleted, since "
            f"{_time(state.emptied_ms)}: wait for it, or, if the deleting client is dead, call "
            "`drop_table(..., delete_data=True)` again; or choose another name",
            table=location,
        )
    free_ms = _free_ms(context, state)
    if context.settings.reuse_after_seconds and context.now_ms() < free_ms:
        raise TableExists(
            f"table {location} was dropped and its data deleted at {_time(state.emptied_ms)}: a "
            "commit to it may still be on its way to its log, so the name can be used again from "
            f"{_time(free_ms)} on (reuse_after_seconds); choose another name, or `overwrite` a "
            "table instead of dropping it and creating it again",
            table=location,
        )


def refuse_half_deleted(location: str, state: TableState | None) -> None:
    """Refuse to register a table of which some files were deleted.

    Raises
    ------
    InvalidOperation
    """
    if state is not None and state.dropped and state.emptying:
        raise InvalidOperation(
            f"table {location} was dropped and some of its data is deleted, since "
            f"{_time(state.emptied_ms)}: `drop_table(..., delete_data=True)` deletes the rest; "
            "a copy of it can be registered then, or elsewhere",
            table=location,
        )


def refuse_written_after(context: Context, locations: Iterable[str]) -> Program[None]:
    """Refuse to register log entries that clients of a deleted table wrote after its deletion.

    Raises
    ------
    InvalidOperation, TableNotFound
    """
    locations = list(locations)
    held = yield from context.head()
    yield from load_tables(None if held is None else held.head, locations)
    for location in locations:
        state = None if held is None else held.head.tables.get(location)
        refuse_half_deleted(location, state)
        if state is None or not is_emptied(state):
            continue
        found = yield from leftovers(context, location, state)
        if found.written_after:
            raise TableNotFound(
                f"table {location} does not exist: its data was deleted at "
                f"{_time(state.emptied_ms)}, and {found.written_after[0]} was written by a client "
                "of it after that; `lakevilla gc` deletes it",
                table=location,
            )


def report_emptied(context: Context, head: Head) -> Program[list[Finding]]:
    """Report, for the doctor, deletions that have not ended, and objects written after one."""
    emptied = [(place, state) for place, state in head.tables.items() if is_emptied(state)]
    lie_there = yield from parallel([leftovers(context, place, state) for place, state in emptied])
    findings = []
    for (location, state), found in zip(emptied, lie_there, strict=True):
        if state.emptying:
            abandoned = is_abandoned(context, state, context.now_ms())
            findings.append(
                Finding(
                    "warning" if abandoned else "note",
                    "half_deleted",
                    f"the data of table {location}, which was dropped, is being deleted since "
                    f"{_time(state.emptied_ms)}: if the deleting client is dead, `lakevilla gc` "
                    "finishes it",
                    table=location,
                )
            )
            continue
        findings += [
            Finding(
                "warning",
                "stray",
                f"{key} was written by a client of table {location} after that was dropped and its "
                f"data deleted, at {_time(state.emptied_ms)}: `lakevilla gc` deletes it",
                table=location,
                key=key,
            )
            for key in found.written_after
        ]
    return findings


def _free_ms(context: Context, state: TableState) -> int:
    return (state.emptied_ms or 0) + int(context.settings.reuse_after_seconds * 1000)


def _time(milliseconds: int | None) -> str:
    try:
        instant = datetime.fromtimestamp((milliseconds or 0) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms after 1970"
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


# -------------------- nested tables
#
# Tables inside another table's directory.
#
# Delta allows them, so they exist in practice, and a list of the outer table's directory shows the
# inner tables' files, too. The outer table's log does not name these files: clean-up must not take
# them for garbage of the outer table.


#: The part of a key after a table's directory, for objects of its log or metadata.
LOG = re.compile(r"/(?:_delta_log/|metadata/[^/]+\.metadata\.json$|metadata/version-hint\.text$)")


def nested_tables(location: str, keys: Iterable[str], head: Head | None) -> tuple[str, ...]:
    """Return the tables inside the one at ``location``: with a log among ``keys``, or in HEAD.

    HEAD is needed, too: a table whose creation is decided may have no log yet. HEAD's dropped
    tables count, since their data stays.
    """
    inside = f"{location}/"
    found = [(key, LOG.search(key, len(inside))) for key in keys if key.startswith(inside)]
    inner = {key[: match.start()] for key, match in found if match is not None}
    inner.update(() if head is None else head.tables.below(inside))
    return tuple(sorted(inner))


def inner_tables(location: str, head: Head | None) -> list[str]:
    """Return HEAD's tables inside ``location``, including dropped ones whose data stays."""
    inner = {} if head is None else head.tables.below(f"{location}/")
    return sorted(one for one, state in inner.items() if not is_emptied(state))


#: The part of a key after a directory that shows it to be a lake, or a table of a lake.
_OF_A_LAKE = re.compile(r"/_lakevilla/(?:HEAD\.json$|heads/|lake\.json$)")


def other_lakes(location: str, keys: Iterable[str]) -> tuple[str, ...]:
    """Return the directories at or below a location that are lakes, or tables claimed by a lake.

    A table whose creation is decided may have a claim and no log yet.
    """
    found = [
        (key, _OF_A_LAKE.search(key, len(location))) for key in keys if key != lake_key(location)
    ]
    return tuple(sorted({key[: match.start()] for key, match in found if match is not None}))


def is_within(key: str, tables: tuple[str, ...]) -> bool:
    """Return whether an object is stored in the directory of one of the tables."""
    return key.startswith(tuple(f"{table}/" for table in tables))


def outer_paths(location: str) -> list[str]:
    """Return the directories above a table, the innermost first; for a URI, up to the bucket."""
    scheme, store, path = location.rpartition("://")
    paths = []
    while "/" in path:
        path = path.rpartition("/")[0]
        paths.append(f"{scheme}{store}{path}")
    return paths


def outer_table(location: str, head: Head | None) -> str | None:
    """Return HEAD's table whose directory contains ``location``; its leaf must be cached."""
    for path in outer_paths(location):
        state = None if head is None else head.tables.get(path)
        if state is not None and not state.dropped:
            return path
    return None


# -------------------- deletable
#
# The check before each deletion in a table's directory: whether the lake may delete there, and
# what.
#
# The objects of a lake are trusted only inside the lake in which they are stored: a client that can
# write HEAD must not be able to make other clients delete files outside of the lake
# (docs/design/0052-deletion-stays-inside.md).


#: Directories for objects of a lake or of a log: no table is stored in them.
_KEPT = frozenset({"_lakevilla", "_delta_log"})

#: The forms that paths of a table's files have, relative to the table's directory.
_OF_A_TABLE = re.compile(
    r"""
      (?:_delta_log|_lakevilla|_delta_index|_symlink_format_manifest) /.+
    | metadata/ (?: [^/]+\.metadata\.json (?:\.gz)? | version-hint\.text )
    | (?:.*/)? [^/]+\. (?:parquet|orc|avro|puffin|stats)
    | (?:.*/)? deletion_vector_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12} \.bin
    | (?:.*/)? \.[^/]+\.crc                                  # Hadoop's checksums
    | (?:.*/)? (?:_SUCCESS|_metadata|_common_metadata|_started_\d+|_committed_\d+)
    """,
    re.VERBOSE | re.DOTALL,
)


def is_of_a_table(path: str) -> bool:
    """Return whether a path, relative to a table's directory, has the form of a table's file."""
    return _OF_A_TABLE.fullmatch(path) is not None


def held_back(
    context: Context, head: Head | None, location: str, table_id: str | None
) -> Program[str]:
    """Return why nothing may be deleted in a table's directory; ``""`` if deletion is allowed.

    All below the root belongs to the lake. Elsewhere, the claim in the directory must name this
    lake and this table: HEAD alone does not prove that. ``table_id`` is None if the names of the
    objects to be deleted show that this lake has made them.
    """
    try:
        own = normalise_location(context.root, location)
    except InvalidOperation as error:
        return error.message
    if own != location or _KEPT.intersection(location.split("/")):
        return f"{location} is no place of a table of this lake (it is {own}): nothing is deleted"
    if not is_external(location):
        return ""
    try:
        claim = yield from claim_of(location)
    except StoreError:
        raise
    except LakeVillaError as error:
        return error.message
    # The root is compared, too: a forged HEAD may have another lake's id.
    ours = claim is not None and head is not None and claim.names(head)
    if claim is not None and ours and claim.root == context.root:
        if table_id in (None, claim.table_id):
            return ""
        says = f"names another table ({claim.table_id or 'none'})"
    else:
        says = "is not there" if claim is None else f"names the lake at {claim.root}"
    return (
        f"{location} is outside of the lake, and {lake_key(location)} {says}: nothing is deleted "
        "there; delete it by hand if it is not needed"
    )


def refuse_held_back(
    context: Context, head: Head | None, location: str, table_id: str | None
) -> Program[None]:
    """Refuse to delete in a directory where ``held_back`` forbids it.

    Raises
    ------
    InvalidOperation
    """
    why = yield from held_back(context, head, location, table_id)
    if why:
        raise InvalidOperation(f"table {location} was skipped: {why}", table=location)
