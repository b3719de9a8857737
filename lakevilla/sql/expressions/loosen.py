"""What a predicate asks of columns alone, loosely enough for files that hold them otherwise.

A file may hold a column in an older, narrower type than the table's, and a reader that is
given a filter compares the file's own values, with the constant brought to their type. Let g
bring constants to a file's type. Every g that readers have (rounding to the nearest, cutting
off) never falls, and leaves alone what the type holds. So ``v <= c`` makes ``v = g(v) <= g(c)``
for every v of the file, and ``v >= c`` alike; ``<``, ``<>`` and ``not`` have no such law. A
loosened predicate is made of ``<=`` and ``>=`` alone, and is true wherever the predicate is.

Statistics leave NaN out, which is above every number: ``x >= c`` may pass it over, and is
left out for floating-point columns. Where ``x = c`` is asked for, NaN is not wanted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import cmp_to_key
from math import isfinite

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.evaluate import compare
from lakevilla.sql.expressions.tree import Call, Column, Expr, Literal
from lakevilla.sql.expressions.types import is_fractional
from lakevilla.sql.expressions.values import literal_of, value_of
from lakevilla.sql.expressions.walk import all_of

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<=>": "<=>"}
#: Readers cut nanoseconds to microseconds, so a file's value may be above the one that is shown.
_CUT = timedelta(microseconds=1)


def loosened(where: Expr, columns: Collection[str]) -> Expr | None:
    """A predicate over some columns that holds wherever ``where`` does; None: there is none.

    Parameters
    ----------
    where : Expr
        Bound, so that constants beside a column have its type.
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
    """From the least to the greatest of some constants."""
    if not items or not _is_one_of(column, columns):
        return None
    constants = [item for item in items if isinstance(item, Literal) and item.value is not None]
    if len(constants) < len(items):
        return None
    ordered = sorted(constants, key=cmp_to_key(_compared))
    # NaN is the greatest: no bound is told then.
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
