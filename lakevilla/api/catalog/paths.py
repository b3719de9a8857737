"""Paths over the catalog, parsed (docs/design/0086-paths.md).

``path := "/" | step+``, ``step := "/" (name | "*" | "**")? ("[" predicate "]" | "[" int "]")*``.
Steps are parts of a table's name until one of ``BELOW``; a step in double quotes is always a name,
and a step of brackets alone stands for ``*``. Below a table a step may name one member of the step
above, such as a column or a partition; ``*`` is any of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches

from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.sql.expressions.tree import Expr

#: The steps that may follow each step below the table, and, under ``""``, the table itself.
BELOW: Mapping[str, tuple[str, ...]] = {
    "": ("snapshots", "files", "partitions", "columns", "statistics", "commits"),
    "snapshots": ("files", "partitions", "columns", "statistics"),
    "files": ("columns", "statistics"),
    "partitions": ("files",),
    "columns": (),
    "statistics": (),
    "commits": (),
}
#: What the name of a member looks like, where not every name may be one. Quoted names may always.
_MEMBERS = {
    "snapshots": re.compile(r"\d{1,18}"),
    "commits": re.compile(r"\d{1,18}"),
    "files": re.compile(r".*\..*"),
    "partitions": re.compile(r".*=.*"),
}
_NAME = re.compile(r"[A-Za-z0-9_.=%-]+")
_POSITION = re.compile(r"\s*-?\d{1,18}\s*")


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step of a catalog path, and the filters that follow it in brackets, in order.

    A step is a name, or (``is_any``) ``*`` for one part of a name or ``**`` for one part or more.
    A filter is a predicate or a position. ``member``: the one row that a path names below a step,
    after its first ``before`` filters.
    """

    text: str
    is_any: bool = False
    filters: tuple[Expr | int, ...] = ()
    is_quoted: bool = False
    member: str | None = None
    before: int = 0


@dataclass(frozen=True, slots=True)
class CatalogPath:
    """A parsed path: the steps of a table's name, and the steps below the table."""

    names: tuple[PathStep, ...]
    below: tuple[PathStep, ...]


def parsed(path: object) -> CatalogPath:
    """Return a path's steps.

    Raises
    ------
    InvalidOperation
        The path is not valid. If it can't be parsed, the message has the position.
    """
    if not isinstance(path, str):
        raise InvalidOperation(f"a path is text, such as '/sales/*/files', not {shown(path)}")
    if path == "/":
        return CatalogPath((PathStep("**", True, ()),), ())
    reader = _Reader(path)
    names: list[PathStep] = []
    below: list[PathStep] = []
    has_member = False
    while not reader.ended:
        step = reader.step()
        above = below[-1].text if below else ""
        is_kind = not step.is_quoted and step.text in BELOW[above]
        if is_kind:
            below.append(step)
            has_member = False
        elif not below:
            _refuse_slash(path, step)
            names.append(step)
        elif has_member or not _is_member(above, step):
            raise InvalidOperation(f"path {shown(path)}: {no_step(above, step.text)}")
        else:
            below[-1] = _with_member(below[-1], step)
            has_member = True
    if not names:
        raise InvalidOperation(
            f"path {shown(path)} names no table: '/**' stands for all of them, as in "
            f"'/**/{below[0].text if below else 'files'}'"
        )
    return CatalogPath(tuple(names), tuple(below))


def no_step(above: str, text: str) -> str:
    """Return the part of a message that says that there is no such step below another."""
    known = BELOW[above]
    there = f"there are {', '.join(known)}" if known else "it is the last step there is"
    return f"{above or 'a table'} has no step {text!r}{nearest(text, known)}: {there}"


def nearest(text: str, known: Iterable[str]) -> str:
    """Return a question for the known name that is nearest to a text; empty if none is near."""
    found = get_close_matches(text, list(known), 1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def _refuse_slash(path: str, step: PathStep) -> None:
    """Refuse a part of a table's name with a slash in its quotes, which no table can have."""
    if "/" in step.text:
        parts = "/".join(f'"{part}"' for part in step.text.replace('"', '""').split("/") if part)
        raise InvalidOperation(
            f"path {shown(path)}: a part of a table's name has no '/': write /{parts}, each part "
            "in its own quotes"
        )


def _is_member(above: str, step: PathStep) -> bool:
    """Return whether a step may name a member of the step above it."""
    if step.is_quoted or step.text == "*":
        return True
    looks = _MEMBERS.get(above)
    return not step.is_any and (looks is None or looks.fullmatch(step.text) is not None)


def _with_member(kind: PathStep, step: PathStep) -> PathStep:
    member = None if step.is_any else step.text
    filters = (*kind.filters, *step.filters)
    return replace(kind, filters=filters, member=member, before=len(kind.filters))


class _Reader:
    """The part of a path that is not parsed yet."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0
        if not path.startswith("/"):
            raise self._wrong("it must begin with '/', as in '/sales/orders/files'")

    @property
    def ended(self) -> bool:
        return self._at >= len(self._path)

    def step(self) -> PathStep:
        """Return the next step."""
        if self._path[self._at] != "/":
            raise self._wrong(
                "after a step, '/' or the end of the path must follow; a name with other "
                'characters than letters without accents, digits and _.=%- needs quotes, "a b"'
            )
        self._at += 1
        text, is_quoted = self._text()
        filters: list[Expr | int] = []
        while not self.ended and self._path[self._at] == "[":
            filters.append(self._filter())
        is_any = not is_quoted and text in ("*", "**")
        return PathStep(text, is_any, tuple(filters), is_quoted)

    def _text(self) -> tuple[str, bool]:
        rest = self._path[self._at :]
        if rest.startswith('"'):
            return self._quoted(), True
        if rest.startswith("["):
            return "*", False
        for text in ("**", "*"):
            if rest.startswith(text):
                self._at += len(text)
                return text, False
        found = _NAME.match(rest)
        if found is None:
            raise self._wrong('a step must be a name, * or **; other names need quotes, "a b"')
        self._at += found.end()
        return found[0], False

    def _quoted(self) -> str:
        """Return a name in quotes; in it, a quote is doubled."""
        found = re.compile(r'"((?:[^"]|"")+)"').match(self._path, self._at)
        if found is None:
            raise self._wrong(
                "a name in quotes must not be empty, and must end with a quote; a quote in it is "
                "doubled"
            )
        self._at = found.end()
        return found[1].replace('""', '"')

    def _filter(self) -> Expr | int:
        """Return the filter in brackets; outside of quoted text, brackets come in pairs."""
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
                    found = self._read(self._path[begin:at])
                    self._at = at + 1
                    return found
        raise self._wrong("a bracket is not closed")

    def _read(self, text: str) -> Expr | int:
        if not text.strip():
            raise self._wrong(
                "[] is empty: give a predicate, as in [rows > 0], or a position, as in [-1]"
            )
        if _POSITION.fullmatch(text):
            return int(text)
        try:
            return parse_predicate(text)
        except InvalidOperation as error:
            raise self._wrong(f"[{text}]: {error.message}") from None

    def _wrong(self, why: str) -> InvalidOperation:
        return InvalidOperation(f"path {shown(self._path)} can't be read at {self._at}: {why}")
