"""What the shell shows, and where."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TextIO

from lakevilla.cli.output import Output
from lakevilla.cli.rendering.look import Format, Look
from lakevilla.cli.shell.pager import page, pager_of
from lakevilla.errors import LakeVillaError

if TYPE_CHECKING:
    import pyarrow as pa

#: A cell in a pager is cut to so many characters: all lines are as long as the longest.
_WIDEST_PAGED = 500
#: Lines of the terminal that are not for a result: what was typed, and the next prompt.
_OTHER_LINES = 3


@dataclass(slots=True)
class Choices:
    """What a user may set. ``rows`` 0 shows all; ``target`` takes results instead of the screen."""

    form: Format = "table"
    expanded: bool = False
    timing: bool = False
    rows: int = 1000
    pager: bool = True
    target: TextIO | None = None


class Screen:
    """Results go to stdout or to a file, what is said beside them to stderr."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self._output = Output(as_json=False)

    @property
    def is_terminal(self) -> bool:
        return self._output.console.is_terminal

    def line(self, text: str) -> None:
        """What became of a statement: for people, so not into a file of results."""
        if self.is_terminal:
            self._output.line(text)
        else:
            self._output.aside(text)

    def aside(self, text: str) -> None:
        self._output.aside(text)

    def error(self, error: LakeVillaError) -> None:
        self._output.error(error)

    def lines(self, lines: Sequence[str]) -> None:
        """Text that is ready to be shown."""
        self._print(lines, len(lines))

    def rows(self, frame: pa.Table, *, expanded: bool = False, counted: bool = True) -> None:
        """The rows of a query; ``expanded`` for this once."""
        from lakevilla.cli.rendering.formats import lines_of
        from lakevilla.cli.rendering.grid import grid

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
        """``count`` None for lines that are too wide for the terminal."""
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
        """The pager, where results can be paged."""
        if not (self.choices.pager and self.is_terminal and sys.stdin.isatty()):
            return None
        return pager_of(os.environ)


_FOR_PEOPLE = ("table", "vertical")
