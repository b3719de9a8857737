"""Statements about branches and tags, and the states that statements name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal

from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown
from lakevilla.sql.expressions.syntax.late import TokenType
from lakevilla.sql.statements.reader import TokenReader

#: A global version, a moment, or the name of a ref.
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
    """MERGE BRANCH; ``delete``: the branch ends then."""

    name: str
    delete: bool


@dataclass(frozen=True, slots=True)
class UseBranch:
    """USE BRANCH, or TAG: where the session reads and writes from now on."""

    name: str


def create_branch(reader: TokenReader) -> CreateRef:
    """After CREATE BRANCH."""
    return _create(reader, "branch")


def create_tag(reader: TokenReader) -> CreateRef:
    """After CREATE TAG."""
    return _create(reader, "tag")


def drop_branch(reader: TokenReader) -> DropRef:
    """After DROP BRANCH."""
    missing_ok = reader.accept("IF", "EXISTS")
    return DropRef("branch", ref_name(reader), missing_ok)


def drop_tag(reader: TokenReader) -> DropRef:
    """After DROP TAG."""
    missing_ok = reader.accept("IF", "EXISTS")
    return DropRef("tag", ref_name(reader), missing_ok)


def merge_branch(reader: TokenReader) -> MergeBranch:
    """After MERGE BRANCH."""
    name = ref_name(reader)
    if reader.accept("INTO") and (into := ref_name(reader)) != "main":
        reader.refuse(f"MERGE BRANCH INTO {into}", "a branch is merged into main, the lake itself")
    return MergeBranch(name, reader.accept("DELETE"))


def use_branch(reader: TokenReader) -> UseBranch:
    """After USE."""
    if reader.accept_one("BRANCH", "TAG", "REFERENCE") is None and not reader.peek("MAIN"):
        reader.refuse(
            f"USE {reader.shown()}",
            "name a table by its path, sales.orders; USE BRANCH name goes to a branch",
        )
    return UseBranch(ref_name(reader))


def ref_name(reader: TokenReader) -> str:
    """A ref's name: plain with dots, dashes and slashes, or in quotes."""
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
    """``(VERSION => 12)``, ``(TIMESTAMP => '...')``, ``(BRANCH => 'etl')``, ``(TAG => 'x')``.

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
        found = moment_of(reader.string())
    else:
        found = ref_name(reader)
    reader.expect(")")
    return found


def own_state(reader: TokenReader, what: str) -> int | datetime | Marked:
    """What stands behind VERSION AS OF, or TIMESTAMP AS OF: a number, a moment, or ``:name``."""
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
    return moment_of(reader.string())


def state_of(marked: Marked, value: object) -> State:
    """The state that a parameter's value means.

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
            return moment_of(value) if marked.what == "TIMESTAMP" else value
    kind = {"VERSION": "a whole number", "TIMESTAMP": "a moment"}.get(marked.what, "text")
    raise InvalidOperation(
        f"parameter :{marked.name} stands for a {marked.what.lower()}, which is {kind}, not "
        f"{shown(value)}"
    )


def moment_of(text: str) -> datetime:
    """A moment; without a zone it is in UTC.

    Raises
    ------
    InvalidOperation
        It is none.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidOperation(
            f"{text!r} is no moment: write '2024-02-29', or '2024-02-29 12:00:00+01:00'"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
