"""Lists as parameters: ``IN (:ids)`` and ``IN :ids`` as one parameter for each value.

DuckDB compares with the list itself in the first, and in the second passes over NULLs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, pairwise

from lakevilla.sql.expressions.syntax.late import Token, TokenType
from lakevilla.sql.statements.select import tokens_of
from lakevilla.sql.statements.words import word_of

_QUERY = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})


def with_lists(sql: str, params: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """A query and its parameters, each list behind IN in single values."""
    lists = {name: value for name, value in params.items() if isinstance(value, list | tuple)}
    if not lists:
        return sql, params
    values = dict(params)
    pieces, position = [], 0
    tokens = tokens_of(sql)
    for place, token in enumerate(tokens):
        end = _operand(tokens, place + 1) if word_of(token) == "IN" else None
        if end is None or not (named := set(_named(tokens[place + 1 : end])) & lists.keys()):
            continue
        for name in named:
            values.pop(name, None)
        negated = place > 0 and word_of(tokens[place - 1]) == "NOT"
        written = _listed(sql, tokens[place + 1 : end], lists, values, negated)
        pieces += [sql[position : token.end + 1], " ", written]
        position = tokens[end - 1].end + 1
    text = "".join([*pieces, sql[position:]])
    # Elsewhere in the text a list is one value.
    values |= {name: value for name, value in lists.items() if name in _named(tokens_of(text))}
    return text, values


def _operand(tokens: Sequence[Token], place: int) -> int | None:
    """Where the operand of IN ends, if it is a parameter or a list in parentheses."""
    kinds = [token.token_type for token in tokens[place : place + 2]]
    if kinds[:1] == [TokenType.COLON]:
        return place + 2
    is_query = word_of(tokens[place + 1]) in _QUERY if len(kinds) == 2 else True
    if kinds[:1] != [TokenType.L_PAREN] or is_query:
        return None
    depth = 0
    for end in range(place, len(tokens)):
        depth += tokens[end].token_type is TokenType.L_PAREN
        depth -= tokens[end].token_type is TokenType.R_PAREN
        if depth == 0:
            return end + 1
    return None


def _items(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """What stands between the commas of a list in parentheses, or a parameter alone."""
    if tokens[0].token_type is TokenType.COLON:
        yield tokens
        return
    item: list[Token] = []
    depth = 0
    for token in tokens[1:-1]:
        depth += token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
        depth -= token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET)
        if token.token_type is TokenType.COMMA and depth == 0:
            yield item
            item = []
        else:
            item.append(token)
    yield item


def _name(item: Sequence[Token]) -> str | None:
    """The parameter that an item is."""
    is_one = len(item) == 2 and item[0].token_type is TokenType.COLON
    return item[1].text if is_one and item[1].start == item[0].end + 1 else None


def _named(tokens: Sequence[Token]) -> set[str]:
    """The names that stand behind a colon."""
    return {name for pair in pairwise(tokens) if (name := _name(pair)) is not None}


def _listed(
    sql: str,
    operand: Sequence[Token],
    lists: Mapping[str, Sequence[object]],
    values: dict[str, object],
    negated: bool,
) -> str:
    """The list in parentheses, with new parameters for the values of those that are lists."""
    written: list[str] = []
    for item in _items(operand):
        name = _name(item)
        if name is None or name not in lists:
            if item:
                written.append(sql[item[0].start : item[-1].end + 1])
            continue
        for value in lists[name]:
            one = next(f"{name}__{n}" for n in count(len(values)) if f"{name}__{n}" not in values)
            values[one] = value
            written.append(f":{one}")
    if written:
        return f"({', '.join(written)})"
    # Among no values nothing is, NULL neither.
    return "(NULL) IS NOT FALSE" if negated else "(NULL) IS TRUE"
