"""Values as a page has them: numbers, sizes, times, and texts of others, which may be hostile."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

from lakevilla.display import shown_text, size_text

#: A value on a page has at most so many characters.
MOST_CHARACTERS = 200
#: What stands for a value that nobody knows.
UNKNOWN = "—"
#: Python's calls and arguments in messages, and what to do on a page instead.
_FOR_PAGES = {
    r"`tables\(\)` lists the lake's tables, `discover\(\)` those that are not in it yet": (
        "the page of tables lists them"
    ),
    r"; to query a frame, pass views=.*": "",
    r"; use SELECT, or the method of the transaction for it": "; write a SELECT: pages only read",
    r"; register the data as a table or pass it in views": "; queries read the lake's tables alone",
    r"; give exactly one, and call sql again for each": "; give one",
    r"; read less, or raise the limit": "; read less",
}
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def for_pages(message: str) -> str:
    """Return an error's message with what to do on a page in place of Python's calls."""
    for pattern, words in _FOR_PAGES.items():
        message = re.sub(pattern, words, message)
    return message


def number(value: int | None) -> str:
    """Return a count, with commas between its thousands."""
    return UNKNOWN if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Return a number of bytes in a readable unit."""
    return UNKNOWN if value is None else size_text(value)


def instant(value: datetime | None) -> str:
    """Return a time to the second, in UTC."""
    return UNKNOWN if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def machine_time(value: datetime) -> str:
    """Return a time as HTML takes it."""
    return value.astimezone(UTC).isoformat(timespec="seconds")


def age(value: datetime | None, now: datetime) -> str:
    """Return how long ago a time was, in its largest unit."""
    if value is None:
        return UNKNOWN
    seconds = int((now - value).total_seconds())
    if seconds < 1:
        return "now"
    length, unit = next(one for one in _UNITS if seconds >= one[0])
    return f"{seconds // length} {unit} ago"


def short(value: object, most: int = MOST_CHARACTERS) -> str:
    """Return a value as text on one line, cut where it is long, without characters that steer."""
    text = value if isinstance(value, str) else _text(value)
    if len(text) > most:
        return f"{shown_text(text[:most])}…"
    return shown_text(text)


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return value[:MOST_CHARACTERS].hex()
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {short(one)}" for name, one in list(value.items())[:50])
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(short(one) for one in value[:50])
    return str(value)


def address(path: str, /, **params: object) -> str:
    """Return a path with parameters; those that are None or empty are left out."""
    given = {name: str(one) for name, one in params.items() if one not in (None, "")}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path
