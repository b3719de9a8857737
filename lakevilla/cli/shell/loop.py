"""The loop: read, run, show; until its user leaves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from lakevilla.cli.shell.actions import Leave, act
from lakevilla.cli.shell.desk import Desk
from lakevilla.cli.shell.lines import ScriptEntry, entries
from lakevilla.cli.shell.running import run_statement
from lakevilla.cli.shell.short import ended, is_short, short_at_end
from lakevilla.cli.sql.ending import Interrupted
from lakevilla.cli.sql.placing import placed
from lakevilla.errors import InvalidOperation, LakeVillaError

#: Files that run files, at most.
_DEEPEST = 16


class EntryReader(Protocol):
    """Where entries come from."""

    def read(self, prompt: str, begun: str = "") -> str:
        """The next one, of which ``begun`` has been typed.

        EOFError at the end, KeyboardInterrupt where it was dropped.
        """


class Shell:
    """Runs what a reader gives it, on a desk."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._depth = 0

    def is_complete(self, text: str) -> bool:
        """Whether Enter runs a text that is being typed."""
        stripped = text.strip()
        return (
            not stripped.strip(";")
            or is_short(stripped)
            or ended(text, self.desk.session.is_complete) is not None
            or short_at_end(text, self.desk.session.is_complete) is not None
            or self.desk.session.is_complete(text)
        )

    def converse(self, reader: EntryReader) -> None:
        """Run what a person types. No error ends it, and no Ctrl-C."""
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
            It can't be read.
        LakeVillaError
            A statement raised; the message names the file and the line.
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
        """Run what comes in lines, up to the first error, which then names its line."""
        for entry in entries(lines, self.desk.session.is_complete):
            self._take(entry, source)

    def _take(self, entry: ScriptEntry, source: str | None) -> None:
        """One entry: a short command, or statements."""
        text = entry.text.rstrip()
        if is_short(text):
            with placed(source, entry.line):
                act(self.desk, text, self.run_file)
            return
        text, expanded = ended(text, self.desk.session.is_complete) or (text, False)
        if not text.strip(";"):
            return  # Enter alone
        with placed(source, entry.line):
            statements = self.desk.session.statements(text)
        for statement in statements:
            line = entry.line + statement.line - 1
            with placed(source, line, len(statements) > 1, statement.column):
                run_statement(self.desk, statement.text, expanded=expanded)
