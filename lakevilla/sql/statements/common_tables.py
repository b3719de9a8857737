"""WITH in front of a statement that changes rows: its queries are the statement's own query's."""

from __future__ import annotations

from collections.abc import Sequence

from lakevilla.sql.expressions.syntax.late import Token
from lakevilla.sql.statements.select import Dialect, tokens_of
from lakevilla.sql.statements.words import opens, slice_of, word_of

#: What may follow a closing parenthesis and is not yet the statement.
_WITHIN = frozenset({"AS", "USING", ",", "NOT", "MATERIALIZED"})


def behind_with(tokens: Sequence[Token]) -> int:
    """Where the statement begins that follows a WITH; 0 where there is none."""
    if not tokens or word_of(tokens[0]) != "WITH":
        return 0
    depth = 0
    for place, token in enumerate(tokens):
        closed = place and depth == 0 and opens(tokens[place - 1]) < 0
        if closed and word_of(token) not in _WITHIN:
            return place
        depth += opens(token)
    return 0


def with_common(common: str, query: str, dialect: Dialect) -> str:
    """A query in which the queries of ``common``, a WITH, can be named; its own ones after them."""
    if not common:
        return query
    tokens = tokens_of(query, dialect)
    if word_of(tokens[0]) == "VALUES":
        return f"{common} SELECT * FROM ({query}) AS __lakevilla_values"
    if word_of(tokens[0]) != "WITH":
        return f"{common} {query}"
    recursive = word_of(tokens[1]) == "RECURSIVE"
    rest = slice_of(query, tokens[2 if recursive else 1 :])
    words = tokens_of(common, dialect)
    if recursive and word_of(words[1]) != "RECURSIVE":
        common = f"WITH RECURSIVE {slice_of(common, words[1:])}"
    return f"{common}, {rest}"


def named_by(common: str, dialect: Dialect) -> frozenset[str]:
    """What the queries of a WITH are called, in small letters."""
    if not common:
        return frozenset()
    tokens, depth, found = tokens_of(common, dialect), 0, set()
    for place, token in enumerate(tokens):
        starts = word_of(tokens[place - 1]) in ("WITH", "RECURSIVE", ",") if place else False
        if depth == 0 and starts and word_of(token) != "RECURSIVE":
            found.add(token.text.lower())
        depth += opens(token)
    return frozenset(found)
