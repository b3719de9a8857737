"""Statements that control a session."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import pairwise

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.parse import refuse_unused
from lakevilla.sql.expressions.syntax.parameter_names import TokenType
from lakevilla.sql.statements.reader import TokenReader
from lakevilla.sql.statements.script.cutting import script_tokens
from lakevilla.sql.statements.select import Dialect, remembered

# -------------------- control
#
# Statements of a session: the beginning and end of transactions, and their settings.


#: The settings of a session, and the values for which each has a word.
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "features": (),
    "isolation": ("serializable", "snapshot", "write-serializable"),
    "validation": ("precise", "rules"),
    "wait": ("published", "decided"),
    "durability": ("lazy", "every_op"),
    "slack": (),
    "wait_timeout_seconds": (),
    "idle_timeout_seconds": (),
    "max_rows": (),
    "max_bytes": (),
    "timeout_seconds": (),
}


@dataclass(frozen=True, slots=True)
class Begin:
    """BEGIN; ``settings`` as SET accepts them, for this transaction alone."""

    settings: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """COMMIT, or END."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """ROLLBACK, or ABORT."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """SAVEPOINT; ``name`` in small letters, as in the two statements below."""

    name: str


@dataclass(frozen=True, slots=True)
class RollbackTo:
    """ROLLBACK TO a savepoint."""

    name: str


@dataclass(frozen=True, slots=True)
class Release:
    """RELEASE a savepoint."""

    name: str


@dataclass(frozen=True, slots=True)
class SetOption:
    """SET, or RESET where ``value`` is None."""

    name: str
    value: str | None


def begin(reader: TokenReader) -> Begin:
    """Read ``BEGIN [TRANSACTION] [(FEATURES ...)] [ISOLATION LEVEL ...] [READ ONLY]``."""
    reader.accept_one("TRANSACTION", "WORK")
    settings: dict[str, str] = {}
    read_only = False
    while not reader.at_end:
        if reader.accept("("):
            word = reader.expect_one("FEATURES", "ISOLATION")
            settings[word.lower()] = reader.text(")")
            reader.expect(")")
        elif reader.accept("FEATURES"):
            settings["features"] = reader.text("ISOLATION", "READ")
        elif reader.accept("ISOLATION", "LEVEL") or reader.accept("ISOLATION"):
            settings["isolation"] = _isolation(reader)
        elif reader.accept("READ"):
            read_only = reader.expect_one("ONLY", "WRITE") == "ONLY"
        elif not reader.accept(","):
            reader.refuse(
                f"BEGIN ... {reader.shown()}",
                "write BEGIN (FEATURES R, CT, I), BEGIN ISOLATION LEVEL SNAPSHOT or BEGIN READ "
                "ONLY",
            )
    return Begin({name: value.strip() for name, value in settings.items()}, read_only)


def start(reader: TokenReader) -> Begin:
    """Read START TRANSACTION, as BEGIN."""
    reader.expect("TRANSACTION")
    return begin(reader)


def _isolation(reader: TokenReader) -> str:
    if reader.accept("REPEATABLE", "READ"):
        return "snapshot"  # a snapshot gives what this isolation level promises
    if reader.peek("READ"):
        raise InvalidOperation(
            "there is no isolation level below snapshot here: write ISOLATION LEVEL SNAPSHOT"
        )
    return reader.text("READ", "FEATURES", "(", ",")


def commit(reader: TokenReader) -> Commit:
    """Read COMMIT [TRANSACTION], END."""
    _only_a_transaction(reader)
    return Commit()


def rollback(reader: TokenReader) -> Rollback | RollbackTo:
    """Read ROLLBACK [TRANSACTION] [TO [SAVEPOINT] name], ABORT."""
    _only_a_transaction(reader)
    if not reader.accept("TO"):
        return Rollback()
    return RollbackTo(_savepoint(reader))


def savepoint(reader: TokenReader) -> Savepoint:
    """Read the statement after SAVEPOINT."""
    return Savepoint(reader.name().lower())


def release(reader: TokenReader) -> Release:
    """Read the statement after RELEASE."""
    return Release(_savepoint(reader))


def _savepoint(reader: TokenReader) -> str:
    if reader.left > 1:
        reader.accept("SAVEPOINT")
    if reader.next_type is TokenType.NUMBER:
        reader.refuse(
            "ROLLBACK TO a version", "lake.rollback(version) returns the whole lake to that state"
        )
    return reader.name().lower()


def _only_a_transaction(reader: TokenReader) -> None:
    reader.accept_one("TRANSACTION", "WORK")
    if reader.peek("AND"):
        reader.refuse("AND CHAIN", "BEGIN the next transaction by itself")


def set_option(reader: TokenReader) -> SetOption:
    """Read ``SET name = value``."""
    reader.accept_one("SESSION", "LOCAL")
    name = _setting(reader)
    if not (reader.accept("=") or reader.accept("TO")):
        reader.refuse(reader.shown(), f"write SET {name} = a value")
    return SetOption(name, reader.text())


def reset_option(reader: TokenReader) -> SetOption:
    """Read ``RESET name``: it restores the value at the session's start."""
    return SetOption(_setting(reader), None)


def _setting(reader: TokenReader) -> str:
    given = reader.name()
    name = given.lower()
    if name == "transaction" or name == "transaction_isolation":
        reader.refuse(f"SET {given}", "write SET isolation = 'snapshot'")
    if name not in SETTINGS:
        near = get_close_matches(name, SETTINGS, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise InvalidOperation(
            f"{given} is no setting of a session: {meant}there are {', '.join(SETTINGS)}"
        )
    return name


# -------------------- used
#
# The parameters of a text that one of its statements uses.


_NAME = re.compile(r"[A-Za-z_]\w*")


def used_in(text: str, names: Iterable[str], dialect: Dialect) -> frozenset[str]:
    """Return those of the names that the text marks by ``:name``."""
    known = frozenset(names)
    return known & _marked(text, dialect) if known else known


def refuse_unmatched(text: str, names: Iterable[str], dialect: Dialect) -> None:
    """Raise for a value that no mark uses; if a mark has no value, raise that as the cause."""
    known = frozenset(names)
    used = used_in(text, known, dialect)
    missing = sorted(_marked(text, dialect) - known)
    if used != known and missing:
        raise InvalidOperation(
            f"parameter :{missing[0]} has no value; give it in params, which has "
            f"{', '.join(sorted(known))}"
        )
    refuse_unused(known, used)


@remembered
def _marked(text: str, dialect: Dialect) -> frozenset[str]:
    tokens = script_tokens(text, dialect)
    return frozenset(
        name.text
        for colon, name in pairwise(tokens)
        if colon.token_type is TokenType.COLON
        and name.start == colon.end + 1
        and _NAME.fullmatch(name.text)
    )
