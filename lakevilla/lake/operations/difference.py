"""The difference of two states: of one table by files, of the lake by tables and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from lakevilla.errors import InvalidOperation, VersionNotFound
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.files import DataFile, data_files, files_not_among, removal, size_of
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.states import StateName, between, chosen_places, state_of
from lakevilla.lake.operations.changes import (
    CHANGE_COLUMNS,
    DIFFERENCE,
    ChangeSource,
    Reading,
    changed_rows,
    refuse_missing,
    sources_of,
)
from lakevilla.lake.operations.row_counts import RowCounts, commits_between, row_counts
from lakevilla.lake.view import View
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.operations import Defined

# -------------------- difference
#
# The files and the definition in which two states of a table differ.


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two states; ``after`` is None if the definition is the same in both."""

    removes: tuple[DataFile, ...]
    adds: tuple[DataFile, ...]
    before: Defined
    after: Defined | None

    @property
    def is_empty(self) -> bool:
        return not (self.removes or self.adds) and self.after is None


def difference(before: TableSnapshot, after: TableSnapshot) -> Program[Difference]:
    """Return the files added to a table, and removed from it, from one of its states to another."""
    old_files = yield from before.files()
    new_files = yield from after.files()
    old = Defined(dict(before.metadata), dict(before.protocol))
    new = Defined(dict(after.metadata), dict(after.protocol))
    return Difference(
        tuple(data_files(files_not_among(old_files, new_files))),
        tuple(data_files(files_not_among(new_files, old_files))),
        old,
        None if old == new else new,
    )


# -------------------- state difference
#
# The differences between two states of the lake, table by table.


Kind = Literal["created", "joined", "dropped", "changed"]


@dataclass(frozen=True, slots=True)
class TableDifference:
    """A table that differs. ``snapshot`` is its later state, or its only one.

    ``rows``: how many were added and removed, where that can be told without reading them.
    """

    location: str
    change: Kind
    found: Difference
    snapshot: TableSnapshot
    rows: RowCounts = (None, None)


def states_differ(
    context: Context, before: StateName, after: StateName, patterns: Sequence[str] | None
) -> Program[list[TableDifference]]:
    """Return the tables that differ between two states, without opening equal tables.

    Raises
    ------
    VersionNotFound, RefNotFound
        A state is not kept any more.
    InvalidOperation
        No table matches a pattern.
    """
    held = yield from context.head()
    if held is None:
        raise VersionNotFound("the lake has no global version yet: its first transaction makes one")
    head = held.head
    old = yield from state_of(head, before)
    new = yield from state_of(head, after)
    changed = yield from between(context, head, old, new)
    wanted = yield from chosen_places(head, changed.tables, patterns)
    old_views = yield from old.views(context, wanted)
    new_views = yield from new.views(context, wanted)
    # A table that was created and dropped between the states is in neither of them.
    wanted = [one for one in wanted if old_views[one] is not None or new_views[one] is not None]
    found = yield from parallel(
        [_one(context, old_views[location], new_views[location]) for location in wanted]
    )
    differing = []
    for location, (change, what, snapshot) in zip(wanted, found, strict=True):
        if what.is_empty and change == "changed":
            continue
        kind: Kind = "joined" if change == "created" and location not in changed.made else change
        differing.append(TableDifference(location, kind, what, snapshot))
    # Of files that only came, or only went, the rows are known without the history.
    exchanged = any(one.found.adds and one.found.removes for one in differing)
    commits = (yield from commits_between(head, old.version, new.version)) if exchanged else ()
    counts = yield from parallel(
        [
            row_counts(context, one.location, one.found.adds, one.found.removes, commits)
            for one in differing
        ]
    )
    return [replace(one, rows=rows) for one, rows in zip(differing, counts, strict=True)]


def _one(
    context: Context, old: View | None, new: View | None
) -> Program[tuple[Kind, Difference, TableSnapshot]]:
    known = new or old
    assert known is not None, "one of the states has the table"
    snapshot = known.snapshot
    format_ = context.formats.of(snapshot)
    blank = format_.blank(snapshot.location, snapshot.layout.table, catalog=snapshot.catalog)
    was = blank if old is None else old.snapshot
    now = blank if new is None else new.snapshot
    change: Kind = "created" if old is None else "dropped" if new is None else "changed"
    return change, (yield from difference(was, now)), snapshot


# -------------------- state rows
#
# The rows in which two states of a table differ.


#: The column ``_change_type``, which states how a row differs between two states.
OWN = pa.schema([CHANGE_COLUMNS.field(0)])
_TYPE = OWN.field(0)
#: A view over the added and removed rows.
_DIFFERING = "lakevilla_differing"


def rows_between(
    context: Context, table: TableDifference, keys: Sequence[str] | None
) -> Program[pa.Table]:
    """Return the added and removed rows, with ``_change_type``; with ``keys`` also updates.

    Raises
    ------
    InvalidOperation
        The table lacks a column of ``keys``, or has a column named ``_change_type``.
    VersionNotFound
        A file does not exist any more.
    """
    layout = table.snapshot.layout
    _check(table, keys)
    found = yield from changed_rows(
        Reading(context, table.location, layout, None, None), _change(table)
    )
    schema = pa.schema([*layout.schema, _TYPE])
    rows = pa.concat_tables(found) if found else schema.empty_table()
    if not keys:
        return rows
    later = f"{_TYPE.name} IN ('insert', 'update_postimage')"
    sql = f"SELECT * FROM ({_paired(_DIFFERING, keys)}) ORDER BY {_names(keys)}, {later}"
    paired = yield from context.engine.query(sql, {}, {_DIFFERING: rows.to_reader()}, {})
    return paired.select(schema.names).cast(schema)


def with_rows(table: TableDifference, count: int) -> TableDifference:
    """Return a difference without files that its first ``count`` rows do not need.

    Where files have come and gone, rows are compared, and each file may have one of them.
    """
    found = table.found
    if found.adds and found.removes:
        return table
    return replace(
        table,
        found=replace(found, adds=_first(found.adds, count), removes=_first(found.removes, count)),
    )


def _first(files: Sequence[DataFile], count: int) -> tuple[DataFile, ...]:
    """Return the first files that have so many rows; one of which that is not known has enough."""
    chosen, rows = [], 0
    for file in files:
        if rows >= count:
            break
        chosen.append(file)
        known = size_of([file]).rows
        rows = count if known is None else rows + known
    return tuple(chosen)


def sources_between(
    table: TableDifference, keys: Sequence[str] | None
) -> Program[tuple[ChangeSource, ...]]:
    """Return the sources of ``rows_between``, for a later reader; raise the same errors."""
    _check(table, keys)
    sources = sources_of(table.snapshot.layout, _change(table))
    for source in sources:
        yield from refuse_missing(table.location, source.files)
    return sources


def comparison(keys: Sequence[str] | None) -> str:
    """Return the query that compares the added and the removed rows."""
    return _paired(f"({DIFFERENCE})", keys) if keys else DIFFERENCE


def _paired(rows: str, keys: Sequence[str]) -> str:
    """Return a query that shows a removed and an added row of one key as one update."""
    kind = _TYPE.name

    def alone(which: str) -> str:
        return f"count(*) FILTER (WHERE {kind} = '{which}') OVER same = 1"

    return (
        f"SELECT * REPLACE (CASE WHEN NOT ({alone('delete')} AND {alone('insert')}) THEN {kind} "
        f"WHEN {kind} = 'delete' THEN 'update_preimage' ELSE 'update_postimage' END AS {kind}) "
        f"FROM {rows} WINDOW same AS (PARTITION BY {_names(keys)})"
    )


def _names(columns: Sequence[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in columns)


def _change(table: TableDifference) -> Change:
    return Change(
        adds=tuple(table.found.adds), removes=tuple(removal(file) for file in table.found.removes)
    )


def _check(table: TableDifference, keys: Sequence[str] | None) -> None:
    layout = table.snapshot.layout
    for key in keys or ():
        if key not in layout.schema.names:
            raise InvalidOperation(
                f"keys: table {layout.table} has no column {key!r}; it has "
                f"{', '.join(layout.schema.names)}",
                table=layout.table,
            )
    if _TYPE.name in layout.schema.names:
        raise InvalidOperation(
            f"table {layout.table} has a column {_TYPE.name} of its own, so its changes can't be "
            "returned: rename the column",
            table=layout.table,
        )
