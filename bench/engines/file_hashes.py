"""What it costs to hash the data files of an append, and to compare them when they are read."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

import lakevilla as lv
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Measured
from bench.harness.drawing import medians
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter
from bench.harness.store.places import LOCAL

WITHOUT, WITH = "without hashes", "with hashes"
APPEND, READ = "append", "read all rows"
#: Of a row, in memory.
_ROW_BYTES = 40


def measure(run: Run) -> None:
    """Each way in turn, in a lake of its own; the first turn counts for nothing."""
    table = _rows(run.number("rows"))
    for turn in range(-1, run.number("repeats")):
        # Which goes first changes, so that neither has the warmer machine.
        for way in (WITHOUT, WITH) if turn % 2 else (WITH, WITHOUT):
            run.advance(f"{way}, turn {turn + 1}")
            root = run.places.root(f"{way}-{turn + 1}")
            settings = lv.Settings(hash_files=way == WITH)
            options = run.places.direct_options
            with lv.connect(root, storage_options=options, settings=settings) as lake:
                lake.create_table("t", table.schema)
                times = {
                    APPEND: _taken(partial(_append, lake, table)),
                    READ: _taken(partial(_read, lake, "on" if way == WITH else "off")),
                }
            run.places.discard(root)
            for step, took in times.items():
                if turn >= 0:
                    measured = Measured(seconds=took)
                    measured.record(way, took)
                    run.add(way, {"step": step}, measured)
    run.note("times are of the processor, all threads of the client together")
    run.note(f"{table.nbytes / 1e9:.2f} GB of Arrow")
    hashed, plain = (run.result.find(way, step=APPEND) for way in (WITH, WITHOUT))
    run.ratio("append with hashes / without", 1.03, hashed, plain)


def _append(lake: lv.Lake, table: pa.Table) -> None:
    lake.run(lambda txn: txn.append("t", table))


def _read(lake: lv.Lake, verify: Literal["off", "on"]) -> None:
    for _ in lake.scan("t", verify=verify):
        pass


def _taken(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _rows(count: int) -> pa.Table:
    draw = np.random.default_rng(1)
    names = pa.array([f"name {n}" for n in range(5000)])
    return pa.table(
        {
            "id": np.arange(count),
            "x": draw.random(count),
            "k": draw.integers(0, 1000, count),
            "s": names.take(pa.array(draw.integers(0, 5000, count))),
        }
    )


BENCHMARK = Benchmark(
    name="file_hashes",
    summary="what hashes of data files cost, to make with an append and to compare with a read",
    claim="none: the target is 3% of an append of 1 GB",
    deviations="processor time of the client; the store's server is another process",
    parameters=(
        Parameter("rows", 27_000_000, 2_000_000, "appended at once", least=100),
        Parameter("repeats", 5, 2, "of each", least=1),
    ),
    run=measure,
    plots={"steps": lambda result: medians(result, lambda one: str(one.params["step"]))},
    profile=LOCAL,
    needs=lambda parameters: Needs(
        memory_bytes=2 * _ROW_BYTES * int(parameters["rows"]),
        why=f"an append of {parameters['rows']} rows",
    ),
)
