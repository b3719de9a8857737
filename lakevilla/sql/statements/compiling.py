"""Which terms of a condition in SQL are expressions, and which are left to the engine, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import Schemas, exact
from lakevilla.sql.expressions.statement import StatementExpressions
from lakevilla.sql.expressions.tree import Call, Column, Expr, Literal
from lakevilla.sql.expressions.walk import columns, substitute
from lakevilla.sql.statements.conditions import Conditions, conditions_of
from lakevilla.sql.statements.meaning.duckdb import OtherMeaning, meaning_in
from lakevilla.sql.statements.script.used import used_in
from lakevilla.sql.statements.select import Dialect

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
