"""Cost that must not grow with a lake's past: the same step when little and much lies behind it.

Each lake grows in a process of its own (``bench.size.grown``), and steps on it are measured at each
size: processor time with that of the background, requests, bytes and memory. A target says how many
times the cost of the first size a step may have at the last.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from matplotlib.figure import Figure

from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Measured
from bench.harness.drawing import medians
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, Value, chosen, numbers
from bench.harness.results import Result, Series
from bench.harness.store.places import LOCAL
from bench.size.own_process import in_own_process

_MODULE = "bench.size.grown"
#: The kinds of lakes, and the parameter that has the sizes of each.
KINDS = {
    "commits:delta": "commits",
    "commits:iceberg": "iceberg_commits",
    "log_entries": "log_entries",
    "tables": "tables",
    "refs": "refs",
    "statements": "statements",
    "branch": "branch_commits",
    "keys": "keys",
    "behind:delta": "behind",
    "behind:iceberg": "behind",
    "queue": "waiting",
}


class Limit(NamedTuple):
    """How much a figure of a step may grow from the first size to the last."""

    kind: str
    step: str
    figure: str
    times: float


LIMITS = (
    Limit("commits:delta", "append", "cpu_ms", 1.3),
    Limit("commits:delta", "append", "written_kb", 1.4),
    Limit("commits:delta", "append", "requests", 1.1),
    # A state is read from a checkpoint and an entry for 64 of its files, at most 100.
    Limit("commits:delta", "open the table, cold", "requests", 10),
    Limit("commits:delta", "open the table, cold", "lists", 1),
    Limit("commits:delta", "open the table, cold", "cpu_ms", 5),
    Limit("commits:delta", "read an old version, cold", "requests", 10),
    Limit("commits:delta", "snapshot of an old global version, cold", "requests", 10),
    Limit("commits:delta", "open the tables of an old global version, cold", "lists", 1),
    Limit("commits:delta", "open the tables of an old global version, cold", "cpu_ms", 6),
    Limit("commits:iceberg", "append", "cpu_ms", 2),
    Limit("commits:iceberg", "append", "memory_mb", 1.8),
    Limit("log_entries", "open the table, cold", "requests", 1.2),
    Limit("tables", "create a table", "cpu_ms", 2),
    Limit("tables", "append", "cpu_ms", 1.5),
    Limit("tables", "maintain after one commit", "requests", 1.2),
    Limit("tables", "gc", "cpu_ms_each", 1.5),
    Limit("tables", "gc after a commit to many tables, cold", "cpu_ms_each", 1.5),
    Limit("tables", "doctor, cold", "cpu_ms_each", 1.5),
    Limit("refs", "vacuum", "lists", 1.5),
    Limit("refs", "vacuum", "requests", 1.5),
    Limit("refs", "vacuum", "cpu_ms", 8),
    Limit("refs", "vacuum again", "cpu_ms", 4),
    Limit("refs", "vacuum, cold", "requests", 2),
    Limit("refs", "doctor", "lists", 1.5),
    # One for each branch's HEAD.
    Limit("refs", "doctor", "requests", 10),
    Limit("refs", "doctor", "cpu_ms", 20),
    Limit("refs", "merge of a branch", "cpu_ms", 2),
    Limit("statements", "append and select", "cpu_ms", 2),
    Limit("commits:delta", "gc of old files", "requests", 1.5),
    Limit("branch", "append on the branch", "written_kb", 3),
    # The page of the commit, and the ends of the blocks that lead to it.
    Limit("keys", "repeat the first key, cold", "requests", 3),
    Limit("keys", "gc", "requests", 10),
    Limit("behind:delta", "find the newest version", "requests", 1.5),
    Limit("behind:delta", "append", "requests", 1.5),
    Limit("behind:iceberg", "find the newest version", "requests", 1.5),
    Limit("behind:iceberg", "append", "requests", 1.5),
)


def measure(run: Run) -> None:
    """Each kind of lake, through all of its sizes."""
    for kind in chosen("kinds", run["kinds"], KINDS):
        sizes = numbers(run[KINDS[kind]])
        run.advance(f"{kind}: {', '.join(f'{size:,}' for size in sizes)}")
        root = run.places.root(kind)
        given = (json.dumps(run.places.options), ",".join(map(str, sizes)))
        own = in_own_process(_MODULE, "grow", kind, root, *given)
        run.check(f"{kind}: the lake grew to its last size", not own.measured.deaths)
        for death in own.measured.deaths:
            run.note(death)
        for step, size, figures in own.returned.get("steps", ()):
            measured = Measured(seconds=figures.get("ms", figures["cpu_ms"]) / 1000)
            measured.record(step, measured.seconds)
            params: dict[str, Value] = {"kind": kind, "step": step, "size": size}
            run.add("LakeVilla", params, measured, figures=figures)
        run.places.discard(root)
        _compare(run, kind, sizes)


def _compare(run: Run, kind: str, sizes: Sequence[int]) -> None:
    for limit in LIMITS:
        if limit.kind != kind:
            continue
        first, last = (_found(run, limit, size) for size in (sizes[0], sizes[-1]))
        name = f"{kind}: {limit.step}, {limit.figure} at {sizes[-1]:,} / at {sizes[0]:,}"
        run.ratio(name, limit.times, last, first, limit.figure)


def _found(run: Run, limit: Limit, size: int) -> Series | None:
    return run.result.find("LakeVilla", kind=limit.kind, step=limit.step, size=size)


def _drawn(figure: str, unit: str, result: Result) -> Figure:
    """Draw a figure of each step, a bar a size."""
    return medians(
        result,
        lambda one: str(one.params["step"]),
        lambda one: f"{one.params['kind']}, {int(one.params['size']):,}",
        figure=figure,
        unit=unit,
    )


BENCHMARK = Benchmark(
    name="growth",
    summary="cost that must not grow: the same steps with little and with much behind them",
    claim="none: these are the project's own targets",
    deviations="each lake grows in a process of its own, which makes one transaction at a time",
    parameters=(
        Parameter("kinds", ",".join(KINDS), ",".join(KINDS), "of lakes"),
        Parameter("commits", "100,1000,10000", "120,300", "to one Delta table"),
        Parameter("iceberg_commits", "100,1000,5000", "40,200", "to one Iceberg table"),
        Parameter("log_entries", "100,2000", "30,200", "commits by log entry"),
        Parameter("tables", "100,1000,10000", "20,150", "in a lake"),
        Parameter("refs", "4,40,400", "4,40", "tags and branches"),
        Parameter("statements", "10,100,600", "10,60", "pairs of an append and a SELECT"),
        Parameter("branch_commits", "100,1000,5000", "40,200", "to one table of a branch"),
        Parameter("keys", "100,1000,5000", "20,150", "idempotency keys"),
        Parameter("behind", "100,1000", "70,140", "commits that a client has not seen"),
        Parameter("waiting", "10,50,200", "5,10", "transactions that wait for one table"),
    ),
    run=measure,
    plots={
        "cpu": partial(_drawn, "cpu_ms", "processor ms"),
        "requests": partial(_drawn, "requests", "requests"),
    },
    profile=LOCAL,
    # Each commit writes an entry of 1 KB, a data file of 1 KB, and a commit object; an Iceberg
    # table's metadata lists all snapshots before it.
    needs=lambda parameters: Needs(
        disk_bytes=12 << 30,
        memory_bytes=2 << 30,
        why="lakes of many commits and tables",
    ),
)
