"""Values of a type in DuckDB SQL: casts, moments in UTC, years that the language has."""

from __future__ import annotations

from lakevilla.engines.duckdb.sqltext import quote_name, quote_text
from lakevilla.sql.expressions.types import arrow_type, element_type, is_decimal, type_name

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
    """The DuckDB type of a Delta type name."""
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
    """A zoned timestamp as UTC's wall clock; others as they are."""
    return f"({sql} AT TIME ZONE 'UTC')" if type_ == "timestamp" else sql


def moment_of(sql: str, type_: str) -> str:
    """The wall clock in UTC as a value of the type."""
    return f"({sql}) AT TIME ZONE 'UTC'" if type_ == "timestamp" else to_type(sql, type_)


def within_years(sql: str, shown: str) -> str:
    """A date or wall clock that raises beyond the years that the language has; DuckDB has more."""
    message = f"{shown} leaves the years 1 to 9999: leave such rows out with a case"
    return (
        f"list_extract(list_transform([{sql}], lambda __moment: "
        "CASE WHEN __moment < DATE '0001-01-01' OR __moment >= DATE '10000-01-01' "
        f"THEN error({quote_text(message)}) ELSE __moment END), 1)"
    )
