"""The catalog tables that a query names, and the rows of them that it can use at all.

The terms that are found here only leave out rows that can't be in the result: the query itself runs
over the remaining rows. So a catalog table whose conditions are not understood is read whole
(docs/design/0035).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lakevilla.errors import InvalidOperation
from lakevilla.sql.catalog import (
    INFORMATION_SCHEMA,
    PREFIX,
    SCHEMAS,
    CatalogKind,
    Constant,
    Operator,
    Term,
)
from lakevilla.sql.expressions.syntax.parameter_names import exp
from lakevilla.sql.statements.select import (
    Dialect,
    Select,
    below_root,
    named_parameters,
    query_of,
    quoted,
    select_of,
    table_parts,
    table_path,
)

#: ``TABLE name`` is all of a table, and has no alias.
_WHOLE = re.compile(r"\btable\s+\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CatalogUse:
    """One mention of a catalog table in a query.

    ``view`` is the new name of the table's rows in the query. ``information``: the view of
    ``information_schema``, if it is one. ``columns``: the requested columns; None: maybe all.
    """

    name: str
    kind: CatalogKind
    view: str
    terms: tuple[Term, ...] = ()
    columns: tuple[str, ...] | None = None
    information: str = ""


@dataclass(frozen=True, slots=True)
class CatalogQuery:
    """A query with a new name at each mention of a catalog table, and a use for each of them."""

    select: Select
    uses: tuple[CatalogUse, ...]


def catalog_query(
    select: Select, params: Mapping[str, object], dialect: Dialect, hidden: frozenset[str]
) -> CatalogQuery | None:
    """Return the query with its catalog tables; None if it names none.

    ``hidden``: names that the caller has given to rows of its own.
    """
    wanted = {
        parts
        for parts in select.references
        if table_path(parts) not in hidden and _meant(parts) is not None
    }
    if not wanted:
        return None
    # A parameter is marked by one character in both forms, so places in the text stay valid.
    text = named_parameters(select.sql, None) if dialect == "duckdb" else select.sql
    root = query_of(text, dialect)
    tables = [node for node in root.walk() if isinstance(node, exp.Table)]
    uses: list[CatalogUse] = []
    pieces: list[tuple[int, int, str]] = []
    for node in tables:
        parts = table_parts(node)
        if parts is None or parts not in wanted:
            continue
        use = _use(node, parts, len(uses), params)
        uses.append(use)
        start, end = place_of_name(node)
        spelled = spelled_as(select.sql[:start], node, parts, use.view, dialect)
        pieces.append((start, end, spelled))
    changed = select.sql
    for start, end, new in sorted(pieces, reverse=True):
        changed = changed[:start] + new + changed[end:]
    return CatalogQuery(select_of(changed, None, dialect), tuple(uses))


def _meant(parts: Sequence[str]) -> tuple[CatalogKind, str] | None:
    lower = [part.lower() for part in below_root(parts)]
    if len(lower) == 1 and lower[0].startswith(PREFIX):
        for kind in SCHEMAS:
            if lower[0] == PREFIX + kind:
                return kind, ""
    if len(lower) == 2 and lower[0] == "information_schema":
        if lower[1] not in INFORMATION_SCHEMA:
            raise InvalidOperation(
                f"information_schema has {', '.join(INFORMATION_SCHEMA)} here, and no {parts[1]}: "
                f"{', '.join(PREFIX + kind for kind in SCHEMAS)} show more"
            )
        return INFORMATION_SCHEMA[lower[1]], lower[1]
    return None


def _use(
    node: exp.Table, parts: tuple[str, ...], number: int, params: Mapping[str, object]
) -> CatalogUse:
    meant = _meant(parts)
    assert meant is not None
    kind, information = meant
    columns = _columns(information, kind)
    scope = node.find_ancestor(exp.Select)
    terms = tuple(_terms(scope, node, columns, params)) if _may_filter(scope, node) else ()
    return CatalogUse(
        name=".".join(parts),
        kind=kind,
        view=f"__lakevilla_catalog_{number}",
        terms=terms,
        columns=None if information else _asked(node, kind),
        information=information,
    )


def _columns(information: str, kind: CatalogKind) -> frozenset[str]:
    if information:
        return frozenset({"table_schema", "schema_name", "table_name", "column_name"})
    return frozenset(SCHEMAS[kind].names)


def place_of_name(node: exp.Table) -> tuple[int, int]:
    """Return the place of the table's name in the text, without its alias."""
    named = [node.args.get(part) for part in ("catalog", "db", "this")]
    places = [one.meta for one in named if one is not None]
    return int(places[0]["start"]), int(places[-1]["end"]) + 1


def spelled_as(
    before: str, node: exp.Table, parts: Sequence[str], view: str, dialect: Dialect
) -> str:
    """Return the new name behind ``before``, with an alias for columns if the query has none."""
    if node.alias or _WHOLE.search(before) is not None:
        return view
    return f"{view} AS {quoted(parts[-1], dialect)}"


# ------------------------------------------------------------------ conditions

_JOINED_BY_ROWS = {"", "INNER", "CROSS", "OUTER"}


def _may_filter(scope: exp.Select | None, node: exp.Table) -> bool:
    """Return whether rows that WHERE leaves out may be removed from the table before the query
    runs.

    All terms are false for a row of nulls, so this is true for outer joins too. It is false where a
    join takes the nearest row, or the row at the same place, and for a sample.
    """
    if scope is None or scope.args.get("where") is None:
        return False
    alias = node.args.get("alias")
    if node.args.get("sample") is not None or node.args.get("joins"):
        return False
    if alias is not None and alias.args.get("columns"):
        return False
    joins = scope.args.get("joins") or []
    if scope.args.get("laterals") or any(not _is_plain(join) for join in joins):
        return False
    source = scope.args.get("from_") or scope.args.get("from")
    return (source is not None and source.this is node) or any(join.this is node for join in joins)


def _is_plain(join: exp.Join) -> bool:
    kind, method = str(join.args.get("kind") or ""), str(join.args.get("method") or "")
    return kind.upper() in _JOINED_BY_ROWS and method.upper() in ("", "NATURAL")


def _terms(
    scope: exp.Select | None,
    node: exp.Table,
    columns: frozenset[str],
    params: Mapping[str, object],
) -> Iterator[Term]:
    assert scope is not None
    named = node.alias_or_name.lower()
    alone = not scope.args.get("joins")
    shadowed = {
        one.alias.lower() for one in scope.expressions if isinstance(one, exp.Alias) and one.alias
    }

    def column_of(side: exp.Expr) -> str | None:
        key = None
        if isinstance(side, exp.Bracket) and len(side.expressions) == 1:
            index = side.expressions[0]
            if not (isinstance(index, exp.Literal) and index.is_string):
                return None
            side, key = side.this, index.this
        if not isinstance(side, exp.Column) or side.args.get("db") is not None:
            return None
        name = side.name.lower()
        own = side.table.lower() == named if side.table else alone and name not in shadowed
        if not own or name not in columns:
            return None
        return name if key is None else f"{name}.{key}"

    for condition in _conditions(scope.args["where"].this):
        yield from _of(condition, column_of, params)


def _conditions(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the terms that AND joins at the top of a condition."""
    if isinstance(node, exp.Paren):
        yield from _conditions(node.this)
    elif isinstance(node, exp.And):
        yield from _conditions(node.left)
        yield from _conditions(node.right)
    else:
        yield node


@lru_cache(1)
def _compared() -> dict[type[exp.Expr], tuple[Operator, Operator]]:
    return {
        exp.EQ: ("=", "="),
        exp.LT: ("<", ">"),
        exp.LTE: ("<=", ">="),
        exp.GT: (">", "<"),
        exp.GTE: (">=", "<="),
    }


def _of(node: exp.Expr, column_of: Any, params: Mapping[str, object]) -> Iterator[Term]:
    for kind, (operator, turned) in _compared().items():
        if type(node) is kind and isinstance(node, exp.Binary):
            for side, other, way in (
                (node.left, node.right, operator),
                (node.right, node.left, turned),
            ):
                column, value = column_of(side), _constant(other, params)
                if column is not None and value is not None:
                    yield Term(column, way, (value,))
                    return
    column = column_of(node.this) if isinstance(node.this, exp.Expr) else None
    if column is None or node.args.get("negate"):
        return
    if type(node) is exp.In and node.expressions and not node.args.get("query"):
        values = [_constant(one, params) for one in node.expressions]
        known = tuple(value for value in values if value is not None)
        if len(known) == len(values):
            yield Term(column, "in", known)
    elif type(node) is exp.Between and not node.args.get("symmetric"):
        low, high = _constant(node.args["low"], params), _constant(node.args["high"], params)
        if low is not None and high is not None:
            yield Term(column, ">=", (low,))
            yield Term(column, "<=", (high,))
    elif type(node) in (exp.Like, exp.StartsWith):
        prefix = _constant(node.expression, params)
        if type(node) is exp.Like and isinstance(prefix, str):
            prefix = _beginning(prefix)
        if isinstance(prefix, str):
            yield Term(column, "prefix", (prefix,))


def _beginning(pattern: str) -> str:
    """Return the common beginning of all texts that match a LIKE pattern."""
    ends = [at for at in map(pattern.find, "%_\\") if at >= 0]  # Spark escapes by the last
    return pattern[: min(ends)] if ends else pattern


def _constant(node: exp.Expr, params: Mapping[str, object]) -> Constant | None:
    """Return the value of a literal or a parameter; None for anything else."""
    if isinstance(node, exp.Paren):
        return _constant(node.this, params)
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        return _number(str(node.this))
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and node.this.is_number:
        value = _number(str(node.this.this))
        return None if value is None else -value
    if isinstance(node, (exp.Parameter, exp.Placeholder)):
        given = params.get(node.name or str(node.this))
        return given if type(given) in (str, int, float) else None  # type: ignore[return-value]
    return None


def _number(text: str) -> int | float | None:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return None


# ------------------------------------------------------------------ columns


def _asked(node: exp.Table, kind: CatalogKind) -> tuple[str, ...] | None:
    """Return the columns of a catalog table that a statement names at all; None: maybe all."""
    root = node.root()
    names: set[str] = set()
    for one in root.walk():
        if isinstance(one, exp.Star) and not isinstance(one.parent, exp.Count):
            return None
        if isinstance(one, exp.Join) and one.args.get("method"):
            return None  # NATURAL: all columns of equal names
        if isinstance(one, exp.Columns):
            return None
        if isinstance(one, exp.Column):
            names.add(one.name.lower())
        elif isinstance(one, exp.Identifier):
            names.add(one.name.lower())  # as in USING
    # A table's own name, as a value, is its whole row.
    whole = any(
        isinstance(one, exp.Column) and one.name.lower() == node.alias_or_name.lower()
        for one in root.walk()
    )
    if whole:
        return None
    found = tuple(name for name in SCHEMAS[kind].names if name in names)
    return found
