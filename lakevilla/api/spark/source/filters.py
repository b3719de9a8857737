"""Spark's filters as predicates of LakeVilla, where both mean the same for every value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Call, Column, Expr
from lakevilla.sql.expressions.values import literal

__all__ = ["pushed", "together"]

_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "StringStartsWith": "starts_with",
    "StringEndsWith": "ends_with",
    "StringContains": "contains",
}


def pushed(filters: Iterable[Any], schema: pa.Schema) -> tuple[Expr | None, list[Any]]:
    """All filters that can be pushed as one bound predicate, and those that are left to Spark."""
    taken = []
    left = []
    for one in filters:
        expr = _predicate(one, schema)
        if expr is None:
            left.append(one)
        else:
            taken.append(expr)
    return together(taken), left


def together(predicates: Iterable[Expr | None]) -> Expr | None:
    """Bound predicates as one; None if there are none."""
    whole: Expr | None = None
    for one in predicates:
        if one is not None:
            whole = one if whole is None else Call("and", (whole, one))
    return whole


def _predicate(one: Any, schema: pa.Schema) -> Expr | None:
    expr = _translated(one, schema)
    if expr is None:
        return None
    try:
        return bind(expr, schema)
    except InvalidOperation:
        return None  # types that don't go together here: Spark has its own rules


def _translated(one: Any, schema: pa.Schema) -> Expr | None:
    name = type(one).__name__
    if name == "Not":
        inner = _translated(one.child, schema)
        return None if inner is None else Call("not", (inner,))
    if len(one.attribute) != 1 or one.attribute[0] not in schema.names:
        return None
    column = Column((one.attribute[0],))
    if name == "IsNull":
        return Call("is_null", (column,))
    if name == "IsNotNull":
        return Call("not", (Call("is_null", (column,)),))
    type_ = schema.field(one.attribute[0]).type
    values: Sequence[Any] = one.value if name == "In" else [one.value]
    if not all(_fits(value, type_) for value in values):
        return None
    if name == "In":
        return Call("in", (column, *(literal(value) for value in values)))
    if name not in _COMPARISONS:
        return None
    return Call(_COMPARISONS[name], (column, literal(one.value)))


def _fits(value: Any, type_: pa.DataType) -> bool:
    """Whether a value is compared with a column of that type alike by both engines."""
    kinds = pa.types
    if isinstance(value, bool):
        return bool(kinds.is_boolean(type_))
    if isinstance(value, int):
        return bool(kinds.is_integer(type_) or kinds.is_decimal(type_))
    if isinstance(value, Decimal):
        return bool(kinds.is_decimal(type_)) and value.is_finite()
    if isinstance(value, float):
        return bool(kinds.is_floating(type_)) and math.isfinite(value)
    if isinstance(value, str):
        return bool(kinds.is_string(type_) or kinds.is_large_string(type_))
    if isinstance(value, datetime):
        # A time without a zone is one thing beside a zone and another beside none.
        return bool(kinds.is_timestamp(type_)) and (value.tzinfo is None) == (type_.tz is None)
    return isinstance(value, date) and bool(kinds.is_date(type_))
