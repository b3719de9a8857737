"""Paths over the catalog, taken apart (docs/design/0035).

``path := ("/" step)+``, ``step := (name | "*" | "**") ("[" predicate "]" | "[" int "]")*``.
Steps are parts of a table's name until one of ``BELOW``; in double quotes it is a name whatever
it says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.sql.expressions.tree import Expr

#: What may come below each step that is no part of a table's name, and below the table itself.
BELOW: Mapping[str, tuple[str, ...]] = {
    "": ("snapshots", "files", "columns", "statistics", "commits"),
    "snapshots": ("files", "columns", "statistics"),
    "files": ("columns", "statistics"),
    "columns": (),
    "statistics": (),
    "commits": (),
}
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_POSITION = re.compile(r"\s*-?\d{1,18}\s*")


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step: its text (``*`` and ``**`` for any), and what narrows it, in order."""

    text: str
    is_any: bool = False
    filters: tuple[Expr | int, ...] = ()


@dataclass(frozen=True, slots=True)
class CatalogPath:
    """The steps of a table's name, and those below the table."""

    names: tuple[PathStep, ...]
    below: tuple[PathStep, ...]


def parsed(path: object) -> CatalogPath:
    """A path's steps.

    Raises
    ------
    InvalidOperation
        It is no path; the message tells where it ends to be one.
    """
    if not isinstance(path, str):
        raise InvalidOperation(f"a path is text, such as '/sales/*/files', not {shown(path)}")
    reader = _Reader(path)
    names: list[PathStep] = []
    below: list[PathStep] = []
    while not reader.ended:
        step, is_quoted = reader.step()
        known = BELOW[below[-1].text if below else ""]
        if below and (is_quoted or step.text not in known):
            there = f"there are {', '.join(known)}" if known else "it is the last step there is"
            raise InvalidOperation(
                f"path {shown(path)}: {below[-1].text} has no step {step.text!r}: {there}"
            )
        if below or (not is_quoted and step.text in known):
            below.append(step)
        else:
            names.append(step)
    if not names:
        raise InvalidOperation(
            f"path {shown(path)} names no table: '/**' stands for all of them, as in "
            f"'/**/{below[0].text if below else 'files'}'"
        )
    return CatalogPath(tuple(names), tuple(below))


class _Reader:
    """What of a path is not read yet."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0
        if not path.startswith("/"):
            raise self._wrong("it begins with '/', as in '/sales/orders/files'")

    @property
    def ended(self) -> bool:
        return self._at >= len(self._path)

    def step(self) -> tuple[PathStep, bool]:
        """The next step, and whether it is in quotes."""
        if self._path[self._at] != "/":
            raise self._wrong("a step ends with '/' or the end of the path")
        self._at += 1
        text, is_quoted = self._text()
        filters: list[Expr | int] = []
        while not self.ended and self._path[self._at] == "[":
            filters.append(self._filter())
        is_any = not is_quoted and text in ("*", "**")
        return PathStep(text, is_any, tuple(filters)), is_quoted

    def _text(self) -> tuple[str, bool]:
        rest = self._path[self._at :]
        if rest.startswith('"'):
            end = rest.find('"', 1)
            if end < 2:
                raise self._wrong("a name in quotes is not empty, and its quote is closed")
            self._at += end + 1
            return rest[1:end], True
        for text in ("**", "*"):
            if rest.startswith(text):
                self._at += len(text)
                return text, False
        found = _NAME.match(rest)
        if found is None:
            raise self._wrong('a step is a name, * or **; other names are in quotes, "a b"')
        self._at += found.end()
        return found[0], False

    def _filter(self) -> Expr | int:
        """What stands in brackets: quotes in it are closed first, and brackets are in pairs."""
        begin, depth, quote = self._at + 1, 0, ""
        for at in range(self._at, len(self._path)):
            char = self._path[at]
            if quote:
                quote = "" if char == quote else quote
            elif char in "'\"`":
                quote = char
            elif char == "[":
                depth += 1
            elif char == "]":
                depth -= 1
                if not depth:
                    self._at = at + 1
                    return self._read(self._path[begin:at])
        raise self._wrong("a bracket is not closed")

    def _read(self, text: str) -> Expr | int:
        if _POSITION.fullmatch(text):
            return int(text)
        try:
            return parse_predicate(text)
        except InvalidOperation as error:
            raise self._wrong(f"[{text}]: {error.message}") from None

    def _wrong(self, why: str) -> InvalidOperation:
        return InvalidOperation(f"path {shown(self._path)} can't be read at {self._at}: {why}")
