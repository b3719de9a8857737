"""Rows that users give, as Arrow tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.cast import (
    ColumnPath,
    convert,
    has_default,
    match_fields,
    missing,
    storable,
)
from lakevilla.arrow.nested_fields import typed_like, widened
from lakevilla.arrow.opening import Parts, Source, open_data
from lakevilla.arrow.plain_values import inferred, with_floats_of
from lakevilla.arrow.unkept import refuse_unkept
from lakevilla.errors import InvalidOperation

# -------------------- input
#
# Rows from callers, brought into the columns and types of a table.
#
# All functions accept a result of `open_data`, or the raw data. Nothing here holds more
# than a batch of a stream.


#: Rows converted at a time: a batch of any size is converted in slices.
_ROWS_PER_SLICE = 131_072

SchemaMode = Literal["merge"] | None


def schema_of(data: object, *, table: str = "data", like: pa.Schema | None = None) -> pa.Schema:
    """Return the data's columns in the types that a table stores.

    Reads no rows, except that plain Python values are inspected for their type.

    Parameters
    ----------
    data : object
        Data that `open_data` accepts, or a ``pyarrow.Schema``.
    table : str
        Name for messages.
    like : pyarrow.Schema, optional
        Given where the rows are no table's yet: a column of nothing but nulls has the type of the
        column of its name in it, else the one that SQL gives a lone NULL. Without it such a column
        is refused.

    Raises
    ------
    InvalidOperation
        A column has a type that no table can store, the names of two columns differ only
        by case, or there are no columns.
    """
    schema = data if isinstance(data, pa.Schema) else open_data(data).schema
    if not len(schema):
        raise InvalidOperation(
            f"the data for table {table!r} has no columns: pass rows or a schema",
            table=table,
        )
    match_fields(schema.names, [], f"table {table!r}", table)
    refuse_unkept(schema, table)
    if like is not None:
        types = {column.name.lower(): column.type for column in like}
        schema = pa.schema([_with_a_type(column, types) for column in schema])
        # A table knows already that its void column is void.
        void = {name for name, kind in types.items() if pa.types.is_null(kind)}
    else:
        void = set()
    return pa.schema(
        [
            column
            if pa.types.is_null(column.type) and column.name.lower() in void
            else _stored_field(column, table)
            for column in schema
        ]
    )


def to_reader(
    data: object,
    *,
    table: str,
    schema: pa.Schema,
    schema_mode: SchemaMode = None,
) -> pa.RecordBatchReader:
    """Return the data with the columns, order and types of a table, as a stream.

    Columns match by name without regard to case; a column that the data lacks has its default, or
    is null if it may be. Every error that the types show is raised
    here, before a row is read; a value that cannot be cast raises when its
    batch is read.

    Parameters
    ----------
    data : object
        Data that `open_data` accepts.
    table : str
        Name for messages.
    schema : pyarrow.Schema
        The table's columns.
    schema_mode : {None, "merge"}
        With ``"merge"``, columns that the table lacks follow its own, in the
        types that a table stores, and so do fields within its columns; otherwise they are
        refused.

    Returns
    -------
    pyarrow.RecordBatchReader
        Its schema is ``schema``, with ``"merge"`` and the new columns and fields.

    Raises
    ------
    InvalidOperation
        An unknown or a missing NOT NULL column, a name twice, types that do not
        fit; while reading, a value that cannot be cast without loss.
    """
    source = open_data(data)
    merged, positions = _match(source.schema, schema, table, schema_mode)
    if source.parts is not None:
        return _part_by_part(source.parts, merged, table, schema_mode)
    if source.values is not None:
        arrays = [
            missing(column, _length(source.values))
            if position is None
            else typed(source.values[source.schema.names[position]], column, table)
            for column, position in zip(merged, positions, strict=True)
        ]
        whole = pa.RecordBatch.from_arrays(arrays, schema=merged)
        return pa.RecordBatchReader.from_batches(merged, [whole])
    for column, position in zip(merged, positions, strict=True):
        if position is not None:
            nothing = pa.nulls(0, source.schema.field(position).type)
            convert(nothing, column.type, ColumnPath(table, column.name))
    batches = _converted(source, merged, positions, table)
    if not source.one_shot:
        # A value that does not fit is reported now, while the caller may still read the table
        # again.
        batches = itertools.chain(list(itertools.islice(batches, 1)), batches)
    return pa.RecordBatchReader.from_batches(merged, batches)


def _part_by_part(
    parts: Parts, schema: pa.Schema, table: str, schema_mode: SchemaMode
) -> pa.RecordBatchReader:
    """Read each part by its own columns; the stream's columns are fixed from the first part on."""
    first = to_reader(parts.first, table=table, schema=schema)
    instead = (
        "pass schema_mode='merge'"
        if schema_mode is None
        else "name it in the first of its rows too, with None for its value"
    )

    def batches() -> Iterator[pa.RecordBatch]:
        rest = parts.rest()
        yield from first
        for part in rest:
            refuse_unknown(part.schema.names, schema, table, instead)
            yield from to_reader(part, table=table, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def refuse_unknown(names: Iterable[str], target: pa.Schema, table: str, instead: str) -> None:
    """Refuse columns that a table lacks; ``instead`` names the alternative to dropping them.

    Raises
    ------
    InvalidOperation
    """
    added = _unknown(names, target)
    if added:
        raise InvalidOperation(
            f"table {table!r} has no column {added[0]!r}; its columns are"
            f" {', '.join(target.names)}: drop it from the data, or {instead}",
            table=table,
        )


def _unknown(names: Iterable[str], target: pa.Schema) -> list[str]:
    known = {name.lower() for name in target.names}
    return [name for name in names if name.lower() not in known]


def _match(
    source: pa.Schema, target: pa.Schema, table: str, schema_mode: SchemaMode
) -> tuple[pa.Schema, list[int | None]]:
    """Return the columns to produce, and the place of each in the data."""
    if schema_mode not in (None, "merge"):
        raise InvalidOperation(f"schema_mode {schema_mode!r} is neither None nor 'merge'")
    positions = match_fields(source.names, target.names, f"table {table!r}", table)
    refuse_unkept(source, table)
    added = _unknown(source.names, target)
    if schema_mode is None:
        refuse_unknown(source.names, target, table, "pass schema_mode='merge'")
    for column in target:
        # Data without columns holds no rows that could lack a value.
        lacks = column.name.lower() not in positions and not has_default(column)
        if not column.nullable and lacks and len(source):
            raise InvalidOperation(
                f"column {column.name!r} of table {table!r} is NOT NULL and the data lacks it:"
                " add the column to the data",
                reason="constraint",
                table=table,
            )
    known = [
        column
        if schema_mode is None or (position := positions.get(column.name.lower())) is None
        else _widened_field(column, source.field(position), table)
        for column in target
    ]
    merged = pa.schema(
        # Rows written before have no value for a new column.
        [*known, *(_stored_field(source.field(n), table).with_nullable(True) for n in added)],
        metadata=target.metadata,
    )
    return merged, [positions.get(column.name.lower()) for column in merged]


def _converted(
    source: Source, schema: pa.Schema, positions: Sequence[int | None], table: str
) -> Iterator[pa.RecordBatch]:
    places = [ColumnPath(table, column.name) for column in schema]
    for batch in source.batches():
        for start in range(0, batch.num_rows, _ROWS_PER_SLICE):
            part = batch.slice(start, _ROWS_PER_SLICE)
            arrays = [
                missing(column, part.num_rows)
                if position is None
                else convert(part.column(position), column.type, place)
                for column, position, place in zip(schema, positions, places, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def typed(values: Sequence[object], column: pa.Field, table: str) -> pa.Array:
    """Return plain Python values in a column's type."""
    path = ColumnPath(table, column.name)
    values, array = with_floats_of(values, column.type, column.name)
    if pa.types.is_struct(array.type) and pa.types.is_map(column.type):
        # A dict is a struct by inference, and a map where the column is one.
        array = pa.array(values, pa.map_(pa.string(), _item_type(values, column.name)))
    return convert(array, column.type, path)


def _item_type(values: Sequence[object], name: str) -> pa.DataType:
    items = [item for value in values if isinstance(value, Mapping) for item in value.values()]
    return inferred(items, name).type


def _stored_field(column: pa.Field, table: str) -> pa.Field:
    return column.with_type(storable(column.type, ColumnPath(table, column.name)))


def _widened_field(column: pa.Field, given: pa.Field, table: str) -> pa.Field:
    return column.with_type(widened(column.type, given.type, ColumnPath(table, column.name)))


def _with_a_type(column: pa.Field, types: Mapping[str, pa.DataType]) -> pa.Field:
    return column.with_type(typed_like(column.type, types.get(column.name.lower())))


def _length(columns: Mapping[str, Sequence[object]]) -> int:
    return max((len(values) for values in columns.values()), default=0)


# -------------------- places
#
# Places of values in a column.


def places_of_true(column: pa.ChunkedArray) -> pa.Array:
    """Return the places of the values that are true.

    The column is combined into one piece: before version 26 pyarrow ends the process at a column
    without any chunk, such as one of a table from which a filter has removed all rows.
    """
    # https://github.com/apache/arrow/issues/51018
    return pc.indices_nonzero(column.combine_chunks())
