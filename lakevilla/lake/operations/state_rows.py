"""The rows in which two states of a table differ."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import Change
from lakevilla.formats.files import removal
from lakevilla.lake.context import Context
from lakevilla.lake.operations.changed_rows import (
    CHANGE_COLUMNS,
    DIFFERENCE,
    ChangeSource,
    Reading,
    changed_rows,
    refuse_missing,
    sources_of,
)
from lakevilla.lake.operations.state_difference import TableDifference
from lakevilla.store.effects import Program

#: What tells of a row in which two states differ.
OWN = pa.schema([CHANGE_COLUMNS.field(0)])
_TYPE = OWN.field(0)
#: A view over rows that came and went.
_DIFFERING = "lakevilla_differing"


def rows_between(
    context: Context, table: TableDifference, keys: Sequence[str] | None
) -> Program[pa.Table]:
    """The rows that came and went, with ``_change_type``; by ``keys``, updates are told as such.

    Raises
    ------
    InvalidOperation
        The table has no such column, or one of that name.
    VersionNotFound
        A file is gone.
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


def sources_between(
    table: TableDifference, keys: Sequence[str] | None
) -> Program[tuple[ChangeSource, ...]]:
    """Where the rows of ``rows_between`` lie, for who reads them later; errors as there."""
    _check(table, keys)
    sources = sources_of(table.snapshot.layout, _change(table))
    for source in sources:
        yield from refuse_missing(table.location, source.files)
    return sources


def comparison(keys: Sequence[str] | None) -> str:
    """The query that compares what came and what went."""
    return _paired(f"({DIFFERENCE})", keys) if keys else DIFFERENCE


def _paired(rows: str, keys: Sequence[str]) -> str:
    """Rows of one key that went and came are one that was updated."""
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
            "told: rename the column",
            table=layout.table,
        )
