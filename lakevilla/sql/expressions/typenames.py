"""Columns described by a mapping: names to Arrow types, or to the names of types.

The names are Spark's, as in Delta's and Iceberg's documentation; sqlglot reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, TypeGuard

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.settings import is_unicode, shown
from lakevilla.sql.expressions.syntax.parameter_names import errors, exp, sqlglot
from lakevilla.sql.expressions.types import MAX_PRECISION, arrow_type

_LENGTH = re.compile(r"\bchar(acter)?\s*\(|\bvarchar\s*\(", re.IGNORECASE)

_NAMES = (
    "boolean",
    "byte",
    "tinyint",
    "short",
    "smallint",
    "int",
    "integer",
    "long",
    "bigint",
    "float",
    "double",
    "decimal(18,2)",
    "string",
    "binary",
    "date",
    "time",
    "timestamp",
    "timestamp_ntz",
    "array<int>",
    "map<string,int>",
    "struct<a:int,b:string>",
)

#: Types of DuckDB that no table has, and types to use in their place.
_UNKEPT = {
    "bit": "string",
    "bitstring": "string",
    "timetz": "time for times of one zone, or string",
    "time with time zone": "time for times of one zone, or string",
    "uhugeint": "decimal(38,0) or string",
    "bignum": "string",
    "varint": "string",
    "geometry": "binary for its WKB, or string",
    "union": "a column for each of its types, or string",
    "interval": "a whole number of its smallest part, or string",
    "variant": "string for its JSON",
}
#: Other systems' names of types that have another name here.
_ELSEWHERE = {
    "int8": "byte",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "uint8": "short",
    "uint16": "int",
    "uint32": "long",
    "uint64": "decimal(20,0)",
    "float32": "float",
    "float64": "double",
    "utf8": "string",
    "object": "string",
    "bytes": "binary",
    "date32": "date",
    "decimal": "decimal(18,2)",
    "numeric": "decimal(18,2)",
    "number": "decimal(18,2)",
    "money": "decimal(18,2)",
    "serial": "int",
    "bigserial": "long",
    "datetime": "timestamp",
    "uuid": "string",
    "json": "string",
}


def describes_columns(given: object) -> TypeGuard[Mapping[Any, object]]:
    """Return whether a mapping names types, not data: data values are never text or types."""
    return (
        isinstance(given, Mapping)
        and bool(given)
        and any(isinstance(value, str | pa.DataType | type) for value in given.values())
    )


def columns_of(given: Mapping[Any, object]) -> pa.Schema:
    """Return the schema that a mapping describes; all columns may be NULL.

    Parameters
    ----------
    given : Mapping
        Names to ``pyarrow.DataType``, or to text: ``"string"``, ``"decimal(18,2)"``,
        ``"array<int>"``, ``"struct<a:int,b:string>"``.

    Raises
    ------
    InvalidOperation
        A name is no column's name, or a value is no type; the nearest types are named.
    """
    fields = []
    for name, type_ in given.items():
        if not isinstance(name, str) or not name or not is_unicode(name):
            raise InvalidOperation(
                f"column name {shown(name)} is not a string: name columns by str, in Unicode"
            )
        if isinstance(type_, str):
            type_ = type_named(type_, name)
        if not isinstance(type_, pa.DataType):
            kind = type_.__name__ if isinstance(type_, type) else f"a {type(type_).__name__}"
            raise InvalidOperation(
                f"column {name!r} has {kind} where other columns have types: give each column a "
                f'pyarrow type or the name of one, such as "{_nearest(kind)}", or give each data'
            )
        fields.append(pa.field(name, type_))
    return pa.schema(fields)


def type_named(text: str, column: str) -> pa.DataType:
    """Return the Arrow type of a type's name.

    Raises
    ------
    InvalidOperation
    """
    if ";" in text:
        raise _unknown(text, column)
    if _LENGTH.search(text):
        raise InvalidOperation(
            f"column {column!r} has the type {text!r}, whose length nothing would check: write "
            '"string"'
        )
    try:
        (root,) = sqlglot.parse(f"CAST(NULL AS {text})", dialect="spark")
    except (errors.SqlglotError, ValueError, RecursionError, AttributeError, TypeError, IndexError):
        raise _unknown(text, column) from None
    if not isinstance(root, exp.Cast) or any(
        value for name, value in root.args.items() if name not in ("this", "to")
    ):
        raise _unknown(text, column)
    return _arrow(root.to, text, column)


def _arrow(node: object, text: str, column: str) -> pa.DataType:
    if not isinstance(node, exp.DataType) or node.args.get("values"):
        raise _unknown(text, column)
    if node.args.get("collate"):
        raise InvalidOperation(
            f"column {column!r} has the type {text!r}, whose collation no table can keep: texts "
            "are compared byte by byte; leave it out, and compare lower(a)"
        )
    kind, inner, types = node.this, node.expressions, exp.DataType.Type
    if (name := _plain().get(kind)) is not None and not inner:
        return arrow_type(name)
    if kind is types.DECIMAL and 1 <= len(inner) <= 2:
        return pa.decimal128(*_digits(inner, text, column))
    if kind in (types.ARRAY, types.LIST) and len(inner) == 1:
        return pa.list_(_arrow(inner[0], text, column))
    if kind is types.MAP and len(inner) == 2:
        return pa.map_(*(_arrow(part, text, column) for part in inner))
    if kind is types.STRUCT and inner:
        return pa.struct([_field(part, text, column) for part in inner])
    raise _unknown(text, column)


@lru_cache(1)
def _plain() -> dict[object, str]:
    types = exp.DataType.Type
    return {
        types.BOOLEAN: "boolean",
        types.TINYINT: "byte",
        types.SMALLINT: "short",
        types.INT: "integer",
        types.BIGINT: "long",
        types.FLOAT: "float",
        types.DOUBLE: "double",
        types.TEXT: "string",
        types.VARCHAR: "string",
        types.BINARY: "binary",
        types.VARBINARY: "binary",
        types.DATE: "date",
        types.TIME: "time",
        types.TIMESTAMPTZ: "timestamp",
        types.TIMESTAMPNTZ: "timestamp_ntz",
    }


def _digits(inner: list[exp.Expression], text: str, column: str) -> tuple[int, int]:
    parts = [part.name for part in inner]
    if not all(part.isdecimal() and len(part) < 4 for part in parts):
        raise _unknown(text, column)
    precision, scale = [*map(int, parts), 0][:2]
    if not (1 <= precision <= MAX_PRECISION and scale <= precision):
        raise InvalidOperation(
            f"column {column!r} has the type {text!r}, which is out of range: the precision is 1 "
            f"to {MAX_PRECISION}, the scale 0 to the precision"
        )
    return precision, scale


def _field(part: object, text: str, column: str) -> pa.Field:
    if not isinstance(part, exp.ColumnDef) or part.args.get("constraints") or not part.name:
        raise _unknown(text, column)
    return pa.field(part.name, _arrow(part.args.get("kind"), text, column))


def _unknown(text: str, column: str) -> InvalidOperation:
    if (advice := _UNKEPT.get(_word(text))) is not None:
        return InvalidOperation(
            f"column {column!r} has the type {text!r}, which no table can keep: use {advice}"
        )
    near = _nearest(text)
    meant = f'did you mean "{near}"? ' if near else ""
    return InvalidOperation(
        f"column {column!r} has the type {text!r}, which is unknown: {meant}types are "
        f"{', '.join(_NAMES)}, nested as you like, or a pyarrow type"
    )


def _word(text: str) -> str:
    return text.lower().strip().partition("(")[0].partition("[")[0].removeprefix("a ").strip()


def _nearest(text: str) -> str | None:
    word = _word(text)
    if word in _ELSEWHERE:
        return _ELSEWHERE[word]
    close = get_close_matches(text.lower(), _NAMES, 1, 0.5) or get_close_matches(word, _NAMES, 1)
    return close[0] if close else None
