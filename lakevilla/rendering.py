"""Render rows: as grids for users, and in file formats for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from lakevilla.display import shown_text
from lakevilla.values import Format, Look, cell, json_text, text_of

# -------------------- grid
#
# Rows for users: columns below their names, cut to the width of a terminal if there is one.


_GAP = 2
_EDGE = 1
_NULL = "NULL"
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Grid:
    """Lines to print, at most ``width`` wide, and the columns that did not fit."""

    lines: Iterable[str]
    hidden: tuple[str, ...]
    width: int


def grid(frame: pa.Table, style: Look) -> Grid:
    """Return the rows of a table as lines below the names of the columns."""
    names = [shown_text(name) for name in frame.schema.names]
    cells = [
        [None if value is None else cell(value) for value in values_of(column)]
        for column in frame.columns
    ]
    room = None if style.width is None else max(style.width - 2 * _EDGE, 1)
    most = min((limit for limit in (room, style.widest) if limit is not None), default=None)
    natural = [_widest([name, *column], most) for name, column in zip(names, cells, strict=True)]
    widths = natural if room is None else fitted(natural, room, _GAP)
    shown = [index for index, width in enumerate(widths) if width is not None]
    hidden = tuple(names[index] for index, width in enumerate(widths) if width is None)
    right = [is_number(field.type) for field in frame.schema]
    final = [_Column(widths[index] or 0, right[index]) for index in shown]
    rows = zip(*(cells[index] for index in shown), strict=True) if shown else iter(())
    # Only columns in the middle are left out, so the mark stands between the first and last ones.
    mark = next((at for at, index in enumerate(shown) if index != at), len(shown))
    layout = _Layout(final, mark if hidden else None, style)
    return Grid(layout.lines([names[index] for index in shown], rows), hidden, layout.width)


@dataclass(frozen=True, slots=True)
class _Column:
    width: int
    right: bool


@dataclass(frozen=True, slots=True)
class _Layout:
    """The width of each column in a line, and the mark for columns that are left out."""

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
    """Return the width of a column; read no more of each text than can be shown."""
    found = max(
        cell_len(_NULL if text is None else text if most is None else text[: most + 1])
        for text in texts
    )
    return found if most is None else min(found, most)


# -------------------- columns
#
# The values of an Arrow column, in the form in which they are written.


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values, as text if Python can't represent one, such as the year 10000."""
    try:
        return _plain_values(column)
    except (ValueError, OverflowError, pa.ArrowException):
        return list(column.cast(pa.string()).to_pylist())


def _plain_values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values, maps as dicts if their keys are unique and hashable."""
    try:
        return list(column.to_pylist(maps_as_pydicts="strict"))
    except (KeyError, TypeError):
        return list(column.to_pylist())


def is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


# -------------------- widths
#
# Choose the columns that fit on a line, and their widths.


#: The width to which columns are cut before some of them are left out.
_NARROWEST = 8


def fitted(widths: Sequence[int], room: int, gap: int) -> list[int | None]:
    """Return widths at which the columns fit into ``room``; None for columns that are left out.

    The widest columns are cut first, to the same width, so that narrow columns stay whole. If the
    columns don't fit at the smallest width, columns in the middle are left out: the first ones
    distinguish rows, and the last ones are often computed by the query. Room for one more ``gap``
    and one character is reserved for the mark in place of the columns left out.
    """
    if _total(widths, gap) <= room:
        return list(widths)
    kept = _those_that_fit([min(width, _NARROWEST) for width in widths], room, gap)
    left_out = len(kept) < len(widths)
    own = room - gap * (len(kept) - 1) - (gap + 1 if left_out else 0)
    cut = _cut({index: widths[index] for index in kept}, own)
    return [cut.get(index) for index in range(len(widths))]


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * max(len(widths) - 1, 0)


def _those_that_fit(narrowest: list[int], room: int, gap: int) -> list[int]:
    """Return the indexes of the columns to keep, from both ends in turn, and at least the first."""
    if _total(narrowest, gap) <= room:
        return list(range(len(narrowest)))
    left = room - (gap + 1)  # room for the mark
    front, back = 0, len(narrowest) - 1
    kept: list[int] = []
    at_front = True
    while front <= back:
        place = front if at_front else back
        left -= narrowest[place] + (gap if kept else 0)
        if left < 0:
            break
        kept.append(place)
        front, back = (front + 1, back) if at_front else (front, back - 1)
        at_front = not at_front
    return sorted(kept) or [0]


def _cut(widths: dict[int, int], room: int) -> dict[int, int]:
    """Cut the widest columns until all fit: each gets its width, or an equal share of the rest."""
    found: dict[int, int] = {}
    ascending = sorted(widths, key=lambda index: widths[index])
    for number, index in enumerate(ascending):
        share = max(room // (len(ascending) - number), 1)
        found[index] = min(widths[index], share)
        room -= found[index]
    return found


# -------------------- formats
#
# The formats in which rows can be requested.


def lines_of(frame: pa.Table, form: Format, style: Look | None = None) -> Iterator[str]:
    """Return the lines of a table in one of the formats, for an output with these capabilities."""
    style = style or Look()
    match form:
        case "table":
            yield from grid(frame, style).lines
        case "vertical":
            yield from _vertical(frame, style)
        case "csv":
            yield from _csv(frame)
        case "json":
            yield json_text(_objects(frame))
        case "ndjson":
            yield from map(json_text, _objects(frame))
        case "markdown":
            yield from _markdown(frame)


def _rows(frame: pa.Table) -> Iterator[tuple[object, ...]]:
    """Return rows as lists of values: two columns of a query may have the same name."""
    return zip(*map(values_of, frame.columns), strict=True)


def _objects(frame: pa.Table) -> list[dict[str, object]]:
    return [dict(zip(frame.schema.names, row, strict=True)) for row in _rows(frame)]


def _csv(frame: pa.Table) -> Iterator[str]:
    """Yield CSV as of RFC 4180, with line feeds. NULL is empty, an empty text ``""``."""
    for row in (frame.schema.names, *_rows(frame)):
        yield ",".join("" if value is None else _quoted(text_of(value)) for value in row)


def _quoted(text: str) -> str:
    if text and not any(mark in text for mark in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def _markdown(frame: pa.Table) -> Iterator[str]:
    """Yield a table in GitHub's Markdown."""
    numbers = [is_number(field.type) for field in frame.schema]
    yield _markdown_row(frame.schema.names)
    yield "|" + "|".join(" ---: " if number else " --- " for number in numbers) + "|"
    for row in _rows(frame):
        yield _markdown_row(["" if value is None else cell(value) for value in row])


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(shown_text(text).replace("|", "\\|") for text in cells) + " |"


def _vertical(frame: pa.Table, style: Look) -> Iterator[str]:
    """Yield a block for each row with a line for each value, for rows wider than the terminal."""
    names = [shown_text(name) for name in frame.schema.names]
    widest = max(map(len, names), default=0)
    dash, dot = ("-", "|") if style.ascii else ("─", "│")
    for number, row in enumerate(_rows(frame), 1):
        yield f"{dash}[ {number} ]".ljust(widest + 12, dash)
        for name, value in zip(names, row, strict=True):
            yield f"{name:{widest}} {dot} {'NULL' if value is None else cell(value)}"
