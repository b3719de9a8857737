"""The history as a graph: a pure function from commits to points and lines.

A line of the lake, its main one or a branch, is a track: a column of points, the newest on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

#: The sizes of the drawing, in pixels; ``page.css`` has the height of a row, too.
ROW, STEP, LEFT, TOP = 52, 20, 14, 36
#: So many colours are in ``page.css``; then they repeat.
COLOURS = 6


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit, on the track of the line on which it was made."""

    track: int
    version: int
    timestamp: datetime
    kind: str
    what: str
    tables: tuple[str, ...]
    on: str | None
    merged: str | None = None
    tags: tuple[str, ...] = ()
    heads: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the lake; ``base``: the version of the main one with which a branch begins."""

    name: str
    track: int
    base: int = 0


@dataclass(frozen=True, slots=True)
class Drawing:
    """The lines and points of a graph, in pixels."""

    width: int
    height: int
    paths: tuple[tuple[int, str], ...] = ()
    dots: tuple[tuple[int, int, int, bool], ...] = ()
    text: str = field(default="")


def drawing(commits: Sequence[Commit], lines: Sequence[Line]) -> Drawing:
    """Return the graph of commits that are sorted, the newest first."""
    rows = {(one.track, one.version): row for row, one in enumerate(commits)}
    tracks = {line.name: line.track for line in lines}
    width = LEFT * 2 + STEP * max((line.track for line in lines), default=0)
    paths = [path for line in lines for path in _line(commits, rows, line)]
    paths += [path for one in commits if one.merged for path in _merge(one, rows, tracks)]
    dots = [
        (one.track % COLOURS, _x(one.track), _y(row), one.kind != "transaction")
        for row, one in enumerate(commits)
    ]
    height = TOP + ROW * len(commits)
    return Drawing(width, height, tuple(paths), tuple(dots), _described(commits, lines))


def _line(
    commits: Sequence[Commit], rows: Mapping[tuple[int, int], int], line: Line
) -> list[tuple[int, str]]:
    own = [row for row, one in enumerate(commits) if one.track == line.track]
    colour, x = line.track % COLOURS, _x(line.track)
    found = []
    if len(own) > 1:
        found.append((colour, f"M{x} {_y(own[0])}V{_y(own[-1])}"))
    base = rows.get((0, line.base))
    if line.track and base is not None:
        end = _y(base)
        start = _y(own[-1]) if own else end - ROW // 2
        if start < end:
            found.append((colour, f"M{x} {start}V{end - 16}Q{x} {end} {_x(0)} {end}"))
    elif line.track and own:  # it begins on an older page
        found.append((colour, f"M{x} {_y(own[-1])}V{TOP + ROW * len(commits)}"))
    return found


def _merge(
    one: Commit, rows: Mapping[tuple[int, int], int], tracks: Mapping[str, int]
) -> list[tuple[int, str]]:
    """Return the line from the branch's newest commit in a merge to the merge."""
    name, _, version = (one.merged or "").rpartition("@")
    track = tracks.get(name)
    if track is None or not version.isdigit():
        return []
    start = rows.get((track, int(version)))
    end = rows[one.track, one.version]
    if start is None or start <= end:
        return []
    x = _x(track)
    path = f"M{x} {_y(start)}V{_y(end) + 16}Q{x} {_y(end)} {_x(one.track)} {_y(end)}"
    return [(track % COLOURS, path)]


def _x(track: int) -> int:
    return LEFT + STEP * track


def _y(row: int) -> int:
    return TOP + ROW * row + ROW // 2


def _described(commits: Sequence[Commit], lines: Sequence[Line]) -> str:
    merges = sum(one.merged is not None for one in commits)
    branches = sum(line.track > 0 for line in lines)
    return (
        f"{len(commits)} commits, {branches} branches and {merges} merges; the table beside the "
        "graph lists each commit with its branch."
    )
