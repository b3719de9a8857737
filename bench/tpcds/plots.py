"""TPC-DS drawn as in Figure 13: cold and warm, by query and system; and what planning takes."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from bench.harness.drawing import bars, figure, legend, stacked
from bench.harness.results import Result, Series

_RUNS = {"cold": "cold", "hot": "best of three"}
_MOST_OVERHEAD = 1.025


def latency(result: Result) -> Figure:
    """Seconds of each query, cold and warm."""
    return _by_run(result, "TPC-DS queries", "median, seconds", lambda ms, _: ms / 1000)


def overhead(result: Result) -> Figure:
    """How many times what DuckDB takes on the same files; the line is the target."""
    title, unit = "beside DuckDB on the same files", "times DuckDB's median"
    return _by_run(result, title, unit, lambda ms, duckdb_ms: ms / duckdb_ms, _MOST_OVERHEAD)


def _by_run(
    result: Result,
    title: str,
    unit: str,
    height: Callable[[float, float], float],
    target: float | None = None,
) -> Figure:
    """A panel for each run; bars are made of a system's milliseconds and of DuckDB's."""
    queries, systems, found = _by(result)
    made, axes = figure(len(_RUNS), _title(title, result))
    made.set_size_inches(_width(queries, systems), 3.8)
    for panel, (run, label) in zip(axes, _RUNS.items(), strict=True):
        heights = {
            system: [
                height(_p50(found, system, query, run), _p50(found, "DuckDB", query, run))
                for query in queries
            ]
            for system in systems
        }
        bars(panel, queries, heights)
        if target is not None:
            panel.axhline(target, color="#b00020", linewidth=1, label=f"target, {target:g}")
        panel.set_title(label, fontsize=9)
    axes[0].set_ylabel(unit)
    legend(made, axes[0])
    return made


def phases(result: Result) -> Figure:
    """What a warm query takes until it has a plan, and after."""
    queries, systems, found = _by(result)
    made, axes = figure(len(queries), _title("a warm query", result))
    for panel, query in zip(axes, queries, strict=True):
        here = [one for system in systems if (one := found.get((system, query, "hot")))]
        names = list(dict.fromkeys(phase for one in here for phase in one.phases_ms))
        parts = {name: [one.phases_ms.get(name, 0.0) for one in here] for name in names}
        stacked(panel, [one.system for one in here], parts)
        panel.set_title(query, fontsize=9)
    axes[0].set_ylabel("milliseconds: medians of the repeats")
    legend(made, axes[0])
    return made


def _by(result: Result) -> tuple[list[str], list[str], dict[tuple[str, str, str], Series]]:
    queries = list(dict.fromkeys(str(one.params["query"]) for one in result.series))
    systems = list(dict.fromkeys(one.system for one in result.series))
    found = {
        (one.system, str(one.params["query"]), str(one.params["run"])): one for one in result.series
    }
    return queries, systems, found


def _width(queries: list[str], systems: list[str]) -> float:
    """Inches that leave room for the number above each bar."""
    return max(6.0, 1.0 + 0.36 * len(_RUNS) * len(queries) * (len(systems) + 0.6))


def _p50(found: dict[tuple[str, str, str], Series], system: str, query: str, run: str) -> float:
    one = found.get((system, query, run))
    return float("nan") if one is None or not one.n else one.p50_ms


def _title(what: str, result: Result) -> str:
    return f"{what}, scale factor {result.parameters['scale']:g}, profile {result.profile}"
