"""A Delta table of a million files: open and prune it, and append to it (target 12)."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

import lakevilla as lv
from bench.harness.benchmark import Benchmark, Run
from bench.harness.drawing import medians
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, Value
from bench.harness.store.places import LOCAL
from bench.harness.turns import take_turns
from bench.size.million import PARTITIONS, create
from bench.size.own_process import in_own_process

SMALL = 100
PRUNE = "open and prune to one partition"
SYSTEMS = {"LakeVilla": "bench.size.million", "deltalake": "bench.size.by_deltalake"}
ROWS = pa.table({"part": pa.array([1] * 100, pa.int32()), "id": range(100)})


def measure(run: Run) -> None:
    """Each reader in a process of its own, in turns; then appends to a large and a small table."""
    files = run.number("files")
    root = run.places.directory / "lake"
    run.advance(f"a table of {files:,} files is made")
    create(root / "large", files)
    create(root / "small", SMALL)
    opened: dict[str, Value] = {"operation": PRUNE, "files": files}
    due = len(range(7, files, PARTITIONS))
    for turn in range(run.number("repeats")):
        for system, module in SYSTEMS.items():
            run.advance(f"{PRUNE}: {system}, turn {turn + 1}")
            own = in_own_process(module, "prune", str(root), "large")
            run.add(system, opened, own.measured, figures=own.figures)
            if not own.measured.deaths:
                run.check(f"{system} finds the partition's files", own.returned["files"] == due)
    _appends(run, str(root), files)
    ours, theirs = (run.result.find(system, **opened) for system in ("LakeVilla", "deltalake"))
    run.ratio(f"[12] {files:,} files: open and prune / deltalake", 0.3, ours, theirs)
    run.ratio(f"[12] {files:,} files: peak memory / deltalake", 0.4, ours, theirs, "peak_mb")
    large, small = (
        run.result.find("LakeVilla", operation="append", files=n) for n in (files, SMALL)
    )
    run.ratio(f"[12] append, {files:,} files / {SMALL} files", 1.2, large, small)


def _appends(run: Run, root: str, files: int) -> None:
    with lv.connect(root) as lake:

        def append(table: str) -> None:
            with lake.transaction(features=lv.Feature.NONE) as txn:
                txn.append(table, ROWS)

        for _ in range(3):
            append("large")
            append("small")
        for _ in range(4 * run.number("repeats")):
            for table, count in (("large", files), ("small", SMALL)):
                take_turns(
                    run,
                    {"operation": "append", "files": count},
                    {"LakeVilla": partial(append, table)},
                    repeats=1,
                    warm_up=0,
                    settle=lake.close,
                    counted=False,
                )


BENCHMARK = Benchmark(
    name="many_files",
    summary="a Delta table of a million files: open it and prune, and append to it",
    claim="none: these are the project's own targets, whose numbers stand in brackets",
    deviations=(
        "the table is a checkpoint of files that do not exist, in a local directory: no data is "
        "read"
    ),
    parameters=(
        Parameter("files", 1_000_000, 50_000, "of the large table", least=SMALL),
        Parameter("repeats", 5, 2, "of each, and four times as many appends", least=1),
    ),
    run=measure,
    plots={
        "time": lambda result: medians(
            result,
            lambda one: str(one.params["operation"]),
            lambda one: f"{one.system}, {one.params['files']:,} files",
        ),
        "memory": lambda result: medians(
            result,
            lambda one: str(one.params["operation"]),
            figure="peak_mb",
            unit="MB at the peak of the process",
        ),
    },
    profile=LOCAL,
    # Some 700 bytes for each file that deltalake holds, and the rows that the log is made of.
    needs=lambda parameters: Needs(
        memory_bytes=1000 * int(parameters["files"]),
        why=f"a table of {parameters['files']} files",
    ),
)
