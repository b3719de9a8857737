"""PEP 249's types: how a column's type is called, and values of types that Python has."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time
from typing import NamedTuple

import pyarrow as pa

__all__ = [
    "BINARY",
    "Binary",
    "ColumnDescription",
    "DATETIME",
    "Date",
    "DateFromTicks",
    "NUMBER",
    "ROWID",
    "STRING",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "TypeGroup",
    "columns_of",
    "type_code",
]


class TypeGroup:
    """Several types under one name: equal to the type code of each.

    Examples
    --------
    >>> import lakevilla.dbapi
    >>> lakevilla.dbapi.NUMBER == "BIGINT", lakevilla.dbapi.NUMBER == "DECIMAL(10,2)"
    (True, True)
    >>> lakevilla.dbapi.STRING == "DATE"
    False
    """

    def __init__(self, name: str, *names: str) -> None:
        self._name = name
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeGroup):
            return self._names == other._names
        # BIGINT[] is a list, and no number.
        return isinstance(other, str) and _family(other) in self._names

    def __hash__(self) -> int:
        return hash(self._names)

    def __repr__(self) -> str:
        return f"lakevilla.dbapi.{self._name}"


def _family(code: str) -> str:
    """DECIMAL of DECIMAL(10,2)."""
    name, bracket, rest = code.partition("(")
    return name if not bracket or rest.endswith(")") else code


STRING = TypeGroup("STRING", "VARCHAR", "UUID", "JSON")
BINARY = TypeGroup("BINARY", "BLOB")
NUMBER = TypeGroup(
    "NUMBER",
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL",
)
DATETIME = TypeGroup(
    "DATETIME", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "INTERVAL"
)
#: Rows of a lake have no ids that a query shows: no column has this type.
ROWID = TypeGroup("ROWID", "ROWID")

Date = date
Time = time
Timestamp = datetime
Binary = bytes


def DateFromTicks(ticks: float) -> date:
    """The local day at a number of seconds since the epoch."""
    return TimestampFromTicks(ticks).date()


def TimeFromTicks(ticks: float) -> time:
    """The local time of the day at a number of seconds since the epoch."""
    return TimestampFromTicks(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime:
    """The local date and time at a number of seconds since the epoch, without a zone."""
    return datetime.fromtimestamp(ticks)  # noqa: DTZ006 (PEP 249 says local time)


class ColumnDescription(NamedTuple):
    """What ``Cursor.description`` says of a column.

    ``type_code`` is the name of the SQL type, as the catalog shows it: ``BIGINT``,
    ``DECIMAL(10,2)``, ``STRUCT(a BIGINT, b VARCHAR)``.
    """

    name: str
    type_code: str
    display_size: int | None
    internal_size: int | None
    precision: int | None
    scale: int | None
    null_ok: bool | None


def columns_of(schema: pa.Schema) -> tuple[ColumnDescription, ...]:
    """The description of rows of a schema."""
    return tuple(_columns(schema))


def _columns(schema: pa.Schema) -> Iterator[ColumnDescription]:
    for field in schema:
        digits = pa.types.is_decimal(field.type)
        yield ColumnDescription(
            field.name,
            type_code(field.type),
            None,
            None,
            field.type.precision if digits else None,
            field.type.scale if digits else None,
            None,
        )


_CODES = {
    pa.null(): "NULL",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float16(): "FLOAT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.date64(): "DATE",
}


def type_code(kind: pa.DataType) -> str:
    """The name of an Arrow type in SQL."""
    types = pa.types
    if (known := _CODES.get(kind)) is not None:
        return known
    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMP WITH TIME ZONE"
    if types.is_time(kind):
        return "TIME"
    if types.is_duration(kind) or types.is_interval(kind):
        return "INTERVAL"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "VARCHAR"
    if isinstance(kind, pa.BaseExtensionType):
        known_as = kind.extension_name.rpartition(".")[2].upper()
        return known_as if known_as in ("UUID", "JSON") else type_code(kind.storage_type)
    if types.is_dictionary(kind):
        return type_code(kind.value_type)
    return _nested(kind)


def _nested(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_map(kind):
        return f"MAP({type_code(kind.key_type)}, {type_code(kind.item_type)})"
    if types.is_struct(kind):
        fields = (f"{_quoted(field.name)} {type_code(field.type)}" for field in kind)
        return f"STRUCT({', '.join(fields)})"
    if types.is_fixed_size_list(kind):
        return f"{type_code(kind.value_type)}[{kind.list_size}]"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind):
        return f"{type_code(kind.value_type)}[]"
    return "BLOB"  # in any of its widths


def _quoted(name: str) -> str:
    if name.isidentifier() and name.isascii():
        return name
    return '"' + name.replace('"', '""') + '"'
