"""CAB-LH drawn as in Figure 11: the latencies of reads and writes, phase by phase."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from bench.harness.drawing import boxes, figure, legend, stacked
from bench.harness.results import Result
from bench.ycsb_lh.phases import COLOURS

#: All but ``data``, in the order in which a transaction takes them.
PHASES = [phase for phase in COLOURS if phase not in ("data", "data and log", "the rest")]


def latency(result: Result) -> Figure:
    """One panel for serial streams and one for concurrent ones, one group of boxes a phase."""
    modes = list(dict.fromkeys(str(one.params["streams"]) for one in result.series))
    phases = list(dict.fromkeys(one.system for one in result.series))
    made, axes = figure(len(modes), f"CAB-LH, profile {result.profile}")
    made.set_size_inches(max(6.0, 0.75 * len(modes) * len(phases)), 3.6)
    for panel, mode in zip(axes, modes, strict=True):
        found = {
            (one.system, one.params["kind"]): one.kinds.get(str(one.params["kind"]))
            for one in result.series
            if one.params["streams"] == mode
        }
        kinds = {
            f"{kind}s": [found.get((phase, kind)) for phase in phases] for kind in ("read", "write")
        }
        boxes(panel, phases, kinds)
        panel.set_title(mode, fontsize=9)
        if any(one and one["n"] for summaries in kinds.values() for one in summaries):
            panel.set_yscale("log")
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter("{x:,.0f}")
            panel.minorticks_off()
    axes[0].set_ylabel("milliseconds, with the time in a queue")
    legend(made, axes[0])
    return made


def metadata(result: Result) -> Figure:
    """Where a transaction's time goes beside its rows: mean milliseconds by phase."""
    modes = list(dict.fromkeys(str(one.params["streams"]) for one in result.series))
    made, axes = figure(len(modes), f"CAB-LH, all but the rows' time, profile {result.profile}")
    for panel, mode in zip(axes, modes, strict=True):
        found = [one for one in result.series if one.params["streams"] == mode]
        found.sort(key=lambda one: str(one.params["kind"]))  # all reads, then all writes
        groups = [f"{one.system}, {one.params['kind']}" for one in found]
        made.set_size_inches(max(6.0, 0.36 * len(modes) * len(groups)), 4.2)
        parts = {
            phase: [one.phases_ms.get(f"{one.params['kind']}/{phase}", 0.0) for one in found]
            for phase in PHASES
        }
        stacked(panel, groups, parts, COLOURS)
        panel.set_title(mode, fontsize=9)
    axes[0].set_ylabel("mean milliseconds of a transaction")
    legend(made, axes[0])
    return made
