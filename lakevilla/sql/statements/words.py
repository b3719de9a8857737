"""What tokens say, and names as the text of a query has them."""

from __future__ import annotations

from collections.abc import Sequence

from lakevilla.sql.expressions.syntax.late import Token, TokenType
from lakevilla.sql.statements.select import Dialect


def word_of(token: Token) -> str:
    """What a token says in capitals; nothing if it is quoted, as then it never is a keyword."""
    quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
    return "" if quoted else token.text.upper()


def opens(token: Token) -> int:
    """1 for an opening bracket, -1 for a closing one."""
    if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE):
        return 1
    closing = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
    return -1 if token.token_type in closing else 0


def slice_of(text: str, tokens: Sequence[Token]) -> str:
    """What the text has from the first of the tokens to the last."""
    return text[tokens[0].start : tokens[-1].end + 1]


def quoted(name: str, dialect: Dialect = "duckdb") -> str:
    """One part of a name, as a query of the dialect takes it."""
    mark = '"' if dialect == "duckdb" else "`"
    return mark + name.replace(mark, mark * 2) + mark
