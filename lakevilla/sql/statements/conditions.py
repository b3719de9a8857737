"""Conditions of statements, compiled to expressions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import Schemas, exact
from lakevilla.sql.expressions.parse import StatementExpressions
from lakevilla.sql.expressions.syntax.parameter_names import Token, exp
from lakevilla.sql.expressions.tree import Call, Column, Expr, Literal, columns, substitute
from lakevilla.sql.statements.meaning.duckdb import OtherMeaning, meaning_in
from lakevilla.sql.statements.script.control import used_in
from lakevilla.sql.statements.select import (
    Dialect,
    named_parameters,
    opens,
    query_of,
    remembered,
    slice_of,
    table_parts,
    tokens_of,
    word_of,
)

# -------------------- conditions
#
# The condition of a query over tables, as far as their files can be left out by it.


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


# -------------------- compiling
#
# Which terms of a condition in SQL are expressions, and which are left to the engine, and why.


#: Makes what parses texts of a statement, with those of its parameters that they use.
Together: TypeAlias = Callable[[Mapping[str, object]], StatementExpressions]


@dataclass(frozen=True, slots=True)
class CompiledTerm:
    """A text as an expression; ``tree`` is None where it is none, and ``why`` says why not.

    ``differs``: it is one, and means something else in a SELECT.
    """

    text: str
    tree: Expr | None
    why: str = ""
    differs: bool = False


class Compiler:
    """Reads texts over rows, each by itself.

    Parameters
    ----------
    dialect : {"duckdb", "spark"}
        Of the texts.
    together : callable
        Parses them.
    params : mapping of str to object
        Of the statement that they stand in.
    schemas : Schemas
        What they may name.
    alias : str, optional
        What the statement calls its table, if that is the only one.
    """

    def __init__(
        self,
        dialect: Dialect,
        together: Together,
        params: Mapping[str, object],
        schemas: Schemas,
        alias: str | None = None,
    ) -> None:
        self._dialect, self._parsing = dialect, together
        self._params, self._schemas, self._alias = params, schemas, alias

    def term(self, text: str) -> CompiledTerm:
        """A condition."""
        together = self._together(text)
        try:
            tree = exact(together.predicate(text), self._schemas, alias=self._alias)
            together.check(self._schemas, self._alias)
        except OtherMeaning as other:
            return CompiledTerm(text, None, str(other), differs=True)
        except InvalidOperation as error:
            return CompiledTerm(text, None, error.message)
        return CompiledTerm(text, tree)

    def value(self, text: str) -> CompiledTerm:
        """What is assigned to a column; that it is wrong is said by whoever means to use it."""
        together = self._together(text)
        try:
            tree = together.assignments({"value": text})["value"]
            together.check(self._schemas, self._alias)
        except OtherMeaning as other:
            return CompiledTerm(text, None, str(other), differs=True)
        except InvalidOperation:
            return CompiledTerm(text, Literal("void"))
        return CompiledTerm(text, tree)

    def _together(self, text: str) -> StatementExpressions:
        names = used_in(text, self._params, self._dialect)
        return self._parsing({name: v for name, v in self._params.items() if name in names})


def rows_within(
    sql: str, params: Mapping[str, object], schemas: Mapping[str, pa.Schema]
) -> dict[str, Expr]:
    """What is true of each row of a table that a query of DuckDB's looks at, by its WHERE.

    Parameters
    ----------
    sql : str
        One SELECT; what the time is stands in it.
    params : mapping of str to object
    schemas : mapping of str to pyarrow.Schema
        Of the tables that it names, by their paths in it. With anything else in its FROM
        nothing is known.

    Returns
    -------
    dict of str to Expr
        By path; of each table the terms that are expressions over it alone.
    """
    known = conditions_of(sql, "duckdb")
    if known is None or not {table.path for table in known.tables} <= schemas.keys():
        return {}
    shown = {table.called: schemas[table.path] for table in known.tables}
    if _names_a_part(known, shown.values()):
        return {}
    paths = {table.called: table.path for table in known.tables if table.is_filtered}
    found: dict[str, Expr] = {}
    together = partial(StatementExpressions, meaning=meaning_in("duckdb"))
    reading = Compiler("duckdb", together, params, shown)
    for term in known.terms:
        tree = reading.term(term).tree
        of = set() if tree is None else {column.table for column in columns(tree)}
        if tree is None or len(of) != 1 or (called := of.pop()) not in paths:
            continue
        own, path = substitute(tree, lambda column: Column(column.path)), paths[called]
        found[path] = Call("and", (found[path], own)) if path in found else own
    return found


def _names_a_part(known: Conditions, schemas: Iterable[pa.Schema]) -> bool:
    """Whether ``a.b.c`` may be column c of table a.b, and a field within column a."""
    first = {part.lower() for one in known.tables for part in one.path.split("/")[:-1]}
    return any(name.lower() in first for schema in schemas for name in schema.names)
