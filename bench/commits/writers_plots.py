"""The pictures of writers at once."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure

from bench.harness.drawing import figure, legend, lines, medians
from bench.harness.results import Result, Series
from bench.harness.words import plural


def _shape(one: Series) -> str:
    return (
        f"{one.params['format']}, {one.params['work']}s, {one.params['writers']} writers, "
        f"{plural(one.params['tables'], 'table')}"
    )


def throughput(result: Result) -> Figure:
    """Commits a second of as many writers as there were at most."""
    most = max(int(one.params["writers"]) for one in result.series)
    only = replace(result, series=[o for o in result.series if o.params["writers"] == most])
    unit = "commits a second: the median, and from the least to the most of the repeats"
    return medians(only, _shape, figure="per_s", unit=unit)


def together(result: Result) -> Figure:
    """Threads of one process: commits a second, by how many there are."""
    found = [one for one in result.series if one.params["work"] == "append"]
    found = [
        one for one in found if one.system.endswith("threads") and one.params["format"] == "delta"
    ]
    made, (axes,) = figure(1, f"threads that commit together, profile {result.profile}")
    counts = sorted({int(one.params["writers"]) for one in found}) or [1]
    kinds = dict.fromkeys(_kind(one) for one in found)
    rates = {(_kind(one), one.params["writers"]): one.throughput_per_s for one in found}
    heights = {k: [rates.get((k, count), float("nan")) for count in counts] for k in kinds}
    lines(axes, counts, heights, "commits a second")
    axes.set_xlabel("threads")
    legend(made, axes)
    return made


def _kind(one: Series) -> str:
    return f"on {plural(one.params['tables'], 'Delta table')}"
