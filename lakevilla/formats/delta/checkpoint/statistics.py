"""Statistics and partition values of a checkpoint as typed columns.

Tables with ``delta.checkpoint.writeStatsAsStruct`` require them next to, or in
place of, the JSON text with which the rest of the library works; this module
converts one to the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as types

from lakevilla.arrow.cast import in_years
from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.formats.delta.metadata.layout import DeltaDefinition

# The thread's own context has 28 digits, too few for a decimal(38).
_DECIMALS = Context(prec=38)


class ParsedColumns:
    """The typed columns of an ``add`` action: ``fields``, and their values for a batch."""

    def __init__(self, stats: pa.StructType | None, partitions: pa.StructType | None) -> None:
        self._stats = stats
        self._partitions = partitions
        self.fields: list[pa.Field] = []
        if stats is not None:
            self.fields.append(pa.field("stats_parsed", stats))
        if partitions is not None:
            self.fields.append(pa.field("partitionValues_parsed", partitions))

    def of_batch(self, rows: pa.StructArray) -> dict[str, pa.Array]:
        columns: dict[str, pa.Array] = {}
        if self._stats is not None:
            columns["stats_parsed"] = _parsed_stats(rows, self._stats)
        if self._partitions is not None:
            values = [
                _typed(dict(row or ()), self._partitions)
                for row in rows.field("partitionValues").to_pylist()
            ]
            columns["partitionValues_parsed"] = pa.array(values, self._partitions)
        return columns


def parsed_columns(definition: DeltaDefinition) -> ParsedColumns:
    """Return the columns that checkpoints hold besides JSON, if the table's properties set any."""
    if not definition.flag("delta.checkpoint.writeStatsAsStruct"):
        return ParsedColumns(None, None)
    layout = definition.layout
    chosen = set(layout.statistics_columns)
    partitions = set(layout.partition_by)
    data: list[pa.Field] = []
    partition_columns: list[pa.Field] = []
    for logical, physical in zip(layout.schema, layout.physical, strict=True):
        (partition_columns if logical.name in partitions else data).append(physical)
    counts = _pruned(data, chosen, "", lambda kind: True, pa.int64())
    bounds = _pruned(data, chosen, "", _has_bounds, None)
    fields = [pa.field("numRecords", pa.int64()), pa.field("tightBounds", pa.bool_())]
    # Parquet has no empty groups.
    if bounds:
        fields += [
            pa.field("minValues", pa.struct(bounds)),
            pa.field("maxValues", pa.struct(bounds)),
        ]
    if counts:
        fields.append(pa.field("nullCount", pa.struct(counts)))
    values = [pa.field(field.name, field.type) for field in partition_columns]
    return ParsedColumns(pa.struct(fields), pa.struct(values) if values else None)


def _pruned(
    fields: list[pa.Field],
    chosen: set[str],
    prefix: str,
    fits: Callable[[pa.DataType], bool],
    kind: pa.DataType | None,
) -> list[pa.Field]:
    """Return the fields whose leaves are chosen and fit, nullable, of type ``kind`` if given."""
    result = []
    for field in fields:
        path = f"{prefix}{field.name}"
        if types.is_struct(field.type):
            inner = _pruned(list(field.type), chosen, f"{path}.", fits, kind)
            if inner:
                result.append(pa.field(field.name, pa.struct(inner)))
        elif path in chosen and fits(field.type):
            result.append(pa.field(field.name, kind or field.type))
    return result


def _has_bounds(kind: pa.DataType) -> bool:
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
    )


def _parsed_stats(rows: pa.StructArray, kind: pa.StructType) -> pa.Array:
    index = rows.type.get_field_index("stats")
    texts = [None] * len(rows) if index < 0 else rows.field("stats").to_pylist()
    known = [None] * len(rows)
    if rows.type.get_field_index("stats_parsed") >= 0:
        known = _representable(rows.field("stats_parsed"), kind).to_pylist()
    parsed = [
        _typed(_decode(text), kind) if text is not None else before
        for text, before in zip(texts, known, strict=True)
    ]
    return pa.array(parsed, kind)


_decoder = JsonDecoder(float_hook=Decimal)


def _decode(text: str) -> Mapping[str, Any]:
    try:
        value = _decoder.decode(text)
    except (ValueError, ArithmeticError):
        return {}
    return value if isinstance(value, dict) else {}


def _typed(values: Mapping[str, Any], kind: pa.StructType) -> dict[str, Any]:
    """Return JSON values by the types of ``kind``; a value that does not fit counts as unknown."""
    result: dict[str, Any] = {}
    for index in range(kind.num_fields):
        field = kind.field(index)
        value = values.get(field.name)
        if value is None:
            continue
        if types.is_struct(field.type):
            if isinstance(value, dict):
                result[field.name] = _typed(value, field.type)
            continue
        try:
            result[field.name] = _scalar(value, field.type)
        except (ValueError, TypeError, KeyError, InvalidOperation, OverflowError):
            continue
    return result


def _scalar(value: Any, kind: pa.DataType) -> Any:
    if types.is_string(kind):
        return str(value)
    if types.is_boolean(kind):
        return value if isinstance(value, bool) else {"true": True, "false": False}[value]
    if types.is_integer(kind):
        number = int(value)
        pa.scalar(number, kind)
        return number
    if types.is_floating(kind):
        return float(value)
    if types.is_decimal(kind):
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale), context=_DECIMALS)
    if types.is_date(kind):
        return date.fromisoformat(value)
    if types.is_timestamp(kind):
        instant = datetime.fromisoformat(value)
        if kind.tz is None:
            return instant.replace(tzinfo=None)
        return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
    if types.is_binary(kind):
        return str(value).encode()
    raise TypeError(kind)


# ------------------------------------------------------------- and back to JSON


def json_of_parsed(parsed: pa.StructArray, columns: pa.Schema) -> pa.Array:
    """Return the JSON text of ``stats_parsed``, for checkpoints that hold nothing else.

    ``columns``: the table's columns under the names that statistics use.
    """
    values = pa.struct(list(columns))
    kind = pa.struct([("minValues", values), ("maxValues", values)])
    texts = [
        None if row is None else _encoder.encode(_plain(row)).decode()
        for row in _representable(parsed, kind).to_pylist()
    ]
    return pa.array(texts, pa.string())


def _representable(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return statistics in which every date and time is representable; null replaces others.

    Times of 96 bits have no zone. They mean UTC where ``kind``, the type of a table's column or
    the struct of several, has a zone; where ``kind`` gives no type, the null type is used.
    """
    if types.is_struct(values.type):
        inner = {field.name: field.type for field in kind} if types.is_struct(kind) else {}
        fields, arrays = [], []
        for index in range(values.type.num_fields):
            field = values.type.field(index)
            array = _representable(values.field(index), inner.get(field.name, pa.null()))
            fields.append(field.with_type(array.type))
            arrays.append(array)
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=values.is_null())
    if types.is_date(values.type):
        return in_years(values)
    if types.is_timestamp(values.type):
        zone = values.type.tz or (kind.tz if types.is_timestamp(kind) else None)
        return in_years(values).cast(pa.timestamp("us", zone), safe=False)
    return values


_encoder = msgspec.json.Encoder()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, datetime):
        # Delta cuts statistics of timestamps to milliseconds.
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return f"{text}Z" if value.tzinfo is not None else text
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return msgspec.Raw(format(value, "f").encode())
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no such numbers: the text is the one that Spark writes.
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
