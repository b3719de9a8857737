"""The rows in which two states of a table differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import Change
from lakevilla.formats.files import removal
from lakevilla.lake.context import Context
from lakevilla.operations.changed_rows import CHANGE_COLUMNS, Reading, changed_rows
from lakevilla.operations.state_difference import TableDifference
from lakevilla.store.effects import Program

_TYPE = CHANGE_COLUMNS.field(0)


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
    change = Change(
        adds=tuple(table.found.adds), removes=tuple(removal(file) for file in table.found.removes)
    )
    reading = Reading(context, table.location, layout, None, None)
    found = yield from changed_rows(reading, change)
    schema = pa.schema([*layout.schema, _TYPE])
    rows = pa.concat_tables(found) if found else schema.empty_table()
    return rows if not keys else _paired(rows, keys)


def _paired(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Rows of one key that went and came are one that was updated."""
    identities = list(zip(*(rows[key].to_pylist() for key in keys), strict=True))
    kinds = rows[_TYPE.name].to_pylist()
    left = Counter(key for key, kind in zip(identities, kinds, strict=True) if kind == "delete")
    come = Counter(key for key, kind in zip(identities, kinds, strict=True) if kind == "insert")
    updated = {key for key in left if left[key] == come[key] == 1}
    names = {"delete": "update_preimage", "insert": "update_postimage"}
    shown = [
        names[kind] if key in updated else kind for key, kind in zip(identities, kinds, strict=True)
    ]
    place = rows.schema.get_field_index(_TYPE.name)
    rows = rows.set_column(place, _TYPE, pa.array(shown, _TYPE.type))
    order = sorted(range(len(shown)), key=lambda n: (repr(identities[n]), kinds[n] == "insert"))
    return rows.take(pa.array(order, pa.int64()))
