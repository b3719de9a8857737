"""Casts of Spark that the language has, with the same outcome for every value that both take."""

from __future__ import annotations

import re

from lakevilla.engines.spark.columns.coercion import Typed
from lakevilla.engines.spark.columns.nodes import AS_TEXT, refused
from lakevilla.engines.spark.columns.session_terms import SessionTerms
from lakevilla.sql.expressions.tree import Cast
from lakevilla.sql.expressions.types import (
    decimal_type,
    is_decimal,
    is_fractional,
    is_integer,
    is_numeric,
)

_SPELLINGS = {
    "boolean": "boolean",
    "byte": "byte",
    "tinyint": "byte",
    "short": "short",
    "smallint": "short",
    "int": "integer",
    "integer": "integer",
    "long": "long",
    "bigint": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "decimal": "decimal(10,0)",
    "dec": "decimal(10,0)",
    "numeric": "decimal(10,0)",
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\((\d+)(?:,(\d+))?\)")
_TIMES = ("timestamp", "timestamp_ntz")


def type_spelled(text: str, terms: SessionTerms) -> str:
    """The library's name of a type as Spark spells it."""
    name = re.sub(r"\s", "", text.lower())
    if name == "timestamp" and not terms.zoned:
        return "timestamp_ntz"
    if (found := _SPELLINGS.get(name)) is not None:
        return found
    if (match := _DECIMAL.fullmatch(name)) is not None:
        return decimal_type(int(match[1]), int(match[2] or 0))
    raise refused(f"a cast to {text}", AS_TEXT)


def cast(operand: Typed, to: str, terms: SessionTerms) -> Typed:
    """The operand cast; refused where Spark's outcome may be another one."""
    of = operand.type
    what = f"a cast of {of} to {to}"
    if of == to:
        return operand
    if of == "void":
        return Typed(Cast(operand.expr, to), to)
    if is_decimal(of) and to == "float":
        raise refused(what, "engines round there in different ways: cast to double, then to float")
    if not _is_alike(of, to):
        raise refused(what, "engines differ there: compute it in a DataFrame, and merge that")
    if "timestamp" in (of, to) and of != to:
        _check_zone(of, to, what, terms)
    return Typed(Cast(operand.expr, to), to)


def _is_alike(of: str, to: str) -> bool:
    if is_numeric(of):
        if to == "string":
            return not is_fractional(of)
        return is_numeric(to)
    if of == "boolean":
        return is_integer(to) or to == "string"
    if of == "date":
        return to in (*_TIMES, "string")
    if of in _TIMES:
        return to in ("date", *_TIMES)
    if of == "string":
        return is_numeric(to) or to in ("boolean", "date", *_TIMES)
    return False


def _check_zone(of: str, to: str, what: str, terms: SessionTerms) -> None:
    if not terms.is_utc:
        raise refused(
            what,
            f"in Spark it is of the session's time zone {terms.zone}, and of UTC here: set "
            "spark.sql.session.timeZone to UTC, or compute it in a DataFrame, and merge that",
        )
