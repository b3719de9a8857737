"""The statements that an agent may send: those that read, and those that change its branch.

Both are lists of what is allowed. A statement that is new in SQL is refused until it is on one.
"""

from __future__ import annotations

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.syntax.parameter_names import Token, TokenType
from lakevilla.sql.statements.script.cutting import statements_of
from lakevilla.sql.statements.script.parsing import Definition, OfRows, Parsed, Telling, parsed
from lakevilla.sql.statements.select import query_of, tokens_of, word_of

#: An agent's text has at most so many characters.
_MOST_CHARACTERS = 100_000


def reading(text: str, most: int) -> Parsed:
    """Return a text's one statement, which only reads; of a query, at most so many rows.

    Raises
    ------
    InvalidOperation
        It is no statement, several, or one that changes something.
    """
    found = _parsed(text)
    if len(found) != 1:
        raise InvalidOperation(f"sql has {len(found)} statements: query takes one at a time")
    (statement,) = found
    match statement.node:
        case OfRows(reads=True):
            limited = with_limit(statement.source.text, statement.text, most)
            return _parsed(limited)[0]
        case node if isinstance(node, Telling):
            return statement
    raise InvalidOperation(
        f"{_words(statement.text)} is refused: query takes SELECT, SHOW, DESCRIBE and EXPLAIN"
    )


def refuse_unless_it_changes_tables(text: str) -> None:
    """Refuse a text with a statement that does more than read and change tables and views.

    Branches, tags, and USE would lead away from the session's branch. Schemas are shared by all
    branches, so a statement about one would change the lake. Settings are the operator's.

    Raises
    ------
    InvalidOperation
    """
    found = _parsed(text)
    if not found:
        raise InvalidOperation("sql is empty: give a statement")
    for one in found:
        if not isinstance(one.node, OfRows | Definition | Telling):
            raise InvalidOperation(
                f"{_words(one.text)} is refused: execute takes INSERT, UPDATE, DELETE, MERGE INTO, "
                "and CREATE, ALTER, DROP, TRUNCATE and COMMENT of tables and views. All statements "
                "of one call are one transaction, so BEGIN and COMMIT are not needed"
            )


def with_limit(text: str, understood: str, most: int) -> str:
    """Return a query with a limit of its rows, if it has none, or a higher one.

    ``understood`` is the same query with a plain name for each table in a past state.
    """
    query = query_of(understood, "duckdb")
    limit = query.args.get("limit")
    if limit is None and query.key == "subquery":
        return f"FROM (\n{text}\n)\nLIMIT {most}"  # a limit behind its parentheses is not read
    if limit is None:
        return f"{text}\nLIMIT {most}"  # on a line of its own: the text may end with a comment
    number = _number_behind_limit(tokens_of(text))
    if number is not None and int(number.text) > most:
        return f"{text[: number.start]}{most}{text[number.end + 1 :]}"
    return text


def _number_behind_limit(tokens: list[Token]) -> Token | None:
    """Return the whole number with which a query's own LIMIT ends it, or goes before OFFSET."""
    if len(tokens) > 3 and word_of(tokens[-2]) == "OFFSET":
        tokens = tokens[:-2]
    if len(tokens) < 2 or word_of(tokens[-2]) != "LIMIT":
        return None
    last = tokens[-1]
    return last if last.token_type is TokenType.NUMBER and last.text.isdecimal() else None


def _parsed(text: str) -> list[Parsed]:
    if len(text) > _MOST_CHARACTERS:
        raise InvalidOperation(f"sql has more than {_MOST_CHARACTERS} characters: send it in parts")
    return [parsed(one, at, "duckdb") for at, one in enumerate(statements_of(text, "duckdb"), 1)]


def _words(text: str) -> str:
    first, *others = text.split()[:2]
    return " ".join([first.upper(), *others])[:60]
