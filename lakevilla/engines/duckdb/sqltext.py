"""SQL text for DuckDB, and typed constants in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from lakevilla.arrow.cast import INITIAL_DEFAULT, default_text
from lakevilla.errors import UnsupportedTableFeature
from lakevilla.sql.expressions.types import arrow_type, element_type, is_decimal, type_name

# -------------------- sqltext
#
# Pieces of DuckDB SQL: names, texts, types, and structs under other field names.


#: The beginning of a name for a field that a file lacks.
ABSENT = "__lakevilla_absent"
_SIMPLE = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.large_string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.large_binary(): "BLOB",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("ns"): "TIMESTAMP_NS",
    pa.time64("us"): "TIME",
    pa.uuid(): "UUID",
}


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return an expression; DuckDB's parser ends at a NUL, so a text is concatenated there."""
    # docs/upstream.md, "The parser ends at a NUL"
    parts = ["'" + part.replace("'", "''") + "'" for part in text.split("\0")]
    return parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})"


def name_list(names: Iterable[str]) -> str:
    return ", ".join(quote_name(name) for name in names)


def column_of(alias: str, path: tuple[str, ...]) -> str:
    """Return a column, or a field of a struct, of the relation ``alias``."""
    return ".".join([alias, *(quote_name(part) for part in path)])


class Renamed:
    """The columns of a relation under names that no other column has.

    An expression that names ``c`` twice, or ``s.c`` and ``t.c``, has a hash without ``c`` in
    DuckDB: one of each of 5,000 columns takes ten seconds to plan, and half a second where the two
    have names of their own (docs/upstream.md, "Expressions that differ in a column alone have one
    hash").
    """

    def __init__(self, prefix: str, names: Iterable[str]) -> None:
        self._new = {name: f'"__lakevilla_{prefix}{i}"' for i, name in enumerate(names)}

    def __getitem__(self, name: str) -> str:
        """Return the new name of a column, quoted."""
        return self._new[name]

    def field(self, path: tuple[str, ...]) -> str:
        """Return the SQL of a column, or of a struct's field, under its new name."""
        return column_of(self._new[path[0]], path[1:])

    def back(self) -> str:
        """Return the columns with their own names again, for a SELECT of the renamed ones."""
        return ", ".join(f"{new} AS {quote_name(old)}" for old, new in self._new.items())

    def of(self, alias: str) -> str:
        """Return the columns with their new names, for a SELECT from the relation ``alias``."""
        return ", ".join(f"{alias}.{quote_name(old)} AS {new}" for old, new in self._new.items())


def sql_type(kind: pa.DataType) -> str:
    """Return the DuckDB type that holds every value of an Arrow type that tables may have."""
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return "TIMESTAMPTZ"
    if pa.types.is_decimal128(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return "BLOB"
    if pa.types.is_null(kind):
        return "INTEGER"
    if pa.types.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return f"STRUCT({', '.join(f'{quote_name(f.name)} {sql_type(f.type)}' for f in fields)})"
    if pa.types.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {sql_type(kind.item_type)})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    raise UnsupportedTableFeature(
        f"type {kind} is not supported by the DuckDB engine; read the table without that column"
    )


def renamed(sql: str, kind: pa.DataType, wanted: pa.DataType) -> str:
    r"""Return ``sql`` of type ``kind`` with the struct fields named as in ``wanted``, at any depth.

    Fields that ``kind`` has beyond those of ``wanted`` are left out. The result has UUIDs where
    ``wanted`` has them, or their bytes. It has text where ``wanted`` has text, by the bytes in
    UTF-8 (a cast would spell them out, ``\xC3``), or the bytes of text. It has times in UTC for
    times without a zone (like a cast of DuckDB's, in a twentieth of its time). A field that is
    absent in ``kind`` has its initial default.
    """
    if not _differs(kind, wanted):
        return sql
    if is_text(wanted):
        return f"decode({sql})"
    if is_text(kind) and is_bytes(wanted):
        return f"encode({sql})"
    if _is_uuid(kind) != _is_uuid(wanted):
        return f"CAST({sql} AS {sql_type(wanted)})"
    if is_utc(wanted):
        return f"make_timestamptz(epoch_us({sql}))"
    if pa.types.is_struct(kind):
        parts = ", ".join(
            f"{quote_name(new.name)} := "
            + (
                default_sql(new)
                if old.name.startswith(ABSENT) and default_text(new, INITIAL_DEFAULT) is not None
                else renamed(f"({sql}).{quote_name(old.name)}", old.type, new.type)
            )
            for old, new in zip(_fields(kind), _fields(wanted), strict=False)
        )
        return f"CASE WHEN {sql} IS NULL THEN NULL ELSE struct_pack({parts}) END"
    if pa.types.is_map(kind):
        key = renamed("__e.key", kind.key_type, wanted.key_type)
        value = renamed("__e.value", kind.item_type, wanted.item_type)
        entry = f"struct_pack(key := {key}, value := {value})"
        return f"map_from_entries(list_transform(map_entries({sql}), lambda __e: {entry}))"
    item = renamed("__e", kind.value_type, wanted.value_type)
    return f"list_transform({sql}, lambda __e: {item})"


def default_sql(field: pa.Field) -> str:
    """Return the value of a field in the rows of files that lack it."""
    text, kind = default_text(field, INITIAL_DEFAULT), field.type
    if text is None:
        return f"CAST(NULL AS {sql_type(kind)})"
    if pa.types.is_struct(kind):
        parts = ", ".join(f"{quote_name(one.name)} := {default_sql(one)}" for one in kind)
        return f"struct_pack({parts})"
    if is_bytes(kind):
        return f"from_hex({quote_text(text)})"
    return f"CAST({quote_text(text)} AS {sql_type(kind)})"


def _differs(kind: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.num_fields != wanted.num_fields or any(
            a.name != b.name or _differs(a.type, b.type)
            for a, b in zip(_fields(kind), _fields(wanted), strict=True)
        )
    if pa.types.is_map(kind):
        return _differs(kind.key_type, wanted.key_type) or _differs(
            kind.item_type, wanted.item_type
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _differs(kind.value_type, wanted.value_type)
    if is_text(wanted):
        return is_bytes(kind)
    if is_utc(wanted):
        return pa.types.is_timestamp(kind) and kind.tz is None
    return _is_uuid(kind) != _is_uuid(wanted) or (is_text(kind) and is_bytes(wanted))


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def has_bytes(kind: pa.DataType) -> bool:
    """Return whether the type, or one within it, is of bytes or of UUIDs."""
    return any_of(kind, lambda leaf: is_bytes(leaf) or _is_uuid(leaf))


def is_utc(kind: pa.DataType) -> bool:
    """Return whether the type is of times in UTC."""
    return pa.types.is_timestamp(kind) and kind.tz is not None


def any_of(kind: pa.DataType, holds: Callable[[pa.DataType], bool]) -> bool:
    """Return whether ``holds`` is true of the type, or of one within it that is not nested."""
    if pa.types.is_nested(kind):
        return any(any_of(kind.field(i).type, holds) for i in range(kind.num_fields))
    return holds(kind)


def _is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.UuidType)


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(i) for i in range(kind.num_fields)]


# -------------------- typed
#
# Values of a type in DuckDB SQL: casts, timestamps in UTC, years that the language has.


_TYPES = {
    "void": "INTEGER",
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}


def duckdb_type(name: str) -> str:
    """Return the DuckDB type of a Delta type name."""
    if (scalar := _TYPES.get(name)) is not None:
        return scalar
    if is_decimal(name):
        return name.upper()
    if (element := element_type(name)) is not None:
        return f"{duckdb_type(element)}[]"
    type_ = arrow_type(name)
    if name.startswith("map<"):
        key, item = type_name(type_.key_type), type_name(type_.item_type)
        return f"MAP({duckdb_type(key)}, {duckdb_type(item)})"
    fields = (f"{quote_name(field.name)} {duckdb_type(type_name(field.type))}" for field in type_)
    return f"STRUCT({', '.join(fields)})"


def to_type(sql: str, type_: str) -> str:
    return f"CAST({sql} AS {duckdb_type(type_)})"


def utc(sql: str, type_: str) -> str:
    """Return a zoned timestamp as UTC's wall clock; other values unchanged."""
    return f"({sql} AT TIME ZONE 'UTC')" if type_ == "timestamp" else sql


def wall_clock_literal(sql: str, type_: str) -> str:
    """Return SQL that converts a wall clock in UTC to a value of the type."""
    return f"({sql}) AT TIME ZONE 'UTC'" if type_ == "timestamp" else to_type(sql, type_)


def within_years(sql: str, shown: str) -> str:
    """Return a date or wall clock that raises beyond the language's years; DuckDB has more."""
    message = f"{shown} leaves the years 1 to 9999: leave such rows out with a case"
    return (
        f"list_extract(list_transform([{sql}], lambda __moment: "
        "CASE WHEN __moment < DATE '0001-01-01' OR __moment >= DATE '10000-01-01' "
        f"THEN error({quote_text(message)}) ELSE __moment END), 1)"
    )
