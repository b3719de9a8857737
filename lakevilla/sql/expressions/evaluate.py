"""The meaning of expressions, one row at a time: the reference that every engine must agree with.

Three-valued logic with None for NULL. Values are those of ``values``; a tree must be bound. ``and``
and ``or`` are evaluated from left to right and stop once decided.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from functools import lru_cache
from itertools import chain
from typing import Any

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.functions.catalogue import MEANINGS, resolve
from lakevilla.sql.expressions.functions.core import lower, upper
from lakevilla.sql.expressions.functions.temporal import months_later, utc
from lakevilla.sql.expressions.render import shown_sql
from lakevilla.sql.expressions.tree import Call, Case, Cast, Column, Expr, Literal
from lakevilla.sql.expressions.types import MAX_PRECISION
from lakevilla.sql.expressions.values import DECIMAL_CONTEXT, cast_value, literal_of, value_of

Value = Any  # None, bool, int, float, Decimal, str, bytes, date, datetime, list, dict
Row = Mapping[str, Any]


def evaluate(expr: Expr, row: Row) -> Value:
    """Return the value of a bound expression over a row.

    Parameters
    ----------
    expr : Expr
        Bound.
    row : Mapping
        Column name to value, structs as mappings; in a merge alias to such a row.

    Raises
    ------
    InvalidOperation
        Overflow, a failing cast, division by zero.
    """
    if isinstance(expr, Column):
        return _column(expr, row)
    if isinstance(expr, Literal):
        return _constant(expr)
    if isinstance(expr, Cast):
        return cast_value(evaluate(expr.arg, row), expr.type)
    if isinstance(expr, Case):
        for when, then in expr.branches:
            if evaluate(when, row) is True:
                return evaluate(then, row)
        return None if expr.otherwise is None else evaluate(expr.otherwise, row)
    if (lazy := _LAZY.get(expr.name)) is not None:
        return lazy(expr, row)
    args = [evaluate(arg, row) for arg in expr.args]
    if expr.name == "/" or expr.name == "%":
        _refuse_zero(expr, args[1])
    if any(arg is None for arg in args):
        return None
    try:
        return _STRICT[expr.name](*args)
    except (OverflowError, ValueError) as error:
        raise InvalidOperation(
            f"{shown_sql(expr)} overflows for {args}: leave such rows out with a case expression"
        ) from error


def is_true(expr: Expr, row: Row) -> bool:
    """Return whether a predicate is true: neither false nor NULL."""
    return evaluate(expr, row) is True


def without_zone(name: str, args: Sequence[Expr], types: Sequence[str]) -> Literal | None:
    """Return the constant result of a call on a timestamp constant without a zone.

    The operand next to it decides whether it is in UTC. None for any other call.
    """
    at = _MOMENT_AT.get(name, len(args))
    arg = args[at] if at < len(args) else None
    if not isinstance(arg, Literal) or arg.type != "timestamp" or arg.value is None:
        return None
    if arg.value.endswith("Z"):
        return None
    resolve(name, args, types)
    plain = Literal("timestamp_ntz", arg.value)
    found = evaluate(Call(name, (*args[:at], plain, *args[at + 1 :])), {})
    return Literal("timestamp", literal_of("timestamp_ntz", found).value)


#: The place of the operand that is a date or timestamp, for calls that return another one.
_MOMENT_AT = {"add_interval": 0, "date_trunc": 1}

_constant = lru_cache(maxsize=4096)(value_of)


def _column(column: Column, row: Row) -> Value:
    value: Value = row if column.table is None else row[column.table]
    for name in column.path:
        if value is None:
            return None
        value = value[name]
    return value


def _and(call: Call, row: Row) -> Value:
    result: bool | None = True
    for arg in call.args:
        value = evaluate(arg, row)
        if value is False:
            return False
        result = None if value is None else result
    return result


def _or(call: Call, row: Row) -> Value:
    result: bool | None = False
    for arg in call.args:
        value = evaluate(arg, row)
        if value is True:
            return True
        result = None if value is None else result
    return result


def _coalesce(call: Call, row: Row) -> Value:
    for arg in call.args:
        value = evaluate(arg, row)
        if value is not None:
            return value
    return None


def _in(call: Call, row: Row) -> Value:
    value, *items = (evaluate(arg, row) for arg in call.args)
    if not items:
        return False
    if value is None:
        return None
    if any(item is not None and equal(value, item) for item in items):
        return True
    return None if None in items else False


def _null_safe(call: Call, row: Row) -> Value:
    a, b = (evaluate(arg, row) for arg in call.args)
    return a is b if a is None or b is None else equal(a, b)


def _extreme(sign: int) -> Callable[[Call, Row], Value]:
    def pick(call: Call, row: Row) -> Value:
        best: Value = None
        for arg in call.args:
            value = evaluate(arg, row)
            if value is not None and (best is None or compare(value, best) * sign > 0):
                best = value
        return best

    return pick


def _nullif(call: Call, row: Row) -> Value:
    a, b = (evaluate(arg, row) for arg in call.args)
    return None if a is not None and b is not None and equal(a, b) else a


def _joined(call: Call, row: Row) -> Value:
    between, *parts = (evaluate(arg, row) for arg in call.args)
    return None if between is None else between.join(part for part in parts if part is not None)


def _structure(call: Call, row: Row) -> Value:
    names = (evaluate(arg, row) for arg in call.args[::2])
    return {name: evaluate(arg, row) for name, arg in zip(names, call.args[1::2], strict=True)}


_LAZY: dict[str, Callable[[Call, Row], Value]] = {
    "and": _and,
    "or": _or,
    "coalesce": _coalesce,
    "in": _in,
    "<=>": _null_safe,
    "is_null": lambda call, row: evaluate(call.args[0], row) is None,
    "greatest": _extreme(1),
    "least": _extreme(-1),
    "nullif": _nullif,
    "concat_ws": _joined,
    "array": lambda call, row: [evaluate(arg, row) for arg in call.args],
    "struct": _structure,
}


def equal(a: Value, b: Value) -> bool:
    """Return whether two values are equal; within arrays, structs and maps, NULLs are equal."""
    if a is None or b is None:
        return a is b
    if isinstance(a, Mapping):
        return len(a) == len(b) and all(map(equal, chain(*a.items()), chain(*b.items())))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return compare(a, b) == 0


def compare(a: Value, b: Value) -> int:
    """Return -1, 0 or 1; NaN equals itself and is above every other number."""
    if isinstance(a, float) or isinstance(b, float):
        nan_a, nan_b = a != a, b != b
        if nan_a or nan_b:
            return int(nan_a) - int(nan_b)
    return int(a > b) - int(a < b)


def _refuse_zero(call: Call, divisor: Value) -> None:
    if divisor is not None and divisor == 0:
        raise InvalidOperation(
            f"division by zero in {shown_sql(call)}: use nullif(divisor, 0), or leave such rows "
            "out with a case expression"
        )


def _checked(value: Value, scale: int = 0) -> Value:
    """Return a long in 64 bits, a decimal in 38 digits of its scale; doubles follow IEEE 754."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise OverflowError
    if isinstance(value, Decimal):
        value = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, DECIMAL_CONTEXT)
        if value.scaleb(scale, DECIMAL_CONTEXT).copy_abs() >= 10**MAX_PRECISION:
            raise OverflowError
        return value if value else value.copy_abs()
    return value


def _scale(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return max(0, -exponent)


def _add(a: Value, b: Value) -> Value:
    if isinstance(a, Decimal):
        scale = max(_scale(a), _scale(b))
        total = DECIMAL_CONTEXT.add(_checked(a, scale), _checked(b, scale))
        return _checked(total, scale)
    return _checked(a + b)


def _negative(a: Value) -> Value:
    if isinstance(a, Decimal):
        return _checked(DECIMAL_CONTEXT.minus(a), _scale(a))
    return _checked(-a)


def _multiply(a: Value, b: Value) -> Value:
    if isinstance(a, Decimal):
        return _checked(DECIMAL_CONTEXT.multiply(a, b), _scale(a) + _scale(b))
    return _checked(a * b)


def _remainder(a: Value, b: Value) -> Value:
    if isinstance(a, float):
        return math.nan if math.isinf(a) or math.isnan(b) or math.isnan(a) else math.fmod(a, b)
    if isinstance(a, Decimal):
        return _checked(DECIMAL_CONTEXT.remainder(a, b), max(_scale(a), _scale(b)))
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _absolute(a: Value) -> Value:
    return _checked(a.copy_abs(), _scale(a)) if isinstance(a, Decimal) else _checked(abs(a))


def _rounding(mode: str, whole: Callable[[float], float]) -> Callable[..., Value]:
    def apply(a: Value, digits: int = 0) -> Value:
        if isinstance(a, float):
            return whole(a) if math.isfinite(a) else a
        if isinstance(a, Decimal):
            scale = min(digits, _scale(a))
            return _checked(a.quantize(Decimal(1).scaleb(-scale), mode, DECIMAL_CONTEXT), scale)
        return a

    return apply


def _half_away(a: float) -> float:
    whole = float(Decimal(abs(a)).quantize(Decimal(1), ROUND_HALF_UP, _WIDE))
    return math.copysign(whole, a)


_WIDE = DECIMAL_CONTEXT.copy()
_WIDE.prec = 2000


def _substring(text: str, start: int, length: int | None = None) -> str:
    end = None if length is None else start - 1 + length
    return text[start - 1 : end]


@lru_cache(maxsize=1024)
def _between_wildcards(pattern: str, escape: str | None) -> tuple[tuple[re.Pattern[str], int], ...]:
    """Return the parts between the ``%`` of a LIKE pattern, each with its fixed length."""
    parts: list[list[str]] = [[]]
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            parts[-1] += map(re.escape, next(chars, ""))
        elif char == "%":
            parts.append([])
        else:
            parts[-1].append("." if char == "_" else re.escape(char))
    return tuple((re.compile("".join(part), re.DOTALL), len(part)) for part in parts)


def _like(text: str, pattern: str, escape: str | None = None) -> bool:
    """Return whether each part occurs after the part before it; the first place of each suffices.

    So nothing is tried twice: the time of a regular expression would grow by a power for each
    ``%``.
    """
    (first, length), *rest = _between_wildcards(pattern, escape)
    if not rest:
        return first.fullmatch(text) is not None
    *middle, (last, last_length) = rest
    start, end = length, len(text) - last_length
    if start > end or first.match(text) is None or last.match(text, end) is None:
        return False
    for part, _ in middle:
        found = part.search(text, start, end)
        if found is None:
            return False
        start = found.end()
    return True


def _ilike(text: str, pattern: str, escape: str | None = None) -> bool:
    return _like(lower(text), lower(pattern), escape)


def _truncate(unit: str, instant: Value) -> Value:
    instant = utc(instant)
    if unit == "week":
        instant -= timedelta(days=instant.weekday())
    changes: dict[str, int] = {}
    if unit in ("year", "quarter", "month"):
        month = {"year": 1, "quarter": (instant.month - 1) // 3 * 3 + 1, "month": instant.month}
        changes = {"month": month[unit], "day": 1}
    if isinstance(instant, datetime):
        changes |= {"microsecond": 0}
        for smaller in ("second", "minute", "hour"):
            if unit == smaller:
                break
            changes |= {smaller: 0}
    return instant.replace(**changes)


def _add_interval(instant: Value, count: int, unit: str) -> Value:
    instant = utc(instant)
    if unit not in ("year", "month"):
        return instant + timedelta(**{f"{unit}s": count})
    return months_later(instant, count * (12 if unit == "year" else 1))


def _part(name: str) -> Callable[[Value], Value]:
    return lambda instant: getattr(utc(instant), name)


_STRICT: dict[str, Callable[..., Value]] = {
    "not": lambda a: not a,
    "=": equal,
    "<>": lambda a, b: not equal(a, b),
    "<": lambda a, b: compare(a, b) < 0,
    "<=": lambda a, b: compare(a, b) <= 0,
    ">": lambda a, b: compare(a, b) > 0,
    ">=": lambda a, b: compare(a, b) >= 0,
    "like": _like,
    "ilike": _ilike,
    "||": lambda a, b: a + b,
    "+": _add,
    "-": lambda a, b: _add(a, DECIMAL_CONTEXT.minus(b) if isinstance(b, Decimal) else -b),
    "*": _multiply,
    "/": lambda a, b: float(a) / float(b),
    "%": _remainder,
    "neg": _negative,
    "add_interval": _add_interval,
    "abs": _absolute,
    "round": _rounding(ROUND_HALF_UP, _half_away),
    "floor": _rounding(ROUND_FLOOR, lambda a: math.copysign(float(math.floor(a)), a)),
    "ceil": _rounding(ROUND_CEILING, lambda a: math.copysign(float(math.ceil(a)), a)),
    "lower": lower,
    "upper": upper,
    "trim": lambda a: a.strip(" "),
    "ltrim": lambda a: a.lstrip(" "),
    "rtrim": lambda a: a.rstrip(" "),
    "length": len,
    "substring": _substring,
    "replace": lambda a, old, new: a.replace(old, new) if old else a,
    "starts_with": lambda a, b: a.startswith(b),
    "ends_with": lambda a, b: a.endswith(b),
    "contains": lambda a, b: b in a,
    "year": _part("year"),
    "month": _part("month"),
    "day": _part("day"),
    "hour": _part("hour"),
    "minute": _part("minute"),
    "second": _part("second"),
    "date_trunc": _truncate,
    "date_add": lambda a, days: a + timedelta(days=days),
    "map": lambda keys, items: list(zip(keys, items, strict=True)),
    **MEANINGS,
}
