"""Views in the text of a query: each becomes a common table expression in front of it.

What stands first in a WITH sees no name that is defined behind it. So a name in a view's text means
a table of the lake, whatever common table expressions the query has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakevilla.sql.expressions.syntax.parameter_names import TokenType, exp
from lakevilla.sql.statements.catalog import place_of_name, spelled_as
from lakevilla.sql.statements.select import (
    Dialect,
    Select,
    named_parameters,
    query_of,
    quoted,
    select_of,
    table_parts,
    table_path,
    tokens_of,
    word_of,
)


@dataclass(frozen=True, slots=True)
class ViewText:
    """A view as a query uses it: a new name, the names of its columns if it has some, its text."""

    called: str
    columns: tuple[str, ...]
    sql: str


def with_names(select: Select, names: Mapping[str, str], dialect: Dialect) -> Select:
    """Return the query with another name for each table that ``names`` has, by its path."""
    if not names:
        return select
    text = named_parameters(select.sql, None) if dialect == "duckdb" else select.sql
    pieces: list[tuple[int, int, str]] = []
    for node in query_of(text, dialect).walk():
        if isinstance(node, exp.Column):
            pieces.extend(_qualifier(node, names, dialect))
            continue
        if not isinstance(node, exp.Table):
            continue
        parts = table_parts(node)
        if parts is None or (new := names.get(table_path(parts))) is None:
            continue
        start, end = place_of_name(node)
        pieces.append((start, end, spelled_as(select.sql[:start], node, parts, new, dialect)))
    changed = select.sql
    for start, end, new in sorted(pieces, reverse=True):
        changed = changed[:start] + new + changed[end:]
    return select_of(changed, None, dialect)


def _qualifier(
    column: exp.Column, names: Mapping[str, str], dialect: Dialect
) -> Iterator[tuple[int, int, str]]:
    """Yield the place of a qualifier with a schema, ``s.v`` of ``s.v.c``, and the alias for it."""
    parts = [part for name in ("catalog", "db", "table") if (part := column.args.get(name))]
    if len(parts) > 1 and table_path([part.name for part in parts]) in names:
        start, end = int(parts[0].meta["start"]), int(parts[-1].meta["end"]) + 1
        yield start, end, quoted(parts[-1].name, dialect)


def with_views(select: Select, views: Sequence[ViewText], dialect: Dialect) -> Select:
    """Return the query with the views in front of it, in their order."""
    if not views:
        return select
    texts = []
    for view in views:
        columns = ", ".join(quoted(name, dialect) for name in view.columns)
        texts.append(f"{view.called}{f' ({columns})' if columns else ''} AS ({view.sql}\n)")
    front = ", ".join(texts)
    sql = _without_parentheses(select.sql, dialect)
    tokens = tokens_of(sql, dialect)
    if word_of(tokens[0]) != "WITH":
        return select_of(f"WITH {front} {sql}", None, dialect)
    recursive = len(tokens) > 1 and word_of(tokens[1]) == "RECURSIVE"
    rest = sql[tokens[1 if recursive else 0].end + 1 :]
    return select_of(f"WITH {'RECURSIVE ' if recursive else ''}{front},{rest}", None, dialect)


def _without_parentheses(sql: str, dialect: Dialect) -> str:
    """Return a query without parentheses around all of it: a WITH in them takes one more name."""
    tokens = tokens_of(sql, dialect)
    if tokens[0].text != "(" or tokens[-1].text != ")":
        return sql
    depth = 0
    for number, token in enumerate(tokens):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth == 0 and number < len(tokens) - 1:
            return sql  # the first one is closed before the end
    return _without_parentheses(sql[tokens[0].end + 1 : tokens[-1].start], dialect)
