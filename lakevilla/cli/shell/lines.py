"""A script or a pipe, cut into what a prompt would have got: statements and short commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from lakevilla.cli.shell.short import ended, is_short


@dataclass(frozen=True, slots=True)
class ScriptEntry:
    """A text to run, and the line on which it begins, from 1."""

    text: str
    line: int


def entries(lines: Iterable[str], is_complete: Callable[[str], bool]) -> Iterator[ScriptEntry]:
    """The entries of a text; the last may lack its semicolon.

    They come as soon as they are complete: a pipe may wait for the answer.
    """
    held: list[str] = []
    first = 0
    for number, line in enumerate(lines, 1):
        if not held:
            if not line.strip():
                continue
            if is_short(line):
                yield ScriptEntry(line, number)
                continue
            first = number
        held.append(line)
        if _may_end(line):
            text = "".join(held)
            if is_complete(text) or ended(text, is_complete) is not None:
                yield ScriptEntry(text, first)
                held = []
    if "".join(held).strip():
        yield ScriptEntry("".join(held), first)


def _may_end(line: str) -> bool:
    """Whether it is worth looking: only a semicolon or a backslash ends a statement."""
    return ";" in line or "\\" in line
