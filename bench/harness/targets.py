"""Targets: what a run aimed at, and what came out; one that is not met fails nothing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: How a table of targets is headed, in a terminal and on the page.
COLUMNS = ("target", "at most", "measured", "least", "most", "")


@dataclass(slots=True)
class Target:
    """One target.

    Attributes
    ----------
    target : str
        What is aimed at.
    at_most : float
        The figure that it may not exceed.
    measured : float
        What came out: the median of the repeats.
    least, most : float
        How far it went from repeat to repeat.
    met : bool
        Whether ``measured`` is within ``at_most``.
    died : bool
        Clients died of what was to be measured: there is no figure, and it is not met.
    """

    target: str
    at_most: float
    measured: float
    least: float
    most: float
    met: bool
    died: bool = False

    def cells(self) -> list[str]:
        """Its row under ``COLUMNS``."""
        figures = (self.measured, self.least, self.most)
        words = ["", "", ""] if self.died else [f"{one:.4g}" for one in figures]
        result = "its clients died" if self.died else "met" if self.met else "missed"
        return [self.target, f"{self.at_most:.4g}", *words, result]


def target(name: str, at_most: float, values: Sequence[float]) -> Target:
    """A target held against one figure of each repeat."""
    return _made(name, at_most, statistics.median(values), values)


def ratio(name: str, at_most: float, of: Sequence[float], to: Sequence[float]) -> Target:
    """A target for the ratio of two medians; repeats that took turns are beside each other."""
    pairs = [one / other for one, other in zip(of, to, strict=False) if other]
    measured = statistics.median(of) / max(statistics.median(to), 1e-12)
    return _made(name, at_most, measured, [*pairs, measured] if len(pairs) < 2 else pairs)


def unmeasured(name: str, at_most: float) -> Target:
    """A target whose clients died before they had done what was to be measured."""
    return Target(name, at_most, 0.0, 0.0, 0.0, met=False, died=True)


def _made(name: str, at_most: float, measured: float, values: Sequence[float]) -> Target:
    return Target(
        name,
        at_most,
        round(measured, 4),
        round(min(values), 4),
        round(max(values), 4),
        met=measured <= at_most,
    )
