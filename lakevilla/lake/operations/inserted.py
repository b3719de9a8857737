"""The rows of an INSERT's query, converted to the types of the table's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from datetime import time

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.cast import entries_of, flat_offsets
from lakevilla.arrow.input import to_reader
from lakevilla.arrow.plain_values import single_precision
from lakevilla.arrow.unkept import refuse_unkept
from lakevilla.errors import InvalidOperation
from lakevilla.formats.layout import Layout
from lakevilla.settings import shown
from lakevilla.sublogs.operations import Insert

# -------------------- inserted
#
# Conversion of plain values.
#
# An INSERT has values as literals, whose type follows from their form: ``1.5`` is a decimal,
# ``'2026-01-31'`` is text, and the engine returns NULL as an integer. They are converted to the
# column's type if that loses nothing. Rows that a caller passes have types of their own, and are
# converted by other rules (``arrow.cast``).


#: The view of parameter sets for ``executemany``: its values are treated like literals.
PARAMETERS = "__parameters"


def inserted_rows(operation: Insert, layout: Layout, rows: pa.Table) -> pa.RecordBatchReader:
    """Return the rows of an insert's query as rows of the table; see ``assigned_rows``."""
    literals = has_literals_alone({*operation.source.tables, *operation.source.views})
    return assigned_rows(operation.columns, layout, rows, literals=literals)


def has_literals_alone(names: Set[str]) -> bool:
    """Return whether all values of a query are literals: then times without a zone are in UTC.

    ``names`` are the tables and views that the query reads.
    """
    return names <= {PARAMETERS}


def assigned_rows(
    columns: Sequence[str], layout: Layout, rows: pa.Table, *, literals: bool
) -> pa.RecordBatchReader:
    """Return the rows of a query as values for the ``columns`` of a table.

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
    """Return the values, converted to ``target`` if INSERT makes this conversion; or unchanged."""
    source = column.type
    if source.equals(target):
        return column
    if pa.types.is_int32(source) and column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), target)])
    if pa.types.is_timestamp(target) and target.tz is not None:
        if pa.types.is_date(source) or (literals and _has_no_zone(source)):
            return pc.assume_timezone(column.cast(pa.timestamp("us")), "UTC")
        if literals and pa.types.is_string(source):
            return _timestamps(column)
    if pa.types.is_nested(source) and pa.types.is_nested(target):

        def within(values: pa.Array, type_: pa.DataType) -> pa.Array:
            return _whole(assigned(pa.chunked_array([values]), type_, literals=literals))

        # Combine the chunks: converted separately, a chunk with only NULLs might get another type.
        return pa.chunked_array([assigned_nested(_whole(column), target, within)])
    if literals and pa.types.is_float64(source) and pa.types.is_float32(target):
        return single_precision(column, target)
    for is_source, is_target in _TURNED:
        if is_source(source) and is_target(target):
            return _turned(column, target)
    return column


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _check_text(column: pa.ChunkedArray, target: pa.DataType, name: str, table: str) -> None:
    """Refuse text that is not a valid value for its column's date or time type."""
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
        _timestamp(text.as_py()) if target == _MOMENT else _cast(pa.chunked_array([[text]]), target)
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
        # Cast through text: Arrow's own cast does not give the nearest double.
        # docs/upstream.md, "A decimal is cast to another double than the nearest"
        return column.cast(pa.string()).cast(pa.float64()).cast(target, safe=False)
    if pa.types.is_string(column.type) and pa.types.is_time(target):
        return pa.chunked_array([[_time(text) for text in column.to_pylist()]], target)
    return column.cast(target)


def _time(text: str | None) -> time | None:
    """Return text as a time of the day: Arrow has no such cast."""
    # docs/upstream.md, "Text is not cast to a time of day"
    try:
        found = None if text is None else time.fromisoformat(text)
    except ValueError:
        raise pa.ArrowInvalid(f"no time: {text}") from None
    if found is not None and found.tzinfo is not None:
        raise pa.ArrowInvalid(f"a time with a zone: {text}")
    return found


def _has_no_zone(source: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(source) and source.tz is None)


def _timestamps(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts as timestamps; those without a zone are in UTC."""
    try:
        return pa.chunked_array([_timestamp(text) for text in column.to_pylist()], _MOMENT)
    except pa.ArrowException:
        return column


def _timestamp(text: str | None) -> pa.Array:
    given = pa.array([text], pa.string())
    if text is None or text.endswith(("Z", "z")) or any(mark in text[10:] for mark in "+-"):
        return given.cast(_MOMENT)
    return pc.assume_timezone(given.cast(pa.timestamp("us")), "UTC")


_MOMENT = pa.timestamp("us", "UTC")
#: An example of text for each type, for messages.
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


# -------------------- inserted nested
#
# Conversion of structs, lists and maps.
#
# Values inside them are converted like plain values. A struct may be inserted into a column of
# maps: its field names become the keys.


#: A function that converts values that are not nested to a type, if INSERT does so.
Assign = Callable[[pa.Array, pa.DataType], pa.Array]


def assigned_nested(array: pa.Array, target: pa.DataType, assign: Assign) -> pa.Array:
    """Return the values with inner values converted; unchanged if they are nested differently."""
    kind, types = array.type, pa.types
    if kind.equals(target):
        return array
    if not types.is_nested(kind):
        return assign(array, target)
    if types.is_struct(kind) and types.is_struct(target):
        return _struct(array, {field.name.lower(): field.type for field in target}, assign)
    if types.is_struct(kind) and types.is_map(target):
        return _map(array, target)
    if types.is_list(kind) and types.is_list(target):
        values = assigned_nested(array.flatten(), target.value_type, assign)
        return pa.ListArray.from_arrays(flat_offsets(array), values, mask=array.is_null())
    if types.is_map(kind) and types.is_map(target):
        lists = entries_of(array)
        keys, items = lists.flatten().flatten()
        return pa.MapArray.from_arrays(
            flat_offsets(lists),
            assigned_nested(keys, target.key_type, assign),
            assigned_nested(items, target.item_type, assign),
            mask=array.is_null(),
        )
    return array


def _struct(array: pa.Array, wanted: Mapping[str, pa.DataType], assign: Assign) -> pa.Array:
    names = [field.name for field in array.type]
    children = [
        assigned_nested(child, wanted.get(name.lower(), child.type), assign)
        for name, child in zip(names, array.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(children, names=names, mask=array.is_null())


def _map(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return structs as maps by field name; unchanged if their values have several types."""
    names = [field.name for field in array.type]
    valid = array.filter(array.is_valid())
    items = [_item(child, target.item_type) for child in valid.flatten()]
    if len({item.type for item in items}) != 1 or not pa.types.is_string(target.key_type):
        return array
    rows = len(valid)
    by_row = [place * rows + row for row in range(rows) for place in range(len(names))]
    lengths = pc.if_else(array.is_valid(), len(names), 0).cast(pa.int32())
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    return pa.MapArray.from_arrays(
        pa.concat_arrays([pa.array([0], pa.int32()), ends]),
        pa.array(names * rows, pa.string()),
        pa.concat_arrays(items).take(pa.array(by_row, pa.int64())),
        mask=array.is_null(),
    )


def _item(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return values cast to the type of the map's values, if they are numbers; else unchanged."""
    if array.null_count == len(array):
        return pa.nulls(len(array), target)
    try:
        return array.cast(target) if _number(array.type) and _number(target) else array
    except pa.ArrowInvalid:
        return array


def _number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
