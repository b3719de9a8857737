"""TPC-C drawn: Table 4 as a grid, new orders a minute, latencies by transaction, aborts."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.harness.drawing import COLOURS, bars, figure, legend
from bench.harness.results import Result, Series
from bench.harness.words import plural
from bench.tpcc.inputs import MIX

_TITLES = {kind: kind.replace("_", " ") for kind in MIX}


def consistency(result: Result) -> Figure:
    """Which conditions hold after the run, by system and clients (Table 4)."""
    cells = {tuple(name.rsplit(": ", 1)): holds for name, holds in result.observed.items()}
    columns = list(dict.fromkeys(where for where, _ in cells))
    rows = list(dict.fromkeys(condition for _, condition in cells))
    made = Figure(figsize=(max(4.5, 1.25 * len(columns) + 1), 4.2), layout="constrained")
    axes = made.subplots()
    for (where, condition), holds in cells.items():
        axes.text(
            columns.index(where),
            rows.index(condition),
            "holds" if holds else "BROKEN",
            ha="center",
            va="center",
            size=8,
            color="white" if not holds else "black",
            weight="normal" if holds else "bold",
            bbox={
                "boxstyle": "round,pad=0.35",
                "facecolor": "#d9efe6" if holds else COLOURS[5],
                "edgecolor": "none",
            },
        )
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(columns)), [where.replace(", ", "\n") for where in columns], size=8)
    axes.set_yticks(range(len(rows)), rows)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    made.suptitle("TPC-C: consistency conditions after the run", fontsize=11)
    return made


def throughput(result: Result) -> Figure:
    """New orders a minute, one group for each number of clients."""
    made, (axes,) = figure(1, f"TPC-C, profile {result.profile}")
    _by_clients(result, axes, "new_order", lambda one: one.throughput_per_s * 60)
    axes.set_ylabel("new orders a minute")
    legend(made, axes)
    return made


def latency(result: Result) -> Figure:
    """Median of each kind of transaction, one panel for each number of clients."""
    clients = _clients(result)
    kinds = [kind for kind in MIX if any(o.params["transaction"] == kind for o in result.series)]
    made, panels = figure(len(clients), f"TPC-C, profile {result.profile}")
    made.set_figwidth(max(5.6, 4.2 * len(clients)))
    found = _found(result)
    for panel, count in zip(panels, clients, strict=True):
        heights = {
            system: [
                _value(found.get((system, count, k)), lambda o: o.p50_ms / 1000) for k in kinds
            ]
            for system in _systems(result)
        }
        bars(panel, [_TITLES[kind].replace(" ", "\n") for kind in kinds], heights)
        panel.set_title(plural(count, "client"), fontsize=9)
    panels[0].set_ylabel("median, seconds")
    legend(made, panels[0])
    return made


def aborts(result: Result) -> Figure:
    """Attempts that were lost, and operations done again, for each hundred transactions."""
    made, (lost, again) = figure(2, f"TPC-C, profile {result.profile}")
    _by_clients(result, lost, "all", lambda one: 100 * one.aborts / max(one.n, 1))
    _by_clients(result, again, "all", lambda one: 100 * one.redos / max(one.n, 1))
    lost.set_title("run again (aborts)", fontsize=9)
    again.set_title("done again within (redos)", fontsize=9)
    lost.set_ylabel("for each 100 transactions")
    legend(made, lost)
    return made


def _by_clients(
    result: Result, axes: Axes, transaction: str, of: Callable[[Series], float]
) -> None:
    clients, found = _clients(result), _found(result)
    heights = {
        system: [_value(found.get((system, count, transaction)), of) for count in clients]
        for system in _systems(result)
    }
    bars(axes, [plural(count, "client") for count in clients], heights)


def _clients(result: Result) -> list[int]:
    return sorted({int(one.params["clients"]) for one in result.series})


def _systems(result: Result) -> list[str]:
    return list(dict.fromkeys(one.system for one in result.series))


def _found(result: Result) -> dict[tuple[str, object, object], Series]:
    return {(o.system, o.params["clients"], o.params["transaction"]): o for o in result.series}


def _value(series: Series | None, of: Callable[[Series], float]) -> float:
    return float("nan") if series is None else of(series)
