"""The condition of a query over tables, as far as their files can be left out by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lakevilla.sql.expressions.syntax.late import Token, exp
from lakevilla.sql.statements.remembered import remembered
from lakevilla.sql.statements.select import (
    Dialect,
    named_parameters,
    query_of,
    table_parts,
    tokens_of,
)
from lakevilla.sql.statements.words import opens, slice_of, word_of

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
#: What a join may have, for conditions to be of its tables.
_OF_JOIN = frozenset({"this", "on", "using", "kind", "side"})
_JOINS = frozenset({("", ""), ("", "INNER"), ("", "CROSS"), ("LEFT", ""), ("LEFT", "OUTER")})
#: What the parts of FROM and of the query around it may have, for conditions to be of its tables.
_OF_TABLE = frozenset({"this", "db", "catalog", "alias"})
_OF_QUERY = frozenset(
    {
        *("expressions", "from_", "from", "joins", "where", "group", "having", "qualify", "order"),
        *("limit", "offset", "windows", "distinct"),
    }
)


@dataclass(frozen=True, slots=True)
class Filtered:
    """A table of FROM: what the query calls it, and its path.

    ``is_filtered``: where a condition on its columns alone is not true, its row is left out.
    """

    called: str
    path: str
    is_filtered: bool


@dataclass(frozen=True, slots=True)
class Conditions:
    """The terms of AND of a query's WHERE, and the tables that they are about."""

    tables: tuple[Filtered, ...]
    terms: tuple[str, ...]


@remembered
def conditions_of(text: str, dialect: Dialect) -> Conditions | None:
    """What the WHERE of a query says of the tables in its FROM.

    None where something else is joined than tables, by other joins than inner and left ones, or
    where rows are chosen before the WHERE, as by a sample.
    """
    parsed = named_parameters(text, None) if dialect == "duckdb" else text
    root = query_of(parsed, dialect)
    if not isinstance(root, exp.Select) or root.args.get("where") is None or _has_more(root):
        return None
    tables = _tables_of(root)
    if not tables or len({table.called.lower() for table in tables}) < len(tables):
        return None
    condition = _where(text, tokens_of(text, dialect))
    if condition is None:
        return None
    return Conditions(tuple(tables), tuple(conjuncts(condition, dialect) or [condition]))


def _has_more(root: exp.Select) -> bool:
    return any(value for key, value in root.args.items() if key not in _OF_QUERY)


def _tables_of(root: exp.Select) -> list[Filtered] | None:
    """The tables of FROM; None where it has anything else."""
    start = root.args.get("from_") or root.args.get("from")
    if start is None:
        return None
    named = Counter(
        "/".join(parts).lower()  # "a/b" is a.b too
        for node in root.find_all(exp.Table)
        if (parts := table_parts(node)) is not None
    )
    found: list[Filtered] = []
    joins: list[exp.Join] = root.args.get("joins") or []
    for node, is_filtered in [(start.this, True), *map(_joined, joins)]:
        parts = _plain_table(node)
        if parts is None or is_filtered is None:
            return None
        # A table that is named elsewhere too is read there without this condition.
        path = "/".join(parts)
        once = named[path.lower()] == 1
        found.append(Filtered(str(node.alias_or_name), path, is_filtered and once))
    return found


def _joined(join: exp.Join) -> tuple[exp.Expr, bool | None]:
    """What is joined, and whether conditions leave out its rows; None if they may not at all."""
    more = {key for key, value in join.args.items() if value} - _OF_JOIN
    kind, side = (str(join.args.get(key) or "").upper() for key in ("kind", "side"))
    if more or (side, kind) not in _JOINS:
        return join.this, None
    return join.this, not side


def _plain_table(node: exp.Expr) -> tuple[str, ...] | None:
    """The parts of the name of a table that is read as it is, under its columns' own names."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        return None
    if any(value for key, value in node.args.items() if key not in _OF_TABLE):
        return None
    alias = node.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return None
    return table_parts(node)


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
