"""Types as SQL spells them: the library's own names, which are Spark's, and DuckDB's."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.syntax.late import errors, exp, sqlglot
from lakevilla.sql.expressions.typenames import type_named
from lakevilla.sql.statements.select import Dialect


def column_type(text: str, column: str, dialect: Dialect) -> pa.DataType:
    """The Arrow type of a column. ``TIMESTAMP`` is a moment, as everywhere in the library.

    Text has any length, as in DuckDB: ``VARCHAR(20)`` is ``STRING``.

    Raises
    ------
    InvalidOperation
        Neither Spark nor DuckDB calls a type so that a table can have.
    """
    text = _LENGTHS.sub("STRING", text)
    plain = " ".join(text.upper().split())
    if plain in _ZONES:
        text = _ZONES[plain]
    elif dialect == "duckdb":
        text = _BY_BYTES.get(plain, text)
    try:
        return type_named(text, column)
    except InvalidOperation:
        translated = None if dialect == "spark" else _of_duckdb(text)
        if translated is None:
            raise
        try:
            return type_named(translated, column)
        except InvalidOperation:
            pass
        raise


#: Text of a length, which other systems cut or fill it to.
_LENGTHS = re.compile(
    r"\b(?:(?:N?VAR|BP|N)?CHAR|CHARACTER(?:\s+VARYING)?|STRING|TEXT)\s*\(\s*\d+\s*\)",
    re.IGNORECASE,
)
#: Spelt in several words, or one that says the opposite elsewhere.
_ZONES = {
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "TIMESTAMP WITHOUT TIME ZONE": "timestamp_ntz",
    "DATETIME": "timestamp_ntz",
}
#: Numbers that count bytes for DuckDB, and bits for others.
_BY_BYTES = {
    "INT1": "tinyint",
    "INT2": "smallint",
    "INT4": "int",
    "INT8": "bigint",
    "FLOAT4": "float",
    "FLOAT8": "double",
}


def _of_duckdb(text: str) -> str | None:
    """A type of DuckDB in Spark's words: INTEGER[], STRUCT(a INTEGER), INT8."""
    try:
        root = sqlglot.parse_one(f"CAST(NULL AS {text})", dialect="duckdb")
        if not isinstance(root, exp.Cast) or any(map(_has_no_word, root.to.find_all(exp.DataType))):
            return None
        return root.to.sql("spark")
    except (errors.SqlglotError, ValueError, RecursionError, AttributeError, TypeError):
        return None


def _has_no_word(kind: Any) -> bool:
    """Whether Spark lacks the type, for which sqlglot would write another."""
    types, sizes = exp.DataType.Type, [int(part.name) for part in kind.find_all(exp.DataTypeParam)]
    if kind.this is types.TIMESTAMPNTZ:
        return any(size > _MICROSECONDS for size in sizes)
    if kind.this is types.TIME:
        return bool(sizes)
    return kind.this is types.BIT or bool(kind.args.get("collate"))


#: How many digits of a second a table has.
_MICROSECONDS = 6
