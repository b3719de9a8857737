"""Types, rows and parameters of the DB-API."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import NamedTuple

import pyarrow as pa

from lakevilla.api.arguments import parameters
from lakevilla.dbapi.errors import DataError, NotSupportedError, ProgrammingError, translated

# -------------------- types
#
# PEP 249's type objects and constructors, and the SQL types of columns.


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
    """An object that equals the type codes of several types.

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
        # BIGINT[] is a list, not a number
        return isinstance(other, str) and _family(other) in self._names

    def __hash__(self) -> int:
        return hash(self._names)

    def __repr__(self) -> str:
        return f"lakevilla.dbapi.{self._name}"


def _family(code: str) -> str:
    """Return a type code without its parameters: DECIMAL for DECIMAL(10,2)."""
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
#: The type of row ids, which no column of a lake has.
ROWID = TypeGroup("ROWID", "ROWID")

Date = date
Time = time
Timestamp = datetime
Binary = bytes


def DateFromTicks(ticks: float) -> date:
    """Return the local day at a number of seconds since the epoch."""
    return TimestampFromTicks(ticks).date()


def TimeFromTicks(ticks: float) -> time:
    """Return the local time of the day at a number of seconds since the epoch."""
    return TimestampFromTicks(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime:
    """Return the local date and time at a number of seconds since the epoch, without a zone."""
    return datetime.fromtimestamp(ticks)  # noqa: DTZ006 (PEP 249 says local time)


class ColumnDescription(NamedTuple):
    """The description of a column in ``Cursor.description``.

    Attributes
    ----------
    name : str
        The name of the column.
    type_code : str
        The name of the SQL type, as the catalog shows it: ``BIGINT``, ``DECIMAL(10,2)``,
        ``STRUCT(a BIGINT, b VARCHAR)``.
    display_size : None
        Not known; a field of PEP 249.
    internal_size : None
        Not known; a field of PEP 249.
    precision : int or None
        The number of digits of a DECIMAL; None for another type.
    scale : int or None
        The number of digits of a DECIMAL after the point; None for another type.
    null_ok : None
        Not known; a field of PEP 249.
    """

    name: str
    type_code: str
    display_size: int | None
    internal_size: int | None
    precision: int | None
    scale: int | None
    null_ok: bool | None


def columns_of(schema: pa.Schema) -> tuple[ColumnDescription, ...]:
    """Return the descriptions of a schema's columns."""
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
    """Return the SQL name of an Arrow type."""
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
    return "BLOB"  # all widths of binary types


def _quoted(name: str) -> str:
    if name.isidentifier() and name.isascii():
        return name
    return '"' + name.replace('"', '""') + '"'


# -------------------- rows
#
# Convert Arrow rows to tuples, some thousand at a time.


#: The number of rows that are converted at once, if fewer are requested.
_PART_ROWS = 4096


class Rows:
    """The rows of a query, read once from first to last; rows that were taken are freed."""

    def __init__(self, table: pa.Table) -> None:
        self.schema: pa.Schema = table.schema
        self.count: int = table.num_rows
        self._table = table
        #: The number of the table's rows that were taken.
        self._read = 0
        self._ready: Iterator[tuple[object, ...]] = iter(())

    def take(self, count: int | None) -> list[tuple[object, ...]]:
        """Return the next ``count`` rows, or all that are left."""
        found: list[tuple[object, ...]] = []
        while count is None or len(found) < count:
            part = list(
                itertools.islice(self._ready, None if count is None else count - len(found))
            )
            found += part
            self._read += len(part)
            if not part and not self._next_part():
                break
        return found

    def rest(self) -> pa.Table:
        """Return the remaining rows; none is left afterwards."""
        rest = self._table.slice(self._read)
        self._table, self._read, self._ready = self.schema.empty_table(), 0, iter(())
        return rest

    def _next_part(self) -> bool:
        # drop the chunks before these rows
        self._table, self._read = self._table.slice(self._read), 0
        part = self._table.slice(0, _PART_ROWS)
        if not part.num_rows:
            return False
        columns = [
            _values(field.name, column)
            for field, column in zip(self.schema, part.columns, strict=True)
        ]
        self._ready = iter(list(zip(*columns, strict=True)))
        return True


def _values(name: str, column: pa.ChunkedArray) -> list[object]:
    try:
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            column = column.cast(pa.timestamp("us", column.type.tz))
        values: list[object] = column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise DataError(
            f"column {name} of type {column.type} has a value that Python has no type for "
            f"({error}): fetch it by fetch_arrow_table(), or cast it in the query"
        ) from error
    return values


# -------------------- parameters
#
# Parameters of statements, which must be passed by name.


Values = Mapping[str, object]


def one_set(operation: str, given: object) -> Mapping[str, object] | None:
    """Return the parameters of one run of a statement.

    Raises
    ------
    ProgrammingError
        The parameters are given by position, a name is not valid, or no column can have a value's
        type.
    NotSupportedError
        The statement is the query that pandas sends to SQLite before it writes.
    """
    if given is None or (isinstance(given, list | tuple) and not given):
        return None
    if not isinstance(given, Mapping) and "sqlite_master" in operation:
        raise NotSupportedError(
            "through such a connection, pandas writes only to SQLite: pass "
            "sqlalchemy.create_engine('lakevilla:///path') to to_sql, or append the frame by "
            "lake.run(lambda txn: txn.append(table, frame))"
        )
    with translated():
        return parameters(given, nested=True)


def check_same(names: frozenset[str], given: Mapping[str, object], number: int) -> None:
    """Refuse a set of parameters that has other names than the first."""
    missing, further = sorted(names - given.keys()), sorted(given.keys() - names)
    if missing or further:
        what = [f"lacks {', '.join(missing)}"] if missing else []
        what += [f"has {', '.join(further)} besides"] if further else []
        raise ProgrammingError(
            f"set {number} of parameters {' and '.join(what)}: give each set the names of the first"
        )
