"""What clients did: latencies by kind of operation, aborts, redos, deaths.

Times are of whole executions: an operation is over when its rows are here, or its commit is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hdrh.histogram import HdrHistogram

from bench.harness.clients.client import Counts
from bench.harness.clients.pace import COMMIT, Step

#: One microsecond to ten minutes, to three digits.
_LEAST_US, _MOST_US, _DIGITS = 1, 600_000_000, 3


@dataclass(slots=True)
class Measured:
    """What some clients did.

    Attributes
    ----------
    histograms : dict
        Latencies in microseconds, by kind of operation.
    seconds : float
        From the start of the first client to the end of the last.
    deaths : list of str
        Clients that ended before their work did, and why.
    interrupted : bool
        It was cut off by Ctrl-C.
    """

    histograms: dict[str, HdrHistogram] = field(default_factory=dict)
    seconds: float = 0.0
    counts: Counts = field(default_factory=Counts)
    deaths: list[str] = field(default_factory=list)
    interrupted: bool = False
    _busy_seconds: float = 0.0
    _others_per_s: float = 0.0

    @property
    def n(self) -> int:
        """Operations that were done: once each, however often their transaction ran."""
        shown = (one for kind, one in self.histograms.items() if kind != COMMIT)
        return sum(int(one.get_total_count()) for one in shown) - self.counts.lost

    @property
    def without_commit_per_s(self) -> float:
        """Operations a second if ending a transaction took no time, all clients together."""
        return self._others_per_s + self._own_per_s

    @property
    def _own_per_s(self) -> float:
        return self.n / self._busy_seconds if self._busy_seconds else 0.0

    def take(self, step: Step) -> None:
        """Note one operation of one client."""
        self.record(step.kind, step.seconds)
        if step.kind != COMMIT:
            self._busy_seconds += step.busy_seconds

    def record(self, kind: str, seconds: float) -> None:
        """Note one latency."""
        if kind not in self.histograms:
            self.histograms[kind] = new_histogram()
        microseconds = round(seconds * 1e6)
        self.histograms[kind].record_value(min(max(microseconds, _LEAST_US), _MOST_US))

    def add(self, other: Measured) -> None:
        """Take in what another client, or another repeat, has measured."""
        self._others_per_s += other.without_commit_per_s
        for kind, histogram in other.histograms.items():
            self.histograms.setdefault(kind, new_histogram()).add(histogram)
        self.counts.add(other.counts)
        self.deaths += other.deaths
        self.interrupted |= other.interrupted

    def phases_ms(self) -> dict[str, float]:
        """Mean milliseconds that an operation of a kind is in a phase, by ``kind/phase``."""
        found = {}
        for name, seconds in self.counts.phase_seconds.items():
            of = self.histograms.get(name.partition("/")[0])
            if of is not None:
                found[name] = seconds * 1000 / of.get_total_count()
        return found

    def whole(self) -> HdrHistogram:
        """The latencies of all operations together; ending a transaction is none by itself."""
        all_ = new_histogram()
        for kind, histogram in self.histograms.items():
            if kind != COMMIT:
                all_.add(histogram)
        return all_


#: What a box and its whiskers are drawn from, and what a table shows.
_QUANTILES = (5, 25, 50, 75, 95, 99)


def summary(histogram: HdrHistogram) -> dict[str, float]:
    """Its quantiles in milliseconds: ``p5`` to ``p99``, ``min``, ``max``, ``mean``, and ``n``."""
    count = int(histogram.get_total_count())
    found = histogram.get_percentile_to_value_dict(list(_QUANTILES)) if count else {}
    least = histogram.get_min_value() if count else 0
    microseconds = {
        **{f"p{quantile}": found.get(quantile, 0) for quantile in _QUANTILES},
        "min": least,
        "max": histogram.get_max_value(),
        "mean": _mean(histogram) if count else 0,
    }
    return {"n": count, **{name: round(float(us) / 1000, 3) for name, us in microseconds.items()}}


def _mean(histogram: HdrHistogram) -> float:
    """As its ``get_mean_value``, which steps through each count in Python, the zeros too."""
    counts = np.array(histogram.counts)
    total = 0.0
    for index in np.flatnonzero(counts):
        value = histogram.get_value_from_index(int(index))
        least = histogram.get_lowest_equivalent_value(value)
        middle = (least + histogram.get_highest_equivalent_value(value) + 1) // 2
        total += middle * int(counts[index])
    return total / int(histogram.get_total_count())


def new_histogram() -> HdrHistogram:
    return HdrHistogram(_LEAST_US, _MOST_US, _DIGITS)
