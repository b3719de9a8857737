"""Pictures in the form of the paper's figures, from results alone, as PNG and SVG."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.harness.results import Result, Series

#: One colour a system, told apart in grey and by the colour-blind (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")

#: Of a legend, and at most of a title.
_LETTERS_IN_AN_INCH = 12


def figure(panels: int, title: str) -> tuple[Figure, list[Axes]]:
    """A figure of panels side by side, which share the vertical axis."""
    made, rows = grid(1, panels, title)
    return made, rows[0]


def grid(rows: int, columns: int, title: str) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows of panels; those of a row share the vertical axis."""
    size = (max(4.5, 2.9 * columns), 3.4 if rows == 1 else 2.2 * rows + 0.8)
    made = Figure(figsize=size, layout="constrained")
    axes = made.subplots(rows, columns, sharey="row", squeeze=False)
    made.suptitle(textwrap.fill(title, int(size[0] * _LETTERS_IN_AN_INCH)), fontsize=11)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(axis="y", color="#dddddd", linewidth=0.6)
        one.set_axisbelow(True)
    return made, [list(row) for row in axes]


def bars(
    axes: Axes,
    groups: Sequence[str],
    heights: Mapping[str, Sequence[float]],
    *,
    number: bool = True,
) -> None:
    """Bars side by side, one of each system in each group, with their numbers above."""
    width = 0.8 / max(len(heights), 1)
    for i, (system, values) in enumerate(heights.items()):
        places = [group + (i - (len(heights) - 1) / 2) * width for group in range(len(groups))]
        drawn = axes.bar(places, values, width * 0.92, label=system, color=COLOURS[i % 8])
        if number:
            axes.bar_label(drawn, fmt="%.3g", fontsize=6.5, padding=1)
    axes.set_xticks(range(len(groups)), groups)


def stacked(
    axes: Axes,
    groups: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    colours: Mapping[str, str] | None = None,
) -> None:
    """One bar a group, of parts that are stacked, with the sum above."""
    bottom = [0.0] * len(groups)
    for i, (part, values) in enumerate(parts.items()):
        colour = COLOURS[i % 8] if colours is None else colours[part]
        axes.bar(groups, values, 0.72, bottom=bottom, label=part, color=colour)
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    for place, total in enumerate(bottom):
        label = f"{total:.3g}" if total < 100 else f"{total:,.0f}"
        axes.text(place, total, label, ha="center", va="bottom", size=7)
    axes.tick_params(axis="x", labelrotation=60, labelsize=7.5)


def boxes(
    axes: Axes, groups: Sequence[str], kinds: Mapping[str, Sequence[Mapping[str, float] | None]]
) -> None:
    """A box of each system in each group: quartiles, whiskers at 5 and 95 %, dots above.

    The dots are the 99th percentile and the largest.
    """
    width = 0.8 / max(len(kinds), 1)
    for i, (system, found) in enumerate(kinds.items()):
        colour = COLOURS[i % 8]
        for group, one in enumerate(found):
            if one is None:
                continue
            stats = {
                "med": one["p50"],
                "q1": one["p25"],
                "q3": one["p75"],
                "whislo": one["p5"],
                "whishi": one["p95"],
                "fliers": [one["p99"], one["max"]],
            }
            axes.bxp(
                [stats],
                positions=[group + (i - (len(kinds) - 1) / 2) * width],
                widths=width * 0.8,
                patch_artist=True,
                boxprops={"facecolor": colour, "linewidth": 0.6},
                medianprops={"color": "black", "linewidth": 1.4},
                flierprops={"marker": ".", "markersize": 4, "markerfacecolor": colour},
                manage_ticks=False,
            )
        axes.bar([0], [0], color=colour, label=system)  # its line in the legend
    axes.set_xticks(range(len(groups)), groups)


def lines(
    axes: Axes, at: Sequence[float], heights: Mapping[str, Sequence[float]], unit: str
) -> None:
    """One line a system, both axes logarithmic: a straight line up is one more for each."""
    for i, (system, values) in enumerate(heights.items()):
        axes.plot(at, values, marker="o", markersize=4, label=system, color=COLOURS[i % 8])
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(at), [f"{value:g}" for value in at])
    if any(value > 0 for values in heights.values() for value in values):
        axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_ylabel(unit)


def medians(
    result: Result,
    group: Callable[[Series], str],
    label: Callable[[Series], str] = lambda one: one.system,
    figure: str = "p50_ms",
    unit: str = "milliseconds: the median, and from the least to the most of the repeats",
) -> Figure:
    """One panel a group, each with its own scale, one horizontal bar a series."""
    groups: dict[str, list[Series]] = {}
    for one in result.series:
        if one.of_repeats(figure):
            groups.setdefault(group(one), []).append(one)
    owners = list(dict.fromkeys(owner(one) for one in result.series))
    rows = [len(found) + 1.1 for found in groups.values()] or [1]
    made = Figure(figsize=(7.5, 0.9 + 0.29 * sum(rows)), layout="constrained")
    panels = made.subplots(len(rows), 1, squeeze=False, height_ratios=rows)[:, 0]
    made.suptitle(f"{result.benchmark}, profile {result.profile}", fontsize=11)
    for axes, (name, found) in zip(panels, groups.items(), strict=False):
        for i, one in enumerate(found):
            values = one.of_repeats(figure)
            middle = statistics.median(values)
            axes.barh(i, middle, 0.66, color=COLOURS[owners.index(owner(one)) % 8])
            axes.plot([min(values), max(values)], [i, i], color="#333333", linewidth=1.2)
            axes.text(max(values), i, f"  {_short(middle)}", va="center", size=8)
        axes.set_yticks(range(len(found)), [label(one) for one in found], fontsize=8)
        axes.set_ylim(len(found) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.margins(x=0.12)
        axes.set_title(name, fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="x", labelsize=8)
    panels[-1].set_xlabel(unit, fontsize=8)
    return made


def owner(one: Series) -> str:
    """Whose bars have one colour: `LakeVilla, threads` and `LakeVilla, processes` are one's."""
    return one.system.split(",")[0]


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def legend(made: Figure, axes: Axes, only: Collection[str] | None = None) -> None:
    """The systems' names, or ``only`` some of them, once, below all panels."""
    found = zip(*axes.get_legend_handles_labels(), strict=True)
    kept = [(handle, label) for handle, label in found if only is None or label in only]
    handles, labels = [handle for handle, _ in kept], [label for _, label in kept]
    widest = max((len(label) for label in labels), default=0) + 8  # with its patch
    fit = int(made.get_figwidth() * _LETTERS_IN_AN_INCH / widest)
    columns = max(1, min(len(labels), 4, fit))
    made.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def mark_quick(made: Figure) -> None:
    """Say on the picture what its figures are good for: it may be passed on without its page."""
    made.text(0.995, 0.995, "a quick run", ha="right", va="top", size=7, color="#B00000")


def save(made: Figure, path: Path) -> None:
    """Write the picture as PNG and SVG beside each other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "lakevilla"}):
        made.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    made.savefig(path.with_suffix(".png"), dpi=140)
