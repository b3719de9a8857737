"""The shell's output and pager, its backslash commands, and the cutting of a script into entries.

An entry is a text to run: statements, or a backslash command.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal, TextIO

from lakevilla.cli.output import Output
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.values import Format, Look

# -------------------- screen
#
# The output of the shell: what it prints, and where.


if TYPE_CHECKING:
    import pyarrow as pa

#: The width to which cells in a pager are cut, because all lines get as long as the longest.
_WIDEST_PAGED = 500
#: Lines of the terminal that a result must leave free: the typed text, and the next prompt.
_OTHER_LINES = 3


@dataclass(slots=True)
class Choices:
    """A user's settings: ``rows`` is the most rows, 0 for all; ``target`` is a file for results."""

    form: Format = "table"
    expanded: bool = False
    timing: bool = False
    rows: int = 1000
    pager: bool = True
    target: TextIO | None = None


class Screen:
    """The output of a shell: results go to stdout or a file, remarks to stderr."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self._output = Output(as_json=False)

    @property
    def is_terminal(self) -> bool:
        return self._output.console.is_terminal

    def line(self, text: str) -> None:
        """Print a remark on a statement for users, which does not go into a file of results."""
        if self.is_terminal:
            self._output.line(text)
        else:
            self._output.aside(text)

    def aside(self, text: str) -> None:
        self._output.aside(text)

    def error(self, error: LakeVillaError) -> None:
        self._output.error(error)

    def lines(self, lines: Sequence[str]) -> None:
        """Print lines that are ready to be shown."""
        self._print(lines, len(lines))

    def rows(self, frame: pa.Table, *, expanded: bool = False, counted: bool = True) -> None:
        """Print the rows of a query; ``expanded`` overrides the user's setting for this query."""
        from lakevilla.rendering import grid, lines_of

        form = self.choices.form
        if form == "table" and (expanded or self.choices.expanded):
            form = "vertical"
        on_screen = self.is_terminal and self.choices.target is None
        limit = self.choices.rows if on_screen else 0
        shown = frame.slice(0, limit) if limit else frame
        look = self._output.look() if self.choices.target is None else Look()
        foot = self._foot(frame.num_rows, shown.num_rows) if counted and form in _FOR_PEOPLE else []
        if form != "table":
            found = [*lines_of(shown, form, look), *foot]
            self._print(found, len(found))
            return
        made = grid(shown, look)
        if on_screen and (made.hidden or shown.num_rows > self._height) and self._pager:
            whole = grid(shown, replace(look, width=None, widest=_WIDEST_PAGED))
            self._print([*whole.lines, *foot], None)
            return
        if made.hidden:
            foot.append(
                f"no room for {len(made.hidden)} of {frame.num_columns} columns: "
                "\\x shows a line for each value"
            )
        found = [*made.lines, *foot]
        self._print(found, len(found))

    def _foot(self, total: int, shown: int) -> list[str]:
        what = f"{total} row{'' if total == 1 else 's'}"
        if shown < total:
            return [f"({shown} of {what}: \\rows 0 shows all)"]
        return [f"({what})"]

    def _print(self, lines: Iterable[str], count: int | None) -> None:
        """Print lines; ``count`` is None if they are too wide for the terminal."""
        target = self.choices.target
        if target is not None:
            target.writelines(f"{line}\n" for line in lines)
            target.flush()
            return
        pager = self._pager
        if pager is not None and (count is None or count > self._height) and page(lines, pager):
            return
        for line in lines:
            print(line)
        sys.stdout.flush()

    @property
    def _height(self) -> int:
        return max(self._output.console.height - _OTHER_LINES, 1)

    @property
    def _pager(self) -> list[str] | None:
        """The pager's command; None if results can't be paged."""
        if not (self.choices.pager and self.is_terminal and sys.stdin.isatty()):
            return None
        return pager_of(os.environ)


_FOR_PEOPLE = ("table", "vertical")


# -------------------- lines
#
# The entries of a script or a pipe: statements and backslash commands.


@dataclass(frozen=True, slots=True)
class ScriptEntry:
    """A text to run, and the number of the line on which it begins, from 1."""

    text: str
    line: int


def entries(lines: Iterable[str], is_complete: Callable[[str], bool]) -> Iterator[ScriptEntry]:
    """Yield the entries of a text, the last one also without a semicolon.

    Each entry is yielded as soon as it is complete: the program at the pipe may wait for its
    result.
    """
    held: list[str] = []
    first = 0
    for number, line in enumerate(lines, 1):
        if not held:
            if not line.strip():
                continue
            if is_short(line):
                yield ScriptEntry(line, number)
                continue
            first = number
        held.append(line)
        if _may_end(line):
            text = "".join(held)
            if is_complete(text) or ended(text, is_complete) is not None:
                yield ScriptEntry(text, first)
                held = []
    if "".join(held).strip():
        yield ScriptEntry("".join(held), first)


def _may_end(line: str) -> bool:
    """Return whether a statement may end on this line, which then has a semicolon or backslash."""
    return ";" in line or "\\" in line


# -------------------- pager
#
# Long results, shown by a program that scrolls.


#: Options of less: show colours, cut long lines, leave the screen unchanged.
_LESS = "-SRX"


def pager_of(environment: Mapping[str, str]) -> list[str] | None:
    """Return the pager's command: the user's own, or less; None if neither is available."""
    for name in ("LAKEVILLA_PAGER", "PAGER"):
        chosen = environment.get(name)
        if chosen is not None:
            words = shlex.split(chosen)
            return words if words and words != ["cat"] and shutil.which(words[0]) else None
    found = shutil.which("less", path=environment.get("PATH"))
    return None if found is None else [found]


def page(lines: Iterable[str], command: list[str]) -> bool:
    """Pass the lines to the pager and wait until the user leaves it; return whether it started."""
    environment = dict(os.environ)
    environment.setdefault("LESS", _LESS)
    # While the pager runs, Ctrl-C is for the pager: less ends a search by it. Unlike SIG_IGN, a
    # handler that does nothing is not inherited by the pager.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            env=environment,
            text=True,
            errors="backslashreplace",
        ) as process:
            assert process.stdin is not None
            try:
                for line in lines:
                    process.stdin.write(line + "\n")
                process.stdin.close()
            except BrokenPipeError:
                pass  # the user has left the pager
            process.wait()
    except OSError:
        return False
    finally:
        signal.signal(signal.SIGINT, before)
    return True


# -------------------- short
#
# The backslash commands: their names and arguments.


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
    """A backslash command; help shows the first of its names."""

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
    ShortCommand("timing", ("\\timing", ".timer"), "switch", "[on|off]", "show how long each took"),
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
#: Backslash commands that end a statement in place of a semicolon.
_ENDINGS = {"\\gx": True, "\\G": True, "\\g": False}
_BY_NAME = {name: one for one in COMMANDS for name in one.names}
#: Commands that need no backslash; a text that begins with such a word may be a statement.
_WORDS = frozenset(name for name in _BY_NAME if name[0].isalpha())
#: psql's commands that this shell lacks, and what to use instead.
_ELSEWHERE = {
    "\\c": "`lakevilla shell ROOT` opens another lake, \\on NAME goes to a branch",
    "\\connect": "`lakevilla shell ROOT` opens another lake, \\on NAME goes to a branch",
    "\\copy": "`lakevilla create ROOT TABLE --from FILE` makes a table of a file",
    "\\dn": "SHOW SCHEMAS lists them, \\dt sales.* the tables of one",
    "\\du": "access rights are those of the store",
    "\\e": "Ctrl-X Ctrl-E opens what is typed in $EDITOR",
    "\\df": "the functions are DuckDB's",
    "\\unset": "\\set NAME null makes it NULL",
    "\\watch": "`lakevilla changes ROOT --follow` shows each commit when it is made",
    "\\!": "Ctrl-Z leaves the shell for a while, fg comes back",
}


def is_short(text: str) -> bool:
    """Return whether a line is a backslash command, and not a statement or a part of one."""
    line = text.strip()
    return line[:1] in ("\\", ".") or line.rstrip("; ").lower() in _WORDS


def short_at_end(text: str, is_complete: Callable[[str], bool]) -> tuple[str, str] | None:
    r"""Return an unfinished statement and the backslash command at the end of its last line, as in
    psql.

    Return None if there is no such command, or it is within a string.
    """
    before, line_feed, line = text.rstrip().rpartition("\n")
    known = line.lstrip().startswith("\\") and _parts(line)[0] in _BY_NAME
    if not line_feed or not known or not before.strip() or not is_complete(f"{before};"):
        return None
    return before + line_feed, line


def ended(text: str, is_complete: Callable[[str], bool]) -> tuple[str, bool] | None:
    r"""Return the statement before ``\g``, ``\gx`` or ``\G``, and whether to print a line for each
    value.

    Return None if the text does not end with one of them, or it is within a string.
    """
    stripped = text.rstrip()
    for ending, expanded in _ENDINGS.items():
        before = stripped.removesuffix(ending)
        if before != stripped and is_complete(f"{before};"):
            return before, expanded
    return None


def short(line: str) -> tuple[ShortCommand, str | None]:
    """Return the backslash command on a line, and its argument.

    Raises
    ------
    InvalidOperation
        There is no such command (the message names a similar one), or its argument is wrong.
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
        with contextlib.suppress(ValueError):  # a name may have quotes inside
            rest = " ".join(shlex.split(rest))
    return name if name.startswith(("\\", ".")) else name.lower(), rest or None


def switched(argument: str | None, now: bool, name: str) -> bool:
    """Return the new value of a switch; without an argument the switch is toggled.

    Raises
    ------
    InvalidOperation
        The argument is neither on nor off.
    """
    if argument is None:
        return not now
    if argument.lower() in ("on", "true", "1", "yes"):
        return True
    if argument.lower() in ("off", "false", "0", "no"):
        return False
    raise InvalidOperation(f"{name} is on or off, not {argument!r}")


def number(argument: str, name: str) -> int:
    """Parse a count.

    Raises
    ------
    InvalidOperation
        The argument is not a count.
    """
    if not argument.isascii() or not argument.isdigit():
        raise InvalidOperation(f"{name} takes a number, not {argument!r}")
    return int(argument)


def help_lines() -> list[str]:
    """Return all commands, one on a line."""
    heads = [f"{one.names[0]} {one.argument}".rstrip() for one in COMMANDS]
    widest = max(map(len, heads))
    listed = []
    for head, one in zip(heads, COMMANDS, strict=True):
        others = ", ".join(one.names[1:])
        listed.append(f"  {head:{widest}}  {one.about}{f' ({others})' if others else ''}")
    return [
        "A statement ends with a semicolon, and may go over many lines. Alt-Enter runs it without.",
        "Tab completes, Ctrl-R searches the history, Ctrl-X Ctrl-E opens an editor.",
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
