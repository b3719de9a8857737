"""Rows for people: as text in a shell, as a table in a notebook."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from lakevilla.api.arguments import check_number
from lakevilla.display import MOST_ROWS, table_html
from lakevilla.errors import InvalidOperation
from lakevilla.rendering import grid, values_of
from lakevilla.settings import shown
from lakevilla.values import Look, cell

__all__ = ["GivesArrow", "register_formatter", "rows_html", "show"]

#: The most columns that a notebook shows.
_MOST_COLUMNS = 100
_LIMIT = 20


class GivesArrow(Protocol):
    """Rows of any library that gives Arrow: a table, a frame, a reader, a table of a lake."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


def show(table: GivesArrow, limit: int = _LIMIT) -> None:
    """Print rows as a table below the names of their columns, in a terminal cut to its width.

    Parameters
    ----------
    table : pyarrow.Table or object that gives Arrow
        What ``read`` and ``sql`` return, a frame of pandas or polars, or a table of the lake, of
        which no more rows are read than are shown.
    limit : int
        The most rows to print.

    Raises
    ------
    InvalidOperation
        The object gives no Arrow.

    Examples
    --------
    >>> lv.show(lake.read("stock"))
     sku  qty
    ──────────
     tea    5
    """
    most = check_number("limit", limit)
    frame, rest = _first(table, most)
    made = grid(frame, _look())
    lines = list(made.lines)
    if made.hidden:
        lines.append(f"no room for {len(made.hidden)} of {frame.num_columns} columns")
    if rest:
        lines.append(f"the first {frame.num_rows} rows{rest}")
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _first(table: Any, most: int) -> tuple[pa.Table, str]:
    """Return the first rows, and how many there are, as a text; empty if these are all."""
    if isinstance(table, pa.Table):
        more = table.num_rows > most
        return table.slice(0, most), f" of {table.num_rows}" if more else ""
    if not hasattr(table, "__arrow_c_stream__"):
        raise InvalidOperation(
            f"show takes a pyarrow.Table or another object that gives Arrow, not {shown(table)}"
        )
    reader = pa.RecordBatchReader.from_stream(table)
    batches = []
    found = 0
    for batch in reader:
        batches.append(batch.slice(0, most - found))
        found += batch.num_rows
        if found > most:
            break
    return pa.Table.from_batches(
        batches, reader.schema
    ), "" if found <= most else "; there are more"


def _look() -> Look:
    """Return the capabilities of the output."""
    ascii_only = False
    try:
        "─…".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        ascii_only = True
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return Look(width=width, ascii=ascii_only)


def register_formatter() -> None:
    """Have a notebook show each ``pyarrow.Table`` as a table, unless it has a form for them."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return
    html = shell.display_formatter.formatters["text/html"]
    try:
        html.lookup_by_type(pa.Table)
    except KeyError:
        html.for_type(pa.Table, rows_html)


def rows_html(frame: pa.Table) -> str:
    """Return the first rows of a table in HTML, with a caption that counts them all."""
    columns = frame.columns[:_MOST_COLUMNS]
    caption = f"{_counted(frame.num_rows, 'row')}, {_counted(frame.num_columns, 'column')}"
    if len(columns) < frame.num_columns:
        caption += f", of which the first {len(columns)} are shown"
    if frame.num_rows > MOST_ROWS:
        caption += f"; the first {MOST_ROWS} rows"
    values = [values_of(column.slice(0, MOST_ROWS)) for column in columns]
    return table_html(caption, frame.schema.names[:_MOST_COLUMNS], _cells(values))


def _cells(columns: list[list[Any]]) -> Iterator[list[str]]:
    for row in zip(*columns, strict=True):
        yield ["NULL" if value is None else cell(value) for value in row]


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
