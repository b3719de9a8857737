"""Tables whose data was deleted: what lies in their logs since, and when their paths are free.

Nothing here writes. ``drop_data`` deletes, and docs/design/0013-names-used-again.md says
why a path is not used again at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from lakevilla.errors import InvalidOperation, TableExists, TableNotFound
from lakevilla.formats.base import Leftovers
from lakevilla.global_log.head import Head, TableState
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.kept import refuse_kept
from lakevilla.lake.newer import refuse_older_head
from lakevilla.lake.tables.deletable import refuse_held_back
from lakevilla.results import Finding
from lakevilla.store.effects import Program, parallel


def leftovers(context: Context, location: str, state: TableState) -> Program[Leftovers]:
    """What lies in the log of a table whose data was deleted."""
    return (yield from context.formats[state.format].leftovers(location, state.table_id))


def is_emptied(state: TableState | None) -> bool:
    """Whether the table was dropped, and its data deleted, or begun to be."""
    return state is not None and state.dropped and (state.emptying or state.emptied_ms is not None)


def is_abandoned(context: Context, state: TableState, now_ms: int) -> bool:
    """Whether a deletion was interrupted, as it seems: whoever is at it notes so more often."""
    return state.emptying and now_ms >= _free_ms(context, state)


def is_half_deleted(context: Context, location: str) -> Program[bool]:
    """Whether HEAD says that the data of a dropped table is being deleted."""
    held = yield from context.head()
    if held is None:
        return False
    yield from load_tables(held.head, [location])
    state = held.head.tables.get(location)
    return state is not None and state.dropped and state.emptying


def refuse_to_delete(context: Context, location: str) -> Program[None]:
    """Refuse to delete the data of a table that a ref keeps, that is in a catalog, or not ours.

    A catalog would go on pointing at it. A newer HEAD may have refs that keep it.

    Raises
    ------
    InvalidOperation
        It is kept, or in a catalog.
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
    """Refuse to create a table where requests to the one before may be under way.

    Raises
    ------
    TableExists
    """
    if state.emptying:
        raise TableExists(
            f"table {location} was dropped and its data is being deleted, since "
            f"{_time(state.emptied_ms)}: wait for it, or, if that client is dead, call "
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
    """Refuse to register a table of which some files are gone.

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


def refuse_strays(context: Context, locations: Iterable[str]) -> Program[None]:
    """Refuse to register what clients of a table have left in its log after it was deleted.

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
        if found.strays:
            raise TableNotFound(
                f"there is no table {location}: its data was deleted at "
                f"{_time(state.emptied_ms)}, and {found.strays[0]} was written by a client of it "
                "after that; `lakevilla gc` deletes it",
                table=location,
            )


def report_emptied(context: Context, head: Head) -> Program[list[Finding]]:
    """For the doctor: deletions that have not ended, and strays."""
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
                    f"{_time(state.emptied_ms)}: if that client is dead, `lakevilla gc` "
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
            for key in found.strays
        ]
    return findings


def _free_ms(context: Context, state: TableState) -> int:
    return (state.emptied_ms or 0) + int(context.settings.reuse_after_seconds * 1000)


def _time(milliseconds: int | None) -> str:
    try:
        moment = datetime.fromtimestamp((milliseconds or 0) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms after 1970"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
