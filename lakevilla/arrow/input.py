"""Rows as callers have them, brought into the columns and types of a table.

`open_data` looks at what was handed over once; everything else takes either
that `Source` or the raw data. Nothing here holds more than a batch of a stream.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakSet

import pyarrow as pa

from lakevilla.arrow.cast import Place, convert, match_fields, not_unicode, storable, without_nulls
from lakevilla.arrow.offsets import with_offsets
from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown

__all__ = [
    "Source",
    "is_one_shot",
    "materialise",
    "open_data",
    "refuse_unknown",
    "schema_of",
    "to_reader",
]

#: Rows converted at a time: a batch of any size is converted in slices.
_ROWS_PER_SLICE = 131_072

SchemaMode = Literal["merge"] | None


_READ_ALREADY = (
    "the data is a stream and has been read already: hand over a new reader, or a pyarrow.Table"
)

#: The readers that callers still hold and that were read here.
_READ: WeakSet[pa.RecordBatchReader] = WeakSet()


@dataclass(slots=True)
class Source:
    """Data that was handed over, with the types it came in.

    Attributes
    ----------
    schema : pyarrow.Schema
        As the data has it; `schema_of` gives the types a table would store.
    one_shot : bool
        The data can be read once only: who may need it again stores it first.
    values : Mapping or None
        Plain Python values by column. They have no type of their own and take
        that of the column they go into.
    """

    schema: pa.Schema
    one_shot: bool
    _open: Callable[[], Iterable[pa.RecordBatch]] = field(repr=False)
    values: Mapping[str, Sequence[object]] | None = field(default=None, repr=False)
    _spent: bool = field(default=False, repr=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The data in the types it came in.

        Raises
        ------
        InvalidOperation
            It can be read once only and was, reading it failed, or it has text that is not UTF-8.
        """
        if self.one_shot and self._spent:
            raise InvalidOperation(_READ_ALREADY)
        self._spent = True
        return self._read()

    def _read(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._open():
                sound = with_offsets(batch)
                if (column := not_unicode(sound)) is not None:
                    raise InvalidOperation(
                        f"column {column!r} of the data has text that is not UTF-8, which no other "
                        "client could read: decode its bytes by the encoding that they have, or "
                        "store them in a binary column"
                    )
                yield sound
        except (pa.ArrowException, OSError) as error:
            raise InvalidOperation(f"the data could not be read: {error}") from error


def open_data(data: object) -> Source:
    """Look at data of any kind that the library takes.

    Parameters
    ----------
    data : object
        Anything Arrow (``__arrow_c_stream__`` or ``__arrow_c_array__``: tables,
        batches, readers, DuckDB relations), a pandas or polars frame, a polars
        lazy frame, a pyarrow dataset or scanner, a list of dicts, a dict of
        lists, or a `Source`.

    Returns
    -------
    Source

    Raises
    ------
    InvalidOperation
        The data is of no such kind, or its columns cannot become Arrow.
    """
    if isinstance(data, Source):
        return data
    try:
        return _open(data)
    except InvalidOperation:
        raise
    except Exception as error:  # of whatever library the data comes from
        raise InvalidOperation(
            f"data of type {_type_name(data)} cannot become Arrow: {error}"
        ) from error


def is_one_shot(data: object) -> bool:
    """Whether the data can be read once only (a reader, a relation, a lazy frame)."""
    return open_data(data).one_shot


def schema_of(data: object, *, table: str = "data", like: pa.Schema | None = None) -> pa.Schema:
    """The data's columns in the types that a table stores.

    Reads no rows, except that plain Python values are looked at for their type.

    Parameters
    ----------
    data : object
        What `open_data` takes, or a ``pyarrow.Schema``.
    table : str
        Name for messages.
    like : pyarrow.Schema, optional
        The rows are no table's yet: a column of nothing but nulls has the type of the
        column of its name in here, else the one that SQL gives a lone NULL. Without it
        such a column is refused.

    Raises
    ------
    InvalidOperation
        A column has a type that no table can store, two columns have one name
        but for case, or there are no columns.
    """
    schema = data if isinstance(data, pa.Schema) else open_data(data).schema
    if not len(schema):
        raise InvalidOperation(
            f"the data for table {table!r} has no columns: hand over rows or a schema",
            table=table,
        )
    match_fields(schema.names, [], f"table {table!r}", table)
    if like is not None:
        types = {column.name.lower(): column.type for column in like}
        schema = pa.schema([_with_a_type(column, types) for column in schema])
    return pa.schema(
        [_stored_field(column, table) for column in schema],
    )


def to_reader(
    data: object,
    *,
    table: str,
    schema: pa.Schema,
    schema_mode: SchemaMode = None,
) -> pa.RecordBatchReader:
    """The data with the columns, order and types of a table, as a stream.

    Columns match by name without regard to case; a nullable column that the
    data lacks becomes null. Everything that can be told from the types is told
    here, before a row is read; a value that cannot be cast raises when its
    batch is read.

    Parameters
    ----------
    data : object
        What `open_data` takes.
    table : str
        Name for messages.
    schema : pyarrow.Schema
        The table's columns.
    schema_mode : {None, "merge"}
        With ``"merge"``, columns that the table lacks follow its own, in the
        types that a table stores; else they are refused.

    Returns
    -------
    pyarrow.RecordBatchReader
        Its schema is ``schema``, with ``"merge"`` followed by new columns.

    Raises
    ------
    InvalidOperation
        An unknown or a missing NOT NULL column, a name twice, types that do not
        fit; while reading, a value that cannot be cast without loss.
    """
    source = open_data(data)
    merged, positions = _match(source.schema, schema, table, schema_mode)
    if source.values is not None:
        arrays = [
            pa.nulls(_length(source.values), column.type)
            if position is None
            else _typed(source.values[source.schema.names[position]], column, table)
            for column, position in zip(merged, positions, strict=True)
        ]
        whole = pa.RecordBatch.from_arrays(arrays, schema=merged)
        return pa.RecordBatchReader.from_batches(merged, [whole])
    for column, position in zip(merged, positions, strict=True):
        if position is not None:
            nothing = pa.nulls(0, source.schema.field(position).type)
            convert(nothing, column.type, Place(table, column.name))
    batches = _converted(source, merged, positions, table)
    if not source.one_shot:
        # What does not fit is told now, when the caller may still look at the table again.
        batches = itertools.chain(list(itertools.islice(batches, 1)), batches)
    return pa.RecordBatchReader.from_batches(merged, batches)


def refuse_unknown(names: Iterable[str], target: pa.Schema, table: str, instead: str) -> None:
    """Refuse columns that a table lacks; ``instead`` of leaving them out one can do that.

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


def materialise(data: object, *, limit_bytes: int) -> pa.Table | pa.RecordBatchReader:
    """Bring small data into memory, so that it can be read again.

    Parameters
    ----------
    data : object
        What `open_data` takes.
    limit_bytes : int
        As much as may be held.

    Returns
    -------
    pyarrow.Table or pyarrow.RecordBatchReader
        The table if all of it fits, else a reader over everything, what was
        looked at included.
    """
    source = open_data(data)
    batches = source.batches()
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > limit_bytes:
            return pa.RecordBatchReader.from_batches(source.schema, itertools.chain(held, batches))
    return pa.Table.from_batches(held, schema=source.schema)


# ------------------------------------------------------------------ opening


def _open(data: Any) -> Source:
    if isinstance(data, pa.RecordBatchReader):
        if data in _READ:
            # It would pass for data without rows, as in a function that is run again.
            raise InvalidOperation(_READ_ALREADY)
        return Source(data.schema, True, lambda: _read_now(data))
    if isinstance(data, pa.Table | pa.RecordBatch):
        return _in_memory(data)
    if isinstance(data, Mapping):
        return _from_columns(data)
    if isinstance(data, list | tuple):
        return _from_rows(data)
    package = type(data).__module__.partition(".")[0]
    if package == "pandas" and type(data).__name__ == "DataFrame":
        return _from_pandas(data)
    if package == "polars" and type(data).__name__ == "LazyFrame":
        return _from_lazy(data)
    if package == "pyspark":
        raise InvalidOperation(
            "a Spark DataFrame needs the Spark engine: connect with spark=..., or hand over"
            " frame.toArrow()"
        )
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        # A polars frame is in memory; of anything else that streams it is not
        # known whether a second stream would bring the same rows.
        return _in_memory(reader.read_all()) if package == "polars" else _stream(reader)
    if hasattr(data, "__arrow_c_array__"):
        return _in_memory(pa.record_batch(data))
    if package == "pyarrow" and hasattr(data, "scanner"):
        return _stream(data.scanner().to_reader())
    if package == "pyarrow" and hasattr(data, "to_reader"):
        return _stream(data.to_reader())
    raise InvalidOperation(
        f"data of type {_type_name(data)} is not supported: hand over anything Arrow, a pandas"
        " or polars frame, a DuckDB relation, a list of dicts or a dict of lists"
    )


def _read_now(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    _READ.add(reader)
    return reader


def _stream(reader: pa.RecordBatchReader) -> Source:
    return Source(reader.schema, True, lambda: reader)


def _in_memory(data: pa.Table | pa.RecordBatch) -> Source:
    table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
    return Source(table.schema, False, table.to_batches)


def _from_pandas(frame: Any) -> Source:
    # A named index is data (what set_index and groupby leave); an unnamed one
    # only counts rows.
    named = [name for name in frame.index.names if name is not None]
    if named:
        frame = frame.reset_index(level=named)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return _in_memory(table.replace_schema_metadata(None))


def _from_lazy(frame: Any) -> Source:
    schema = pa.RecordBatchReader.from_stream(frame.collect_schema().to_frame()).schema
    if not hasattr(frame, "collect_batches"):
        return _in_memory(pa.table(frame.collect()))

    def batches() -> Iterator[pa.RecordBatch]:
        for part in frame.collect_batches(maintain_order=False):
            yield from pa.RecordBatchReader.from_stream(part)

    # Two evaluations of one lazy frame need not bring the same rows.
    return Source(schema, True, batches)


def _from_columns(columns: Mapping[Any, Any]) -> Source:
    _check_names(columns)
    if all(isinstance(values, list | tuple) for values in columns.values()):
        return _from_values({name: list(values) for name, values in columns.items()})
    for name, values in columns.items():
        # Text would come apart into letters, and bytes into numbers.
        if isinstance(values, str | bytes | bytearray) or not hasattr(values, "__len__"):
            raise InvalidOperation(
                f"column {name!r} of a dict of columns is of type {_type_name(values)}, no list of "
                "values; for one row pass a list of one dict, [{...}]"
            )
    return _in_memory(pa.table(dict(columns)))


def _from_rows(rows: Sequence[Any]) -> Source:
    names: dict[Any, None] = {}
    for position, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidOperation(
                f"row {position} of the data is of type {_type_name(row)}: a list holds dicts,"
                " one a row"
            )
        # Not only the first row's: a key that shows up later is a column too.
        names.update(dict.fromkeys(row))
    _check_names(names)
    return _from_values({name: [row.get(name) for row in rows] for name in names})


def _from_values(columns: dict[str, list[object]]) -> Source:
    if len({len(values) for values in columns.values()}) > 1:
        lengths = ", ".join(f"{name!r} has {len(values)}" for name, values in columns.items())
        raise InvalidOperation(f"the columns of the data differ in length: {lengths}")
    inferred = {name: _inferred(values, name) for name, values in columns.items()}
    table = pa.table(inferred)
    return Source(table.schema, False, table.to_batches, values=columns)


def _inferred(values: Sequence[object], name: str) -> pa.Array:
    _check_zones(values, name)
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise InvalidOperation(
            f"column {name!r} of the data has values of no single type: {error}"
        ) from error


def _check_zones(values: Sequence[object], name: str) -> None:
    # Arrow takes a naive datetime beside an aware one for UTC, without a word.
    aware = {value.tzinfo is not None for value in values if hasattr(value, "tzinfo")}
    if len(aware) > 1:
        raise InvalidOperation(
            f"column {name!r} of the data mixes datetimes with and without a time zone:"
            " give all of them a zone, or none"
        )


def _check_names(names: Iterable[object]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise InvalidOperation(
                f"column name {shown(name)} is not a string: name columns by str"
            )


# ---------------------------------------------------------------- converting


def _match(
    source: pa.Schema, target: pa.Schema, table: str, schema_mode: SchemaMode
) -> tuple[pa.Schema, list[int | None]]:
    """The columns to produce, and where each stands in the data."""
    if schema_mode not in (None, "merge"):
        raise InvalidOperation(f"schema_mode {schema_mode!r} is neither None nor 'merge'")
    positions = match_fields(source.names, target.names, f"table {table!r}", table)
    added = _unknown(source.names, target)
    if schema_mode is None:
        refuse_unknown(source.names, target, table, "pass schema_mode='merge'")
    for column in target:
        # Data without columns holds no rows that could lack a value.
        if not column.nullable and column.name.lower() not in positions and len(source):
            raise InvalidOperation(
                f"column {column.name!r} of table {table!r} is NOT NULL and the data lacks it:"
                " add the column to the data",
                table=table,
            )
    merged = pa.schema(
        # Rows written before have no value for a new column.
        [*target, *(_stored_field(source.field(n), table).with_nullable(True) for n in added)],
        metadata=target.metadata,
    )
    return merged, [positions.get(column.name.lower()) for column in merged]


def _converted(
    source: Source, schema: pa.Schema, positions: Sequence[int | None], table: str
) -> Iterator[pa.RecordBatch]:
    places = [Place(table, column.name) for column in schema]
    for batch in source.batches():
        for start in range(0, batch.num_rows, _ROWS_PER_SLICE):
            part = batch.slice(start, _ROWS_PER_SLICE)
            arrays = [
                pa.nulls(part.num_rows, column.type)
                if position is None
                else convert(part.column(position), column.type, place)
                for column, position, place in zip(schema, positions, places, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _typed(values: Sequence[object], column: pa.Field, table: str) -> pa.Array:
    """Plain Python values in a column's type."""
    place = Place(table, column.name)
    array = _inferred(values, column.name)
    if pa.types.is_floating(array.type) and pa.types.is_float32(column.type):
        # A Python float is a number without a declared precision.
        return pa.array(values, column.type)
    if pa.types.is_struct(array.type) and pa.types.is_map(column.type):
        # A dict is a struct by inference, and a map where the column is one.
        array = pa.array(values, pa.map_(pa.string(), _item_type(values, column.name)))
    return convert(array, column.type, place)


def _item_type(values: Sequence[object], name: str) -> pa.DataType:
    items = [item for value in values if isinstance(value, Mapping) for item in value.values()]
    return _inferred(items, name).type


def _stored_field(column: pa.Field, table: str) -> pa.Field:
    return column.with_type(storable(column.type, Place(table, column.name)))


def _with_a_type(column: pa.Field, types: Mapping[str, pa.DataType]) -> pa.Field:
    typed = without_nulls(column.type)
    if typed.equals(column.type):
        return column
    return column.with_type(types.get(column.name.lower(), typed))


def _length(columns: Mapping[str, Sequence[object]]) -> int:
    return max((len(values) for values in columns.values()), default=0)


def _type_name(data: object) -> str:
    kind = type(data)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
