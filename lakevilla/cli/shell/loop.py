"""The shell: read a statement, run it, show its result."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

import typer

import lakevilla as lv
from lakevilla.cli.command import INTERRUPTED
from lakevilla.cli.shell.actions import Desk, Leave, act
from lakevilla.cli.shell.screen import ScriptEntry, ended, entries, is_short, short_at_end
from lakevilla.cli.sql.ending import (
    Interrupted,
    after_interrupt,
    described,
    made_by_itself,
    refuse_open,
    tag_of,
)
from lakevilla.cli.sql.script import piped, placed, used_by
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.results import CommitResult, OperationResult

# -------------------- loop
#
# The loop of reading, running and showing, until the user leaves.


#: The most files that may include one another.
_DEEPEST = 16


class EntryReader(Protocol):
    """The interface to a source of entries: a terminal or a pipe."""

    def read(self, prompt: str, begun: str = "") -> str:
        """Return the next entry that the user enters, after the text ``begun``.

        Raises EOFError at the end of the input, KeyboardInterrupt if the user drops the entry.
        """


class Shell:
    """A runner of entries on a shell state."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._depth = 0

    def is_complete(self, text: str) -> bool:
        """Return whether the Enter key runs the typed text, instead of beginning a new line."""
        stripped = text.strip()
        return (
            not stripped.strip(";")
            or is_short(stripped)
            or ended(text, self.desk.session.is_complete) is not None
            or short_at_end(text, self.desk.session.is_complete) is not None
            or self.desk.session.is_complete(text)
        )

    def converse(self, reader: EntryReader) -> None:
        """Run the entries that a user types; neither an error nor Ctrl-C ends the loop."""
        begun = ""
        while True:
            try:
                text = reader.read(self.desk.prompt, begun)
                begun, line = short_at_end(text, self.desk.session.is_complete) or ("", text)
                self._take(ScriptEntry(line, 1), None)
            except (EOFError, Leave):
                return
            except KeyboardInterrupt:
                begun = ""
            except Interrupted as stopped:
                self.desk.screen.aside(str(stopped))
            except LakeVillaError as error:
                self.desk.screen.error(error)

    def run_file(self, path: Path) -> None:
        """Run the statements of a file, up to the first error.

        Raises
        ------
        InvalidOperation
            The file can't be read.
        LakeVillaError
            The error of a statement, with the file and the line in the message.
        """
        if self._depth == _DEEPEST:
            raise InvalidOperation(f"{path}: files run files {_DEEPEST} deep: does one run itself?")
        self._depth += 1
        try:
            with path.open(encoding="utf-8-sig") as lines:
                self.run_lines(lines, str(path))
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InvalidOperation(f"can't read {path}: {why}") from None
        finally:
            self._depth -= 1

    def run_lines(self, lines: Iterable[str], source: str) -> None:
        """Run the entries in lines, up to the first error, whose message names the line."""
        for entry in entries(lines, self.desk.session.is_complete):
            self._take(entry, source)

    def _take(self, entry: ScriptEntry, source: str | None) -> None:
        """Run one entry: a backslash command, or statements."""
        text = entry.text.rstrip()
        if is_short(text):
            with placed(source, entry.line):
                act(self.desk, text, self.run_file)
            return
        text, expanded = ended(text, self.desk.session.is_complete) or (text, False)
        if not text.strip(";"):
            return  # the user has pressed Enter without text
        with placed(source, entry.line):
            statements = self.desk.session.statements(text)
        for statement in statements:
            line = entry.line + statement.line - 1
            with placed(source, line, len(statements) > 1, statement.column):
                run_statement(self.desk, statement.text, expanded=expanded)


# -------------------- running
#
# Run one statement of a shell, and show its result.


def run_statement(desk: Desk, text: str, *, expanded: bool = False) -> None:
    """Run one statement and show its result.

    Raises
    ------
    Interrupted
    LakeVillaError
        The errors of ``Session.sql``.
    """
    began = time.perf_counter()
    session = desk.session
    try:
        result = session.sql(text, used_by(text, desk.values))
        seconds = time.perf_counter() - began
    except KeyboardInterrupt:
        raise Interrupted(after_interrupt(desk.lake, session, text)) from None
    finally:
        desk.names.forget(columns=_defines(text))
    try:
        if result is None or isinstance(result, OperationResult | CommitResult):
            desk.screen.line(described(result, text, made_by_itself(session)))
        else:
            desk.screen.rows(result, expanded=expanded)
        if desk.choices.timing:
            desk.screen.line(f"time: {_time(seconds)}")
    except KeyboardInterrupt:
        raise Interrupted("stopped: the statement has ended, and its result is cut short") from None


def _defines(text: str) -> bool:
    """Return whether a statement may have changed tables' columns."""
    return tag_of(text).split()[0] in ("CREATE", "DROP", "ALTER", "ROLLBACK", "MERGE")


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    return f"{int(seconds // 60)} min {seconds % 60:.0f} s"


# -------------------- opened
#
# A shell with its input: a prompt, or a pipe.


def run_shell(
    lake: lv.Lake[Any],
    ref: str | None,
    texts: Sequence[str] | None,
    values: Mapping[str, object],
    limits: Mapping[str, Any],
) -> None:
    """Run the given texts; if there are none, run the input until its end, or until the user
    leaves.
    """
    desk = Desk(lake, ref, values, limits)
    try:
        if texts:
            _run_texts(desk, Shell(desk), [("-c", io.StringIO(text)) for text in texts])
        elif sys.stdin is not None and sys.stdin.isatty():
            _converse(desk, Shell(desk))
        else:
            _run_texts(desk, Shell(desk), [("stdin", piped())])
    finally:
        desk.close()


def _converse(desk: Desk, run: Shell) -> None:
    try:
        from lakevilla.cli.shell.prompt import Prompt
    except ImportError as error:
        raise InvalidOperation(
            f"the prompt needs a package that is not installed ({error.name or error}): install "
            "LakeVilla with its extra shell, `pip install 'lakevilla[shell]'`"
        ) from error
    desk.screen.line(f"{desk.lake.root}: \\? lists the commands, Ctrl-D leaves")
    run.converse(Prompt(run.is_complete, lambda: desk.names))


def _run_texts(desk: Desk, run: Shell, texts: Sequence[tuple[str, TextIO]]) -> None:
    try:
        for source, lines in texts:
            run.run_lines(lines, source)
        refuse_open(desk.session)
    except Leave:
        pass
    except Interrupted as stopped:
        desk.screen.aside(str(stopped))
        raise typer.Exit(INTERRUPTED) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except UnicodeDecodeError:
        raise InvalidOperation("can't read stdin: it is not UTF-8") from None
