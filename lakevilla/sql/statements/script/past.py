"""Tables as they were, or as a branch or tag has them: each mention becomes a view of its own.

VERSION AS OF 3 and TIMESTAMP AS OF '...' are the table's own past, as Spark spells it. AT (VERSION
=> 3) is the lake's, as DuckLake spells it, and AT (BRANCH => 'etl') is another ref's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.syntax.late import Token, TokenType
from lakevilla.sql.statements.reader import TokenReader
from lakevilla.sql.statements.script.cutting import script_tokens
from lakevilla.sql.statements.script.refs import Marked, State, own_state, state
from lakevilla.sql.statements.select import Dialect, table_name
from lakevilla.sql.statements.words import quoted, word_of

#: What those views are called.
PREFIX = "__lakevilla_past_"
_MENTION = re.compile(r"\bAS\s+OF\b|=>", re.IGNORECASE)
#: What stands before AS OF, and which kind of state stands behind it.
_OWN = {
    "VERSION": "VERSION",
    "SYSTEM_VERSION": "VERSION",
    "TIMESTAMP": "TIMESTAMP",
    "SYSTEM_TIME": "TIMESTAMP",
}
_STATES = ("VERSION", "TIMESTAMP", "BRANCH", "TAG")


@dataclass(frozen=True, slots=True)
class PastTable:
    """A mention of a table as it was; ``own``: by the table's own versions, not the lake's."""

    view: str
    table: str
    at: State | Marked
    own: bool


def without_pasts(text: str, dialect: Dialect) -> tuple[str, tuple[PastTable, ...]]:
    """A statement that names a view for each past table, and what those are.

    Raises
    ------
    InvalidOperation
        A state is none, or belongs to no table.
    """
    if not _MENTION.search(text):
        return text, ()
    tokens = script_tokens(text, dialect)
    found: list[PastTable] = []
    pieces: list[str] = []
    copied = 0
    for place in range(len(tokens)):
        read = _state_at(text, tokens, place, dialect)
        if read is None:
            continue
        at, own, after = read
        start, name, called = _table_before(tokens, place)
        view = f"{PREFIX}{len(found)}"
        found.append(PastTable(view, name, at, own))
        alias = "" if _has_alias(tokens, after) else f" AS {quoted(called, dialect)}"
        pieces += [text[copied : tokens[start].start], view + alias]
        copied = tokens[after - 1].end + 1
    return "".join([*pieces, text[copied:]]), tuple(found)


def _state_at(
    text: str, tokens: Sequence[Token], place: int, dialect: Dialect
) -> tuple[State | Marked, bool, int] | None:
    """The state that is named there, whether by the table's versions, and where that ends."""
    words = [word_of(token) for token in tokens[place : place + 4]]
    if words[:1] == ["FOR"]:
        words, shift = words[1:], 1
    else:
        shift = 0
    reader = TokenReader(text, tokens, dialect)
    reader.skip(place + shift)
    behind = tokens[place + shift + 3 : place + shift + 4]
    # VERSION AS OF may also give a column a name.
    if words[1:3] == ["AS", "OF"] and behind and behind[0].token_type in _values():
        if place and word_of(tokens[place - 1]) == "FOR":
            return None  # read from FOR on
        what = _OWN.get(words[0])
        if what is not None:
            reader.skip(3)
            return own_state(reader, what), True, reader.place
    if not shift and words[:2] == ["AT", "("] and words[2:3] and words[2] in _STATES:
        if words[3:4] != ["=>"]:
            return None
        reader.skip(1)
        return state(reader), False, reader.place
    return None


@lru_cache(1)
def _values() -> frozenset[TokenType]:
    kinds = TokenType
    return frozenset(
        {kinds.NUMBER, kinds.STRING, kinds.VAR, kinds.TIMESTAMP, kinds.DATE, kinds.COLON}
    )


def _table_before(tokens: Sequence[Token], place: int) -> tuple[int, str, str]:
    """Where the table's name begins that stands before, the name, and its last part."""
    names = (TokenType.VAR, TokenType.IDENTIFIER)
    start = place - 1
    if start < 0 or not (tokens[start].token_type in names or tokens[start].text.isidentifier()):
        raise InvalidOperation(
            f"{tokens[place].text} {tokens[place + 1].text} stands behind no table: write it "
            "behind the table's name, and an alias behind it"
        )
    while start >= 2 and tokens[start - 1].text == ".":
        start -= 2
    parts = [token.text for token in tokens[start:place:2]]
    return start, table_name(parts), parts[-1].rsplit("/", 1)[-1]


def _has_alias(tokens: Sequence[Token], place: int) -> bool:
    if place >= len(tokens):
        return False
    token = tokens[place]
    is_name = token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
    return is_name or word_of(token) == "AS"
