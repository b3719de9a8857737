"""Rows of a table as a page has them: few columns, few rows, and short texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakevilla.serve.page.text import short

#: A page has so many rows, each with so many columns.
MOST_ROWS, MOST_COLUMNS = 200, 60
#: The column of a difference that says what became of a row.
CHANGE = "_change_type"
#: What a person reads for each change.
_CHANGES = {
    "insert": "added",
    "delete": "removed",
    "update_preimage": "was",
    "update_postimage": "is",
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as texts.

    Attributes
    ----------
    heads : list of str
        The names of the columns.
    rows : list of list of str
        The values.
    changes : list of str
        What became of each row; empty where the rows are no difference.
    more_rows : bool
        Whether there are others.
    more_columns : int
        The number of other columns.
    """

    heads: list[str]
    rows: list[list[str]]
    changes: list[str]
    more_rows: bool
    more_columns: int


def rows_of(found: pa.Table, *, is_difference: bool = False) -> Rows:
    """Return the first rows and columns of a table as texts."""
    kept = found.slice(0, MOST_ROWS)
    changes = []
    if is_difference:
        changes = [_CHANGES.get(one, one) for one in kept[CHANGE].to_pylist()]
        kept = kept.drop_columns([CHANGE])
    shown = range(min(kept.num_columns, MOST_COLUMNS))
    columns = [_texts(kept.column(at)) for at in shown]
    return Rows(
        heads=[kept.field(at).name for at in shown],
        rows=[list(row) for row in zip(*columns, strict=True)],
        changes=changes,
        more_rows=found.num_rows > MOST_ROWS,
        more_columns=kept.num_columns - len(shown),
    )


def _texts(column: pa.ChunkedArray) -> list[str]:
    return [_text(value) for value in column]


def _text(value: Any) -> str:
    try:
        if pa.types.is_map(value.type):
            return short(dict(value.as_py() or ()) if value.is_valid else None)
        return short(value.as_py())
    except (ArithmeticError, ValueError):  # Python has no such time, or no such text
        return short(str(value.cast(pa.string())) if pa.types.is_temporal(value.type) else "?")
