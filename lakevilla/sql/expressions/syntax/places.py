"""Where a text can't be read: the place is told in the text that its author has before him.

A parser counts from where it began to read, which is a condition within a statement within a
script. Whoever holds the longer text moves the place there.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakevilla.errors import LakeVillaError

_UNREAD = "_unread"


@dataclass(frozen=True, slots=True)
class UnreadPlace:
    """A line and a column in ``text``, both from 1; ``column`` is 0 where it is not known."""

    text: str
    line: int
    column: int

    def __str__(self) -> str:
        return f" at line {self.line}" + (f", column {self.column}" if self.column else "")


def note_place(error: LakeVillaError, place: UnreadPlace) -> LakeVillaError:
    """Remember the place that is told in the error's message; returns the error."""
    setattr(error, _UNREAD, place)
    return error


def place_within(error: LakeVillaError, text: str) -> None:
    """Tell the place in a ``text`` that holds the one which was read; nothing if it is not plain
    where.
    """
    known: UnreadPlace | None = getattr(error, _UNREAD, None)
    if known is None or known.text == text:
        return
    start = text.find(known.text)
    if start < 0 or text.find(known.text, start + 1) >= 0:
        _tell(error, known, None)
        return
    before = text[:start]
    _moved(error, known, text, before.count("\n") + 1, start - before.rfind("\n"))


def place_behind(error: LakeVillaError, line: int, column: int) -> None:
    """Tell the place in a text in which the one that was read begins there."""
    known: UnreadPlace | None = getattr(error, _UNREAD, None)
    if known is not None and (line, column) != (1, 1):
        _moved(error, known, known.text, line, column)


def _moved(error: LakeVillaError, known: UnreadPlace, text: str, line: int, column: int) -> None:
    own = known.column + column - 1 if known.line == 1 and known.column else known.column
    _tell(error, known, UnreadPlace(text, known.line + line - 1, own))


def _tell(error: LakeVillaError, known: UnreadPlace, place: UnreadPlace | None) -> None:
    said = "" if place is None else str(place)
    error.message = error.message.replace(str(known), said, 1)
    error.args = (error.message, *error.args[1:])
    setattr(error, _UNREAD, place)
