"""Many UPDATEs or DELETEs, each by a key, as one that joins their parameters.

One after the other they mean the same as all at once where no row is met by two of them, or where
it does not matter: of an UPDATE the keys differ, and what it looks for it does not set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import pairwise

from lakevilla.dbapi.parameters import Values
from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.assignments import path_in
from lakevilla.sql.expressions.syntax.late import Token, TokenType
from lakevilla.sql.statements.conditions import conjuncts
from lakevilla.sql.statements.dml import DeleteStatement, UpdateStatement
from lakevilla.sql.statements.merging import looks_elsewhere
from lakevilla.sql.statements.select import tokens_of
from lakevilla.sql.statements.statement import parse_statement
from lakevilla.sql.statements.words import quoted

_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
#: Beyond it two whole numbers may be one to a column of doubles.
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class BulkChange:
    """An UPDATE or DELETE that finds its rows by a column that equals the parameter ``key``."""

    statement: UpdateStatement | DeleteStatement
    key: str
    names: frozenset[str]

    def takes(self, sets: Sequence[Values]) -> bool:
        """Whether all sets together mean what they mean one after the other."""
        if len(sets) < 2 or sets[0].keys() != self.names:
            return False
        if isinstance(self.statement, DeleteStatement):
            return True
        keys = [one.get(self.key) for one in sets]
        kinds = {type(key) for key in keys}
        if len(kinds) != 1 or not kinds <= {int, str, bytes, date, datetime}:
            return False
        if any(isinstance(key, int) and abs(key) >= _EXACT for key in keys):
            return False
        return len(set(keys)) == len(keys)

    def text(self, view: str, columns: dict[str, str]) -> str:
        """The statement over rows of ``view``, whose ``columns`` stand for parameters.

        A MERGE, whose condition is held against the columns' types as that of the statement is.
        """
        one = self.statement
        table = f"{one.written} AS {quoted(one.called)}"
        where = _replaced(one.where, columns)
        if isinstance(one, DeleteStatement):
            rows = f"(SELECT DISTINCT * FROM {view}) AS {view}"
            return f"MERGE INTO {table} USING {rows} ON {where} WHEN MATCHED THEN DELETE"
        texts = [
            f"{'.'.join(map(quoted, _path(target)))} = {_replaced(text, columns)}"
            for target, text in one.assignments.items()
        ]
        changes = f"UPDATE SET {', '.join(texts)}"
        return f"MERGE INTO {table} USING {view} ON {where} WHEN MATCHED THEN {changes}"


def bulk_change(operation: str) -> BulkChange | None:
    """The statement, if its rows can be found by a key and it looks at no other rows."""
    try:
        one = parse_statement(operation)
    except InvalidOperation:
        return None  # its first run tells
    if not isinstance(one, UpdateStatement | DeleteStatement):
        return None
    if one.common or looks_elsewhere(one, "duckdb"):
        return None
    texts = [one.where, *(one.assignments.values() if isinstance(one, UpdateStatement) else ())]
    if any(_has_braces(tokens_of(text)) for text in texts):
        return None
    if isinstance(one, UpdateStatement):
        words = {token.text.lower() for token in tokens_of(one.where)}
        if words & {name.lower() for target in one.assignments for name in _set(target, one)}:
            return None
    found = (_key(tokens_of(term)) for term in conjuncts(one.where, "duckdb") or ())
    key = next((name for name in found if name is not None), None)
    if key is None:
        return None
    names = {name.text for text in texts for name in _marked(tokens_of(text))}
    return BulkChange(one, key, frozenset(names))


def _path(target: str) -> tuple[str, ...]:
    return path_in(target) or (target,)


def _set(target: str, statement: UpdateStatement) -> tuple[str, ...]:
    """The column that is assigned to, and what is named within it."""
    path = _path(target)
    is_qualified = len(path) > 1 and path[0].lower() == statement.called.lower()
    return path[1:] if is_qualified else path


def _has_braces(tokens: Sequence[Token]) -> bool:
    """Whether a colon may be a slice, or a field of a struct."""
    return any(t.token_type in (TokenType.L_BRACKET, TokenType.L_BRACE) for t in tokens)


def _key(tokens: Sequence[Token]) -> str | None:
    """The parameter of ``column = :name``, written either way."""
    kinds = [token.token_type for token in tokens]
    if TokenType.EQ not in kinds:
        return None
    place = kinds.index(TokenType.EQ)
    left, right = tokens[:place], tokens[place + 1 :]
    if left and left[0].token_type is TokenType.COLON:
        left, right = right, left
    is_column = len(left) in (1, 3) and all(one.token_type in _NAMES for one in left[::2])
    is_column = is_column and all(one.text == "." for one in left[1::2])
    is_mark = len(right) == 2 and right[0].token_type is TokenType.COLON
    return right[1].text if is_column and is_mark else None


def _marked(tokens: Sequence[Token]) -> Iterator[Token]:
    """The names of parameters."""
    for colon, name in pairwise(tokens):
        if colon.token_type is TokenType.COLON and name.start == colon.end + 1:
            yield name


def _replaced(text: str, columns: dict[str, str]) -> str:
    pieces: list[str] = []
    position = 0
    for name in _marked(tokens_of(text)):
        pieces += [text[position : name.start - 1], columns[name.text]]
        position = name.end + 1
    return "".join([*pieces, text[position:]])
