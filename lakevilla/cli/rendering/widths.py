"""Which columns fit on a line, and how wide each may be."""

from __future__ import annotations

from collections.abc import Sequence

#: A column is cut down to this width before others are left out.
_NARROWEST = 8


def fitted(widths: Sequence[int], room: int, gap: int) -> list[int | None]:
    """The width of each column so that all fit into ``room``; None for one that is left out.

    The widest are cut first, all to the same width, so that a short column stays whole. Where
    even narrow ones do not fit, those in the middle are left out: the first ones tell rows apart,
    and the last ones are what a query has computed. One more place of the ``gap`` and one
    character is kept for the mark that stands for them.
    """
    if _total(widths, gap) <= room:
        return list(widths)
    kept = _those_that_fit([min(width, _NARROWEST) for width in widths], room, gap)
    left_out = len(kept) < len(widths)
    own = room - gap * (len(kept) - 1) - (gap + 1 if left_out else 0)
    cut = _cut({place: widths[place] for place in kept}, own)
    return [cut.get(place) for place in range(len(widths))]


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * max(len(widths) - 1, 0)


def _those_that_fit(narrowest: list[int], room: int, gap: int) -> list[int]:
    """The places of the columns that stay: from both ends in turn, at least the first."""
    if _total(narrowest, gap) <= room:
        return list(range(len(narrowest)))
    left = room - (gap + 1)  # the mark
    front, back = 0, len(narrowest) - 1
    kept: list[int] = []
    at_front = True
    while front <= back:
        place = front if at_front else back
        left -= narrowest[place] + (gap if kept else 0)
        if left < 0:
            break
        kept.append(place)
        front, back = (front + 1, back) if at_front else (front, back - 1)
        at_front = not at_front
    return sorted(kept) or [0]


def _cut(widths: dict[int, int], room: int) -> dict[int, int]:
    """Cut the widest until the sum fits: each gets its own width, or an equal share of the rest."""
    found: dict[int, int] = {}
    ascending = sorted(widths, key=lambda place: widths[place])
    for number, place in enumerate(ascending):
        share = max(room // (len(ascending) - number), 1)
        found[place] = min(widths[place], share)
        room -= found[place]
    return found
