"""Loosen a predicate to one that statistics can decide."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import cmp_to_key
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import type_of
from lakevilla.sql.expressions.evaluate import compare, evaluate
from lakevilla.sql.expressions.tree import Call, Cast, Column, Expr, Literal, all_of
from lakevilla.sql.expressions.types import (
    INTEGERS,
    arrow_type,
    is_decimal,
    is_fractional,
    is_integer,
    is_numeric,
)
from lakevilla.sql.expressions.values import literal_of, value_of

# -------------------- loosen
#
# The conditions of a predicate on columns alone, loose enough for files with other types.
#
# A file may hold a column in an older, narrower type than the table's, and a reader that is given a
# filter compares the file's own values, with the constant converted to their type. Let g convert
# constants to a file's type. Every g that readers have (rounding to the nearest, cutting off) never
# falls, and leaves unchanged what the type holds. So ``v <= c`` implies ``v = g(v) <= g(c)`` for
# every v of the file, and ``v >= c`` alike; for ``<``, ``<>`` and ``not`` there is no such law. A
# loosened predicate consists of ``<=`` and ``>=`` alone, and is true wherever the predicate is.
#
# Statistics leave NaN out, which is above every number: ``x >= c`` may skip it, and is left out for
# floating-point columns. Where the predicate has ``x = c``, NaN is not wanted.


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<=>": "<=>"}
#: Readers cut nanoseconds to microseconds, so a value in a file may be above the value as shown.
_CUT = timedelta(microseconds=1)


def loosened(where: Expr, columns: Collection[str]) -> Expr | None:
    """Return a predicate over some columns that is true wherever ``where`` is, or None.

    Parameters
    ----------
    where : Expr
        Bound, so that constants next to a column have its type.
    columns : collection of str
        Names of top-level columns that the result may name.
    """
    if not isinstance(where, Call):
        return None
    if where.name == "and":
        parts = [loose for arg in where.args if (loose := loosened(arg, columns)) is not None]
        return all_of(parts)
    if where.name == "or":
        terms = [loosened(arg, columns) for arg in where.args]
        known = [term for term in terms if term is not None]
        return Call("or", tuple(known)) if len(known) == len(terms) else None
    if where.name == "in":
        return _between(where.args[0], where.args[1:], columns)
    if where.name in _TURNED:
        left, right = where.args
        if isinstance(left, Literal):
            return _bounded(_TURNED[where.name], right, left, columns)
        return _bounded(where.name, left, right, columns)
    return None


def _bounded(name: str, column: Expr, constant: Expr, columns: Collection[str]) -> Expr | None:
    if name in ("=", "<=>"):
        return _between(column, [constant], columns)
    if not _is_one_of(column, columns) or not isinstance(constant, Literal):
        return None
    if name in ("<", "<="):
        return _bound("<=", column, constant)
    return None if is_fractional(constant.type) else _bound(">=", column, constant)


def _between(column: Expr, items: Sequence[Expr], columns: Collection[str]) -> Expr | None:
    """Return bounds from the least to the greatest of some constants."""
    if not items or not _is_one_of(column, columns):
        return None
    constants = [item for item in items if isinstance(item, Literal) and item.value is not None]
    if len(constants) < len(items):
        return None
    ordered = sorted(constants, key=cmp_to_key(_compared))
    # NaN is the greatest value: then no bound is returned.
    least, greatest = _bound(">=", column, ordered[0]), _bound("<=", column, ordered[-1])
    return None if least is None or greatest is None else Call("and", (least, greatest))


def _compared(a: Literal, b: Literal) -> int:
    return compare(value_of(a), value_of(b))


def _bound(name: str, column: Expr, constant: Literal) -> Expr | None:
    value = value_of(constant)
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return None
    if isinstance(value, datetime):
        try:
            value = value + _CUT if name == "<=" else value - _CUT
            constant = literal_of(constant.type, value)
        except (OverflowError, InvalidOperation):
            return None
    return Call(name, (column, constant))


def _is_one_of(expr: Expr, columns: Collection[str]) -> bool:
    return isinstance(expr, Column) and len(expr.path) == 1 and expr.path[0] in columns


# -------------------- rising
#
# Functions that never fall, with the argument for each: they map bounds to bounds.
#
# If f never falls and every value of a file is between ``low`` and ``high``, then f of every value
# is between ``f(low)`` and ``f(high)``. That is a statement about f as it is computed, rounding
# included. So a function is in the list below only if that is proved, and bounds are mapped by
# ``evaluate`` alone, which the engine's values equal bit for bit
# (tests/unit/engines/duckdb/test_expressions.py). Where f of a bound raises, no bound is known.


_MOMENTS = ("date", "timestamp", "timestamp_ntz")


def rising_operand(expr: Expr, schema: pa.Schema) -> int | None:
    """Return the operand in which an expression never falls; the other operands are constants.

    None if no such operand is known, or if a constant is NULL: all its values are NULL then.
    """
    if isinstance(expr, Cast):
        return 0 if _cast_rises(type_of(expr.arg, schema), expr.type) else None
    if not isinstance(expr, Call):
        return None
    at = _CALLS.get(expr.name)
    if expr.name == "+" and isinstance(expr.args[0], Literal):
        at = 1
    if at is None or any(not _is_known(arg) for n, arg in enumerate(expr.args) if n != at):
        return None
    if expr.name == "add_interval":
        return at if _interval_rises(expr, type_of(expr.args[0], schema)) else None
    return at


#: The operand, by the function's name. All of them compute in UTC, where a day has 24 hours and
#: clocks are never set back.
_CALLS = {
    # x + c and x - c are exact for long and decimal, or raise. For double they are the exact
    # sum rounded to the nearest, and rounding to the nearest never falls. (c - x falls.)
    "+": 0,
    "-": 0,
    # Exact, and never fall over the real numbers. round() goes half away from zero: it is
    # sign(x) * floor(|x| + 1/2), odd, and never falls for x >= 0. With digits the same at another
    # scale, exact in decimals; digits are never negative.
    "floor": 0,
    "ceil": 0,
    "round": 0,
    # The first field of the calendar orders dates and timestamps before all other fields.
    "year": 0,
    # The start of the unit that contains the timestamp: units are intervals that follow each other.
    "date_trunc": 1,
    # Moves a timestamp by whole days.
    "date_add": 0,
    # See _interval_rises.
    "add_interval": 0,
}


def _interval_rises(call: Call, type_: str) -> bool:
    """Return whether adding the interval never falls.

    Weeks and all shorter units are shifts of the one time line.

    Months move the day to the new month's last where it lacks that day. For dates this never falls:
    later months stay later, and within one month the day becomes min(day, last). For timestamps it
    does: January 30 at 23:00 and January 31 at 01:00 change places.
    """
    assert isinstance(call.args[2], Literal)
    return type_ == "date" or call.args[2].value not in ("year", "month")


def _cast_rises(source: str, to: str) -> bool:
    """Return whether a cast never falls.

    Between dates and timestamps: a date is its midnight in UTC, a timestamp's date the start of its
    day, and with or without a zone the wall clock is the same, in UTC. To an integer: numbers are
    cut towards zero. To double and float: the exact value rounded to the nearest, at most twice (a
    decimal becomes a float by way of double). Decimal to decimal: rounded half away from zero,
    exactly. All of these never fall.

    A double becomes a decimal by way of its shortest text, which two engines need not round alike
    at the ends: not in the list.
    """
    if source in _MOMENTS and to in _MOMENTS:
        return True
    if not is_numeric(source) or not is_numeric(to):
        return False
    return not (is_fractional(source) and is_decimal(to))


def _is_known(arg: Expr) -> bool:
    return isinstance(arg, Literal) and value_of(arg) is not None


def mapped_bounds(expr: Expr, at: int, bounds: Any, source: str, type_: str) -> Any:
    """Return an expression of ``type_`` over bounds of ``source``; null where it is not known."""
    to = arrow_type(type_)
    if isinstance(expr, Cast) and _is_the_same_in_arrow(source, type_):
        return pc.cast(bounds, to, safe=False)
    column = Column(("bound",))
    if isinstance(expr, Cast):
        call: Expr = Cast(column, expr.type)
    else:
        assert isinstance(expr, Call)
        call = Call(expr.name, (*expr.args[:at], column, *expr.args[at + 1 :]))
    if isinstance(bounds, pa.Scalar):
        return pa.scalar(_value(call, bounds.as_py()), to)
    encoded = bounds.dictionary_encode()
    values = [_value(call, value) for value in encoded.dictionary.to_pylist()]
    return pa.array(values, to).take(encoded.indices)


def _is_the_same_in_arrow(source: str, to: str) -> bool:
    """Return whether a cast never raises, and is exact or, from long, one IEEE 754 conversion."""
    if is_integer(source) and is_integer(to):
        return INTEGERS[source] <= INTEGERS[to]
    return to == "double" and (is_integer(source) or source == "float")


def _value(call: Expr, bound: Any) -> Any:
    try:
        value = evaluate(call, {"bound": bound})
    except InvalidOperation:
        return None
    return None if value != value else value  # NaN is no bound
