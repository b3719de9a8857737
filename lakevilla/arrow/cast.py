"""Cast Arrow tables to the types that a table keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.errors import InvalidOperation
from lakevilla.settings import is_unicode

# -------------------- cast
#
# Casts that lose nothing, between Arrow types as callers pass them and as tables store them.
#
# Types decide whether two types fit at all. Values decide whether a narrowing loses something (a
# long into an integer column, nanoseconds into microseconds), so that rows built from Python
# numbers fit into any column that holds them. Nothing is rounded, truncated, wrapped, parsed or
# shifted in time.


_TIMESTAMP = pa.timestamp("us", "UTC")
_TIMESTAMP_NTZ = pa.timestamp("us")
_TIME = pa.time64("us")
#: The first and the last value in the years 1 to 9999, as stored.
_YEARS = {
    _TIMESTAMP: (-62_135_596_800_000_000, 253_402_300_799_999_999),
    _TIMESTAMP_NTZ: (-62_135_596_800_000_000, 253_402_300_799_999_999),
    pa.date32(): (-719_162, 2_932_896),
}
_WIDENED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_STORED = {
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.date32(),
    pa.string(),
    pa.binary(),
}
_LARGEST_PRECISION = 38
_LARGEST_INTERMEDIATE_PRECISION = 76


@dataclass(frozen=True, slots=True)
class ColumnPath:
    """The place of a value, for messages: a table and a dotted column path."""

    table: str
    column: str

    def child(self, name: str) -> ColumnPath:
        """Return the place of a field, an element, a key or a value below this one."""
        return ColumnPath(self.table, f"{self.column}.{name}")

    def __str__(self) -> str:
        return f"column {self.column!r} of table {self.table!r}"


def storable(source: pa.DataType, path: ColumnPath) -> pa.DataType:
    """Return the type in which a table stores values of ``source``.

    Raises
    ------
    InvalidOperation
        No table format has such a type (unsigned 64 bit, duration, union,
        decimals of more than 38 digits, ...). A format may still refuse other types:
        Delta has no time of day.
    """
    source = plain_type(source)
    if source in _STORED:
        return source
    if source in _WIDENED:
        return _WIDENED[source]
    if _is_string(source):
        return pa.string()
    if _is_binary(source):
        return pa.binary()
    if pa.types.is_timestamp(source):
        return _TIMESTAMP_NTZ if source.tz is None else _TIMESTAMP
    if pa.types.is_time(source):
        return _TIME
    if pa.types.is_decimal(source):
        if source.precision <= _LARGEST_PRECISION and 0 <= source.scale <= source.precision:
            return pa.decimal128(source.precision, source.scale)
        raise InvalidOperation(
            f"{path} has type {source}, and a table stores decimals of at most"
            f" {_LARGEST_PRECISION} digits with a scale from 0 to the precision:"
            " cast it to such a decimal",
            table=path.table,
        )
    if pa.types.is_struct(source):
        if not source.num_fields:
            raise InvalidOperation(
                f"{path} is a struct without fields, which no data file can hold: give it a field,"
                " or leave the column out",
                table=path.table,
            )
        match_fields([field.name for field in source], [], str(path), path.table)
        return pa.struct([_storable_field(field, path) for field in source])
    if pa.types.is_map(source):
        return pa.map_(
            storable(source.key_type, path.child("key")),
            source.item_field.with_type(storable(source.item_type, path.child("value"))),
        )
    if is_list(source):
        element = source.value_field
        stored = storable(element.type, path.child("element"))
        return pa.list_(pa.field("element", stored, nullable=element.nullable))
    raise InvalidOperation(
        f"{path} has type {source}, which no table can store: {_advice(source)}",
        table=path.table,
    )


def without_nulls(source: pa.DataType) -> pa.DataType:
    """Return the type with integers, as in SQL, in place of Arrow's null type."""
    if pa.types.is_null(source):
        return pa.int32()
    if pa.types.is_struct(source):
        return pa.struct([field.with_type(without_nulls(field.type)) for field in source])
    if pa.types.is_map(source):
        item = source.item_field
        return pa.map_(source.key_type, item.with_type(without_nulls(item.type)))
    if pa.types.is_list(source) or pa.types.is_large_list(source):
        element = source.value_field
        return pa.list_(element.with_type(without_nulls(element.type)))
    return source


def not_unicode(batch: pa.RecordBatch) -> str | None:
    """Return the first column with text that is not UTF-8, which Arrow accepts from files."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if _has_text(column.type):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                if "UTF8" in str(error):
                    return str(name)
    return None


def _has_text(source: pa.DataType) -> bool:
    source = plain_type(source)
    if pa.types.is_nested(source):
        return any(_has_text(source.field(i).type) for i in range(source.num_fields))
    return _is_string(source)


def convert(array: pa.Array, target: pa.DataType, path: ColumnPath) -> pa.Array:
    """Return an array's values in the type ``target``.

    Raises
    ------
    InvalidOperation
        The types do not fit, or a value does not: the message names the
        column, both types and the first value at fault. Or a timestamp is beyond the
        years 1 to 9999, which are the limits of Python and of the formats' other clients; or a
        number has more digits than decimals have, as DuckDB's HUGEINT may.
    """
    converted = _convert(array, target, path)
    _check_range(converted, path)
    return converted


def _convert(array: pa.Array, target: pa.DataType, path: ColumnPath) -> pa.Array:
    array = _decoded(array)
    source = array.type
    if source.equals(target):
        return array
    if pa.types.is_null(source):
        return pa.nulls(len(array), target)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _convert_struct(array, target, path)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return _map_of(array, target, lambda p, kind, name: _convert(p, kind, path.child(name)))
    if is_list(source) and pa.types.is_list(target):
        return _list_of(array, target, lambda p, kind, name: _convert(p, kind, path.child(name)))
    if not _fits(source, target):
        raise InvalidOperation(
            f"{path} has type {target} and the data {source}, which is never cast for you:"
            f" {_how_to_cast(source, target)}",
            reason="value",
            table=path.table,
        )
    try:
        return _cast(array, target)
    except pa.ArrowInvalid:
        value = _shown(array.slice(_first_at_fault(array, target), 1))
        advice = "cast the data yourself, or widen the column"
        if pa.types.is_date(target):
            advice = "cast it to a day, by cast(... as date) or .date()"
        raise InvalidOperation(
            f"{path} has type {target} and the data {source}; the value {value} cannot be"
            f" cast without loss: {advice}",
            reason="value",
            table=path.table,
        ) from None


def match_fields(source: list[str], target: list[str], describe: str, table: str) -> dict[str, int]:
    """Return positions in ``source`` by lower-case name; a name twice in either is refused."""
    for names, whose in ((target, "the table"), (source, "the data")):
        seen: dict[str, str] = {}
        for name in names:
            if (other := seen.get(name.lower())) is not None:
                raise InvalidOperation(
                    f"{describe}: {whose} has the columns {other!r} and {name!r}, and names are"
                    " matched without regard to case: rename one",
                    table=table,
                )
            seen[name.lower()] = name
    for name in source:
        if "\0" in name or not is_unicode(name):
            raise InvalidOperation(
                f"{describe}: column name {name!r} has a character that no table can store: "
                "rename it",
                table=table,
            )
    return {name.lower(): position for position, name in enumerate(source)}


def _convert_struct(array: pa.Array, target: pa.DataType, path: ColumnPath) -> pa.Array:
    names = [field.name for field in array.type]
    wanted = [field.name for field in target]
    positions = match_fields(names, wanted, str(path), path.table)
    unknown = sorted(set(positions) - {name.lower() for name in wanted})
    if unknown:
        raise InvalidOperation(
            f"{path} has no field {names[positions[unknown[0]]]!r}; its fields are"
            f" {', '.join(wanted)}: leave it out, or add it first, by schema_mode='merge' or alter",
            table=path.table,
        )
    # flatten() applies the parent's nulls to its children and respects slices.
    children = array.flatten()
    converted = []
    for field in target:
        position = positions.get(field.name.lower())
        if position is None and not field.nullable and not has_default(field):
            raise InvalidOperation(
                f"{path.child(field.name)} is NOT NULL and the data lacks it: add the field",
                reason="constraint",
                table=path.table,
            )
        converted.append(
            missing(field, len(array))
            if position is None
            else _convert(children[position], field.type, path.child(field.name))
        )
    if not converted:
        return array
    return pa.StructArray.from_arrays(converted, fields=list(target), mask=array.is_null())


# -------------------- defaults
#
# Values of columns, and of fields within them, that rows lack: text in the metadata of a field.


#: The value of a field that rows in older files lack, and of one that new rows lack.
INITIAL_DEFAULT, WRITE_DEFAULT = b"initial-default", b"write-default"
#: The default of a struct whose fields have their own defaults.
OF_FIELDS = "{}"


def default_text(field: pa.Field, which: bytes = WRITE_DEFAULT) -> str | None:
    """Return a field's default as text; None if it has none."""
    text = (field.metadata or {}).get(which)
    return None if text is None else str(text.decode())


def has_default(field: pa.Field) -> bool:
    """Return whether new rows that lack a field have a value of it."""
    return default_text(field) is not None


def missing(field: pa.Field, count: int) -> pa.Array:
    """Return the values of a field that new rows lack: its default, else NULL."""
    text, kind = default_text(field), field.type
    if text is None:
        return pa.nulls(count, kind)
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([missing(one, count) for one in kind], fields=list(kind))
    return pa.repeat(value_in(text, kind), count)


def value_in(text: str, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a default's text (bytes: hexadecimal). Raises ``ValueError``."""
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.scalar(bytes.fromhex(text), kind)
    if pa.types.is_time(kind):
        return pa.scalar(time.fromisoformat(text), kind)
    return pa.scalar(text).cast(kind)


#: A function that returns a part of an array as a type, given the part's name.
_Converter = Callable[[pa.Array, pa.DataType, str], pa.Array]


def _list_of(array: pa.Array, target: pa.DataType, convert: _Converter) -> pa.Array:
    values = convert(array.flatten(), target.value_type, "element")
    return pa.ListArray.from_arrays(flat_offsets(array), values, type=target, mask=array.is_null())


def _map_of(array: pa.Array, target: pa.DataType, convert: _Converter) -> pa.Array:
    lists = entries_of(array)
    entries = lists.flatten()
    keys = convert(entries.field(0), target.key_type, "key")
    items = convert(entries.field(1), target.item_type, "value")
    return pa.MapArray.from_arrays(
        flat_offsets(lists), keys, items, type=target, mask=array.is_null()
    )


def entries_of(maps: pa.Array) -> pa.Array:
    """Return maps as lists of entries, which can be flattened: a map's own keys ignore slices."""
    return maps.cast(pa.list_(pa.struct([maps.type.key_field, maps.type.item_field])))


def _check_range(array: pa.Array, path: ColumnPath) -> None:
    """Refuse values that Arrow accepts and other clients can't: times, and too many digits."""
    kind = array.type
    if pa.types.is_nested(kind):
        for name, child in _parts_with_range(array):
            _check_range(child, path.child(name))
    elif kind in _YEARS:
        first, last = _YEARS[kind]
        found = pc.min_max(array)
        low, high = found["min"].value, found["max"].value
        if low is not None and (low < first or high > last):
            raise InvalidOperation(
                f"{path} can't hold a {'day' if pa.types.is_date(kind) else 'instant'} beyond the "
                f"years 1 to 9999{' in UTC' if kind == _TIMESTAMP else ''}, which other clients "
                "could not read: correct the data, or pass NULL for it",
                reason="value",
                table=path.table,
            )
    elif _is_widest_decimal(kind):
        found = pc.min_max(array)
        ends = (found["min"].as_py(), found["max"].as_py())
        if any(end is not None and len(end.as_tuple().digits) > kind.precision for end in ends):
            raise InvalidOperation(
                f"{path} can't hold a number of more than {kind.precision} digits: cast the data "
                "to text, or to a double",
                reason="value",
                table=path.table,
            )


def _parts_with_range(array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the parts that may be out of range, without the values that NULLs cover."""
    kind = array.type
    if not _has_range(kind):
        return
    if pa.types.is_map(kind):
        entries = entries_of(array).flatten()
        yield "key", entries.field(0)
        yield "value", entries.field(1)
    elif pa.types.is_struct(kind):
        yield from zip((field.name for field in kind), array.flatten(), strict=True)
    else:
        yield "element", array.flatten()


def _has_range(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_range(kind.field(i).type) for i in range(kind.num_fields))
    return kind in _YEARS or _is_widest_decimal(kind)


def _is_widest_decimal(kind: pa.DataType) -> bool:
    """Return whether a type is the one of integers of 128 bits, which may have any size."""
    return bool(pa.types.is_decimal128(kind) and kind.precision == _LARGEST_PRECISION)


def flat_offsets(array: pa.Array) -> pa.Array:
    """Return offsets into ``array.flatten()``, which leaves out values that null lists cover."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    try:
        ends = ends.cast(pa.int32())
    except pa.ArrowInvalid:
        raise InvalidOperation(
            "a batch holds more than 2^31 list elements: pass smaller batches"
        ) from None
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    # The array has no validity bitmap where nothing is null: the mask marks the null lists.
    return pa.Array.from_buffers(pa.int32(), len(offsets), [None, offsets.buffers()[1]])


def _fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether values of ``source`` may be cast to ``target``, each value checked."""
    types = pa.types
    if types.is_integer(target):
        # Integral floats and decimals: pandas turns integers with gaps into
        # floats, and a SUM of integers is a decimal of 38 digits.
        return bool(types.is_integer(source) or types.is_floating(source) or _whole(source))
    if types.is_floating(target):
        if types.is_floating(source):
            return bool(source.bit_width <= target.bit_width)
        return bool(types.is_integer(source))
    if types.is_decimal(target):
        return bool(types.is_decimal(source) or types.is_integer(source))
    if types.is_timestamp(target):
        return bool(types.is_timestamp(source) and (source.tz is None) == (target.tz is None))
    if types.is_date(target):
        # At midnight: pandas has no days, only such timestamps.
        return bool(types.is_date(source) or (types.is_timestamp(source) and source.tz is None))
    if types.is_time(target):
        return bool(types.is_time(source))
    if _is_string(target):
        return _is_string(source)
    if _is_binary(target):
        return _is_binary(source)
    return False


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_integer(array.type) and pa.types.is_decimal(target):
        # Arrow requires room for the largest integer in addition to the scale;
        # the second step then checks the actual values.
        # docs/upstream.md, "A whole number is cast only to a decimal with room for all"
        precision = min(20 + target.scale, _LARGEST_INTERMEDIATE_PRECISION)
        array = array.cast(pa.decimal256(precision, target.scale))
    if pa.types.is_timestamp(array.type) and pa.types.is_date(target):
        days = array.cast(target)
        if pc.any(pc.not_equal(days.cast(array.type), array)).as_py():
            raise pa.ArrowInvalid("a timestamp that is not midnight")
        return days
    return array.cast(target, safe=True)


def _first_at_fault(array: pa.Array, target: pa.DataType) -> int:
    """Return the position of the first value that cannot be cast, by bisection."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _cast(array.slice(low, middle - low), target)
        except pa.ArrowInvalid:
            high = middle
        else:
            low = middle
    return low


def _shown(value: pa.Array) -> str:
    if _is_binary(value.type):
        return str(value[0].as_py())
    # Arrow's text: Python's datetimes end with the year 9999 and at microseconds.
    return str(value.cast(pa.string())[0])


def plain_type(source: pa.DataType) -> pa.DataType:
    """Return a type without mere encodings: extension types, dictionaries, run ends."""
    while True:
        if isinstance(source, pa.BaseExtensionType):
            source = source.storage_type
        elif pa.types.is_dictionary(source) or pa.types.is_run_end_encoded(source):
            source = source.value_type
        else:
            return source


def _decoded(array: pa.Array) -> pa.Array:
    while True:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            values = _without_views(array.dictionary)
            array = pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, _without_views(array.values))
            array = pc.run_end_decode(runs.slice(array.offset, len(array)))
        else:
            return array


def _without_views(values: pa.Array) -> pa.Array:
    """Return encoded values in a form that Arrow decodes: polars encodes views, which it can't."""
    # https://github.com/apache/arrow/issues/49368
    if pa.types.is_string_view(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pa.types.is_binary_view(values.type) else values


def _storable_field(field: pa.Field, path: ColumnPath) -> pa.Field:
    return field.with_type(storable(field.type, path.child(field.name)))


def _whole(source: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(source))


def _is_string(source: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(source) or types.is_large_string(source) or types.is_string_view(source)
    )


def _is_binary(source: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(source)
        or types.is_large_binary(source)
        or types.is_binary_view(source)
        or types.is_fixed_size_binary(source)
    )


def is_list(source: pa.DataType) -> bool:
    """Return whether a type is of any of the kinds of lists."""
    types = pa.types
    return bool(
        types.is_list(source)
        or types.is_large_list(source)
        or types.is_fixed_size_list(source)
        or types.is_list_view(source)
        or types.is_large_list_view(source)
    )


def _advice(source: pa.DataType) -> str:
    if pa.types.is_null(source):
        return "give the column a type, or leave it out"
    if pa.types.is_uint64(source):
        return "cast it to int64 or decimal(20, 0)"
    if pa.types.is_duration(source):
        return "store it as a long or a string"
    return "cast it to a type that has a counterpart in the table format"


def _how_to_cast(source: pa.DataType, target: pa.DataType) -> str:
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        if source.tz is None:
            return "attach a time zone to the data first"
        return "convert the data to local times without a zone first"
    if pa.types.is_timestamp(source) and pa.types.is_date(target):
        return "say which day it is, by cast(... as date) or .date()"
    if _is_binary(source) and _is_string(target):
        return "decode the data first; of a UUID, pass str(it)"
    return "cast the data yourself"


# -------------------- relabel
#
# Arrow data under another schema of the same memory layout, without a copy.


class _Relabelled:
    """A batch that exports itself under another schema, through the C data interface."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch, self._schema = batch, schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        _, array = self._batch.__arrow_c_array__()
        return self._schema.__arrow_c_schema__(), array


def relabel(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the same data with other names, nullability or metadata, nested ones too.

    The types must be equal except for names and nullability: nothing is converted.
    """
    return pa.record_batch(_Relabelled(batch, schema))


def conform(batch: pa.RecordBatch, schema: pa.Schema, table: str | None) -> pa.RecordBatch:
    """Return ``batch`` under ``schema``: by position, cast only where the memory layout differs.

    Raises ``InvalidOperation`` for bytes of another length than their column's.
    """
    arrays = [
        array if _same_layout(array.type, field.type) else _cast_relabelled(array, field, table)
        for array, field in zip(batch.columns, schema, strict=True)
    ]
    return relabel(pa.RecordBatch.from_arrays(arrays, names=batch.schema.names), schema)


def field_is_strict(field: pa.Field) -> bool:
    """Return whether a field below this one, at any depth, must not be NULL."""
    return any(not below.nullable or field_is_strict(below) for below in _below(field.type))


def loosened(field: pa.Field) -> pa.Field:
    """Return the field with all parts nullable, to write files.

    A NOT NULL field of a struct that is NULL itself holds a NULL nevertheless,
    which Arrow's writer would refuse; the table's rules are checked before.
    """
    # docs/upstream.md, "The Parquet writer refuses a NULL struct with a required field"
    return field.with_type(_loosened(field.type)).with_nullable(True)


def _loosened(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([loosened(field) for field in _below(kind)])
    if pa.types.is_map(kind):
        key = kind.key_field.with_type(_loosened(kind.key_type))
        return pa.map_(key, loosened(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(loosened(kind.value_field))
    return kind


def _below(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields directly inside a type; not a map's key, which Arrow never lets be NULL."""
    if pa.types.is_struct(kind):
        return [kind.field(i) for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [kind.item_field]
    if pa.types.is_list(kind):
        return [kind.value_field]
    return []


def _cast_relabelled(array: pa.Array, field: pa.Field, table: str | None) -> pa.Array:
    if pa.types.is_null(field.type):
        # A column of the null type has no values, whatever type an engine reads its NULLs as.
        return pa.nulls(len(array))
    try:
        return _cast_by_position(array, _loosened(field.type))
    except pa.ArrowInvalid as error:
        raise InvalidOperation(
            f"table {table}: a value for column {field.name} of type {field.type} does not fit "
            f"({error}): correct the value",
            reason="value",
            table=table,
        ) from None


def _cast_by_position(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the array as ``target``, each field of a struct as the one in its place.

    Arrow casts a struct by the names of its fields, makes NULLs of those that it misses, and casts
    the values that a NULL struct covers.
    """
    source = array.type
    if pa.types.is_struct(source) and pa.types.is_struct(target) and target.num_fields:
        fields = [
            _cast_by_position(inner, field.type)
            for inner, field in zip(array.flatten(), target, strict=True)
        ]
        return pa.StructArray.from_arrays(fields, fields=list(target), mask=array.is_null())
    if pa.types.is_map(source) and pa.types.is_map(target):
        return _map_of(array, target, lambda part, kind, _: _cast_by_position(part, kind))
    if pa.types.is_list(source) and pa.types.is_list(target):
        return _list_of(array, target, lambda part, kind, _: _cast_by_position(part, kind))
    return array.cast(target)


def _same_layout(left: pa.DataType, right: pa.DataType) -> bool:
    if pa.types.is_nested(left) or pa.types.is_nested(right):
        if left.id != right.id or left.num_fields != right.num_fields:
            return False
        if pa.types.is_map(left):
            pairs = [(left.key_type, right.key_type), (left.item_type, right.item_type)]
        elif pa.types.is_list(left):
            pairs = [(left.value_type, right.value_type)]
        elif pa.types.is_struct(left):
            pairs = [(left.field(i).type, right.field(i).type) for i in range(left.num_fields)]
        else:
            return bool(left == right)
        return all(_same_layout(a, b) for a, b in pairs)
    return bool(left == right)


# -------------------- offsets
#
# The repair of Arrow data whose empty nested lists lack their offsets.
#
# A list array of n lists has n + 1 offsets, so an empty one has one. Arrow's Java library
# omits it, and with it Spark, whenever lists are nested in lists and all the outer ones are
# empty or null. pyarrow accepts such an array as valid, and reads the missing offset to compute
# the array's size, to join it, or to convert it. That ends the process.
# https://github.com/apache/arrow-java/pull/967
# https://github.com/apache/spark/pull/53822


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with the offsets that it lacks; the batch itself where it lacks none."""
    if not any(pa.types.is_nested(kind) and _lacks(batch[n]) for n, kind in _columns(batch)):
        return batch
    whole = [_with_whole_offsets(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(whole, schema=batch.schema)


def _columns(batch: pa.RecordBatch) -> list[tuple[int, pa.DataType]]:
    return list(enumerate(batch.schema.types))


def _lacks(array: pa.Array) -> bool:
    if _is_list(array.type):
        offsets = array.buffers()[1]
        if offsets is None or offsets.size == 0:
            return True
    return any(_lacks(child) for child in _children(array))


def _with_whole_offsets(array: pa.Array) -> pa.Array:
    kind = array.type
    if not pa.types.is_nested(kind) or not _lacks(array):
        return array
    if len(array) == 0:
        return pa.array([], kind)
    children = [_with_whole_offsets(child) for child in _children(array)]
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays(children, fields=kind.fields, mask=array.is_null())
    if pa.types.is_map(kind):
        pairs = pa.struct([kind.key_field, kind.item_field])
        children = [pa.Array.from_buffers(pairs, len(children[0]), [None], children=children)]
    own = array.buffers()[:2]
    return pa.Array.from_buffers(kind, len(array), own, -1, array.offset, children)


def _children(array: pa.Array) -> list[pa.Array]:
    """Return the arrays within; those of a list are not cut to the lists that are visible."""
    kind = array.type
    if pa.types.is_struct(kind):
        return [array.field(n) for n in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [array.keys, array.items]
    return [array.values] if _is_list(kind) else []


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind))


# -------------------- years
#
# Dates and times in the years that Python, SQL and JSON can represent: 1 to 9999.


_EPOCH = date(1970, 1, 1).toordinal()
_DAYS = (1 - _EPOCH, date.max.toordinal() - _EPOCH)
_PER_DAY = {unit: 86_400 * 10**digits for unit, digits in (("s", 0), ("ms", 3), ("us", 6))}


def in_years(instants: pa.Array) -> pa.Array:
    """Return dates or timestamps with null for those outside of these years."""
    kind = instants.type
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            return instants  # they reach from 1677 to 2262
        one = _PER_DAY[kind.unit]
    else:
        one = 1 if pa.types.is_date32(kind) else _PER_DAY["ms"]
    number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    at = instants.cast(number)  # as a number, for the type may have a zone or none
    first, last = (scalar(at, number) for at in (_DAYS[0] * one, (_DAYS[1] + 1) * one))
    within = pc.and_(pc.greater_equal(at, first), pc.less(at, last))
    return pc.if_else(within, instants, scalar(None, kind))


# -------------------- made
#
# Arrow arrays and scalars of plain Python values, made without pandas.
#
# For the first Python or NumPy value that it converts pyarrow imports pandas, where that is
# installed: 33 MB and a fifth of a second, for a process that only reads a table's log. Here
# they are made from buffers, which needs no import; rare kinds are left to pyarrow.
# docs/upstream.md, "The first value that is converted imports pandas"


_INTEGERS = {pa.int8(): "i1", pa.int16(): "i2", pa.int32(): "i4", pa.int64(): "i8"}


def scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    """Return the same as ``pyarrow.scalar``."""
    return array([value], type_)[0]


def array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return the same as ``pyarrow.array``, for values that may be None."""
    missing = None in values
    given = [value for value in values if value is not None] if missing else values
    if not given:
        return pa.nulls(len(values), type_)
    made = _without_nulls(given, type_)
    if made is None:
        return pa.array(values, type_)
    if not missing:
        return made
    is_valid = np.fromiter((value is not None for value in values), bool, len(values))
    return made.take(_of_numbers(np.cumsum(is_valid) - 1, pa.int64(), is_valid))


def mask(chosen: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    """Return truth values of NumPy as an Arrow array."""
    return pa.Array.from_buffers(pa.bool_(), len(chosen), [None, _bits(chosen)])


def places(rows: npt.NDArray[Any]) -> pa.Int64Array:
    """Return whole numbers of NumPy in the form that ``take`` requires."""
    return _of_numbers(rows, pa.int64())


def truths(values: pa.BooleanArray | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return truth values for NumPy; null counts as false."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if values.null_count:
        values = pc.fill_null(values, scalar(False, pa.bool_()))
    if not len(values):
        return np.zeros(0, bool)
    data = np.frombuffer(values.buffers()[1], np.uint8)
    bits = np.unpackbits(data, count=values.offset + len(values), bitorder="little")
    return bits[values.offset :].view(bool)


def numbers(values: pa.Array) -> npt.NDArray[Any]:
    """Return whole numbers for NumPy, none of them null; the result must not be written to."""
    assert not values.null_count
    if not len(values):
        return np.zeros(0, _INTEGERS[values.type])
    data = np.frombuffer(values.buffers()[1], _INTEGERS[values.type])
    return data[values.offset : values.offset + len(values)]


def _without_nulls(values: Sequence[Any], type_: pa.DataType) -> pa.Array | None:
    """Return an array; None where pyarrow should convert the values, or refuse them."""
    kinds = set(map(type, values))
    if type_ in _INTEGERS and kinds <= {int}:
        limit = 1 << (type_.bit_width - 1)
        if -limit <= min(values) and max(values) < limit:
            return _of_numbers(np.array(values, _INTEGERS[type_]), type_)
    elif type_ == pa.float64() and kinds <= {float}:
        return _of_numbers(np.array(values, "f8"), type_)
    elif type_ == pa.bool_() and kinds <= {bool}:
        return mask(np.array(values, bool))
    elif type_ == pa.date32() and kinds <= {date}:
        days = [value.toordinal() - _EPOCH for value in values]
        return _of_numbers(np.array(days, "i4"), type_)
    elif type_ == pa.string() and kinds <= {str}:
        return _texts(values)
    elif pa.types.is_map(type_) and kinds <= {list}:
        return _maps(values, type_)
    return None


def _texts(values: Sequence[str]) -> pa.Array | None:
    try:
        encoded = [value.encode() for value in values]
    except UnicodeEncodeError:
        return None
    ends = np.cumsum([0, *map(len, encoded)])
    if ends[-1] >= 1 << 31:
        return None
    buffers = [None, pa.py_buffer(ends.astype("i4")), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def _maps(values: Sequence[list[tuple[Any, Any]]], type_: pa.MapType) -> pa.Array:
    ends = np.cumsum([0, *map(len, values)])
    keys = array([key for pairs in values for key, _ in pairs], type_.key_type)
    items = array([item for pairs in values for _, item in pairs], type_.item_type)
    return pa.MapArray.from_arrays(_of_numbers(ends, pa.int32()), keys, items, type=type_)


def _of_numbers(
    given: npt.NDArray[Any], type_: pa.DataType, is_valid: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    width = np.dtype(f"{'f' if type_ == pa.float64() else 'i'}{type_.bit_width // 8}")
    data = pa.py_buffer(np.ascontiguousarray(given, width))
    valid = None if is_valid is None else _bits(is_valid)
    return pa.Array.from_buffers(type_, len(given), [valid, data])


def _bits(chosen: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(chosen, bitorder="little"))
