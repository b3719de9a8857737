"""Types that a table can't keep, and would store as their parts: refused by name.

Storing them would lose no byte, but their meaning: a BIT is a number of unused bits and some bytes,
a time with a zone the time alone, a period of pandas a number of months or of days.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import time
from typing import Any

import pyarrow as pa

from lakevilla.arrow.nesting import document
from lakevilla.errors import InvalidOperation

#: The key of a field's metadata with the type that its values had, where Arrow's does not show it.
_ORIGIN = b"lakevilla:type"
#: The keys by which Arrow records a type that the reader does not know.
_EXTENSION, _OF_EXTENSION = b"ARROW:extension:name", b"ARROW:extension:metadata"
#: Types whose values are the same as those stored.
_KEPT = frozenset({"arrow.json", "arrow.uuid"})
#: Types of DuckDB that Arrow has other values for, by their names in DuckDB's Python.
_OF_DUCKDB = frozenset({"bit", "time with time zone", "uhugeint", "bignum", "geometry"})
#: Types of polars that Arrow has other values for, or none.
_OF_POLARS = frozenset({"Object", "Int128", "UInt128"})
_AS_TEXT = "cast it to text"
_ADVICE = {
    "bit": _AS_TEXT,
    "time with time zone": "cast it to text, or to a time in one zone",
    "uhugeint": "cast it to DECIMAL(38, 0), or to text",
    "bignum": _AS_TEXT,
    "geometry": "store its WKB, ST_AsWKB(v), or text",
    "Object": "make text or numbers of it",
    "Int128": "cast it to Int64 or Decimal",
    "UInt128": "cast it to Int64 or Decimal",
    "pandas.period": "make timestamps of it, .dt.to_timestamp(), or text",
    "pandas.interval": "store its left and its right end",
    "arrow.bool8": "cast it to bool",
}


def refuse_unkept(schema: pa.Schema, table: str | None) -> None:
    """Refuse columns of a type that a table can't keep, at any depth; None: columns of a query.

    Raises
    ------
    InvalidOperation
    """
    for column in schema:
        name = _unkept(column)
        if name is not None:
            whose = "the query" if table is None else f"table {table!r}"
            raise _refusal(f"column {column.name!r} of {whose}", name, table)


def refuse_zoned_times(values: Iterable[object], kind: pa.DataType, column: str) -> None:
    """Refuse times of day with a zone among Python values that Arrow has converted to ``kind``.

    Arrow has dropped the zone.

    Raises
    ------
    InvalidOperation
    """
    # https://github.com/apache/arrow/issues/33842
    if _has_times(kind) and any(map(_is_zoned, values)):
        raise InvalidOperation(
            f"column {column!r} of the data has times of day with a zone, which no table can "
            "keep: take the zone off, or store timestamps or text"
        )


def as_in_duckdb(schema: pa.Schema, types: Iterable[Any]) -> pa.Schema:
    """Return DuckDB's columns, marked where DuckDB's own types say more than Arrow's.

    Return ``schema`` itself where none does, so that no caller need cast its rows.
    """
    names = list(map(_of_duckdb, types))
    return pa.schema(map(_marked, schema, names), schema.metadata) if any(names) else schema


def _marked(column: pa.Field, name: str | None) -> pa.Field:
    if name is None:
        return column
    return column.with_metadata({**(column.metadata or {}), _ORIGIN: name.encode()})


def refuse_unkept_of_polars(types: Mapping[str, Any]) -> None:
    """Refuse columns of a polars frame whose types Arrow lacks.

    Raises
    ------
    InvalidOperation
    """
    for column, kind in types.items():
        name = _of_polars(kind)
        if name is not None:
            raise _refusal(f"column {column!r} of the data", name, None)


def _refusal(place: str, name: str, table: str | None) -> InvalidOperation:
    advice = _ADVICE.get(name, "cast it to a type that tables have, or store what it is made of")
    shown = name.upper() if name in _OF_DUCKDB else name
    return InvalidOperation(
        f"{place} has type {shown}, which no table can keep: {advice}", reason="value", table=table
    )


def _unkept(field: pa.Field) -> str | None:
    noted = field.metadata or {}
    if _ORIGIN in noted:
        return bytes(noted[_ORIGIN]).decode()
    name = bytes(noted.get(_EXTENSION, b"")).decode()
    if name == "arrow.opaque":
        return _type_within(noted.get(_OF_EXTENSION, b""))
    if name and name not in _KEPT:
        return name
    return _unkept_type(field.type)


def _unkept_type(kind: pa.DataType) -> str | None:
    if isinstance(kind, pa.OpaqueType):
        return _plain(str(kind.type_name))
    if isinstance(kind, pa.BaseExtensionType):
        name = str(kind.extension_name)
        return None if name in _KEPT else name
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _unkept_type(kind.value_type)
    if pa.types.is_nested(kind):
        within = (_unkept(kind.field(index)) for index in range(kind.num_fields))
        return _first(within)
    return None


def _type_within(metadata: bytes) -> str:
    try:
        return _plain(str(document(metadata)["type_name"]))
    except (ValueError, KeyError, TypeError):
        return "arrow.opaque"


def _plain(name: str) -> str:
    return "time with time zone" if name == "time_tz" else name


def _of_duckdb(kind: Any) -> str | None:
    if kind.id in _OF_DUCKDB:
        return str(kind.id)
    if kind.id in ("list", "array", "struct", "map", "union"):
        inner = (part for _, part in kind.children if hasattr(part, "id"))
        return _first(map(_of_duckdb, inner))
    return None


def _of_polars(kind: Any) -> str | None:
    name = str(kind)
    if name in _OF_POLARS:
        return name
    inner = [getattr(kind, "inner", None), *(f.dtype for f in getattr(kind, "fields", ()) or ())]
    return _first(_of_polars(part) for part in inner if part is not None)


def _first(names: Iterable[str | None]) -> str | None:
    return next((name for name in names if name is not None), None)


def _has_times(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_times(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_time(kind))


def _is_zoned(value: object) -> bool:
    if isinstance(value, time):
        return value.tzinfo is not None
    if isinstance(value, Mapping):
        return any(map(_is_zoned, (*value.keys(), *value.values())))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_is_zoned, value))
    return False
