"""What the driver is told of rows that lie elsewhere, to find the files that may have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.lake.operations.comparing.merging import MOST_ASKED_FOR


@dataclass(frozen=True, slots=True)
class Extent:
    """Of the rows at one place: how many there are, and they themselves if these are few.

    ``spans`` has two rows, the least and the greatest value of each column; NULL where some have no
    value, or a type has no order.
    """

    count: int
    rows: pa.Table
    spans: pa.Table


def extent_of(rows: pa.Table) -> Extent:
    """What is told of some rows."""
    few = rows.num_rows <= MOST_ASKED_FOR
    spans = [pa.array(_span(column), column.type) for column in rows.columns]
    return Extent(
        rows.num_rows,
        rows if few else rows.schema.empty_table(),
        pa.table(spans, schema=pa.schema([pa.field(f.name, f.type) for f in rows.schema])),
    )


def all_extents(said: Sequence[Extent]) -> tuple[pa.Table | None, pa.Table]:
    """The rows of all places, or None if they are many; and the spans of places that have some."""
    some = [one for one in said if one.count]
    spans = pa.concat_tables(one.spans for one in some)
    if sum(one.count for one in some) > MOST_ASKED_FOR:
        return None, spans
    return pa.concat_tables(one.rows for one in some), spans


def _span(column: pa.ChunkedArray) -> list[object]:
    kind = column.type
    if column.null_count or pa.types.is_floating(kind) or pa.types.is_nested(kind):
        return [None, None]
    if pa.types.is_boolean(kind):
        return [False, True]
    bounds = pc.min_max(column)
    return [bounds["min"].as_py(), bounds["max"].as_py()]
