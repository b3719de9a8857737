"""Tests beside tests: where databases read one text in two ways, it needs parentheses.

``a = b is null`` is ``(a = b) is null`` to DuckDB, PostgreSQL and Spark, and
``a = (b is null)`` to SQLite, MySQL and sqlglot; ``a = b in (true)`` is read in two ways
by Spark and DuckDB. Whichever is meant, the other one changes other rows without a word.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from lakevilla.sql.expressions.syntax.late import exp


def written(node: Any) -> Any:
    """Marks parentheses that stand in the text: sqlglot adds others where it has grouped."""
    if isinstance(node, exp.Paren):
        node.meta["written"] = True
    return node


def ambiguous(node: Any) -> bool:
    """Whether a test has a test as its operand that is not in parentheses."""
    if type(node) not in _tests():
        return False
    operands = (node.this, node.args.get("expression"), node.args.get("low"), node.args.get("high"))
    return any(map(_is_test, operands))


def _is_test(operand: Any) -> bool:
    while isinstance(operand, exp.Not) or (
        isinstance(operand, exp.Paren) and "written" not in operand.meta
    ):
        operand = operand.this  # IS NOT NULL is one test
    return type(operand) in _tests() or isinstance(operand, exp.Escape)


@lru_cache(1)
def _tests() -> frozenset[type]:
    return frozenset(
        {
            *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ),
            *(exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike),
        }
    )
