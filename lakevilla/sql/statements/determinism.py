"""Queries that are run again later, and must return the same rows again (hazard 25).

The source of an INSERT ... SELECT or a MERGE is redone on a newer state, or by another client. The
time is fixed in its text; other functions whose values change by themselves are refused by name.
DuckDB's catalogue calls these functions volatile, or consistent within a query alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NoReturn

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.syntax.parameter_names import Token, TokenType
from lakevilla.sql.statements.select import CATALOG, MAIN_SCHEMA, Dialect, remembered, tokens_of

#: Functions of the time, and of the session, which have one value in a transaction.
FIXED_FUNCTIONS = {
    "now": "timestamp",
    "current_timestamp": "timestamp",
    "get_current_timestamp": "timestamp",
    "transaction_timestamp": "timestamp",
    "current_date": "date",
    "today": "date",
    "current_schema": "schema",
    "current_catalog": "catalog",
}
#: Functions with which a query must not be run again.
VOLATILE_FUNCTIONS = frozenset(
    {
        "random",
        "setseed",
        "uuid",
        "uuidv4",
        "uuidv7",
        "gen_random_uuid",
        "nextval",
        "currval",
        "setval",
        "current_time",
        "get_current_time",
        "current_localtime",
        "current_localtimestamp",
        "localtime",
        "localtimestamp",
        "current_query",
        "current_query_id",
        "current_transaction_id",
        "txid_current",
        "current_connection_id",
        "current_database",
        "current_schemas",
        "current_setting",
        "getvariable",
        "in_search_path",
        "stats",
        "vector_type",
        "sleep_ms",
        "write_log",
    }
)
#: Words of SQL that are functions without brackets.
_BARE = {"current_timestamp", "current_date", "current_time", "localtime", "localtimestamp"}
#: Words that follow the last column of a SELECT.
_BEHIND_COLUMNS = frozenset(
    {
        *("from", "where", "group", "having", "window", "qualify", "order", "limit", "offset"),
        *("union", "intersect", "except"),
    }
)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def with_fixed_time(sql: str, now: datetime, dialect: Dialect = "duckdb") -> str:
    """Return ``sql`` with the transaction's time in the place of ``now()`` and similar functions.

    The schema of names without a directory takes the place of ``current_schema()``, and the one
    catalog that of ``current_catalog()``. A column that consists of one of these alone keeps its
    name.
    """
    quote = "`" if dialect == "spark" else '"'
    pieces, position = [], 0
    for start, end, kind, column in _times_in(sql):
        value = {
            "timestamp": f"TIMESTAMPTZ '{now:%Y-%m-%d %H:%M:%S.%f}+00'",
            "date": f"DATE '{now:%Y-%m-%d}'",
            "schema": f"'{MAIN_SCHEMA}'",
            "catalog": f"'{CATALOG}'",
        }[kind]
        called = f" AS {quote}{column}{quote}" if column else ""
        pieces += [sql[position:start], value, called]
        position = end + 1
    return "".join([*pieces, sql[position:]])


@remembered
def _times_in(sql: str) -> tuple[tuple[int, int, str, str], ...]:
    """Return the places of functions of the time, first and last character, and their result types.

    Each also has the name of the column, if a column consists of the function alone without a name.
    """
    found = []
    tokens = tokens_of(sql)
    columns = frozenset(_columns(tokens))
    for index, token in enumerate(tokens):
        name = _called(tokens, index)
        kind = FIXED_FUNCTIONS.get(name)
        if kind is None:
            continue
        last = index
        if _is(tokens, index + 1, "("):
            if not _is(tokens, index + 2, ")"):
                _refuse(name, "with arguments")
            last = index + 2
        alone = index in columns and _ends_column(tokens, last + 1)
        column = name if last == index else f"{name}()"
        found.append((token.start, tokens[last].end, kind, column if alone else ""))
    return tuple(found)


def _columns(tokens: Sequence[Token]) -> Iterator[int]:
    """Yield the indices of the tokens with which columns of a SELECT begin, at any depth."""
    lists, begins = [False], False
    for index, token in enumerate(tokens):
        word = token.text.lower() if _is_plain(token) else ""
        if word in _OPENING:
            lists.append(False)
            begins = False
        elif word in _CLOSING:
            lists = lists[:-1] or [False]
            begins = False
        elif word in _BEHIND_COLUMNS or word == "select":
            lists[-1] = begins = word == "select"
        elif word == ",":
            begins = lists[-1]
        elif not (begins and word in ("distinct", "all")):
            if begins:
                yield index
            begins = False


def _ends_column(tokens: Sequence[Token], index: int) -> bool:
    if index == len(tokens):
        return True
    word = tokens[index].text.lower() if _is_plain(tokens[index]) else ""
    return word in _BEHIND_COLUMNS or word in (",", ")", ";")


def refuse_volatile(sql: str) -> None:
    """Refuse a query that could return other rows when it is run again on the same tables.

    Raises
    ------
    InvalidOperation
        Names the function.
    """
    tokens = tokens_of(sql)
    for index, token in enumerate(tokens):
        word = token.text.lower()
        name = _called(tokens, index)
        if name in VOLATILE_FUNCTIONS:
            _refuse(name)
        if name == "age" and not _has_comma(tokens, index + 2):
            _refuse("age", "with one argument")
        if _is_plain(token) and (
            word == "tablesample" or (word == "using" and _is(tokens, index + 1, "sample"))
        ):
            _refuse("sample")


def _refuse(name: str, detail: str = "") -> NoReturn:
    raise InvalidOperation(
        f"{' '.join(filter(None, [name, detail]))} gives another value each time, and the source "
        "of an INSERT or MERGE may have to be run again: compute it first and pass it in params or "
        "views, as :name"
    )


def _called(tokens: Sequence[Token], index: int) -> str:
    """Return the name of the function called at ``index``, or ""."""
    word = tokens[index].text.lower()
    if _is(tokens, index + 1, "(") and re.fullmatch(r"\w+", word):
        return "" if tokens[index].token_type is TokenType.STRING else word
    is_name = _is(tokens, index - 1, ".") or _is(tokens, index - 1, "as")
    return word if word in _BARE and _is_plain(tokens[index]) and not is_name else ""


def _is(tokens: Sequence[Token], index: int, text: str) -> bool:
    return (
        0 <= index < len(tokens)
        and _is_plain(tokens[index])
        and (tokens[index].text.lower() == text)
    )


def _is_plain(token: Token) -> bool:
    return token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)


def _has_comma(tokens: Sequence[Token], start: int) -> bool:
    """Return whether there is more than one argument from ``start`` on."""
    depth = 0
    for token in tokens[start:]:
        if _is_plain(token) and token.text in ("(", "[", "{"):
            depth += 1
        elif _is_plain(token) and token.text in (")", "]", "}"):
            if depth == 0:
                return False
            depth -= 1
        elif _is_plain(token) and token.text == "," and depth == 0:
            return True
    return False
