"""The rows of a query as INSERT puts them into columns of other types.

An INSERT says values by literals, which have the type that they look like: ``1.5`` is a decimal,
``'2026-01-31'`` text, and NULL comes out of the engine as an integer. What becomes of them is the
column's type, where that loses nothing. Rows that a caller gives have types of their own, and are
not changed so (``arrow.cast``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from datetime import time

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.input import to_reader
from lakevilla.arrow.unkept import refuse_unkept
from lakevilla.errors import InvalidOperation
from lakevilla.formats.layout import Layout
from lakevilla.lake.operations.inserted_nested import assigned_nested
from lakevilla.settings import shown
from lakevilla.sublogs.operations import Insert

#: A view of sets of parameters, for a statement that takes many: each value is as a literal.
PARAMETERS = "__parameters"


def inserted_rows(operation: Insert, layout: Layout, rows: pa.Table) -> pa.RecordBatchReader:
    """What the query of an insert returns, as rows of its table; see ``assigned_rows``."""
    literals = has_literals_alone({*operation.source.tables, *operation.source.views})
    return assigned_rows(operation.columns, layout, rows, literals=literals)


def has_literals_alone(names: Set[str]) -> bool:
    """Whether what a query has without a zone is no column's, but a literal, which is in UTC.

    ``names`` are of the tables and views that it looks at.
    """
    return names <= {PARAMETERS}


def assigned_rows(
    columns: Sequence[str], layout: Layout, rows: pa.Table, *, literals: bool
) -> pa.RecordBatchReader:
    """What a query returns, as the ``columns`` of a table.

    Raises
    ------
    InvalidOperation
        The query has too many or too few columns, or a value does not fit its column.
    """
    if rows.num_columns != len(columns):
        raise InvalidOperation(
            f"insert into {layout.table} names {len(columns)} columns "
            f"and its query returns {rows.num_columns}: make them match",
            table=layout.table,
        )
    refuse_unkept(rows.rename_columns(list(columns)).schema, layout.table)
    types = {field.name.lower(): field.type for field in layout.schema}
    arrays = [
        assigned(column, types.get(name.lower(), column.type), literals=literals)
        for name, column in zip(columns, rows.columns, strict=True)
    ]
    for name, array in zip(columns, arrays, strict=True):
        _check_text(array, types.get(name.lower(), array.type), name, layout.table)
    rows = pa.Table.from_arrays(arrays, names=list(columns))
    return to_reader(rows, table=layout.table, schema=layout.schema)


def assigned(
    column: pa.ChunkedArray, target: pa.DataType, *, literals: bool = False
) -> pa.ChunkedArray:
    """The values in the column's type if INSERT turns them into it, else as they are."""
    source = column.type
    if source.equals(target):
        return column
    if pa.types.is_int32(source) and column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), target)])
    if pa.types.is_timestamp(target) and target.tz is not None:
        if pa.types.is_date(source) or (literals and _has_no_zone(source)):
            return pc.assume_timezone(column.cast(pa.timestamp("us")), "UTC")
        if literals and pa.types.is_string(source):
            return _moments(column)
    if pa.types.is_nested(source) and pa.types.is_nested(target):

        def within(values: pa.Array, type_: pa.DataType) -> pa.Array:
            return _whole(assigned(pa.chunked_array([values]), type_, literals=literals))

        # In one piece: what the pieces have NULL in alone would be of several types.
        return pa.chunked_array([assigned_nested(_whole(column), target, within)])
    for is_source, is_target in _TURNED:
        if is_source(source) and is_target(target):
            return _turned(column, target)
    return column


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _check_text(column: pa.ChunkedArray, target: pa.DataType, name: str, table: str) -> None:
    """Tell which text is none of the dates or times that it is to become."""
    form = next((form for is_type, form in _FORMS if is_type(target)), None)
    if form is None or not pa.types.is_string(column.type):
        return
    text = next((value.as_py() for value in column if not _is_read(value, target)), None)
    if text is not None:
        raise InvalidOperation(
            f"column {name!r} of table {table!r} has type {target}, which {shown(text)} is not: "
            f"write it as {form}",
            reason="value",
            table=table,
        )


def _is_read(text: pa.Scalar, target: pa.DataType) -> bool:
    try:
        _moment(text.as_py()) if target == _MOMENT else _cast(pa.chunked_array([[text]]), target)
    except pa.ArrowException:
        return False
    return True


def _turned(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    try:
        found = _cast(column, target)
        if pa.types.is_string(column.type) or pa.types.is_date(column.type):
            return found
        same = pc.all(pc.equal(_cast(found, column.type), column)).as_py() is not False
    except pa.ArrowException:
        return column
    return found if same else column


def _cast(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_decimal(column.type):
        # By way of text: Arrow's own cast is not the nearest double.
        return column.cast(pa.string()).cast(pa.float64()).cast(target, safe=False)
    if pa.types.is_string(column.type) and pa.types.is_time(target):
        return pa.chunked_array([[_time(text) for text in column.to_pylist()]], target)
    return column.cast(target)


def _time(text: str | None) -> time | None:
    """Arrow has no cast of text to times of the day."""
    try:
        found = None if text is None else time.fromisoformat(text)
    except ValueError:
        raise pa.ArrowInvalid(f"no time: {text}") from None
    if found is not None and found.tzinfo is not None:
        raise pa.ArrowInvalid(f"a time with a zone: {text}")
    return found


def _has_no_zone(source: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(source) and source.tz is None)


def _moments(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts as moments; those without a zone are in UTC."""
    try:
        return pa.chunked_array([_moment(text) for text in column.to_pylist()], _MOMENT)
    except pa.ArrowException:
        return column


def _moment(text: str | None) -> pa.Array:
    given = pa.array([text], pa.string())
    if text is None or text.endswith(("Z", "z")) or any(mark in text[10:] for mark in "+-"):
        return given.cast(_MOMENT)
    return pc.assume_timezone(given.cast(pa.timestamp("us")), "UTC")


_MOMENT = pa.timestamp("us", "UTC")
#: How a text of a type is written.
_FORMS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_date, "'2024-02-29'"),
    (pa.types.is_timestamp, "'2024-02-29 12:00:00'"),
    (pa.types.is_time, "'12:00:00'"),
)
_Test = Callable[[pa.DataType], bool]
_TURNED: tuple[tuple[_Test, _Test], ...] = (
    (pa.types.is_decimal, pa.types.is_floating),
    (pa.types.is_floating, pa.types.is_decimal),
    (pa.types.is_string, pa.types.is_date),
    (pa.types.is_string, pa.types.is_timestamp),
    (pa.types.is_string, pa.types.is_time),
    (pa.types.is_date, pa.types.is_timestamp),
)
