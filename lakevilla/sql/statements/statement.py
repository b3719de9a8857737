"""A statement of ``txn.sql`` split into parts: a SELECT to run, or the arguments of a verb.

SELECTs stay text in the engine's dialect. INSERT, UPDATE, DELETE and MERGE are cut at their
keywords. Their expressions stay text too, for the one parser that gives them their meaning
(``lakevilla.sql.expressions.parse``).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.syntax.parameter_names import Token, TokenType
from lakevilla.sql.statements.dml import (
    DeleteStatement,
    InsertStatement,
    MergeStatement,
    UpdateStatement,
    parse_dml,
)
from lakevilla.sql.statements.select import (
    Dialect,
    Select,
    behind_with,
    remembered,
    select_of,
    tokens_of,
)

Statement = Select | InsertStatement | UpdateStatement | DeleteStatement | MergeStatement

_QUERY_WORDS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "("})
_CHANGING_WORDS = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})


def is_of_rows(sql: str, dialect: Dialect = "duckdb") -> bool:
    """Return whether a text begins like a statement over rows."""
    return _first_word(sql, dialect) in _QUERY_WORDS | _CHANGING_WORDS


def parse_statement(
    sql: str, params: Iterable[str] | None = None, dialect: Dialect = "duckdb"
) -> Statement:
    """Split one statement into its parts.

    Parameters
    ----------
    sql : str
    params : iterable of str, optional
        Names of the given parameters, written ``:name`` in the text.
    dialect : {"duckdb", "spark"}
        Of a SELECT, and of the query within another statement.

    Raises
    ------
    InvalidOperation
        No statement, more than one, one that is not supported, or one that reaches beyond the
        lake's tables.
    """
    word = _first_word(sql, dialect)
    if word in _QUERY_WORDS:
        return select_of(sql, params, dialect)
    if word in _CHANGING_WORDS:
        return parse_dml(sql, tokens_of(sql, dialect), dialect)
    instead = _INSTEAD.get(word, "or the method of the transaction for it")
    raise InvalidOperation(
        f"{word} is not supported in sql; use one SELECT, INSERT, UPDATE, DELETE or MERGE, "
        f"{instead}"
    )


@remembered
def _first_word(sql: str, dialect: Dialect) -> str:
    tokens = tokens_of(sql, dialect)
    _refuse_unnamed(tokens)
    # WITH begins a query or a change.
    main = tokens[behind_with(tokens)].text.upper()
    return main if main in _CHANGING_WORDS else tokens[0].text.upper()


#: Alternatives in Python to words of other systems.
_INSTEAD = {
    "CREATE": "or lake.create_table(name, data_or_schema)",
    "DROP": "or lake.drop_table(name)",
    "ALTER": "or txn.alter(name, ...)",
    "TRUNCATE": 'or txn.delete(name, where="true")',
    "SHOW": "or lake.tables()",
    "DESCRIBE": "or lake.table(name).schema",
    "DESC": "or lake.table(name).schema",
    "OPTIMIZE": "or lake.table(name).optimize()",
    "VACUUM": "or lake.table(name).vacuum()",
    "BEGIN": "and begin by `with lake.transaction() as txn:`",
    "START": "and begin by `with lake.transaction() as txn:`",
    "COMMIT": "and commit by txn.commit()",
    "ROLLBACK": "and undo by txn.abort()",
}


def _refuse_unnamed(tokens: Iterable[Token]) -> None:
    """Refuse the parameter marks of other libraries: here all parameters have names."""
    for token, after in pairwise([*tokens, None]):
        # DuckDB's ``@`` is no mark: it returns the absolute value.
        if (
            token is not None
            and token.text in ("?", "$")
            and token.token_type in (TokenType.PLACEHOLDER, TokenType.PARAMETER)
        ):
            mark = token.text + (after.text if after is not None and token.text == "$" else "")
            raise InvalidOperation(
                f"sql marks a parameter by {mark}: write it as :name, and pass "
                'params={"name": value}'
            )
