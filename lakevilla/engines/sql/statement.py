"""A statement of ``txn.sql`` taken apart: a SELECT to run, or the arguments of a verb.

SELECTs stay text in the engine's dialect. INSERT, UPDATE, DELETE and MERGE are
cut at their keywords; their expressions stay text too, for the one parser that
gives them their meaning (``lakevilla.expressions.parse``).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from sqlglot import Token, TokenType

from lakevilla.engines.sql.dml import Delete, Insert, Merge, MergeWhen, Update, parse_dml
from lakevilla.engines.sql.select import (
    Dialect,
    Select,
    named_parameters,
    referenced_tables,
    select_of,
    tokens_of,
)
from lakevilla.errors import InvalidOperation

__all__ = [
    "Delete",
    "Insert",
    "Merge",
    "MergeWhen",
    "Select",
    "Statement",
    "Update",
    "named_parameters",
    "parse_statement",
    "referenced_tables",
]

Statement = Select | Insert | Update | Delete | Merge

_QUERY_WORDS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "("})


def parse_statement(
    sql: str, params: Iterable[str] | None = None, dialect: Dialect = "duckdb"
) -> Statement:
    """Take one statement apart.

    Parameters
    ----------
    sql : str
    params : iterable of str, optional
        Names of the parameters given, written ``:name`` in the text.
    dialect : {"duckdb", "spark"}
        Of a SELECT, and of the query within another statement.

    Raises
    ------
    InvalidOperation
        No statement, more than one, one that is not supported, or one that
        reaches beyond the lake's tables.
    """
    tokens = tokens_of(sql, dialect)
    _refuse_unnamed(tokens)
    word = tokens[0].text.upper()
    if word in _QUERY_WORDS:
        return select_of(sql, params, dialect)
    if word in ("INSERT", "UPDATE", "DELETE", "MERGE"):
        return parse_dml(sql, tokens, dialect)
    raise InvalidOperation(
        f"{word} is not supported in sql; use one SELECT, INSERT, UPDATE, DELETE or MERGE, "
        "or the method of the transaction for it"
    )


def _refuse_unnamed(tokens: Iterable[Token]) -> None:
    """Refuse what other libraries mark parameters by: here all of them have names."""
    for token, after in pairwise([*tokens, None]):
        if token is not None and token.text in ("?", "$") and token.token_type in _MARKS:
            mark = token.text + (after.text if after is not None and token.text == "$" else "")
            raise InvalidOperation(
                f"sql marks a parameter by {mark}: write it as :name, and pass "
                'params={"name": value}'
            )


#: DuckDB's ``@`` is no mark: it takes the absolute value.
_MARKS = (TokenType.PLACEHOLDER, TokenType.PARAMETER)
