"""Parameters by any name: ``:from`` and ``:on`` as well as ``:qty``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from lakevilla.sql.expressions.syntax.late import Token, TokenType

_NAME = re.compile(r"[A-Za-z_]\w*")


def with_parameter_names(tokens: Iterable[Token], kind: TokenType) -> list[Token]:
    """The tokens, with each word that names a parameter as a ``kind`` of name.

    Else ``from`` in ``:from`` would begin a clause, to a parser and to whoever looks for words.
    """
    found: list[Token] = []
    for token in tokens:
        if is_parameter(found[-2] if len(found) > 1 else None, found[-1] if found else None, token):
            place = (token.line, token.col, token.start, token.end)
            token = Token(kind, token.text, *place)
        found.append(token)
    return found


def is_parameter(before: Token | None, colon: Token | None, name: Token) -> bool:
    """Whether two tokens are a parameter, which stands where no value is to its left.

    A colon is also DuckDB's separator in slices, structs and aliases in front.
    """
    return (
        colon is not None
        and colon.token_type is TokenType.COLON
        and name.start == colon.end + 1
        and _NAME.fullmatch(name.text) is not None
        and (before is None or before.token_type not in _value_ends())
    )


@lru_cache(1)
def _value_ends() -> frozenset[TokenType]:
    return frozenset(
        {
            TokenType.VAR,
            TokenType.IDENTIFIER,
            TokenType.STRING,
            TokenType.NUMBER,
            TokenType.R_PAREN,
            TokenType.R_BRACKET,
            TokenType.R_BRACE,
        }
    )
