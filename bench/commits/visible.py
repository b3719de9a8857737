"""How long until a reader that knows the format alone sees a commit.

A transaction changes a row in each of k tables, and deltalake polls the tables as fast as it can.
Times are from the call of ``commit``.
"""

from __future__ import annotations

import time

import deltalake

from bench.commits.instants import ROWS, Watcher, counted, instants
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Measured
from bench.harness.drawing import medians
from bench.harness.parameters import Parameter, numbers
from bench.harness.words import plural

#: What a moment is called in a result.
UNTIL = {
    "decided": "decided: LakeVilla's readers see it",
    "published": "in the logs of all tables",
    "returned": "commit() returns",
    "seen": "deltalake has read it",
    "ahead": "one table is ahead of another",
}
PEER = "deltalake's own update, until deltalake has read it"


def measure(run: Run) -> None:
    """Each number of tables, and deltalake's own commits beside them."""
    repeats = run.number("repeats")
    for count in numbers(run["tables"]):
        run.advance(f"{count} tables")
        root, options = run.places.root(f"visible-{count}"), run.places.options
        tables = [f"t{number}" for number in range(count)]
        for one in instants(root, options, tables, repeats, watched=True):
            for name, until in UNTIL.items():
                if name != "ahead" or count > 1:
                    _add(run, "LakeVilla", {"tables": count, "until": until}, one[name])
        seen = {counted(f"{root}/{table}", options) for table in tables}
        run.check("deltalake reads every commit in each table", seen == {repeats + 1})
    run.advance("deltalake")
    for seconds in _peer(run):
        _add(run, "deltalake", {"tables": 1, "until": PEER}, seconds)


def _add(run: Run, system: str, params: dict[str, int | float | str], seconds: float) -> None:
    measured = Measured(seconds=seconds)
    measured.record("once", seconds)
    run.add(system, params, measured)


def _peer(run: Run) -> list[float]:
    """Seconds from deltalake's call until another handle of its own has read the version."""
    uri, options = f"{run.places.root('deltalake')}/t", run.places.options
    deltalake.write_deltalake(uri, ROWS, storage_options=options or None)
    table = deltalake.DeltaTable(uri, storage_options=options or None)
    watcher = Watcher(uri, options)
    found = []
    try:
        for turn in range(run.number("repeats") + 1):
            began = time.perf_counter()
            table.update(updates={"n": "n + 1"}, predicate="id = 1")
            seen = watcher.saw(table.version())
            if turn:
                found.append(seen - began)
    finally:
        watcher.close()
    return found


BENCHMARK = Benchmark(
    name="visible",
    summary="how long until others see a commit: those with LakeVilla, and those by the log alone",
    claim="none: the paper's readers all know its log",
    deviations="deltalake polls as fast as it can, on the same machine",
    parameters=(
        Parameter("tables", "1,2,8", "1,8", "in a transaction"),
        Parameter("repeats", 15, 5, "of each", least=1),
    ),
    run=measure,
    plots={
        "until": lambda result: medians(
            result,
            lambda one: plural(one.params["tables"], "table"),
            lambda one: str(one.params["until"]),
        ),
    },
)
