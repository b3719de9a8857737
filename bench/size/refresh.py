"""A table that is loaded whole each day: what an overwrite costs that keeps what has not changed.

Each load runs in a process of its own, by ``overwrite`` and by ``overwrite(..., reuse_by=...)``, of
the same rows; after each the two tables are compared row by row. ``rows made`` is what it takes
to make the rows, which is part of every other figure.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from bench.harness.benchmark import Benchmark, Run
from bench.harness.drawing import medians
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter
from bench.harness.store.places import LOCAL
from bench.size.own_process import in_own_process
from bench.size.refreshed import KEPT, PLAIN, changed

MADE, FIRST, SAME = "rows made", "first", "nothing changed"
REGION, SCATTERED, FEW = "region", "scattered", "few scattered"
#: In this order: each table begins anew, and each edit is of the first rows.
STEPS = (FIRST, SAME, REGION, SAME, SCATTERED, SAME, FEW)
_MODULE = "bench.size.refreshed"
#: Of fewer rows a single file is more than a twentieth.
_MANY = 5_000_000


def measure(run: Run) -> None:
    """Each load into each table, in turn."""
    rows, memory = run.number("rows"), run.number("engine_mb") << 20
    for repeat in range(run.number("repeats")):
        root = run.places.directory / f"lake-{repeat}"
        root.mkdir()
        made = in_own_process(_MODULE, "read_through", FIRST, rows)
        run.add(MADE, {"step": MADE}, made.measured, figures=made.figures)
        for number, step in enumerate(STEPS):
            for table in (PLAIN, KEPT):
                run.advance(f"{step} into {table}, repeat {repeat + 1}")
                own = in_own_process(_MODULE, "load", str(root), table, step, rows, memory)
                shown = {"bytes": own.returned.get("bytes", 0) / 1e6}
                shown["files"] = own.returned.get("files", 0)
                # Between two edits the rows are brought back, which is an edit itself.
                back = step == SAME and number > 1
                if not back:
                    figures = {**own.figures, **shown}
                    run.add(table, {"step": step}, own.measured, figures=figures)
                if table == KEPT and not own.measured.deaths:
                    _check(run, root, step, own.returned, rows, back=back)
            run.check("the rows are those of a plain overwrite", _alike(root))
        shutil.rmtree(root)
    _conclude(run)


def _check(
    run: Run, root: Path, step: str, found: Mapping[str, float], rows: int, *, back: bool
) -> None:
    share = found["bytes"] / max(found["bytes_live"], 1)
    if step == SAME and not back:
        run.check("where nothing has changed, no file is written", found["files"] == 0)
    if step == REGION and rows >= _MANY:
        run.check("changes in one region write at most 5% of the bytes", share <= 0.05)
    if step in (REGION, SCATTERED, FEW):
        shown = in_own_process(_MODULE, "shown", str(root), KEPT, found["since"]).returned
        # An insert and a delete for each.
        due = 2 * len(changed(step, rows))
        run.check("changes() shows the changed rows alone", shown.get("rows") == due)


def _alike(root: Path) -> bool:
    """Whether the two tables hold the same rows."""
    found = []
    for table in (PLAIN, KEPT):
        files = ", ".join(f"'{uri}'" for uri in DeltaTable(str(root / table)).file_uris())
        with duckdb.connect(config={"memory_limit": "1GB"}) as connection:
            found += connection.execute(
                "SELECT count(*), sum(hash(sku, qty, price, shop, note)), "
                f"sum(hash(note, shop, sku, qty, price)) FROM read_parquet([{files}])"
            ).fetchall()
    return found[0] == found[1]


def _conclude(run: Run) -> None:
    run.note("times include making the rows; see the step of that name")
    ours, theirs = (run.result.find(one, step=REGION) for one in (KEPT, PLAIN))
    run.ratio("region: bytes with reuse_by / without", 0.05, ours, theirs, "bytes")


BENCHMARK = Benchmark(
    name="refresh",
    summary="a table that is loaded whole again: overwrite(reuse_by=...) beside overwrite",
    claim="none: these are the project's own targets",
    deviations="a local directory: no latency; each load has a process of its own",
    parameters=(
        Parameter("rows", 10_000_000, 1_000_000, "of the table", least=1000),
        Parameter("engine_mb", 1024, 1024, "memory_limit_bytes of LakeVilla", least=1),
        Parameter("repeats", 3, 1, "of each", least=1),
    ),
    run=measure,
    plots={
        "cpu": lambda result: medians(
            result, lambda one: str(one.params["step"]), figure="cpu_s", unit="processor seconds"
        )
    },
    profile=LOCAL,
    # Seven states of the one table and what changes of the other, and what is sorted meanwhile.
    needs=lambda parameters: Needs(
        disk_bytes=700 * int(parameters["rows"]),
        memory_bytes=int(parameters["engine_mb"]) << 21,
        why=f"a table of {int(parameters['rows']):,} rows, loaded {len(STEPS)} times,",
    ),
)
