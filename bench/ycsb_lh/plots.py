"""YCSB-LH drawn as in Figures 8 and 9: throughput by clients, latencies as boxes by kind."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from bench.harness.drawing import bars, boxes, figure, legend, lines
from bench.harness.results import Result, Series
from bench.harness.words import plural

#: Figure 9 has so many clients.
_CLIENTS_OF_BOXES = 8


def throughput(result: Result) -> Figure:
    """Operations a second, one panel for each number of clients."""
    clients = _numbers(result)
    workloads = _texts(result, "workload")
    made, axes = figure(len(clients), f"YCSB-LH, profile {result.profile}")
    for panel, count in zip(axes, clients, strict=True):
        heights = {
            name: [_at(result, of, system, workload, count) for workload in workloads]
            for name, system, of in _lines(result)
        }
        bars(panel, workloads, heights)
        panel.set_title(plural(count, "client"), fontsize=9)
    axes[0].set_ylabel("operations a second")
    legend(made, axes[0])
    return made


def over_clients(result: Result) -> Figure:
    """Operations a second over the number of clients, one panel for each workload."""
    clients = _numbers(result)
    workloads = _texts(result, "workload")
    made, axes = figure(len(workloads), f"YCSB-LH, profile {result.profile}")
    for panel, workload in zip(axes, workloads, strict=True):
        heights = {
            name: [_at(result, of, system, workload, count) for count in clients]
            for name, system, of in _lines(result)
        }
        lines(panel, clients, heights, "")
        panel.set_title(workload, fontsize=9)
        panel.set_xlabel("clients")
    axes[0].set_ylabel("operations a second")
    legend(made, axes[0])
    return made


def latency(result: Result) -> Figure:
    """Latencies by kind of operation, one panel for each workload."""
    counts = _numbers(result)
    count = _CLIENTS_OF_BOXES if _CLIENTS_OF_BOXES in counts else counts[-1]
    here = [one for one in result.series if one.params["clients"] == count]
    workloads = _texts(result, "workload")
    systems = list(dict.fromkeys(one.system for one in here))
    title = f"YCSB-LH, {plural(count, 'client')}, profile {result.profile}"
    made, axes = figure(len(workloads), f"{title}: box 25 to 75 %, whiskers 5 and 95 %")
    for panel, workload in zip(axes, workloads, strict=True):
        found = {one.system: one for one in here if one.params["workload"] == workload}
        kinds = list(dict.fromkeys(kind for one in found.values() for kind in one.kinds))
        drawn = {
            name: [found[name].kinds.get(kind) if name in found else None for kind in kinds]
            for name in systems
        }
        boxes(panel, kinds, drawn)
        panel.set_title(workload, fontsize=9)
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:g}")
    axes[0].set_ylabel("ms")
    legend(made, axes[0])
    return made


def _lines(result: Result) -> list[tuple[str, str, Callable[[Series], float]]]:
    """A line a system; two where ending a transaction is apart from its operations.

    Those without the commit come last: so a system has one colour in all pictures.
    """
    found: list[tuple[str, str, Callable[[Series], float]]] = []
    for system in dict.fromkeys(one.system for one in result.series):
        found.append((system, system, lambda one: one.throughput_per_s))
        if system.startswith("bundled"):
            found.append((f"{system}, no commit", system, lambda one: one.without_commit_per_s))
    return sorted(found, key=lambda line: line[0] != line[1])


def _at(
    result: Result, of: Callable[[Series], float], system: str, workload: str, clients: int
) -> float:
    for one in result.series:
        params = (one.params["workload"], one.params["clients"])
        if one.system == system and params == (workload, clients):
            return of(one)
    return float("nan")


def _numbers(result: Result) -> list[int]:
    return sorted({int(one.params["clients"]) for one in result.series})


def _texts(result: Result, param: str) -> list[str]:
    return list(dict.fromkeys(str(one.params[param]) for one in result.series))
