"""The condition of a query over one table, as far as files can be left out by it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from lakevilla.engines.sql.select import Dialect, named_parameters, query_of, tokens_of
from lakevilla.engines.sql.words import opens, slice_of, word_of
from lakevilla.expressions.syntax.late import Token, exp

#: What ends a WHERE.
_ENDS = frozenset(
    {
        "GROUP BY",
        "HAVING",
        "QUALIFY",
        "WINDOW",
        "ORDER BY",
        "SORT BY",
        "CLUSTER BY",
        "DISTRIBUTE BY",
        "LIMIT",
        "OFFSET",
        "FETCH",
        "USING",
    }
)


def conditions_of(text: str, dialect: Dialect) -> tuple[str, list[str]] | None:
    """What a query calls its only table, and the terms of AND of its WHERE.

    None where it reads several, or what it leaves out is not said by a WHERE of its own.
    """
    parsed = named_parameters(text, None) if dialect == "duckdb" else text
    root = query_of(parsed, dialect)
    if not isinstance(root, exp.Select) or root.args.get("joins") or root.args.get("with_"):
        return None
    start = root.args.get("from_") or root.args.get("from")
    table = None if start is None else start.this
    if not isinstance(table, exp.Table) or root.args.get("where") is None:
        return None
    condition = _where(text, tokens_of(text, dialect))
    if condition is None:
        return None
    called = str(table.alias_or_name).rsplit("/", 1)[-1]
    return called, conjuncts(condition, dialect) or [condition]


def _where(text: str, tokens: Sequence[Token]) -> str | None:
    depth, first = 0, None
    for place, token in enumerate(tokens):
        depth += opens(token)
        if depth:
            continue
        if word_of(token) == "WHERE":
            first = place + 1
        elif first is not None and word_of(token) in _ENDS:
            return slice_of(text, tokens[first:place])
    return None if first is None else slice_of(text, tokens[first:])


def conjuncts(text: str, dialect: Dialect) -> list[str] | None:
    """The terms of AND at the top; None where it is joined otherwise."""
    tokens = tokens_of(text, dialect)
    depth = cases = between = 0
    places = [-1]
    for place, token in enumerate(tokens):
        word = word_of(token)
        depth += opens(token)
        cases += (word == "CASE") - (word == "END" and cases > 0)
        if depth or cases:
            continue
        if word in ("OR", "XOR"):
            return None
        if word == "BETWEEN":
            between += 1
        elif word == "AND":
            if between:
                between -= 1
            else:
                places.append(place)
    places.append(len(tokens))
    parts = []
    for before, after in pairwise(places):
        if after - before < 2:
            return None
        parts.append(slice_of(text, tokens[before + 1 : after]))
    return parts
