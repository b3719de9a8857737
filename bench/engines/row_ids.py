"""What the ids of rows cost an update that writes a file again, in both formats.

Each table has the same rows in one file. The rows of half of the tables have ids: Iceberg's of
version 3, and Delta's row tracking. An update of one row copies all others, and their ids.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

import lakevilla as lv
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Measured
from bench.harness.drawing import medians
from bench.harness.parameters import Parameter
from bench.harness.store.places import LOCAL
from lakevilla.formats.base import FormatName

WITH, WITHOUT = "with ids", "without"
PROPERTIES: dict[FormatName, dict[str, dict[str, str]]] = {
    "iceberg": {WITH: {"format-version": "3"}, WITHOUT: {}},
    "delta": {WITH: {"delta.enableRowTracking": "true"}, WITHOUT: {}},
}
TABLES = [(kind, name) for kind, names in PROPERTIES.items() for name in names]
#: How many columns rows have: those of a sale, or its first three, all numbers.
WIDTHS = (9, 3)


def measure(run: Run) -> None:
    """Update one row of each table, in turns; the tables stay equal."""
    count = run.number("rows")
    draw = np.random.default_rng(run.seed)
    root = run.places.root("row-ids")
    with lv.connect(root, storage_options=run.places.options) as lake:
        rows = sales(draw, count)
        for width in WIDTHS:
            for kind, name in TABLES:
                properties = PROPERTIES[kind][name]
                given = rows.select(range(width))
                lake.create_table(
                    _table(kind, name, width), given, format=kind, properties=properties
                )
        for turn in range(-2, run.number("repeats")):
            run.advance(f"turn {turn + 1}")
            one = int(draw.integers(count))
            for width in WIDTHS:
                for kind, name in TABLES:
                    # The first update of rows with ids writes them to the file, the next copy them.
                    _update(run, lake, root, (kind, name, width), one, counts=turn >= 0)
        for width in WIDTHS:
            found = [lake.read(_table(*one, width)).sort_by("id") for one in TABLES]
            run.check("all tables have the same rows", all(one.equals(found[0]) for one in found))
    _compare(run)


def _compare(run: Run) -> None:
    """Aim at the ratios for rows of nine columns; those of three numbers are only told."""
    for kind in PROPERTIES:
        of, to = (run.result.find(name, format=kind, columns=9) for name in (WITH, WITHOUT))
        for what, figure in (("processor", "processor_ms"), ("bytes", "stored_bytes")):
            run.ratio(f"{kind}: {what}, {WITH} / {WITHOUT}", 1.15, of, to, figure)


def _table(kind: FormatName, name: str, width: int) -> str:
    return f"{kind}_{'ids' if name == WITH else 'plain'}_{width}"


def _update(
    run: Run,
    lake: lv.Lake,
    root: str,
    of: tuple[FormatName, str, int],
    one: int,
    *,
    counts: bool,
) -> None:
    """Update a row and note what it took if the turn ``counts``."""
    kind, name, width = of
    before, begun, busy = run.places.stored_bytes(root), time.perf_counter(), time.process_time()
    with lake.transaction() as txn:
        txn.update(_table(kind, name, width), {"b": "b + 1"}, where=f"id = {one}")
    measured = Measured(seconds=time.perf_counter() - begun)
    measured.record("update of one row", measured.seconds)
    figures = {
        "processor_ms": 1000 * (time.process_time() - busy),
        "stored_bytes": float(run.places.stored_bytes(root) - before),
    }
    if counts:
        run.add(name, {"format": kind, "columns": width}, measured, figures=figures)


def sales(draw: np.random.Generator, count: int) -> pa.Table:
    """Return rows of nine columns, the first three of which are numbers."""
    words = [
        f"{a:x} carefully final deposits {b:x}" for a, b in draw.integers(0, 1 << 40, (count, 2))
    ]
    return pa.table(
        {
            "id": np.arange(count),
            "a": draw.integers(0, 1 << 40, count),
            "b": draw.integers(0, 1 << 30, count),
            "price": np.round(draw.uniform(900, 100_000, count), 2),
            "discount": np.round(draw.uniform(0, 0.1, count), 2),
            "quantity": draw.integers(1, 50, count),
            "status": np.array(["A", "N", "R"])[draw.integers(0, 3, count)],
            "day": draw.integers(8000, 10_000, count).astype("datetime64[D]"),
            "comment": words,
        }
    )


BENCHMARK = Benchmark(
    name="row_ids",
    summary="an update that writes a file again, of rows with ids and without",
    claim="none: the target is 1.15 times the processor and the bytes, for rows of nine columns",
    deviations="the file is sorted by the key",
    parameters=(
        Parameter("rows", 1_500_000, 100_000, "of each table", least=1000),
        Parameter("repeats", 5, 1, "updates of each table", least=1),
    ),
    run=measure,
    plots={
        "updates": lambda result: medians(
            result, lambda one: f"{one.params['format']}, {one.params['columns']} columns"
        )
    },
    profile=LOCAL,
)
