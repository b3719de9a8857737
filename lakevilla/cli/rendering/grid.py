"""Rows for people: columns below their names, cut to the width of a terminal if there is one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from lakevilla.cli.rendering.columns import is_number, values_of
from lakevilla.cli.rendering.look import Look
from lakevilla.cli.rendering.values import cell
from lakevilla.cli.rendering.widths import fitted
from lakevilla.display import shown_text

_GAP = 2
_EDGE = 1
_NULL = "NULL"
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Grid:
    """Lines to print; ``hidden`` columns had no room, ``width`` is that of a line."""

    lines: Iterable[str]
    hidden: tuple[str, ...]
    width: int


def grid(frame: pa.Table, look: Look) -> Grid:
    """The rows of a table under the names of its columns."""
    names = [shown_text(name) for name in frame.schema.names]
    cells = [
        [None if value is None else cell(value) for value in values_of(column)]
        for column in frame.columns
    ]
    room = None if look.width is None else max(look.width - 2 * _EDGE, 1)
    most = min((limit for limit in (room, look.widest) if limit is not None), default=None)
    natural = [_widest([name, *column], most) for name, column in zip(names, cells, strict=True)]
    widths = natural if room is None else fitted(natural, room, _GAP)
    shown = [place for place, width in enumerate(widths) if width is not None]
    hidden = tuple(names[place] for place, width in enumerate(widths) if width is None)
    right = [is_number(field.type) for field in frame.schema]
    final = [_Column(widths[place] or 0, right[place]) for place in shown]
    rows = zip(*(cells[place] for place in shown), strict=True) if shown else iter(())
    # Columns are left out of the middle alone: what follows goes behind the mark.
    mark = next((at for at, place in enumerate(shown) if place != at), len(shown))
    layout = _Layout(final, mark if hidden else None, look)
    return Grid(layout.lines([names[place] for place in shown], rows), hidden, layout.width)


@dataclass(frozen=True, slots=True)
class _Column:
    width: int
    right: bool


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where each column of a line stands, and the mark for those that are left out."""

    columns: Sequence[_Column]
    mark: int | None
    look: Look

    @property
    def width(self) -> int:
        own = [column.width for column in self.columns] + ([1] if self.mark is not None else [])
        return sum(own) + _GAP * max(len(own) - 1, 0) + 2 * _EDGE

    def lines(self, names: Sequence[str], rows: Iterable[Sequence[str | None]]) -> Iterator[str]:
        head = self._line(names)
        yield f"{_BOLD}{head}{_PLAIN}" if self.look.colour else head
        yield ("-" if self.look.ascii else "─") * self.width
        for row in rows:
            yield self._line(row)

    def _line(self, row: Sequence[str | None]) -> str:
        parts = [self._cell(text, column) for text, column in zip(row, self.columns, strict=True)]
        if self.mark is not None:
            parts.insert(self.mark, self._dots)
        return (" " * _EDGE + (" " * _GAP).join(parts)).rstrip()

    def _cell(self, text: str | None, column: _Column) -> str:
        shown = self._cut(_NULL if text is None else text, column.width)
        padding = " " * (column.width - cell_len(shown))
        if text is None and self.look.colour:
            shown = f"{_DIM}{shown}{_PLAIN}"
        return padding + shown if column.right else shown + padding

    def _cut(self, text: str, width: int) -> str:
        if len(text) <= 2 * width and cell_len(text) <= width:
            return text
        return set_cell_size(text[:width], width - 1).rstrip() + self._dots

    @property
    def _dots(self) -> str:
        return "~" if self.look.ascii else "…"


def _widest(texts: Iterable[str | None], most: int | None) -> int:
    """The width of a column; no more of a text is looked at than can be shown."""
    found = max(
        cell_len(_NULL if text is None else text if most is None else text[: most + 1])
        for text in texts
    )
    return found if most is None else min(found, most)
