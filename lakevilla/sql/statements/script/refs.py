"""Statements about refs and past states."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Literal

from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown
from lakevilla.sql.expressions.syntax.parameter_names import Token, TokenType
from lakevilla.sql.statements.reader import TokenReader
from lakevilla.sql.statements.script.cutting import script_tokens
from lakevilla.sql.statements.select import Dialect, quoted, table_name, word_of

# -------------------- refs
#
# Statements about branches and tags, and the states that statements name.


#: A global version, a timestamp, or the name of a ref.
State = int | datetime | str


@dataclass(frozen=True, slots=True)
class Marked:
    """A state that a parameter names; ``what`` is VERSION, TIMESTAMP, BRANCH or TAG."""

    name: str
    what: str


@dataclass(frozen=True, slots=True)
class CreateRef:
    """CREATE BRANCH or TAG; ``at`` is None for the lake as it is now."""

    kind: Literal["branch", "tag"]
    name: str
    at: State | Marked | None
    exist_ok: bool


@dataclass(frozen=True, slots=True)
class DropRef:
    """DROP BRANCH or TAG."""

    kind: Literal["branch", "tag"]
    name: str
    missing_ok: bool


@dataclass(frozen=True, slots=True)
class MergeBranch:
    """MERGE BRANCH; ``delete``: the branch is then deleted."""

    name: str
    delete: bool


@dataclass(frozen=True, slots=True)
class UseBranch:
    """USE BRANCH, or TAG: the ref that the session reads and writes from now on."""

    name: str


def create_branch(reader: TokenReader) -> CreateRef:
    """Read the rest of a statement that began with CREATE BRANCH."""
    return _create(reader, "branch")


def create_tag(reader: TokenReader) -> CreateRef:
    """Read the rest of a statement that began with CREATE TAG."""
    return _create(reader, "tag")


def drop_branch(reader: TokenReader) -> DropRef:
    """Read the rest of a statement that began with DROP BRANCH."""
    missing_ok = reader.accept("IF", "EXISTS")
    return DropRef("branch", ref_name(reader), missing_ok)


def drop_tag(reader: TokenReader) -> DropRef:
    """Read the rest of a statement that began with DROP TAG."""
    missing_ok = reader.accept("IF", "EXISTS")
    return DropRef("tag", ref_name(reader), missing_ok)


def merge_branch(reader: TokenReader) -> MergeBranch:
    """Read the rest of a statement that began with MERGE BRANCH."""
    name = ref_name(reader)
    if reader.accept("INTO") and (into := ref_name(reader)) != "main":
        reader.refuse(f"MERGE BRANCH INTO {into}", "a branch is merged into main, the lake itself")
    return MergeBranch(name, reader.accept("DELETE"))


def use_branch(reader: TokenReader) -> UseBranch:
    """Read the statement after USE."""
    if reader.accept_one("BRANCH", "TAG", "REFERENCE") is None and not reader.peek("MAIN"):
        reader.refuse(
            f"USE {reader.shown()}",
            "name a table by its path, sales.orders; USE BRANCH name goes to a branch",
        )
    return UseBranch(ref_name(reader))


def ref_name(reader: TokenReader) -> str:
    """Read a ref's name: plain with dots, dashes and slashes, or in quotes."""
    if reader.next_type is TokenType.STRING:
        return reader.string()
    name = reader.name()
    while (mark := reader.accept_one("-", "/", ".", "@")) is not None:
        name += mark + reader.take().text
    return name


def _create(reader: TokenReader, kind: Literal["branch", "tag"]) -> CreateRef:
    exist_ok = reader.accept("IF", "NOT", "EXISTS")
    name = ref_name(reader)
    at: State | Marked | None = None
    if reader.accept("FROM"):
        at = ref_name(reader)
    elif reader.accept("AT"):
        at = state(reader)
    elif reader.accept("VERSION", "AS", "OF") or reader.accept("AS", "OF", "VERSION"):
        at = own_state(reader, "VERSION")
    elif reader.accept("TIMESTAMP", "AS", "OF"):
        at = own_state(reader, "TIMESTAMP")
    return CreateRef(kind, name, at, exist_ok)


def state(reader: TokenReader) -> State | Marked:
    """Read ``(VERSION => 12)``, ``(TIMESTAMP => '...')``, ``(BRANCH => 'etl')``, ``(TAG => 'x')``.

    Each may be ``:name``, too.
    """
    reader.expect("(")
    what = reader.expect_one("VERSION", "TIMESTAMP", "BRANCH", "TAG")
    reader.expect("=>")
    found: State | Marked
    if (name := reader.parameter()) is not None:
        found = Marked(name, what)
    elif what == "VERSION":
        found = reader.number()
    elif what == "TIMESTAMP":
        reader.accept("TIMESTAMP")
        found = parse_timestamp_text(reader.string())
    else:
        found = ref_name(reader)
    reader.expect(")")
    return found


def own_state(reader: TokenReader, what: str) -> int | datetime | Marked:
    """Read the state after VERSION AS OF or TIMESTAMP AS OF: number, timestamp or ``:name``."""
    if (name := reader.parameter()) is not None:
        return Marked(name, what)
    if reader.next_type is TokenType.NUMBER:
        return reader.number()
    if not reader.accept("TIMESTAMP"):
        reader.accept("DATE")
    if reader.next_type is not TokenType.STRING:
        reader.refuse(
            f"AS OF {reader.shown()}", "write VERSION AS OF 3, or TIMESTAMP AS OF '2024-02-29'"
        )
    return parse_timestamp_text(reader.string())


def state_of(marked: Marked, value: object) -> State:
    """Return the state that a parameter's value means.

    Raises
    ------
    InvalidOperation
        It is of another kind.
    """
    match marked.what:
        case "VERSION" if isinstance(value, int) and not isinstance(value, bool):
            return value
        case "TIMESTAMP" if isinstance(value, datetime):
            return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        case "TIMESTAMP" if isinstance(value, date):
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        case "TIMESTAMP" | "BRANCH" | "TAG" if isinstance(value, str):
            return parse_timestamp_text(value) if marked.what == "TIMESTAMP" else value
    kind = {"VERSION": "a whole number", "TIMESTAMP": "a timestamp"}.get(marked.what, "text")
    raise InvalidOperation(
        f"parameter :{marked.name} stands for a {marked.what.lower()}, which is {kind}, not "
        f"{shown(value)}"
    )


def parse_timestamp_text(text: str) -> datetime:
    """Return a text as a timestamp; without a zone it is in UTC.

    Raises
    ------
    InvalidOperation
        It is no timestamp.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidOperation(
            f"{text!r} is no timestamp: write '2024-02-29', or '2024-02-29 12:00:00+01:00'"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


# -------------------- past
#
# Tables in a past state, or in that of a branch or tag: each mention becomes a view of its own.
#
# VERSION AS OF 3 and TIMESTAMP AS OF '...' name the table's own past states, in Spark's spelling.
# AT (VERSION => 3) names a state of the lake, in DuckLake's spelling, and AT (BRANCH => 'etl') the
# state of another ref.


#: The prefix of the names of those views.
PREFIX = "__lakevilla_past_"
_MENTION = re.compile(r"\bAS\s+OF\b|=>|\btable_changes\s*\(", re.IGNORECASE)
_CHANGES = "TABLE_CHANGES"
#: The words before AS OF, each with the kind of state that follows it.
_OWN = {
    "VERSION": "VERSION",
    "SYSTEM_VERSION": "VERSION",
    "TIMESTAMP": "TIMESTAMP",
    "SYSTEM_TIME": "TIMESTAMP",
}
_STATES = ("VERSION", "TIMESTAMP", "BRANCH", "TAG")


@dataclass(frozen=True, slots=True)
class PastTable:
    """A mention of a table in another state; ``own``: by the table's versions, not the lake's."""

    view: str
    table: str
    at: State | Marked
    own: bool

    @property
    def states(self) -> tuple[State | Marked, ...]:
        """The states that the mention names."""
        return (self.at,)


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """``table_changes('name', first, last)``: what versions of the lake have changed in a table.

    ``last`` is None for the state that the statement reads.
    """

    view: str
    table: str
    first: int | Marked
    last: int | Marked | None

    @property
    def states(self) -> tuple[State | Marked, ...]:
        """The states that the mention names."""
        return (self.first,) if self.last is None else (self.first, self.last)


Mention = PastTable | ChangedRows


def without_pasts(text: str, dialect: Dialect) -> tuple[str, tuple[Mention, ...]]:
    """Return a statement that names a view for each past table, and these tables.

    Raises
    ------
    InvalidOperation
        A state is none, or belongs to no table.
    """
    if not _MENTION.search(text):
        return text, ()
    tokens = script_tokens(text, dialect)
    found: list[Mention] = []
    pieces: list[str] = []
    copied = 0
    for index in range(len(tokens)):
        view = f"{PREFIX}{len(found)}"
        if (made := _changes_at(text, tokens, index, dialect, view)) is not None:
            one, after = made
            start, called = index, _CHANGES.lower()
            found.append(one)
        elif (read := _state_at(text, tokens, index, dialect)) is not None:
            at, own, after = read
            start, name, called = _table_before(tokens, index)
            found.append(PastTable(view, name, at, own))
        else:
            continue
        alias = "" if _has_alias(tokens, after) else f" AS {quoted(called, dialect)}"
        pieces += [text[copied : tokens[start].start], view + alias]
        copied = tokens[after - 1].end + 1
    return "".join([*pieces, text[copied:]]), tuple(found)


def refuse_changed(table: str) -> None:
    """Refuse to change a table in another state than the newest.

    Raises
    ------
    InvalidOperation
    """
    if table.startswith(PREFIX):
        raise InvalidOperation(
            "only the newest state of a table can be changed: a past state is for queries; "
            "lake.table(name).restore(version) returns the table to that state"
        )


def _changes_at(
    text: str, tokens: Sequence[Token], index: int, dialect: Dialect, view: str
) -> tuple[ChangedRows, int] | None:
    """Return a call of ``table_changes``, and the place after it."""
    reader = TokenReader(text, tokens, dialect)
    reader.skip(index)
    if not reader.accept(_CHANGES, "("):
        return None
    named = reader.string()
    table = named if "/" in named else table_name(named.split("."))
    reader.expect(",")
    first = _version(reader)
    last = _version(reader) if reader.accept(",") else None
    reader.expect(")")
    return ChangedRows(view, table, first, last), reader.place


def _version(reader: TokenReader) -> int | Marked:
    if (name := reader.parameter()) is not None:
        return Marked(name, "VERSION")
    if reader.next_type is not TokenType.NUMBER:
        reader.refuse(
            f"table_changes(..., {reader.shown()})",
            "write table_changes('name', 3, 7), with versions of the lake",
        )
    return reader.number()


def _state_at(
    text: str, tokens: Sequence[Token], index: int, dialect: Dialect
) -> tuple[State | Marked, bool, int] | None:
    """Return the state that a mention names, whether it is by the table's versions, and the
    mention's end.
    """
    words = [word_of(token) for token in tokens[index : index + 4]]
    if words[:1] == ["FOR"]:
        words, shift = words[1:], 1
    else:
        shift = 0
    reader = TokenReader(text, tokens, dialect)
    reader.skip(index + shift)
    behind = tokens[index + shift + 3 : index + shift + 4]
    # VERSION AS OF may also give a column a name.
    if words[1:3] == ["AS", "OF"] and behind and behind[0].token_type in _values():
        if index and word_of(tokens[index - 1]) == "FOR":
            return None  # it is read from FOR on
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


def _table_before(tokens: Sequence[Token], index: int) -> tuple[int, str, str]:
    """Return where the name of the table before ``index`` begins, the name, and its last part."""
    names = (TokenType.VAR, TokenType.IDENTIFIER)
    start = index - 1
    if start < 0 or not (tokens[start].token_type in names or tokens[start].text.isidentifier()):
        raise InvalidOperation(
            f"{tokens[index].text} {tokens[index + 1].text} follows no table: write it after the "
            "table's name, and an alias after it"
        )
    while start >= 2 and tokens[start - 1].text == ".":
        start -= 2
    parts = [token.text for token in tokens[start:index:2]]
    return start, table_name(parts), parts[-1].rsplit("/", 1)[-1]


def _has_alias(tokens: Sequence[Token], index: int) -> bool:
    if index >= len(tokens):
        return False
    token = tokens[index]
    is_name = token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
    return is_name or word_of(token) == "AS"
