"""sqlglot, loaded with the first of its names that is asked for.

To open a table, to look at its log and to append to it takes no SQL: a process that does no more
saves 11 MB and a tenth of a second. What stands here for its modules and classes keeps what it was
asked for, so it costs nothing later.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
