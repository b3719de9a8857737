"""DuckDB's functions with another meaning in the language, as expressions that mean the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from lakevilla.sql.expressions.syntax.sql_nodes import NotInLanguage
from lakevilla.sql.expressions.tree import Call, Case, Expr, Literal
from lakevilla.sql.expressions.values import literal

_EMPTY, _FALSE = Literal("string", ""), Literal("boolean", "false")


def _concat(args: Sequence[Expr]) -> Expr:
    """Concatenate texts; NULLs are left out."""
    texts = [Call("coalesce", (arg, _EMPTY)) for arg in args]
    return reduce(lambda left, right: Call("||", (left, right)), texts)


def _dayofweek(args: Sequence[Expr]) -> Expr:
    """Return the day of the week: 0 is Sunday, 6 Saturday."""
    return Call("-", (Call("dayofweek", tuple(args)), literal(1)))


def _array_contains(args: Sequence[Expr]) -> Expr:
    """Return whether the value is among the elements that are not NULL."""
    unknown = Call("or", tuple(Call("is_null", (arg,)) for arg in args))
    found = Call("coalesce", (Call("array_contains", tuple(args)), _FALSE))
    return Case(((unknown, Literal("boolean")),), found)


_WRITTEN_OUT: Mapping[str, tuple[int | None, Callable[[Sequence[Expr]], Expr]]] = {
    "concat": (None, _concat),
    "dayofweek": (1, _dayofweek),
    "weekday": (1, _dayofweek),
    "isnan": (1, lambda args: Call("=", (args[0], literal(math.nan)))),
    "array_contains": (2, _array_contains),
    "list_contains": (2, _array_contains),
    "[]": (2, lambda args: Call("element_at", tuple(args))),
}


def _spelling(name: str) -> Callable[[Sequence[Expr]], Expr]:
    count, written_out = _WRITTEN_OUT[name]

    def read(args: Sequence[Expr]) -> Expr:
        if not args or count not in (None, len(args)):
            operands = "operands" if count is None else f"{count} operand{'s' * (count > 1)}"
            raise NotInLanguage(f"{name}() takes {operands}")
        return written_out(args)

    return read


#: The spellings by a call's name in the text; ``[]`` is ``a[i]``, which counts from 1 in DuckDB.
SPELLINGS: Mapping[str, Callable[[Sequence[Expr]], Expr]] = {
    name: _spelling(name) for name in _WRITTEN_OUT
}
