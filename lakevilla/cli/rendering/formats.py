"""The forms in which rows can be asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakevilla.cli.rendering.columns import is_number, values_of
from lakevilla.cli.rendering.grid import grid
from lakevilla.cli.rendering.look import Format, Look
from lakevilla.cli.rendering.values import cell, json_text, text_of
from lakevilla.display import shown_text


def lines_of(frame: pa.Table, form: Format, look: Look | None = None) -> Iterator[str]:
    """The lines of a table in one of the forms, for a terminal that looks so."""
    look = look or Look()
    match form:
        case "table":
            yield from grid(frame, look).lines
        case "vertical":
            yield from _vertical(frame, look)
        case "csv":
            yield from _csv(frame)
        case "json":
            yield json_text(_objects(frame))
        case "ndjson":
            yield from map(json_text, _objects(frame))
        case "markdown":
            yield from _markdown(frame)


def _rows(frame: pa.Table) -> Iterator[tuple[object, ...]]:
    """By place: two columns of a query may have one name."""
    return zip(*map(values_of, frame.columns), strict=True)


def _objects(frame: pa.Table) -> list[dict[str, object]]:
    return [dict(zip(frame.schema.names, row, strict=True)) for row in _rows(frame)]


def _csv(frame: pa.Table) -> Iterator[str]:
    """RFC 4180 with line feeds. NULL is nothing, and an empty text is two quotes."""
    for row in (frame.schema.names, *_rows(frame)):
        yield ",".join("" if value is None else _quoted(text_of(value)) for value in row)


def _quoted(text: str) -> str:
    if text and not any(mark in text for mark in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def _markdown(frame: pa.Table) -> Iterator[str]:
    """A table as GitHub has them."""
    numbers = [is_number(field.type) for field in frame.schema]
    yield _markdown_row(frame.schema.names)
    yield "|" + "|".join(" ---: " if number else " --- " for number in numbers) + "|"
    for row in _rows(frame):
        yield _markdown_row(["" if value is None else cell(value) for value in row])


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(shown_text(text).replace("|", "\\|") for text in cells) + " |"


def _vertical(frame: pa.Table, look: Look) -> Iterator[str]:
    """A block for each row, a line for each of its values: for rows that are wider than a line."""
    names = [shown_text(name) for name in frame.schema.names]
    widest = max(map(len, names), default=0)
    dash, dot = ("-", "|") if look.ascii else ("─", "│")
    for number, row in enumerate(_rows(frame), 1):
        yield f"{dash}[ {number} ]".ljust(widest + 12, dash)
        for name, value in zip(names, row, strict=True):
            yield f"{name:{widest}} {dot} {'NULL' if value is None else cell(value)}"
