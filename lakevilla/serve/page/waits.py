"""The graph of waits: a pure function from transactions to circles and arrows.

A transaction stands below those for which it waits. Those that wait for each other in a ring have
a ring around them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakevilla.results import TransactionInfo

#: The drawing has so many transactions.
MOST = 40
_STEP, _RADIUS, _EDGE = 76, 20, 34

Edges = Mapping[int, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Circle:
    """A transaction of the drawing, by its number in the table."""

    number: int
    x: int
    y: int
    in_ring: bool


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """Circles, and arrows from each that waits to the one for which it waits."""

    width: int
    height: int
    circles: tuple[Circle, ...]
    arrows: tuple[str, ...]
    text: str


def wait_graph(transactions: Sequence[TransactionInfo]) -> WaitGraph | None:
    """Return the graph of the first transactions; None if nobody waits."""
    shown = transactions[:MOST]
    numbers = {one.id: at for at, one in enumerate(shown, 1)}
    edges = {
        numbers[one.id]: [numbers[to] for to in one.waits_for if to in numbers] for one in shown
    }
    waiting = {number for number, found in edges.items() if found}
    if not waiting:
        return None
    drawn = waiting.union(*edges.values())
    reached = {number: _reached(edges, number) for number in edges}
    rings = {number for number in edges if number in reached[number]}
    depths = _depths(edges, reached)
    rows: dict[int, list[int]] = {}
    for number in sorted(drawn):
        rows.setdefault(depths[number], []).append(number)
    circles = {
        number: Circle(number, _EDGE + _STEP * at, _EDGE + _STEP * row, number in rings)
        for row, depth in enumerate(sorted(rows))
        for at, number in enumerate(rows[depth])
    }
    arrows = [
        _arrow(circles[a], circles[b])
        for a, found in edges.items()
        for b in found
        # Who waits for c, and for b that waits for c, needs no arrow to c.
        if a in rings or not any(b in reached[c] and c not in reached[b] for c in found)
    ]
    width = _EDGE * 2 + _STEP * (max(map(len, rows.values())) - 1)
    height = _EDGE * 2 + _STEP * (len(rows) - 1)
    waits = "; ".join(
        f"{a} waits for {', '.join(map(str, found))}" for a, found in edges.items() if found
    )
    ring = f"; {', '.join(map(str, sorted(rings)))} wait in a ring" if rings else ""
    return WaitGraph(width, height, tuple(circles.values()), tuple(arrows), f"{waits}{ring}.")


def _reached(edges: Edges, start: int) -> set[int]:
    """Return the transactions for which one waits, by way of others too."""
    found: set[int] = set()
    waiting = list(edges[start])
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += edges[number]
    return found


def _depths(edges: Edges, reached: Mapping[int, set[int]]) -> dict[int, int]:
    """Return for each how many wait, one for the other, from it on; a ring counts as one."""
    depths: dict[int, int] = {}
    # Who waits, by way of others too, for fewer comes first, and a ring before who waits for it.
    for number in sorted(edges, key=lambda one: (len(reached[one]), one not in reached[one])):
        below = [one for one in edges[number] if number not in reached[one]]
        depths[number] = max((1 + depths[one] for one in below), default=0)
    return depths


def _arrow(a: Circle, b: Circle) -> str:
    """Return a line from the edge of one circle to that of another."""
    across, down = b.x - a.x, b.y - a.y
    length = max((across**2 + down**2) ** 0.5, 1.0)
    shift = _RADIUS / length
    x, y = a.x + across * shift, a.y + down * shift
    to_x, to_y = b.x - across * shift * 1.3, b.y - down * shift * 1.3
    return f"M{x:.0f} {y:.0f}L{to_x:.0f} {to_y:.0f}"
