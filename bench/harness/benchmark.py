"""What a benchmark is, and what it is given when it runs."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.harness.clients.measured import Measured, summary
from bench.harness.clients.pace import COMMIT
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, Value
from bench.harness.results import Result, Series
from bench.harness.store.places import Places
from bench.harness.targets import ratio, target, unmeasured

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: As a claim begins: ``Figure 8``, ``Figures 7a and 14``, ``Table 4``.
_FIGURE = re.compile(r"(Figure|Table)s? \d+[a-z]?( and \d+[a-z]?)*")


class NotInstalled(RuntimeError):
    """A peer that is not here, and what brings it: the others run."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark.

    Attributes
    ----------
    summary : str
        What it does, in one line.
    claim : str
        What the paper reports, and in which figure.
    deviations : str
        Where it departs from the paper's workload.
    run : callable
        Measures, and puts what it has measured into the run.
    plots : mapping
        Figures by name, drawn from a result alone.
    transactions : bool
        Whether each operation is one transaction, so that a million of them have a price.
    needs : callable
        Disk and memory that it takes at the parameters it is given.
    """

    name: str
    summary: str
    claim: str
    deviations: str
    parameters: Sequence[Parameter]
    run: Callable[[Run], None]
    plots: Mapping[str, Callable[[Result], Figure]]
    profile: str = "s3"
    transactions: bool = False
    needs: Callable[[Mapping[str, Value]], Needs] = lambda parameters: Needs()

    @property
    def paper_figure(self) -> str:
        """The figure or table of the paper that it repeats; empty if its claim begins with none."""
        found = _FIGURE.match(self.claim)
        return found.group() if found else ""


@dataclass
class Run:
    """One run under way: its parameters, its places, and what it has measured so far."""

    result: Result
    places: Places
    advance: Callable[[str], None]
    _repeats: dict[_Key, list[_Repeat]] = field(default_factory=dict)
    _series: dict[_Key, Series] = field(default_factory=dict)

    def __getitem__(self, parameter: str) -> Value:
        return self.result.parameters[parameter]

    def number(self, parameter: str) -> int:
        return int(self.result.parameters[parameter])

    @property
    def seed(self) -> int:
        return self.result.seed

    def note(self, text: str) -> None:
        """What a reader of the figures must know; once is enough."""
        if text not in self.result.notes:
            self.result.notes.append(text)

    def check(self, name: str, holds: bool) -> None:
        """Note whether something held that must: over all repeats, once broken stays broken."""
        self.result.checks[name] = holds and self.result.checks.get(name, True)

    def observe(self, name: str, holds: bool) -> None:
        """Note whether something held that need not; in all repeats, as for a check."""
        self.result.observed[name] = holds and self.result.observed.get(name, True)

    def add(
        self,
        system: str,
        params: Mapping[str, Value],
        measured: Measured,
        *,
        requests: Mapping[str, int] | None = None,
        metadata: Mapping[str, int] | None = None,
        phases_ms: Mapping[str, float] | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Put one repeat beside the others of the same system and parameters.

        Raises
        ------
        KeyboardInterrupt
            It was cut off by Ctrl-C: what there is of it is kept.
        """
        if measured.interrupted and not measured.n:
            raise KeyboardInterrupt
        key = (system, tuple(params.items()))
        moved = self.places.moved() if requests else {}
        repeats = self._repeats.setdefault(key, [])
        repeats.append(
            _Repeat(
                measured,
                dict(requests or {}),
                dict(metadata or {}),
                moved,
                dict(phases_ms or {}),
                dict(figures or {}),
            )
        )
        self._series[key] = _series(system, dict(params), repeats)
        self.result.series = list(self._series.values())
        if measured.interrupted:
            raise KeyboardInterrupt

    def target(self, name: str, at_most: float, values: Sequence[float], *of: Series) -> None:
        """Note what was aimed at, and what each repeat came to; nothing where none was measured.

        ``of`` are the series that the values were taken from.
        """
        if any(one.deaths for one in of):
            self.result.targets.append(unmeasured(name, at_most))
        elif values:
            self.result.targets.append(target(name, at_most, values))

    def ratio(
        self,
        name: str,
        at_most: float,
        of: Series | None,
        to: Series | None,
        figure: str = "p50_ms",
    ) -> None:
        """Aim at a ratio of two series' medians; nothing where a system was left out.

        What clients had done until they died is no figure to hold against anything.
        """
        if any(one is not None and one.deaths for one in (of, to)):
            self.result.targets.append(unmeasured(name, at_most))
            return
        values = [one.of_repeats(figure) if one else [] for one in (of, to)]
        if all(values):
            self.result.targets.append(ratio(name, at_most, *values))


_Key = tuple[str, tuple[tuple[str, Value], ...]]


@dataclass(slots=True)
class _Repeat:
    measured: Measured
    requests: dict[str, int]
    metadata: dict[str, int]
    moved: dict[str, int]
    phases_ms: dict[str, float]
    figures: dict[str, float]


def _series(system: str, params: dict[str, Value], repeats: Sequence[_Repeat]) -> Series:
    together = Measured()
    for repeat in repeats:
        together.add(repeat.measured)
    whole = summary(together.whole())
    rates = [one.measured.n / max(one.measured.seconds, 1e-9) for one in repeats]
    has_commits = any(COMMIT in one.measured.histograms for one in repeats)
    without = [one.measured.without_commit_per_s for one in repeats] if has_commits else rates
    figures = dict.fromkeys(name for one in repeats for name in one.figures)
    return Series(
        system,
        params,
        n=together.n,
        p50_ms=whole["p50"],
        p95_ms=whole["p95"],
        p99_ms=whole["p99"],
        mean_ms=whole["mean"],
        min_ms=whole["min"],
        max_ms=whole["max"],
        throughput_per_s=round(statistics.median(rates), 3),
        without_commit_per_s=round(statistics.median(without), 3),
        requests=repeats[-1].requests,
        metadata=repeats[-1].metadata,
        bytes_moved=repeats[-1].moved,
        aborts=together.counts.aborts,
        redos=together.counts.redos,
        kinds={kind: summary(one) for kind, one in together.histograms.items()},
        phases_ms=_phases_ms(together, repeats),
        figures={
            name: round(
                statistics.median([o.figures[name] for o in repeats if name in o.figures]), 4
            )
            for name in figures
        },
        deaths=together.deaths,
        repeats=[
            {
                "n": one.measured.n,
                "seconds": round(one.measured.seconds, 4),
                "p50_ms": summary(one.measured.whole())["p50"],
                **{name: round(value, 4) for name, value in one.figures.items()},
            }
            for one in repeats
        ],
    )


def _phases_ms(together: Measured, repeats: Sequence[_Repeat]) -> dict[str, float]:
    """Means over all operations, which add up to the mean latency as medians would not.

    Where a benchmark has found them by itself it knows no more than one figure a repeat.
    """
    given = {name for one in repeats for name in one.phases_ms}
    if not given:
        return {name: round(ms, 3) for name, ms in sorted(together.phases_ms().items())}
    return {
        name: round(statistics.median([one.phases_ms.get(name, 0.0) for one in repeats]), 3)
        for name in sorted(given)
    }
