"""Statistics of a data file, as the JSON text of Delta's ``stats``.

Two sources give the same text: an Arrow table that is about to be written, and
the summary that DuckDB's ``COPY ... RETURN_STATS`` returns. A bound is written
only where every reader's comparison agrees with it: none for booleans, binary
and nested lists, none for floats with a NaN or an infinity among them.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["STRING_PREFIX_LENGTH", "statistics_of_copy", "statistics_of_table", "string_ceiling"]

#: Strings are cut to this many characters, as Delta's other writers do.
STRING_PREFIX_LENGTH = 32

_ENCODER = msgspec.json.Encoder(decimal_format="number")
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 (the zone is written by hand)
_Path = tuple[str, ...]


def statistics_of_table(
    rows: pa.Table, columns: Collection[str], known_as: pa.Schema | None = None
) -> str:
    """Statistics of the leaves named in ``columns`` (dotted names).

    ``known_as``: the columns under the names by which statistics know them, if not their
    own; those beyond it have none.
    """
    wanted = frozenset(columns)
    result = _Statistics(rows.num_rows)
    for field, column in zip(known_as or rows.schema, rows.columns, strict=False):
        for path, leaf in _leaves_of_array((field.name,), column, field.type):
            if ".".join(path) in wanted:
                low, high = _bounds_of_array(leaf)
                result.put(path, leaf.null_count, low, high)
    return result.encode()


def statistics_of_copy(
    schema: pa.Schema,
    rows: int,
    summary: Mapping[str, Mapping[str, str]],
    columns: Collection[str],
    known_as: pa.Schema | None = None,
) -> str:
    """Statistics from DuckDB's summary of a file with the physical ``schema``.

    ``known_as`` as in ``statistics_of_table``.
    """
    wanted = frozenset(columns)
    result = _Statistics(rows)
    for field, known in zip(schema, known_as or schema, strict=False):
        told = _leaves_of_type((known.name,), known.type)
        for (own, kind), (path, _) in zip(
            _leaves_of_type((field.name,), field.type), told, strict=True
        ):
            name = ".".join('"' + part.replace('"', '""') + '"' for part in own)
            values = summary.get(name)
            if values is None or ".".join(path) not in wanted:
                continue
            nulls = values.get("null_count")
            low, high = _bounds_of_summary(kind, values)
            result.put(path, None if nulls is None else int(nulls), low, high)
    return result.encode()


def string_ceiling(text: str) -> str | None:
    """A string of at most ``STRING_PREFIX_LENGTH`` characters that is not below ``text``.

    Readers compare code points (UTF-8 bytes), so the last character of the
    prefix that has a successor is raised by one. None if there is no such string.
    """
    if len(text) <= STRING_PREFIX_LENGTH:
        return text
    prefix = text[:STRING_PREFIX_LENGTH]
    while prefix:
        point = ord(prefix[-1]) + 1
        if 0xD800 <= point <= 0xDFFF:  # surrogates are no characters
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[:-1] + chr(point)
        prefix = prefix[:-1]
    return None


class _Statistics:
    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}
        self._nulls: dict[str, Any] = {}

    def put(self, path: _Path, nulls: int | None, low: object, high: object) -> None:
        for tree, value in ((self._nulls, nulls), (self._low, low), (self._high, high)):
            if value is None:
                continue
            for part in path[:-1]:
                tree = tree.setdefault(part, {})
            tree[path[-1]] = value

    def encode(self) -> str:
        document = {
            "numRecords": self._rows,
            "minValues": self._low,
            "maxValues": self._high,
            "nullCount": self._nulls,
        }
        return _ENCODER.encode(document).decode()


def _leaves_of_array(
    path: _Path, array: pa.ChunkedArray, known: pa.DataType
) -> Iterator[tuple[_Path, Any]]:
    if pa.types.is_struct(array.type):
        for index in range(array.type.num_fields):
            # struct_field makes a child NULL where its parent is: what nullCount counts.
            child, field = pc.struct_field(array, index), known.field(index)
            yield from _leaves_of_array((*path, field.name), child, field.type)
    else:
        yield path, array


def _leaves_of_type(path: _Path, kind: pa.DataType) -> Iterator[tuple[_Path, pa.DataType]]:
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            field = kind.field(index)
            yield from _leaves_of_type((*path, field.name), field.type)
    else:
        yield path, kind


def _bounds_of_array(array: pa.ChunkedArray) -> tuple[object, object]:
    kind = array.type
    if not _has_bounds(kind) or array.null_count == len(array):
        return None, None
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(array)).as_py():
        return None, None
    both = pc.min_max(array)
    low, high = both["min"], both["max"]
    if not low.is_valid:
        return None, None
    if pa.types.is_timestamp(kind):
        return _timestamp(low.value, kind), _timestamp(high.value, kind)
    try:
        return _bounds(kind, low.as_py(), high.as_py())
    except (ValueError, OverflowError):
        return None, None  # a date that Python cannot hold: no bound is always right


def _bounds_of_summary(kind: pa.DataType, values: Mapping[str, str]) -> tuple[object, object]:
    low, high = values.get("min"), values.get("max")
    if not _has_bounds(kind) or low is None or high is None:
        return None, None
    if pa.types.is_floating(kind) and values.get("has_nan") != "false":
        return None, None
    try:
        return _bounds(kind, _parse(kind, low), _parse(kind, high))
    except (ValueError, OverflowError, ArithmeticError):
        return None, None


def _parse(kind: pa.DataType, text: str) -> object:
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        moment = datetime.datetime.fromisoformat(text.removesuffix("+00"))
        return _timestamp((moment - _EPOCH) // datetime.timedelta(microseconds=1), kind)
    return text


def _bounds(kind: pa.DataType, low: object, high: object) -> tuple[object, object]:
    if isinstance(low, float) and isinstance(high, float):
        if math.isinf(low) or math.isinf(high) or math.isnan(low) or math.isnan(high):
            return None, None
        # Zeros compare equal whatever their sign; a reader that orders them
        # (Java's Double.compare) must find both inside.
        return (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    if pa.types.is_string(kind) and isinstance(low, str) and isinstance(high, str):
        return low[:STRING_PREFIX_LENGTH], string_ceiling(high)
    if isinstance(low, datetime.date) and isinstance(high, datetime.date):
        return low.isoformat(), high.isoformat()
    return low, high


def _timestamp(microseconds: int, kind: pa.DataType) -> str | None:
    # Other writers cut to milliseconds and their readers widen the maximum by
    # one; the exact value is right for readers that widen and those that don't.
    try:
        moment = _EPOCH + datetime.timedelta(microseconds=microseconds)
    except OverflowError:
        return None
    digits = "milliseconds" if moment.microsecond % 1000 == 0 else "microseconds"
    return moment.isoformat(timespec=digits) + ("Z" if kind.tz is not None else "")


def _has_bounds(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_string(kind)
    )
