"""The partition values and statistics in a file's log entry, as columns.

Both are text in the log. A text that cannot be read counts as absent: the file is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from decimal import InvalidOperation as _DecimalError
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.cast import array, in_years, scalar
from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.types import INTEGERS, arrow_type, decimal_parts, is_decimal
from lakevilla.sql.expressions.values import DECIMAL_CONTEXT, cast_value, parse_timestamp


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """One partition column of a batch of files, dictionary encoded.

    ``values[indices[i]]`` is the value of file i; a null index is NULL. ``readable``
    is False for values whose text cannot be read.
    """

    values: list[Any]
    readable: list[bool]
    indices: pa.Array


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Bounds of one column in each file; null where unknown."""

    low: pa.Array
    high: pa.Array
    nulls: pa.Array
    rows: pa.Array


def partition_value(text: str | None, type_: str) -> Any:
    """Return the value of a partition column from Delta's text; null and "" are NULL.

    Raises
    ------
    InvalidOperation
        The text is not of the type, or of a type whose text writers do not agree on.
    """
    if text is None or text == "":
        return None
    if type_ == "binary":
        raise InvalidOperation("binary partition values are written in several ways")
    return cast_value(text.lower() if type_ == "boolean" else text, type_)


def partition_column(maps: pa.Array, key: str, type_: str) -> PartitionColumn:
    """Return the values under one key of a ``partition_values`` column."""
    found = pc.map_lookup(maps, query_key=scalar(key, pa.string()), occurrence="first")
    encoded = found.dictionary_encode()
    read = [_read_partition_value(text, type_) for text in encoded.dictionary.to_pylist()]
    values, readable = [value for value, _ in read], [is_readable for _, is_readable in read]
    return PartitionColumn(values, readable, encoded.indices)


@lru_cache(maxsize=4096)
def _read_partition_value(text: str | None, type_: str) -> tuple[Any, bool]:
    """Return the value of a partition column, and whether its text could be read.

    The result is cached, for a table's few partitions occur again in each batch of its files.
    """
    try:
        return partition_value(text, type_), True
    except InvalidOperation:
        return None, False


def read_statistics(
    stats: pa.Array, columns: Mapping[tuple[str, ...], str]
) -> dict[tuple[str, ...], ColumnStatistics]:
    """Return bounds of some columns, by physical path and Delta type, from the log's JSON."""
    decoder, places = _decoder(tuple(columns)), _places(tuple(columns))
    rows = [_decode(decoder, text) for text in stats.to_pylist()]
    counts = _integers([None if row is None else row.numRecords for row in rows])
    trees = [[None if row is None else getattr(row, part) for row in rows] for part in _PARTS]
    found = {}
    for path, type_ in columns.items():
        fields = places[path]
        read = _READERS.get("decimal" if is_decimal(type_) else type_, _unknown)
        low, high, nulls = (_leaves(nodes, fields) for nodes in trees)
        found[path] = ColumnStatistics(
            *_widen(read(low, type_), read(high, type_), type_), _integers(_plain(nulls)), counts
        )
    return found


_PARTS = ("minValues", "maxValues", "nullCount")
_Decoder = msgspec.json.Decoder[Any]


def _decode(decoder: _Decoder, text: str | None) -> Any:
    if not text:
        return None
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError):
        return None


def _tree(paths: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for name in path[:-1]:
            inner = node.setdefault(name, {})
            node = inner if isinstance(inner, dict) else {}
        node.setdefault(path[-1], None)
    return tree


@lru_cache(maxsize=256)
def _decoder(paths: tuple[tuple[str, ...], ...]) -> _Decoder:
    """Return a decoder of the requested leaves that skips the rest; field names are positions."""

    def struct(tree: dict[str, Any]) -> Any:
        fields = [
            (
                f"f{at}",
                msgspec.Raw if inner is None else struct(inner) | None,
                msgspec.field(
                    default=_ABSENT if inner is None else None,
                    # The decoder can't handle a name that JSON escapes: such a column
                    # has no statistics here, so its files are kept.
                    name=f"\ufffe{at}" if _ESCAPED.search(name) else name,
                ),
            )
            for at, (name, inner) in enumerate(tree.items())
        ]
        return msgspec.defstruct("Values", fields, gc=False)

    values = struct(_tree(paths)) | None
    entry = msgspec.defstruct(
        "Statistics", [("numRecords", Any, None), *((part, values, None) for part in _PARTS)]
    )
    return msgspec.json.Decoder(entry)


_ABSENT = msgspec.Raw(b"null")
_ESCAPED = re.compile(r'[\\"\x00-\x1f]')


@lru_cache(maxsize=256)
def _places(paths: tuple[tuple[str, ...], ...]) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the decoder's names of fields along each path."""
    found: dict[tuple[str, ...], tuple[str, ...]] = {}

    def walk(tree: dict[str, Any], path: tuple[str, ...], fields: tuple[str, ...]) -> None:
        for at, (name, inner) in enumerate(tree.items()):
            here = (*fields, f"f{at}")
            found[*path, name] = here
            walk(inner or {}, (*path, name), here)

    walk(_tree(paths), (), ())
    return found


def _leaves(nodes: Sequence[Any], fields: Sequence[str]) -> list[msgspec.Raw]:
    """Return the JSON at the end of a path in each tree; null where it has none."""
    *within, last = fields
    for field in within:
        nodes = [None if node is None else getattr(node, field) for node in nodes]
    return [_ABSENT if node is None else getattr(node, last) for node in nodes]


def _plain(raws: Sequence[msgspec.Raw]) -> list[Any]:
    """Return JSON leaves as Python values; nested ones have no use here."""
    try:
        found = _values.decode(b"[" + b",".join(raws) + b"]")
    except (ValueError, RecursionError):
        found = [_value(raw) for raw in raws]
    return [None if isinstance(value, dict | list) else value for value in found]


def _value(raw: msgspec.Raw) -> Any:
    try:
        return _values.decode(b"[" + bytes(raw) + b"]")[0]
    except (ValueError, RecursionError):
        return None  # a number beyond the representable range


_values = msgspec.json.Decoder(list[Any])


def _integers(values: Sequence[Any]) -> pa.Array:
    low, high = -(2**63), 2**63
    return array([v if type(v) is int and low <= v < high else None for v in values], pa.int64())


_Reader = Callable[[Sequence[msgspec.Raw], str], pa.Array]


def _unknown(raws: Sequence[msgspec.Raw], type_: str) -> pa.Array:
    return pa.nulls(len(raws), arrow_type(type_))


def _read_integers(raws: Sequence[msgspec.Raw], type_: str) -> pa.Array:
    limit = 2 ** (INTEGERS[type_][0] - 1)
    values = [v if type(v) is int and -limit <= v < limit else None for v in _plain(raws)]
    return array(values, arrow_type(type_))


def _read_floats(raws: Sequence[msgspec.Raw], type_: str) -> pa.Array:
    # NaN and infinities are written as strings, or not at all: no bound.
    return array([_float(v) for v in _plain(raws)], arrow_type(type_))


def _float(value: Any) -> float | None:
    try:
        return float(value) if type(value) in (int, float) else None
    except OverflowError:
        return None


def _read_decimals(raws: Sequence[msgspec.Raw], type_: str) -> pa.Array:
    precision, scale = decimal_parts(type_)
    values: list[Decimal | None] = []
    for raw in raws:
        try:
            value = Decimal(bytes(raw).decode().strip('"'))
        except (_DecimalError, ValueError):
            value = None
        values.append(value if value is not None and value.is_finite() else None)
    return array([_fitting(v, precision, scale) for v in values], arrow_type(type_))


def _fitting(value: Decimal | None, precision: int, scale: int) -> Decimal | None:
    try:
        fitted = None if value is None else cast_value(value, f"decimal({precision},{scale})")
    except InvalidOperation:
        return None
    return fitted if isinstance(fitted, Decimal) and fitted == value else None


def _read_strings(raws: Sequence[msgspec.Raw], type_: str) -> pa.Array:
    return array([v if isinstance(v, str) else None for v in _plain(raws)], pa.string())


def _read_booleans(raws: Sequence[msgspec.Raw], type_: str) -> pa.Array:
    return array([v if isinstance(v, bool) else None for v in _plain(raws)], pa.bool_())


def _read_temporal(raws: Sequence[msgspec.Raw], type_: str) -> pa.Array:
    return array(
        [_temporal(v, type_) if isinstance(v, str) else None for v in _plain(raws)],
        arrow_type(type_),
    )


@lru_cache(maxsize=65536)
def _temporal(text: str, type_: str) -> date | datetime | None:
    try:
        if type_ == "date":
            return date.fromisoformat(text) if len(text) == 10 else None
        instant = parse_timestamp(text)
        if instant.tzinfo is not None and type_ == "timestamp_ntz":
            return None
        value = cast_value(instant, type_)
    except (ValueError, OverflowError, InvalidOperation):
        return None
    return value if isinstance(value, datetime) else None


_READERS: dict[str, _Reader] = {
    **dict.fromkeys(INTEGERS, _read_integers),
    "float": _read_floats,
    "double": _read_floats,
    "decimal": _read_decimals,
    "string": _read_strings,
    "boolean": _read_booleans,
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), _read_temporal),
}


def _widen(low: pa.Array, high: pa.Array, type_: str) -> tuple[pa.Array, pa.Array]:
    """Return bounds that hold although writers cut them.

    Timestamps are cut to milliseconds. Decimals beyond 15 digits pass through doubles in some
    writers, which lose the digits after the fifteenth. Whole decimals end at the limits of a long
    in deltalake: such a limit means itself, or any value beyond. A double may have been a float
    when the file was written, and its bounds the shortest texts of floats: then 0.1 means the
    nearest float, which is above it. Spark's Delta before 3.3 cuts the greatest text and appends
    U+FFFD, which is below all characters beyond U+FFFF: such a text bounds nothing.
    """
    # https://github.com/delta-io/delta-rs/issues/2974 (decimals as doubles)
    # docs/upstream.md, "Bounds of whole decimals end at the limits of a long"
    # https://github.com/delta-io/delta/pull/3430 (U+FFFD)
    if type_ == "string":
        no_bound = pa.nulls(1, high.type)[0]  # not pa.scalar, which loads pandas
        return low, pc.if_else(pc.ends_with(high, "\ufffd"), no_bound, high)
    if type_ in ("timestamp", "timestamp_ntz"):
        step = pa.scalar(1000, pa.duration("us"))
        return in_years(pc.subtract(low, step)), in_years(pc.add(high, step))
    if type_ == "double":
        return (
            pc.min_element_wise(low, _as_float(low), skip_nulls=False),
            pc.max_element_wise(high, _as_float(high), skip_nulls=False),
        )
    if is_decimal(type_) and decimal_parts(type_)[0] > 15:
        slack = Decimal("1e-14")
        low, high = _unless(low, _LEAST_LONG), _unless(high, _GREATEST_LONG)
        return _moved(low, -slack, type_), _moved(high, slack, type_)
    return low, high


_LEAST_LONG, _GREATEST_LONG = Decimal(-(2**63)), Decimal(2**63 - 1)


def _unless(bounds: pa.Array, end: Decimal) -> pa.Array:
    """Return ``bounds`` with null in place of ``end``."""
    return array([None if value == end else value for value in bounds.to_pylist()], bounds.type)


def _as_float(bounds: pa.Array) -> pa.Array:
    return bounds.cast(pa.float32(), safe=False).cast(pa.float64())


def _moved(bounds: pa.Array, share: Decimal, type_: str) -> pa.Array:
    precision, scale = decimal_parts(type_)
    unit = Decimal(1).scaleb(-scale)
    moved: list[Decimal | None] = []
    for value in bounds.to_pylist():
        if value is not None and len(value.as_tuple().digits) > 15:
            # The thread's own context is not used: 28 digits are too few for a decimal(38).
            slack = DECIMAL_CONTEXT.multiply(value.copy_abs(), share)
            value = DECIMAL_CONTEXT.add(value, slack)
            value = DECIMAL_CONTEXT.add(value, unit.copy_sign(share))
            value = _fitting(value.quantize(unit, context=DECIMAL_CONTEXT), precision, scale)
        moved.append(value)
    return array(moved, bounds.type)
