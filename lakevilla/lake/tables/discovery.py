"""Find the tables under a lake's root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lakevilla.errors import InvalidOperation, LakeVillaError, StoreError, TableNotFound
from lakevilla.formats.base import FormatName, TableSnapshot
from lakevilla.formats.iceberg.metadata.definition import metadata_directory, metadata_version
from lakevilla.formats.registry import refuse_two_tables
from lakevilla.global_log.head import HEAD_KEY, Head, TableState, shown_tables
from lakevilla.global_log.repo import check_lake, load_all
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.mounts import mounted
from lakevilla.lake.missing_tables import kept_by_a_catalog, names_in, wrong_root
from lakevilla.lake.tables.dotted_names import path_of, refuse_twin
from lakevilla.lake.tables.dropped import is_emptied, refuse_written_after
from lakevilla.lake.tables.exporting import MARK
from lakevilla.store.base import Missing
from lakevilla.store.effects import Program, list_names, parallel, stat
from lakevilla.store.location import normalise_location

# -------------------- discovery
#
# The search for tables under a lake's root that are not in the lake.
#
# A directory is checked for a log; if it has none, the directories in it are checked. Nothing is
# listed below a table, so that its number of files does not matter, and nothing is requested for
# tables that the lake has.


#: The number of directories that are requested in one round.
_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table that is stored under the root, or a directory that may be one.

    ``state`` is ``new`` for a table that may be added to the lake, ``dropped`` for a table that was
    in the lake, ``in_catalog`` for a table of a connected catalog, and ``refused`` for a table that
    can't be added; all but the first with the ``reason``. ``catalog`` is the pointer in a catalog.
    """

    location: str
    state: Literal["new", "dropped", "refused", "in_catalog"]
    reason: str = ""
    kind: str = ""
    format: FormatName | None = None
    snapshot: TableSnapshot | None = None
    seen_at: float = 0.0
    catalog: str = ""


@dataclass(frozen=True, slots=True)
class _Step:
    """The table found at a directory, and the directories below it to check next."""

    found: FoundTable | None = None
    below: Sequence[str] = ()


def discover(context: Context) -> Program[list[FoundTable]]:
    """Return all tables under the root that are not in the lake, by location.

    Raises
    ------
    InvalidOperation
        The root is a table itself, or does not exist.
    """
    held = yield from context.head()
    head = None if held is None else held.head
    yield from load_all(head)
    names = yield from list_names("")
    wrong = yield from wrong_root(context, names)
    if wrong is not None:
        raise InvalidOperation(wrong)
    found: list[FoundTable] = []
    level = list(_directories("", names))
    while level:
        wanted, level = [location for location in level if not _is_in(head, location)], []
        for first in range(0, len(wanted), _AT_ONCE):
            part = wanted[first : first + _AT_ONCE]
            steps = yield from parallel([_look(context, head, location) for location in part])
            found += [step.found for step in steps if step.found is not None]
            level += [location for step in steps for location in step.below]
    new = {one.location for one in found if one.state == "new"}
    found = [_without_twin(one, new) for one in found]
    return sorted(found, key=lambda one: one.location)


def _without_twin(one: FoundTable, new: set[str]) -> FoundTable:
    """Mark a new table with dots in its path as refused, if another new table has its name."""
    path = path_of(one.location)
    if one.state != "new" or path not in new:
        return one
    reason = f"{one.location!r} could mean two tables, at {one.location} and at {path}: rename one"
    return replace(one, state="refused", reason=reason, kind=InvalidOperation.kind)


def _is_in(head: Head | None, location: str) -> bool:
    state = _noted(head, location)
    return state is not None and not state.dropped


def _noted(head: Head | None, location: str) -> TableState | None:
    return None if head is None else head.tables.get(location)


def _directories(parent: str, names: Sequence[str]) -> list[str]:
    """Return the directories that may contain tables: no hidden ones, no partitions."""
    return [
        f"{parent}/{name[:-1]}" if parent else name[:-1]
        for name in names
        if name.endswith("/") and name[0] not in "_." and "=" not in name
    ]


def _look(context: Context, head: Head | None, location: str) -> Program[_Step]:
    """Return a directory's table, or the directories in it; an error makes it ``refused``."""
    try:
        return (yield from _step(context, head, location))
    except StoreError as error:
        if not error.permanent:
            raise
        return _Step(FoundTable(location, "refused", error.message, error.kind))
    except LakeVillaError as error:
        return _Step(FoundTable(location, "refused", error.message, error.kind))


def _step(context: Context, head: Head | None, location: str) -> Program[_Step]:
    if normalise_location(context.root, location) != location:
        return _Step()  # a symbolic link: a table under the root is found by its own path
    started = context.clock.elapsed()
    try:
        snapshot = yield from context.formats.open(location, location)
    except TableNotFound as error:
        if is_emptied(_noted(head, location)):
            return _Step()  # the rest of a table that was dropped with its data
        return (yield from _no_table(context, location, error))
    if MARK in snapshot.layout.properties:
        return _Step()  # an export: the next one would overwrite a lake's changes there
    judged = yield from _judged(context, head, location, snapshot)
    return _Step(replace(judged, seen_at=started))


def _no_table(context: Context, location: str, error: TableNotFound) -> Program[_Step]:
    """Return the step for a directory without a table that opens: a catalog's, damaged, or none."""
    names = yield from list_names(location)
    if "_delta_log/" in names:
        message = f"{location}/_delta_log holds neither version 0 nor a checkpoint: restore them"
        return _Step(FoundTable(location, "refused", message, error.kind, "delta"))
    if "_lakevilla/" in names:
        place = f"{context.root.rstrip('/')}/{location}"
        lake = yield from stat(f"{location}/{HEAD_KEY}")
        if not isinstance(lake, Missing):
            reason = f"is another lake, whose tables are its own: connect to {place}"
            return _Step(FoundTable(location, "refused", reason, "invalid_operation"))
    if "metadata/" in names:
        files = yield from names_in(metadata_directory(location))
        kept = kept_by_a_catalog(context, location, files)
        if kept is not None:
            message = f"table {location} does not exist by itself: {kept}"
            return _Step(FoundTable(location, "refused", message, error.kind, "iceberg"))
        if any(metadata_version(name) is not None for name in files):
            yield from context.formats["iceberg"].open(location, location)  # raises what is missing
    return _Step(below=_directories(location, names))


def _judged(
    context: Context, head: Head | None, location: str, snapshot: TableSnapshot
) -> Program[FoundTable]:
    """Return a table that can be opened: ``new`` if it may be added, else with the reason."""
    state = _noted(head, location)
    try:
        if state is not None and not is_emptied(state):
            reason = "was dropped from this lake: `register` it by its name to revive it"
            return FoundTable(location, "dropped", reason, "", snapshot.format, snapshot)
        if state is not None:
            yield from refuse_written_after(context, [location])
        _refuse_taken_name(head, location)
        yield from refuse_twin(head, location)
        yield from refuse_two_tables(snapshot)
        yield from check_lake(location, head, context.root)
    except StoreError:
        raise
    except LakeVillaError as error:
        return FoundTable(location, "refused", error.message, error.kind, snapshot.format, snapshot)
    return FoundTable(location, "new", format=snapshot.format, snapshot=snapshot)


def _refuse_taken_name(head: Head | None, location: str) -> None:
    taken = None if head is None else head.names.get(location)
    if taken not in (None, location):
        raise InvalidOperation(
            f"name {location!r} is registered for {taken}: `register` this table by another name "
            "and its path, or remove that name with `unregister`",
            table=location,
        )


def all_shown(head: Head) -> Program[dict[str, str]]:
    """Return the locations of all tables, including those of clones, by their shown names.

    All leaves of the HEAD must be cached.
    """
    own = shown_tables(head)
    there = [place for place, one in (yield from mounted(head)).items() if not one.view]
    if not there:
        return own
    found = [*own.items(), *((location, location) for location in there)]
    return dict(sorted(found, key=lambda one: one[1]))
