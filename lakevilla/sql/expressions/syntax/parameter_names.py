"""Names of parameters, and sqlglot loaded late."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

# -------------------- parameter names
#
# Parameters by any name: ``:from`` and ``:on`` as well as ``:qty``.


_NAME = re.compile(r"[A-Za-z_]\w*")


def with_parameter_names(tokens: Iterable[Token], kind: TokenType) -> list[Token]:
    """Return the tokens; each word that names a parameter has the type ``kind``, a name.

    Otherwise ``from`` in ``:from`` would begin a clause, both for a parser and for code that
    searches for words.
    """
    found: list[Token] = []
    for token in tokens:
        if is_parameter(found[-2] if len(found) > 1 else None, found[-1] if found else None, token):
            place = (token.line, token.col, token.start, token.end)
            token = Token(kind, token.text, *place)
        found.append(token)
    return found


def is_parameter(before: Token | None, colon: Token | None, name: Token) -> bool:
    """Return whether two tokens are a parameter, which has no value to its left.

    A colon is also DuckDB's separator in slices, in structs and after aliases that precede their
    values.
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


# -------------------- late
#
# sqlglot, loaded when the first of its names is used.
#
# Opening a table, reading its log and appending to it need no SQL: a process that does no more
# saves 11 MB and a tenth of a second. The objects here that replace sqlglot's modules and classes
# keep the names that were read from them, so later reads cost nothing.


if TYPE_CHECKING:
    import sqlglot as sqlglot
    from sqlglot import Token as Token
    from sqlglot import Tokenizer as Tokenizer
    from sqlglot import TokenType as TokenType
    from sqlglot import errors as errors
    from sqlglot import exp as exp
    from sqlglot import parser as parser
    from sqlglot import tokens as tokens
    from sqlglot.dialects import duckdb as duckdb
    from sqlglot.dialects import spark as spark
    from sqlglot.dialects.dialect import Dialect as Dialect
else:

    class _Late:
        """A module of sqlglot, or a class in it."""

        def __init__(self, module: str, name: str = "") -> None:
            self._module, self._name = module, name

        def __getattr__(self, name: str) -> Any:
            found = import_module(self._module)
            value = getattr(getattr(found, self._name) if self._name else found, name)
            setattr(self, name, value)
            return value

    sqlglot = _Late("sqlglot")
    TokenType = _Late("sqlglot.tokens", "TokenType")
    errors, exp = _Late("sqlglot.errors"), _Late("sqlglot.expressions")
    parser, tokens = _Late("sqlglot.parser"), _Late("sqlglot.tokens")
    duckdb, spark = _Late("sqlglot.dialects.duckdb"), _Late("sqlglot.dialects.spark")
    Tokenizer = Dialect = None  # for types alone

    def Token(*args: Any) -> Any:
        return tokens.Token(*args)
