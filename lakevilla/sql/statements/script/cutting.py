"""A text cut into its statements, each with the line on which it begins."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.syntax.parameter_names import (
    Token,
    Tokenizer,
    TokenType,
    errors,
    with_parameter_names,
)
from lakevilla.sql.statements.select import Dialect, slice_of, tokenizer_of, unreadable, word_of

_SEVERAL = re.compile(r"[A-Za-z_]\w*(\s+[A-Za-z_]\w*)+")


@dataclass(frozen=True, slots=True)
class ScriptStatement:
    """One statement of a text, without the semicolon after it.

    Attributes
    ----------
    text : str
    line, column : int
        The place where it begins, from 1.
    inner : tuple of ScriptStatement
        Those between BEGIN ATOMIC and END.
    """

    text: str
    line: int
    inner: tuple[ScriptStatement, ...] = ()
    column: int = 1


class _HalfTyped(InvalidOperation):
    """The text is incomplete: more text may complete a statement. It does not leave this module."""


def statements_of(text: str, dialect: Dialect = "duckdb") -> list[ScriptStatement]:
    """Return the statements of a text; one between BEGIN ATOMIC and END belongs to that block.

    Raises
    ------
    InvalidOperation
        A quote, a comment or a block is not closed.
    """
    with _as_a_mistake():
        return list(_statements(text, _tokens(text, dialect)))


def is_complete(text: str, dialect: Dialect = "duckdb") -> bool:
    """Return whether a text ends with a complete statement and its semicolon."""
    try:
        tokens = _tokens(text, dialect)
        statements = list(_statements(text, tokens))
    except _HalfTyped:
        return False
    except InvalidOperation:
        return True  # no further line can correct the text
    return bool(statements) and tokens[-1].token_type is TokenType.SEMICOLON


def script_tokens(text: str, dialect: Dialect) -> list[Token]:
    """Return the tokens of a text, of commands too; each word is one."""
    with _as_a_mistake():
        return _tokens(text, dialect)


@contextmanager
def _as_a_mistake() -> Iterator[None]:
    """Return a block in which an incomplete text is an error: its caller can't add more text."""
    try:
        yield
    except _HalfTyped as error:
        raise InvalidOperation(error.message) from None


def _tokens(text: str, dialect: Dialect) -> list[Token]:
    try:
        tokens = with_parameter_names(_tokenizer(dialect)().tokenize(text), TokenType.IDENTIFIER)
    except errors.SqlglotError as error:
        found = unreadable(error, text)
        raise _HalfTyped(found.message) from None
    return [word for token in tokens for word in _words(text, token)]


def _words(text: str, token: Token) -> Iterator[Token]:
    """Yield the words of a token: ``PARTITIONED BY`` is one token in sqlglot, elsewhere two."""
    written = text[token.start : token.end + 1]
    if not _SEVERAL.fullmatch(written):
        yield token
        return
    for word in re.finditer(r"\w+", written):
        start = token.start + word.start()
        end = token.start + word.end() - 1
        yield Token(TokenType.VAR, word.group(), token.line, token.col, start, end)


@lru_cache(2)
def _tokenizer(dialect: Dialect) -> type[Tokenizer]:
    class Tokens(tokenizer_of(dialect)):  # type: ignore[misc]  # one of two
        # sqlglot reads the text after SHOW, and the like, as one text up to the next semicolon.
        COMMANDS: frozenset[TokenType] = frozenset()

    return Tokens


def _statements(text: str, tokens: Sequence[Token]) -> Iterator[ScriptStatement]:
    place = 0
    while place < len(tokens):
        if tokens[place].token_type is TokenType.SEMICOLON:
            place += 1
        elif _is(tokens, place, "BEGIN") and _is(tokens, place + 1, "ATOMIC"):
            end, inner = _block(text, tokens, place)
            yield _cut(text, tokens[place:end], tuple(inner))
            place = end
        else:
            end = _end(tokens, place)
            yield _cut(text, tokens[place:end])
            place = end


def _block(text: str, tokens: Sequence[Token], start: int) -> tuple[int, list[ScriptStatement]]:
    """Return the end of the block that begins at ``start``, and its statements."""
    inner: list[ScriptStatement] = []
    place = start + 2
    while place < len(tokens):
        if tokens[place].token_type is TokenType.SEMICOLON:
            place += 1
            continue
        if _is(tokens, place, "END"):
            after = place + 1
            if after < len(tokens) and tokens[after].token_type is not TokenType.SEMICOLON:
                raise InvalidOperation(
                    f"line {tokens[after].line}: {tokens[after].text} follows the END of a block; "
                    "write a semicolon between them"
                )
            return after, inner
        end = _end(tokens, place)
        inner.append(_cut(text, tokens[place:end]))
        place = end
    raise _HalfTyped(
        f"BEGIN ATOMIC on line {tokens[start].line} has no END; write END; behind the last "
        "statement and its semicolon"
    )


def _end(tokens: Sequence[Token], start: int) -> int:
    for index in range(start, len(tokens)):
        if tokens[index].token_type is TokenType.SEMICOLON:
            return index
    return len(tokens)


def _cut(
    text: str, tokens: Sequence[Token], inner: tuple[ScriptStatement, ...] = ()
) -> ScriptStatement:
    start = tokens[0].start
    line, column = _line_starts(text).place_of(start)
    return ScriptStatement(slice_of(text, tokens), line, inner, column)


class _LineStarts:
    """The places where lines begin, so that a long script is not searched for each statement."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def place_of(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of a place, from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


_line_starts = lru_cache(2)(_LineStarts)


def _is(tokens: Sequence[Token], index: int, word: str) -> bool:
    return index < len(tokens) and word_of(tokens[index]) == word
