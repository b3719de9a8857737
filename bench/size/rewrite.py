"""Time and peak memory of rewriting a large table: LakeVilla's engine beside deltalake.

Each statement (an update and a merge that touch 1% of the rows, in every file) runs in a process
of its own on a fresh copy of one table; the figures are that process's time, and its highest
resident memory.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from bench.harness.benchmark import Benchmark, Run
from bench.harness.drawing import medians
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, chosen
from bench.harness.store.places import LOCAL
from bench.size.own_process import in_own_process
from bench.size.wide_rows import source

STATEMENTS = ("update", "merge")


def measure(run: Run) -> None:
    """Each statement by each system, in turns, on copies whose files are links to one table's."""
    gigabytes = float(run["gigabytes"])
    limits = (run.number("engine_mb") << 20, 8 << 20)
    systems: dict[str, tuple[str, tuple[int, ...]]] = {
        "LakeVilla": ("bench.size.by_lakevilla", limits),
        "deltalake": ("bench.size.by_deltalake", ()),
    }
    wanted = chosen("systems", run["systems"], systems)
    run.advance(f"a table of {gigabytes:g} GB is made")
    template = str(run.places.directory / "template" / "t")
    made = in_own_process("bench.size.by_deltalake", "create", template, gigabytes)
    if made.measured.deaths:
        raise RuntimeError(f"the table was not made: {made.measured.deaths[0]}")
    rows = int(made.returned["rows"])
    for repeat in range(run.number("repeats")):
        for statement in STATEMENTS:
            for system in wanted:
                run.advance(f"{statement} by {system}, repeat {repeat + 1}")
                module, more = systems[system]
                _once(run, statement, system, module, rows, more)
    _conclude(run)


def _once(
    run: Run, statement: str, system: str, module: str, rows: int, more: tuple[int, ...]
) -> None:
    template, copy = run.places.directory / "template", run.places.directory / "copy"
    shutil.copytree(template, copy, copy_function=os.link)
    own = in_own_process(module, "rewrite", str(copy), statement, rows, *more)
    run.add(system, {"statement": statement}, own.measured, figures=own.figures)
    if not own.measured.deaths:
        before, after = (_quantities(path / "t") for path in (template, copy))
        name = f"{system}'s {statement} changes 1% of the rows, and no other"
        run.check(name, after == _due(statement, before, rows))
    shutil.rmtree(copy)


Quantities = tuple[int, int, int]


def _quantities(table: Path) -> Quantities:
    """How many rows a table has, and the quantities of those that are changed and of the others."""
    files = ", ".join(f"'{uri}'" for uri in DeltaTable(str(table)).file_uris())
    with duckdb.connect(config={"memory_limit": "1GB"}) as connection:
        found: Quantities = connection.execute(
            "SELECT count(*), sum(if(id % 100 = 7, quantity, 0)), "
            f"sum(if(id % 100 = 7, 0, quantity)) FROM read_parquet([{files}])"
        ).fetchall()[0]
    return found


def _due(statement: str, before: Quantities, rows: int) -> Quantities:
    count, changed, others = before
    if statement == "update":
        return count, changed + rows // 100, others
    new = sum(pc.sum(batch["quantity"].cast(pa.int64())).as_py() for batch in source(rows))
    return count, new, others


def _conclude(run: Run) -> None:
    limit, gigabytes = float(run["limit_gb"]), run["gigabytes"]
    for statement in STATEMENTS:
        ours, theirs = (
            run.result.find(one, statement=statement) for one in ("LakeVilla", "deltalake")
        )
        if ours is not None:
            peak = max(ours.of_repeats("peak_mb"), default=0.0)
            run.check(f"LakeVilla's {statement} holds at most {limit:g} GB", peak <= limit * 1e3)
        run.ratio(f"[12] {statement} of 1% of {gigabytes} GB / deltalake", 1.0, ours, theirs)
        run.ratio(
            f"[12] {statement} of 1% of {gigabytes} GB, peak memory / deltalake",
            0.5,
            ours,
            theirs,
            "peak_mb",
        )


BENCHMARK = Benchmark(
    name="rewrite",
    summary="time and peak memory of an update and a merge of 1% of a large table, in every file",
    claim="none: these are the project's own targets, whose numbers stand in brackets",
    deviations="a local directory: no latency; each statement has a process of its own",
    parameters=(
        Parameter("gigabytes", 1.0, 0.05, "of the table, about", least=0.01),
        Parameter("limit_gb", 1.5, 1.5, "that LakeVilla's process may hold", least=0.0),
        Parameter("engine_mb", 1024, 1024, "memory_limit_bytes of LakeVilla", least=1),
        Parameter("systems", "LakeVilla,deltalake", "LakeVilla,deltalake", "in turns"),
        Parameter("repeats", 5, 1, "of each", least=1),
    ),
    run=measure,
    plots={
        "time": lambda result: medians(result, lambda one: str(one.params["statement"])),
        "memory": lambda result: medians(
            result,
            lambda one: str(one.params["statement"]),
            figure="peak_mb",
            unit="MB at the peak of the process",
        ),
    },
    profile=LOCAL,
    # The table, what a statement rewrites of it, and what it spills meanwhile.
    needs=lambda parameters: Needs(
        disk_bytes=int(3e9 * float(parameters["gigabytes"])),
        memory_bytes=int(1e9 * float(parameters["limit_gb"])),
        why=f"a table of {parameters['gigabytes']} GB, and what is rewritten of it,",
    ),
)
