"""The commands that begin with a backslash: their names, and what each takes."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from lakevilla.errors import InvalidOperation

Verb = Literal[
    "describe",
    "tables",
    "refs",
    "on",
    "log",
    "info",
    "include",
    "output",
    "timing",
    "expanded",
    "format",
    "rows",
    "set",
    "pager",
    "help",
    "quit",
]
Takes = Literal["nothing", "table", "ref", "file", "switch", "format", "number", "value"]


@dataclass(frozen=True, slots=True)
class ShortCommand:
    """One command; the first of its names is the one that help shows."""

    verb: Verb
    names: tuple[str, ...]
    takes: Takes
    argument: str
    about: str
    required: bool = False


COMMANDS = (
    ShortCommand("tables", ("\\dt", ".tables"), "table", "[PATTERN]", "the tables: \\dt sales.*"),
    ShortCommand(
        "describe",
        ("\\d", "\\d+", ".schema", ".columns"),
        "table",
        "[TABLE]",
        "the columns of a table; alone as \\dt",
    ),
    ShortCommand("refs", ("\\l", "\\refs"), "nothing", "", "the branches and tags"),
    ShortCommand("on", ("\\on",), "ref", "[NAME]", "go to a branch or tag; alone back to main"),
    ShortCommand("log", ("\\log",), "number", "[N]", "the newest commits of the lake"),
    ShortCommand("info", ("\\conninfo", "\\info"), "nothing", "", "the lake and the transaction"),
    ShortCommand(
        "include", ("\\i", "\\ir", ".read"), "file", "FILE", "run the statements of a file", True
    ),
    ShortCommand(
        "output", ("\\o", ".output"), "file", "[FILE]", "results go to a file; alone back here"
    ),
    ShortCommand("timing", ("\\timing", ".timer"), "switch", "[on|off]", "tell how long each took"),
    ShortCommand("expanded", ("\\x",), "switch", "[on|off]", "one line for each value"),
    ShortCommand(
        "format",
        ("\\format", "\\f", ".mode"),
        "format",
        "[NAME]",
        "table, vertical, csv, json, ndjson or markdown",
    ),
    ShortCommand(
        "rows", ("\\rows", ".maxrows"), "number", "[N]", "show so many rows at most; 0 shows all"
    ),
    ShortCommand("set", ("\\set",), "value", "[NAME VALUE]", "give :NAME a value; alone the list"),
    ShortCommand("pager", ("\\pager",), "switch", "[on|off]", "long results go through $PAGER"),
    ShortCommand("help", ("\\?", "\\h", "\\help", ".help", "help"), "nothing", "", "this list"),
    ShortCommand(
        "quit", ("\\q", "\\quit", ".quit", ".exit", "exit", "quit"), "nothing", "", "leave (Ctrl-D)"
    ),
)
#: What ends a statement in place of a semicolon.
_ENDINGS = {"\\gx": True, "\\G": True, "\\g": False}
_BY_NAME = {name: one for one in COMMANDS for name in one.names}
#: These have no backslash; what begins so may still be a statement.
_WORDS = frozenset(name for name in _BY_NAME if name[0].isalpha())
#: What psql has and this shell does otherwise.
_ELSEWHERE = {
    "\\c": "`lakevilla shell ROOT` opens another lake, \\on NAME goes to a branch",
    "\\connect": "`lakevilla shell ROOT` opens another lake, \\on NAME goes to a branch",
    "\\copy": "`lakevilla create ROOT TABLE --from FILE` makes a table of a file",
    "\\dn": "tables have paths and no schemas: \\dt sales.* lists those of a path",
    "\\du": "who may read and write is a matter of the store",
    "\\e": "Ctrl-X Ctrl-E opens what is typed in $EDITOR",
    "\\df": "the functions are DuckDB's",
    "\\unset": "\\set NAME null makes it NULL",
    "\\watch": "`lakevilla changes ROOT --follow` shows what is committed as it comes",
    "\\!": "Ctrl-Z leaves the shell for a while, fg comes back",
}


def is_short(text: str) -> bool:
    """Whether a line is a short command, and no statement or a part of one."""
    line = text.strip()
    return line[:1] in ("\\", ".") or line.rstrip("; ").lower() in _WORDS


def short_at_end(text: str, is_complete: Callable[[str], bool]) -> tuple[str, str] | None:
    r"""A statement that goes on and the short command on its last line, as psql has it.

    None where there is none, or it stands in a string: ``\q`` there is text.
    """
    before, line_feed, line = text.rstrip().rpartition("\n")
    known = line.lstrip().startswith("\\") and _parts(line)[0] in _BY_NAME
    if not line_feed or not known or not before.strip() or not is_complete(f"{before};"):
        return None
    return before + line_feed, line


def ended(text: str, is_complete: Callable[[str], bool]) -> tuple[str, bool] | None:
    r"""What stands before ``\g``, ``\gx`` or ``\G``, and whether each value gets a line.

    None where the text does not end so, or in the middle of a string.
    """
    stripped = text.rstrip()
    for ending, expanded in _ENDINGS.items():
        before = stripped.removesuffix(ending)
        if before != stripped and is_complete(f"{before};"):
            return before, expanded
    return None


def short(line: str) -> tuple[ShortCommand, str | None]:
    """The command of a line and its argument.

    Raises
    ------
    InvalidOperation
        There is no such command, the nearest is named; or its argument is wrong.
    """
    name, argument = _parts(line)
    found = _BY_NAME.get(name)
    if found is None:
        raise InvalidOperation(_unknown(name))
    if argument is None and found.required:
        raise InvalidOperation(f"{name} takes {found.argument}: {found.about}")
    if argument is not None and found.takes == "nothing":
        raise InvalidOperation(f"{name} takes no argument, such as {argument!r}")
    return found, argument


def _parts(line: str) -> tuple[str, str | None]:
    name, _, rest = line.strip().rstrip(";").partition(" ")
    rest = rest.strip()
    if rest[:1] in ("'", '"') and rest[-1:] == rest[:1]:
        with contextlib.suppress(ValueError):  # a name may have quotes in it
            rest = " ".join(shlex.split(rest))
    return name if name.startswith(("\\", ".")) else name.lower(), rest or None


def switched(argument: str | None, now: bool, name: str) -> bool:
    """What a switch is set to; without an argument it is the other of the two.

    Raises
    ------
    InvalidOperation
        It is neither on nor off.
    """
    if argument is None:
        return not now
    if argument.lower() in ("on", "true", "1", "yes"):
        return True
    if argument.lower() in ("off", "false", "0", "no"):
        return False
    raise InvalidOperation(f"{name} is on or off, not {argument!r}")


def number(argument: str, name: str) -> int:
    """A count.

    Raises
    ------
    InvalidOperation
        It is none.
    """
    if not argument.isascii() or not argument.isdigit():
        raise InvalidOperation(f"{name} takes a number, not {argument!r}")
    return int(argument)


def help_lines() -> list[str]:
    """All commands, one on a line."""
    heads = [f"{one.names[0]} {one.argument}".rstrip() for one in COMMANDS]
    widest = max(map(len, heads))
    listed = []
    for head, one in zip(heads, COMMANDS, strict=True):
        others = ", ".join(one.names[1:])
        listed.append(f"  {head:{widest}}  {one.about}{f' ({others})' if others else ''}")
    return [
        "A statement ends with a semicolon, and may go over many lines. Alt-Enter runs it without.",
        "Tab completes, Ctrl-R looks into the history, Ctrl-X Ctrl-E opens an editor.",
        "Ctrl-C ends a statement, and Ctrl-D the shell.",
        "",
        *listed,
        "",
        "  BEGIN ... COMMIT or ROLLBACK; without, each statement is committed by itself.",
        "  ...\\gx in place of the semicolon shows one line for each value.",
    ]


def _unknown(name: str) -> str:
    if name in _ELSEWHERE:
        return f"there is no {name}: {_ELSEWHERE[name]}"
    near = get_close_matches(name, _BY_NAME, 1, cutoff=0.5)
    meant = f"did you mean {near[0]}? " if near else ""
    return f"there is no {name}: {meant}\\? lists the commands"
