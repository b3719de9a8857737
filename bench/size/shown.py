"""A Delta table of many files, shown to Iceberg clients: at first, and once it is known."""

from __future__ import annotations

import shutil
import time

import lakevilla as lv
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Measured
from bench.harness.drawing import medians
from bench.harness.parameters import Parameter
from bench.harness.store.places import LOCAL
from bench.size.million import create
from lakevilla.formats.iceberg.metadata.file import Metadata
from lakevilla.serve.catalog import Catalog

SYSTEM = "LakeVilla"
FIRST, AGAIN = "the first load", "a load once it is known"


def measure(run: Run) -> None:
    """A gateway of its own loads the table each time; then the same one loads it again."""
    files = run.number("files")
    root = run.places.directory / "lake"
    run.advance(f"a table of {files:,} files is made")
    create(root / "large", files, named=_own_name)
    with lv.connect(root) as lake:
        lake.register("large")
    for turn in range(run.number("repeats")):
        run.advance(f"turn {turn + 1}")
        with lv.connect(root) as lake:
            catalog = Catalog(lake)
            for step in (FIRST, AGAIN):
                begun = time.process_time()
                document, _ = catalog.load(("root",), "large")
                took = time.process_time() - begun
                measured = Measured(seconds=took)
                measured.record(SYSTEM, took)
                run.add(SYSTEM, {"step": step, "files": files}, measured)
                run.check("the state has each file once", _files(document) == files)
        shutil.rmtree(root / "large/_lakevilla/iceberg")
    run.note("times are of the processor, all threads of the gateway together")


def _files(document: Metadata) -> int:
    summary = (document.current or {}).get("summary") or {}
    return int(summary.get("total-data-files", 0))


def _own_name(number: int) -> str:
    """Return the name of a file that LakeVilla has written: its footer is not read."""
    return f"lv-h-5c5dbbf4-0bf4-4c3c-9d42-b1fb4f2ff3a1-{number:016x}.parquet"


BENCHMARK = Benchmark(
    name="shown",
    summary="a Delta table of many files, shown to Iceberg clients",
    claim="none: the target is 2 s for 20,000 files, and 10 ms for a load afterwards",
    deviations=(
        "the table is a checkpoint of files that do not exist, in a local directory: no data is "
        "read; processor time of the gateway, without HTTP"
    ),
    parameters=(
        Parameter("files", 20_000, 2000, "of the table", least=100),
        Parameter("repeats", 5, 1, "of each", least=1),
    ),
    run=measure,
    plots={"steps": lambda result: medians(result, lambda one: str(one.params["step"]))},
    profile=LOCAL,
)
