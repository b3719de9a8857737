"""LST-Bench drawn as in Figure 12: throughput phase by phase, and latency."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bench.harness.drawing import COLOURS, figure
from bench.harness.results import Result, Series

_KINDS = {"SU": "single user: queries", "DM": "data maintenance", "O": "optimize"}


def throughput(result: Result) -> Figure:
    """Operations a second of each kind, in the order of the phases."""
    made, panels = _panels(result, "operations a second")
    for axes, series in panels:
        places = _places(axes, series)
        for place, one in zip(places, series, strict=True):
            axes.bar(place, one.throughput_per_s, 0.8, color=_colour(one))
            axes.text(
                place, one.throughput_per_s, f"{one.throughput_per_s:.2g}", ha="center",
                va="bottom", size=7,
            )  # fmt: skip
    panels[0][0].set_ylabel("operations a second")
    return made


def latency(result: Result) -> Figure:
    """Of each kind in each phase: the median, and the quickest to the 95th percentile."""
    made, panels = _panels(result, "latency: median, and a line from the least to the 95th %")
    for axes, series in panels:
        places = _places(axes, series)
        for place, one in zip(places, series, strict=True):
            ends = [one.min_ms / 1000, one.p95_ms / 1000]
            axes.plot([place] * 2, ends, color=_colour(one), linewidth=3)
            axes.plot(place, one.p50_ms / 1000, "o", color=_colour(one), markersize=8)
            axes.annotate(
                f"{one.p50_ms / 1000:.2g}",
                (place, one.p50_ms / 1000),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                size=7,
            )
        axes.set_yscale("log")
        axes.set_xlim(min(places) - 0.6, max(places) + 0.9)
        axes.yaxis.set_major_formatter("{x:g}")
    panels[0][0].set_ylabel("seconds")
    return made


def _panels(result: Result, title: str) -> tuple[Figure, list[tuple[Axes, list[Series]]]]:
    """One panel a workload, with its series in the order of their phases."""
    workloads = list(dict.fromkeys(str(one.params["workload"]) for one in result.series))
    scale = result.parameters["scale"]
    made, axes = figure(
        len(workloads), f"LST-Bench, {title}, scale factor {scale:g}, profile {result.profile}"
    )
    made.set_size_inches(max(6.0, 4.4 * len(workloads)), 3.9)
    for panel, workload in zip(axes, workloads, strict=True):
        panel.set_title(workload, fontsize=9)
    kinds = [kind for kind in _KINDS if any(one.system == kind for one in result.series)]
    made.legend(
        [Patch(color=_KIND_COLOURS[kind]) for kind in kinds],
        [_KINDS[kind] for kind in kinds],
        loc="outside lower center",
        ncols=len(kinds),
        frameon=False,
    )
    found = [
        sorted(
            (one for one in result.series if one.params["workload"] == workload),
            key=lambda one: (_number(one), list(_KINDS).index(one.system)),
        )
        for workload in workloads
    ]
    return made, list(zip(axes, found, strict=True))


_KIND_COLOURS = dict(zip(_KINDS, COLOURS, strict=False))


def _colour(one: Series) -> str:
    return _KIND_COLOURS[one.system]


def _number(one: Series) -> int:
    return int(str(one.params["phase"]).partition(":")[0])


def _places(axes: Axes, series: list[Series]) -> list[float]:
    """Bars of one phase beside each other, with a gap to the next; the phases are named."""
    places: list[float] = []
    at = 0.0
    of_phase: dict[str, list[float]] = {}
    for one in series:
        phase = str(one.params["phase"])
        if phase not in of_phase and places:
            at += 0.7
        of_phase.setdefault(phase, []).append(at)
        places.append(at)
        at += 1
    middles = [sum(found) / len(found) for found in of_phase.values()]
    names = [phase.partition(": ")[2].replace(" + ", "\n+ ") for phase in of_phase]
    axes.set_xticks(middles, names, fontsize=7.5)
    return places
