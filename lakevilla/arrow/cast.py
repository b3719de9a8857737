"""Casts that lose nothing, between Arrow types as callers have them and as tables store them.

Whether two types fit at all is decided by type; whether a narrowing loses
something (a long into an integer column, nanoseconds into microseconds) is
decided by value, so that rows built from Python numbers reach any column that
holds them. Nothing is rounded, truncated, wrapped, parsed or shifted in time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.errors import InvalidOperation
from lakevilla.settings import is_unicode

_TIMESTAMP = pa.timestamp("us", "UTC")
_TIMESTAMP_NTZ = pa.timestamp("us")
_TIME = pa.time64("us")
#: The first and the last moment of the years 1 to 9999, as stored.
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
    """Where a value stands, for messages: a table and a dotted column path."""

    table: str
    column: str

    def child(self, name: str) -> ColumnPath:
        """The place of a field, an element, a key or a value below this one."""
        return ColumnPath(self.table, f"{self.column}.{name}")

    def __str__(self) -> str:
        return f"column {self.column!r} of table {self.table!r}"


def storable(source: pa.DataType, place: ColumnPath) -> pa.DataType:
    """The type in which a table stores values of ``source``.

    Raises
    ------
    InvalidOperation
        No table format has such a type (unsigned 64 bit, duration, union,
        decimals of more than 38 digits, ...). A format may still refuse others:
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
            f"{place} has type {source}, and a table stores decimals of at most"
            f" {_LARGEST_PRECISION} digits with a scale from 0 to the precision:"
            " cast it to such a decimal",
            table=place.table,
        )
    if pa.types.is_struct(source):
        if not source.num_fields:
            raise InvalidOperation(
                f"{place} is a struct without fields, which no data file can hold: give it a field,"
                " or leave the column out",
                table=place.table,
            )
        match_fields([field.name for field in source], [], str(place), place.table)
        return pa.struct([_storable_field(field, place) for field in source])
    if pa.types.is_map(source):
        return pa.map_(
            storable(source.key_type, place.child("key")),
            source.item_field.with_type(storable(source.item_type, place.child("value"))),
        )
    if is_list(source):
        element = source.value_field
        stored = storable(element.type, place.child("element"))
        return pa.list_(pa.field("element", stored, nullable=element.nullable))
    raise InvalidOperation(
        f"{place} has type {source}, which no table can store: {_advice(source)}",
        table=place.table,
    )


def without_nulls(source: pa.DataType) -> pa.DataType:
    """The type with integers, as SQL has them, where Arrow knows of nulls alone."""
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
    """The first column with text that is not UTF-8, which Arrow lets pass from others' files."""
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


def convert(array: pa.Array, target: pa.DataType, place: ColumnPath) -> pa.Array:
    """The same values as ``target``.

    Raises
    ------
    InvalidOperation
        The types do not fit, or a value does not: the message names the
        column, both types and the first value at fault. Or a moment is beyond the
        years 1 to 9999, of which Python and the formats' other clients know no more; or a
        number has more digits than decimals have, as DuckDB's HUGEINT may.
    """
    converted = _convert(array, target, place)
    _check_range(converted, place)
    return converted


def _convert(array: pa.Array, target: pa.DataType, place: ColumnPath) -> pa.Array:
    array = _decoded(array)
    source = array.type
    if source.equals(target):
        return array
    if pa.types.is_null(source):
        return pa.nulls(len(array), target)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _convert_struct(array, target, place)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return _convert_map(array, target, place)
    if is_list(source) and pa.types.is_list(target):
        return _convert_list(array, target, place)
    if not _fits(source, target):
        raise InvalidOperation(
            f"{place} has type {target} and the data {source}, which is never cast for you:"
            f" {_how_to_cast(source, target)}",
            reason="value",
            table=place.table,
        )
    try:
        return _cast(array, target)
    except pa.ArrowInvalid:
        value = _shown(array.slice(_first_at_fault(array, target), 1))
        advice = "cast the data yourself, or widen the column"
        if pa.types.is_date(target):
            advice = "cast it to a day, by cast(... as date) or .date()"
        raise InvalidOperation(
            f"{place} has type {target} and the data {source}; the value {value} cannot be"
            f" cast without loss: {advice}",
            reason="value",
            table=place.table,
        ) from None


def match_fields(source: list[str], target: list[str], describe: str, table: str) -> dict[str, int]:
    """Positions in ``source`` by lower-case name; a name twice in either is refused."""
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


def _convert_struct(array: pa.Array, target: pa.DataType, place: ColumnPath) -> pa.Array:
    names = [field.name for field in array.type]
    wanted = [field.name for field in target]
    positions = match_fields(names, wanted, str(place), place.table)
    unknown = sorted(set(positions) - {name.lower() for name in wanted})
    if unknown:
        raise InvalidOperation(
            f"{place} has no field {names[positions[unknown[0]]]!r}; its fields are"
            f" {', '.join(wanted)}: leave it out, or add it first, by schema_mode='merge' or alter",
            table=place.table,
        )
    # flatten() lays the parent's nulls over its children and honours slices.
    children = array.flatten()
    converted = []
    for field in target:
        position = positions.get(field.name.lower())
        if position is None and not field.nullable:
            raise InvalidOperation(
                f"{place.child(field.name)} is NOT NULL and the data lacks it: add the field",
                reason="constraint",
                table=place.table,
            )
        converted.append(
            pa.nulls(len(array), field.type)
            if position is None
            else _convert(children[position], field.type, place.child(field.name))
        )
    if not converted:
        return array
    return pa.StructArray.from_arrays(converted, fields=list(target), mask=array.is_null())


def _convert_list(array: pa.Array, target: pa.DataType, place: ColumnPath) -> pa.Array:
    values = _convert(array.flatten(), target.value_type, place.child("element"))
    return pa.ListArray.from_arrays(flat_offsets(array), values, type=target, mask=array.is_null())


def _convert_map(array: pa.Array, target: pa.DataType, place: ColumnPath) -> pa.Array:
    # As a list of entries it can be flattened; a map's own keys ignore slices.
    entry = pa.struct([array.type.key_field, array.type.item_field])
    lists = array.cast(pa.list_(entry))
    entries = lists.flatten()
    keys = _convert(entries.field(0), target.key_type, place.child("key"))
    items = _convert(entries.field(1), target.item_type, place.child("value"))
    return pa.MapArray.from_arrays(
        flat_offsets(lists), keys, items, type=target, mask=array.is_null()
    )


def _check_range(array: pa.Array, place: ColumnPath) -> None:
    """Refuse what Arrow lets pass and other clients can't hold: moments, and too many digits."""
    kind = array.type
    if pa.types.is_nested(kind):
        for name, child in _parts_with_range(array):
            _check_range(child, place.child(name))
    elif kind in _YEARS:
        first, last = _YEARS[kind]
        found = pc.min_max(array)
        low, high = found["min"].value, found["max"].value
        if low is not None and (low < first or high > last):
            raise InvalidOperation(
                f"{place} can't hold a {'day' if pa.types.is_date(kind) else 'moment'} beyond the "
                f"years 1 to 9999{' in UTC' if kind == _TIMESTAMP else ''}, which other clients "
                "could not read: correct the data, or pass NULL for it",
                reason="value",
                table=place.table,
            )
    elif _is_widest_decimal(kind):
        found = pc.min_max(array)
        ends = (found["min"].as_py(), found["max"].as_py())
        if any(end is not None and len(end.as_tuple().digits) > kind.precision for end in ends):
            raise InvalidOperation(
                f"{place} can't hold a number of more than {kind.precision} digits: cast the data "
                "to text, or to a double",
                reason="value",
                table=place.table,
            )


def _parts_with_range(array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """What lies within, without what NULLs cover, where it may be out of range."""
    kind = array.type
    if not _has_range(kind):
        return
    if pa.types.is_map(kind):
        entries = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))).flatten()
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
    """Whether it is the type that an integer of 128 bits comes in, of whatever size."""
    return bool(pa.types.is_decimal128(kind) and kind.precision == _LARGEST_PRECISION)


def flat_offsets(array: pa.Array) -> pa.Array:
    """Offsets into ``array.flatten()``, which leaves out what null lists cover."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    try:
        ends = ends.cast(pa.int32())
    except pa.ArrowInvalid:
        raise InvalidOperation(
            "a batch holds more than 2^31 list elements: pass smaller batches"
        ) from None
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    # Without a validity bitmap, though nothing is null: the mask says which lists are.
    return pa.Array.from_buffers(pa.int32(), len(offsets), [None, offsets.buffers()[1]])


def _fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of ``source`` may be cast to ``target``, each value checked."""
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
        # At midnight: pandas has no days but such moments.
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
        # Arrow wants room for the largest integer and the scale beside it;
        # the second step then checks the values that are really there.
        precision = min(20 + target.scale, _LARGEST_INTERMEDIATE_PRECISION)
        array = array.cast(pa.decimal256(precision, target.scale))
    if pa.types.is_timestamp(array.type) and pa.types.is_date(target):
        days = array.cast(target)
        if pc.any(pc.not_equal(days.cast(array.type), array)).as_py():
            raise pa.ArrowInvalid("a moment that is not midnight")
        return days
    return array.cast(target, safe=True)


def _first_at_fault(array: pa.Array, target: pa.DataType) -> int:
    """The position of the first value that cannot be cast, by bisection."""
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
    """Without what is only encoding: extension types, dictionaries, run ends."""
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
    """Encoded values as Arrow can decode them: polars encodes views, and Arrow decodes none."""
    if pa.types.is_string_view(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pa.types.is_binary_view(values.type) else values


def _storable_field(field: pa.Field, place: ColumnPath) -> pa.Field:
    return field.with_type(storable(field.type, place.child(field.name)))


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
    """Whether of any of the kinds of lists."""
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
