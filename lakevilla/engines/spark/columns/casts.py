"""Casts of Spark, and the coercion of types before comparisons."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from lakevilla.engines.spark.columns.nodes import AS_TEXT, SessionTerms, refused
from lakevilla.sql.expressions.tree import Cast, Expr, Literal
from lakevilla.sql.expressions.types import (
    INTEGERS,
    MAX_PRECISION,
    decimal_parts,
    decimal_type,
    is_decimal,
    is_fractional,
    is_integer,
    is_numeric,
)
from lakevilla.sql.expressions.values import adapt, literal, value_of

# -------------------- casts
#
# Casts of Spark that the language has, with the same result for every value that both accept.


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
    """Return the library's name for a type that is given in Spark's spelling."""
    name = re.sub(r"\s", "", text.lower())
    if name == "timestamp" and not terms.zoned:
        return "timestamp_ntz"
    if (found := _SPELLINGS.get(name)) is not None:
        return found
    if (match := _DECIMAL.fullmatch(name)) is not None:
        return decimal_type(int(match[1]), int(match[2] or 0))
    raise refused(f"a cast to {text}", AS_TEXT)


def cast(operand: Typed, to: str, terms: SessionTerms) -> Typed:
    """Return the operand cast; refuse the cast where Spark's result may differ."""
    from_ = operand.type
    what = f"a cast of {from_} to {to}"
    if from_ == to:
        return operand
    if from_ == "void":
        return Typed(Cast(operand.expr, to), to)
    if is_decimal(from_) and to == "float":
        raise refused(what, "engines round there in different ways: cast to double, then to float")
    if not _is_alike(from_, to):
        raise refused(what, "engines differ there: compute it in a DataFrame, and merge that")
    if "timestamp" in (from_, to) and from_ != to:
        _check_zone(from_, to, what, terms)
    return Typed(Cast(operand.expr, to), to)


def _is_alike(from_: str, to: str) -> bool:
    if is_numeric(from_):
        if to == "string":
            return not is_fractional(from_)
        return is_numeric(to)
    if from_ == "boolean":
        return is_integer(to) or to == "string"
    if from_ == "date":
        return to in (*_TIMES, "string")
    if from_ in _TIMES:
        return to in ("date", *_TIMES)
    if from_ == "string":
        return is_numeric(to) or to in ("boolean", "date", *_TIMES)
    return False


def _check_zone(from_: str, to: str, what: str, terms: SessionTerms) -> None:
    if not terms.is_utc:
        raise refused(
            what,
            f"in Spark it is of the session's time zone {terms.zone}, and of UTC here: set "
            "spark.sql.session.timeZone to UTC, or compute it in a DataFrame, and merge that",
        )


# -------------------- coercion
#
# The common types to which Spark converts operands of different types, if no value changes.
#
# Types have the library's names. Spark casts operands to a common type before it compares or
# computes; where that may change a value, the cast is written into the tree. Where Spark would
# round, guess, or use the session's time zone, the operands are refused.


#: The digits that Spark gives to an integer next to a decimal.
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_ZONE = re.compile(r"(Z|[+-]\d\d:\d\d)$")


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression, and the type that its value has in Spark."""

    expr: Expr
    type: str

    @property
    def constant(self) -> Literal | None:
        return self.expr if isinstance(self.expr, Literal) else None


def parts(operand: Typed) -> tuple[int, int]:
    """Return precision and scale of a decimal, or of the decimal that Spark makes of an integer."""
    if is_decimal(operand.type):
        return decimal_parts(operand.type)
    constant = operand.constant
    if constant is not None and constant.value is not None:
        return len(constant.value.lstrip("-")), 0
    return _DIGITS[operand.type], 0


def decimal(precision: int, scale: int, what: str) -> str:
    """Return a decimal type; refuse it where Spark would keep fewer digits than the result has."""
    if precision > MAX_PRECISION:
        raise refused(
            f"{what}, whose result has up to {precision} digits",
            f"Spark keeps {MAX_PRECISION} and rounds: cast the operands to smaller decimals, or "
            "to double",
        )
    return f"decimal({precision},{scale})"


def common(operands: list[Typed], what: str, terms: SessionTerms) -> str:
    """Return the type to which Spark converts all operands."""
    met = "void"
    for operand in operands:
        met = _common(Typed(Literal("void"), met), operand, what, terms)
    return met


def _common(left: Typed, right: Typed, what: str, terms: SessionTerms) -> str:
    a, b = left.type, right.type
    if a == b or b == "void":
        return a
    if a == "void":
        return b
    if is_numeric(a) and is_numeric(b):
        return _common_number(left, right, what, terms)
    both = {a, b}
    if both == {"date", "timestamp_ntz"}:
        return "timestamp_ntz"
    if both == {"date", "timestamp"}:
        need_utc("timestamp", what, terms)
        return "timestamp"
    for instant in ("date", "timestamp", "timestamp_ntz"):
        if both == {instant, "string"}:
            return instant
    raise refused(
        f"{what} of {a} and {b}", "Spark converts one of them by rules of its own: cast one side"
    )


def _common_number(left: Typed, right: Typed, what: str, terms: SessionTerms) -> str:
    a, b = left.type, right.type
    if is_integer(a) and is_integer(b):
        return max(a, b, key=lambda name: INTEGERS[name])
    if is_fractional(a) or is_fractional(b):
        if not terms.ansi and "float" in (a, b) and (is_integer(a) or is_integer(b)):
            raise refused(
                f"{what} of {a} and {b}", "without ANSI mode Spark rounds there: cast to double"
            )
        return "double"
    (p1, s1), (p2, s2) = parts(left), parts(right)
    scale = max(s1, s2)
    return decimal(max(p1 - s1, p2 - s2) + scale, scale, what)


def converted(operand: Typed, to: str, what: str, terms: SessionTerms) -> Expr:
    """Return an operand as one of the common type, with the value that Spark's has."""
    expr, constant = operand.expr, operand.constant
    if operand.type in (to, "void"):
        return expr
    if to == "double" and operand.type != "float":
        if constant is not None:
            number = value_of(constant)
            assert isinstance(number, int | float | Decimal)
            return literal(float(number))
        return Cast(expr, "double", implied=True)
    if operand.type == "string":
        return _temporal_constant(operand, to, what, terms)
    # The remaining casts lose nothing: the language itself widens integers and decimals in this
    # way.
    return expr


def _temporal_constant(operand: Typed, to: str, what: str, terms: SessionTerms) -> Expr:
    """Return text next to a date or timestamp, as a constant of that type."""
    constant = operand.constant
    if constant is None:
        raise refused(f"{what} of text and {to}", f"cast the text to {to}")
    if to == "timestamp" and not (terms.is_utc or _ZONE.search(constant.value or "")):
        raise refused(
            f"the text {constant.value!r} with a timestamp",
            f"in Spark it is of the session's time zone {terms.zone}, and of UTC here: write its "
            "zone into it, or pass a datetime",
        )
    found = adapt(constant, to)
    return constant if found is None else found


def need_utc(type_: str, what: str, terms: SessionTerms) -> None:
    """Refuse values that Spark reads in the session's time zone, unless that is UTC."""
    if type_ == "timestamp" and not terms.is_utc:
        raise refused(
            f"{what} of a timestamp",
            f"Spark takes its date and hour in the session's time zone {terms.zone}, and the lake "
            "in UTC: write it as SQL text, or set spark.sql.session.timeZone to UTC",
        )
