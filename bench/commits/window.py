"""How wide the window is that `guard` closes, and how often another client is in it.

A foreign commit that comes after a transaction has validated and before its log entry is created
was seen by nobody. First how long that is; then a client that changes a row of a table every half
second, and a deltalake client that appends to it, or changes another row of the same file, as fast
as it can.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError
from matplotlib.figure import Figure

import lakevilla as lv
from bench.commits.instants import ROWS, counted, instants, timed
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Measured
from bench.harness.drawing import bars, figure, legend, medians
from bench.harness.parameters import Parameter, numbers
from bench.harness.results import Result
from bench.harness.words import plural

PAUSE_SECONDS = 0.5
WINDOWS = {
    "window": "from the last look at a log to the entry that is sent",
    "decided to published": "from decided to published",
}


def measure(run: Run) -> None:
    """The window by itself, then what comes into it."""
    options = run.places.options
    for count in numbers(run["tables"]):
        run.advance(f"the window of {count} tables")
        tables = [f"t{number}" for number in range(count)]
        root = run.places.root(f"window-{count}")
        for one in instants(root, options, tables, run.number("repeats"), watched=False):
            for name, what in WINDOWS.items():
                measured = Measured(seconds=one[name])
                measured.record("once", one[name])
                run.add("LakeVilla", {"tables": count, "how long": what}, measured)
    for how in ("append", "update"):
        for guarded in (False, True):
            run.advance(f"deltalake's {how}s{', guarded' if guarded else ''}")
            _beside(run, how, guarded)


def _beside(run: Run, how: str, guarded: bool) -> None:
    root, options = run.places.root("beside"), run.places.options
    with lv.connect(root, storage_options=options) as lake:
        lake.create_table("t", ROWS)
        if guarded:
            lake.guard("t")
    stop = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        ours = pool.submit(transact, root, options, stop)
        theirs = pool.submit(interfere, root, options, how, stop)
        until = time.perf_counter() + float(run["seconds"])
        while time.perf_counter() < until and not ours.done() and not theirs.done():
            stop.wait(0.1)
        stop.set()
        (measured, counts), foreign = ours.result(), theirs.result()
    figures = {
        "passed": counts["passed"],
        "reconciled": counts["reconciled"],
        "its_commits": foreign["commits"],
        "its_refused": foreign["refused"],
    }
    params = {"deltalake": how, "guarded": "yes" if guarded else "no"}
    run.add("LakeVilla", params, measured, figures=figures)
    if guarded:
        run.check("nobody commits past a guard", not (foreign["commits"] or counts["passed"]))
    changed = counted(f"{root}/t", options)
    run.check("each commit of ours is in the table", changed == counts["commits"])


def transact(
    root: str, options: Mapping[str, str], stop: threading.Event
) -> tuple[Measured, Counter[str]]:
    """A client that changes its row again and again; what befell it."""
    counts: Counter[str] = Counter()
    measured = Measured()
    started = time.perf_counter()
    with lv.connect(root, storage_options=dict(options)) as lake:
        store = timed(lake)
        while not stop.is_set():
            began = time.perf_counter()
            try:
                lake.run(lambda txn: txn.update("t", {"n": "n + 1"}, where="id = 1"), attempts=1000)
            except lv.ForeignConflict:
                counts["reconciled"] += 1
            measured.record("update", time.perf_counter() - began)
            counts["commits"] += 1
            counts["passed"] += store.refused > 0
            store.refused = 0
            stop.wait(PAUSE_SECONDS)
    measured.seconds = time.perf_counter() - started
    return measured, counts


def interfere(
    root: str, options: Mapping[str, str], how: str, stop: threading.Event
) -> Counter[str]:
    """A deltalake client that appends or updates again and again."""
    counts: Counter[str] = Counter()
    row = pa.table({"id": [1000], "n": [0]})
    while not stop.is_set():
        try:
            table = deltalake.DeltaTable(f"{root}/t", storage_options=dict(options) or None)
            if how == "append":
                deltalake.write_deltalake(table, row, mode="append")
            else:
                table.update(updates={"n": "n + 1"}, predicate="id = 50")
            counts["commits"] += 1
        except DeltaError:
            counts["refused"] += 1
            stop.wait(0.01)
    return counts


def windows(result: Result) -> Figure:
    """How long the window is, by the number of tables."""
    only = replace(result, series=[one for one in result.series if "how long" in one.params])
    return medians(
        only,
        lambda one: str(one.params["how long"]),
        lambda one: plural(one.params["tables"], "table"),
    )


def shares(result: Result) -> Figure:
    """How many of the commits had a foreign one in their window."""
    found = [one for one in result.series if "guarded" in one.params]
    made, (axes,) = figure(1, f"a client that does not know LakeVilla, profile {result.profile}")
    kinds = [
        f"{one.params['deltalake']}s,\n{'guarded' if one.params['guarded'] == 'yes' else 'open'}"
        for one in found
    ]
    heights = {
        name: [100 * one.figures[name] / max(one.n, 1) for one in found]
        for name in ("passed", "reconciled")
    }
    bars(axes, kinds, heights)
    axes.set_ylabel("per cent of our commits")
    axes.set_xlabel("what deltalake does, as fast as it can")
    legend(made, axes)
    return made


BENCHMARK = Benchmark(
    name="window",
    summary="how wide the window is that `guard` closes, and how often another client is in it",
    claim="none: the paper's writers all know its log",
    deviations=(
        "passed: a foreign commit took the number of our entry; reconciled: it had also rewritten "
        "our files, so the operations were replayed; both count commits of ours"
    ),
    parameters=(
        Parameter("tables", "1,8", "1,8", "in a transaction, for the window itself"),
        Parameter("repeats", 15, 3, "of the window", least=1),
        Parameter("seconds", 20.0, 4.0, "of each kind of interference", least=0.5),
    ),
    run=measure,
    plots={"windows": windows, "shares": shares},
)
