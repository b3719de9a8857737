"""YCSB-LH by phase: where the time of one client's reads and writes goes, system by system."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure

from bench.harness.drawing import figure, legend, stacked
from bench.harness.parameters import Parameter, Value
from bench.harness.results import Result, Series
from bench.harness.words import plural
from bench.ycsb_lh import driver

#: In the order of a transaction; "data and log" is of a peer that tells them apart to nobody.
COLOURS = {
    "version": "#56B4E9",
    "metadata": "#0072B2",
    "data": "#E69F00",
    "data and log": "#EFC270",
    "marker": "#CC79A7",
    "wait": "#8C564B",
    "validate": "#F0E442",
    "decide": "#009E73",
    "publish": "#7FCFB3",
    "free": "#D55E00",
    "the rest": "#BBBBBB",
}
_READS, _WRITES = ("read", "scan"), ("update", "insert", "rmw")
_WARM = "single:NONE,single:R,single:R|CT,single:R|I,single:R|CT|I"
#: Parameters that stand otherwise here than in ``ycsb_lh``.
_OWN: dict[str, tuple[Value, Value]] = {
    "workloads": ("A", "A"),
    "clients": ("1", "1"),
    "systems": (f"{_WARM},cold:NONE,cold:R|I,deltalake", f"{_WARM},cold:NONE,deltalake"),
    "operations": (100, 8),
}


def phases(result: Result) -> Figure:
    """Mean latency of reads and of writes, one bar a system, its phases stacked."""
    made, axes = figure(2, f"YCSB-LH by phase, {_which(result)}, profile {result.profile}")
    shown = [one for one in result.series if one.params == result.series[0].params]
    for panel, (title, kinds) in zip(axes, (("reads", _READS), ("writes", _WRITES)), strict=True):
        means = {one.system: by_phase(one, kinds) for one in shown}
        means = {system: found for system, found in means.items() if found}
        parts = {phase: [found.get(phase, 0.0) for found in means.values()] for phase in COLOURS}
        stacked(panel, [_name(system) for system in means], parts, COLOURS)
        panel.set_title(title, fontsize=9)
    axes[0].set_ylabel("mean ms of a transaction")
    legend(made, axes[0], visible(shown))
    return made


def by_phase(series: Series, kinds: tuple[str, ...]) -> dict[str, float]:
    """Mean milliseconds of operations of some kinds by phase; with the rest it is their latency."""
    count = sum(series.kinds[kind]["n"] for kind in kinds if kind in series.kinds)
    if not count:
        return {}
    found = dict.fromkeys(COLOURS, 0.0)
    for kind in kinds:
        if kind not in series.kinds:
            continue
        share = series.kinds[kind]["n"] / count
        rest = series.kinds[kind]["mean"]
        for phase in COLOURS:
            ms = series.phases_ms.get(f"{kind}/{phase}", 0.0)
            found[phase] += share * ms
            rest -= ms
        found["the rest"] += share * max(rest, 0.0)
    return found


def visible(series: list[Series]) -> set[str]:
    """Phases that take a visible part of any bar."""
    return {
        phase
        for one in series
        for kinds in (_READS, _WRITES)
        for phase, ms in by_phase(one, kinds).items()
        if ms >= 0.1
    }


def _name(system: str) -> str:
    return system.removeprefix("single:").replace(":", " ")


def _which(result: Result) -> str:
    params = result.series[0].params
    return f"workload {params['workload']}, {plural(params['clients'], 'client')}"


def _parameter(one: Parameter) -> Parameter:
    if one.name not in _OWN:
        return one
    whole, quick = _OWN[one.name]
    return replace(one, whole=whole, quick=quick)


BENCHMARK = replace(
    driver.BENCHMARK,
    name="ycsb_phases",
    summary="YCSB by phase: where the time of a read and of a write goes, by feature",
    claim=(
        "Figure 7: reads of Spark+Delta and of LakeVilla are 95 and 93 % metadata; Spark's writes "
        "are 69 % metadata and 28 % log, LakeVilla's mostly data. Figure 7a: markers make reads "
        "20 % slower and writes not; the global log adds 4 ms; freeing is one with the log entry"
    ),
    deviations=(
        f"{driver.BENCHMARK.deviations}; the paper's version assignment is `version`, its log is "
        "`decide` and `publish`, its markers are `marker` and `wait` (queues); our R and NONE have "
        "no markers, so R|CT stands for its LV[R] and LV[CT]; a client is warm, and holds metadata "
        "that the paper's reads fetch each time, as a `cold` client does here; deltalake's phases "
        "are timed from outside, where its data and log are one"
    ),
    parameters=tuple(_parameter(one) for one in driver.BENCHMARK.parameters),
    plots={"phases": phases},
)
