"""Show values in shells as one line of text, and in notebooks as a small HTML table.

Only cached data is shown: no request is sent to the store, and nothing counts as read.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, TypeVar

__all__ = ["HtmlList", "HtmlFields", "fields_html", "shown_text", "size_text", "table_html"]

T = TypeVar("T")

#: The most rows that a notebook shows.
MOST_ROWS = 100
_MOST_CHARACTERS = 200


def table_html(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as an HTML table with a caption; rows beyond ``MOST_ROWS`` are only counted."""
    found = list(rows)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>"
        for row in found[:MOST_ROWS]
    )
    if len(found) > MOST_ROWS:
        body += f'<tr><td colspan="{len(heads)}">and {len(found) - MOST_ROWS} more</td></tr>'
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return (
        f"<table><caption>{escape(caption)}</caption>"
        + (f"<thead><tr>{top}</tr></thead>" if top and found else "")
        + f"<tbody>{body}</tbody></table>"
    )


def fields_html(value: Any, caption: str = "") -> str:
    """Return the fields of a dataclass as an HTML table, one field in a row."""
    return table_html(
        caption or type(value).__name__,
        ("field", "value"),
        [(field.name, getattr(value, field.name)) for field in _fields(value)],
    )


class HtmlFields:
    """A dataclass that a notebook shows as a table of its fields."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return fields_html(self)


class HtmlList(list[T]):
    """A list of dataclasses: one line each in a shell, a table in a notebook."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[" + ",\n ".join(map(repr, self)) + "]"

    def _repr_html_(self) -> str:
        if not self:
            return "<p>none</p>"
        heads = [field.name for field in _fields(self[0])]
        rows = ([getattr(one, head) for head in heads] for one in self)
        return table_html(f"{type(self[0]).__name__}: {len(self)}", heads, rows)


def size_text(size: int) -> str:
    """Return a number of bytes in a readable unit."""
    number = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            break
        number /= 1024
    return f"{size} bytes" if unit == "bytes" else f"{number:.1f} {unit}"


#: Characters that move a terminal's cursor, set colours, or change the direction of text.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def shown_text(text: str) -> str:
    """Return a text on one line, with control characters escaped as in Python."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _fields(value: Any) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(value) if field.repr]


def _cell(value: object) -> str:
    text = _text(value)
    return escape(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} ...")


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {item}" for name, item in value.items())
    if isinstance(value, tuple | list):
        return "; ".join(map(_text, value)) if _holds_fields(value) else ", ".join(map(str, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        texts = ((field.name, _text(getattr(value, field.name))) for field in _fields(value))
        return ", ".join(f"{name} {text}" for name, text in texts if text)
    return str(value)


def _holds_fields(values: Sequence[object]) -> bool:
    return any(dataclasses.is_dataclass(value) for value in values)
