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
    table_path,
    tokens_of,
    word_of,
)

# -------------------- conditions
#
# The conditions of a query by which files of its tables can be left out.


#: Words that end a WHERE.
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
#: Parts that a join may have if the WHERE decides about the rows of its tables.
_OF_JOIN = frozenset({"this", "on", "using", "kind", "side"})
_JOINS = frozenset({("", ""), ("", "INNER"), ("", "CROSS"), ("LEFT", ""), ("LEFT", "OUTER")})
#: Parts that a table in FROM, and its query, may have if the WHERE decides about the table's rows.
_OF_TABLE = frozenset({"this", "db", "catalog", "alias"})
_OF_QUERY = frozenset(
    {
        *("expressions", "from_", "from", "joins", "where", "group", "having", "qualify", "order"),
        *("limit", "offset", "windows", "distinct"),
    }
)


@dataclass(frozen=True, slots=True)
class Filtered:
    """A table of FROM: its name in the query, and its path.

    ``is_filtered``: its row is left out where a condition on its columns alone is not true.
    """

    called: str
    path: str
    is_filtered: bool


@dataclass(frozen=True, slots=True)
class Conditions:
    """The terms of AND of a query's WHERE, and the tables that they concern."""

    tables: tuple[Filtered, ...]
    terms: tuple[str, ...]


@remembered
def conditions_of(text: str, dialect: Dialect) -> Conditions | None:
    """Return the conditions of a query's WHERE on the tables in its FROM.

    None where anything other than tables is joined, by other joins than inner and left ones, or
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
    """Return the tables of FROM; None if it has anything else."""
    start = root.args.get("from_") or root.args.get("from")
    if start is None:
        return None
    named = Counter(
        table_path(parts).lower()  # "a/b" is a.b too
        for node in root.find_all(exp.Table)
        if (parts := table_parts(node)) is not None
    )
    found: list[Filtered] = []
    joins: list[exp.Join] = root.args.get("joins") or []
    for node, is_filtered in [(start.this, True), *map(_joined, joins)]:
        parts = _plain_table(node)
        if parts is None or is_filtered is None:
            return None
        # A table that is also named elsewhere is read there without this condition.
        path = table_path(parts)
        once = named[path.lower()] == 1
        found.append(Filtered(str(node.alias_or_name), path, is_filtered and once))
    return found


def _joined(join: exp.Join) -> tuple[exp.Expr, bool | None]:
    """Return the joined relation, and whether the WHERE leaves out its rows; None: never."""
    more = {key for key, value in join.args.items() if value} - _OF_JOIN
    kind, side = (str(join.args.get(key) or "").upper() for key in ("kind", "side"))
    if more or (side, kind) not in _JOINS:
        return join.this, None
    return join.this, not side


def _plain_table(node: exp.Expr) -> tuple[str, ...] | None:
    """Return the parts of the name of a table that is read unchanged, with its own column names."""
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
    for index, token in enumerate(tokens):
        depth += opens(token)
        if depth:
            continue
        if word_of(token) == "WHERE":
            first = index + 1
        elif first is not None and word_of(token) in _ENDS:
            return slice_of(text, tokens[first:index])
    return None if first is None else slice_of(text, tokens[first:])


def conjuncts(text: str, dialect: Dialect) -> list[str] | None:
    """Return the terms of AND at the top; None if other operators join them."""
    tokens = tokens_of(text, dialect)
    depth = cases = between = 0
    places = [-1]
    for index, token in enumerate(tokens):
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
                places.append(index)
    places.append(len(tokens))
    parts = []
    for before, after in pairwise(places):
        if after - before < 2:
            return None
        parts.append(slice_of(text, tokens[before + 1 : after]))
    return parts


# -------------------- compiling
#
# Division of an SQL condition into terms that are expressions, and terms for the engine, with the
# reasons.


#: Return the parser of a statement's texts, with the values of the parameters that they use.
Together: TypeAlias = Callable[[Mapping[str, object]], StatementExpressions]


@dataclass(frozen=True, slots=True)
class CompiledTerm:
    """A text as an expression; ``tree`` is None if the text is no expression, and ``why`` is the
    reason.

    ``differs``: the text is an expression, but has another meaning in a SELECT.
    """

    text: str
    tree: Expr | None
    why: str = ""
    differs: bool = False


class Compiler:
    """Compiler of a statement's texts to expressions over rows, one text at a time.

    Parameters
    ----------
    dialect : {"duckdb", "spark"}
        Of the texts.
    together : callable
        Parses them.
    params : mapping of str to object
        Of the statement that contains them.
    schemas : Schemas
        The columns that they may name.
    alias : str, optional
        The name of the statement's table in it, if that is the only one.
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
        """Read a condition."""
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
        """Read a value that is assigned to a column; the code that uses it raises if wrong."""
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
    """Return a predicate on the rows of each table that a query of DuckDB's uses, by its WHERE.

    Parameters
    ----------
    sql : str
        One SELECT; the time in it is a constant.
    params : mapping of str to object
    schemas : mapping of str to pyarrow.Schema
        Of the tables that it names, by their paths in it. With anything else in its FROM nothing is
        known.

    Returns
    -------
    dict of str to Expr
        By path; for each table the terms that are expressions over it alone.
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
    """Return whether ``a.b.c`` may be column c of table a.b, and a field within column a."""
    first = {part.lower() for one in known.tables for part in one.path.split("/")[:-1]}
    return any(name.lower() in first for schema in schemas for name in schema.names)
