"""What a statement takes that changes few rows of a large file: marked as deleted, or rewritten.

Both tables have the same rows in one file; one of them allows deletion vectors. With
``format=iceberg`` they are of version 3.
"""

from __future__ import annotations

import time
from typing import cast

import numpy as np
import obstore
import pyarrow as pa

import lakevilla as lv
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Measured
from bench.harness.drawing import medians
from bench.harness.parameters import Parameter, check_known
from bench.harness.store.places import LOCAL
from lakevilla.formats.base import FormatName

MARKED, REWRITTEN = "marked", "rewritten"
_V3 = {"format-version": "3"}
_MODES = {f"write.{one}.mode": "merge-on-read" for one in ("delete", "update", "merge")}
PROPERTIES: dict[str, dict[str, dict[str, str]]] = {
    "delta": {MARKED: {"delta.enableDeletionVectors": "true"}, REWRITTEN: {}},
    "iceberg": {MARKED: {**_V3, **_MODES}, REWRITTEN: _V3},
}
UPDATE, DELETE, UPSERT = "update of one row", "delete of one row", "upsert of 100 rows"


def measure(run: Run) -> None:
    """Each statement on both tables, in turns; the tables stay equal."""
    count = run.number("rows")
    draw = np.random.default_rng(run.seed)
    form = cast(FormatName, run["format"])
    check_known("format", form, PROPERTIES)
    root, tables = run.places.root("marked"), PROPERTIES[form]
    with lv.connect(root, storage_options=run.places.options) as lake:
        rows = _rows(draw, np.arange(count))
        for name, properties in tables.items():
            lake.create_table(name, rows, format=form, properties=properties)
        for turn in range(-1, run.number("repeats")):
            run.advance(f"turn {turn + 1}")
            one, other, *keys = map(int, draw.choice(count, 102, replace=False))
            given = _rows(draw, np.array(keys))
            for name in tables:
                for statement in (UPDATE, DELETE, UPSERT):
                    with lake.transaction() as txn:
                        _timed(run, root, txn, name, statement, (one, other, given), turn >= 0)
        marked, rewritten = (lake.read(name).sort_by("id") for name in tables)
        run.check("both tables have the same rows", marked.equals(rewritten))
    for statement in (UPDATE, DELETE, UPSERT):
        found = (run.result.find(name, statement=statement) for name in (MARKED, REWRITTEN))
        of, to = found
        run.ratio(f"{statement}: bytes stored, marked / rewritten", 0.001, of, to, "stored_bytes")
        if statement != UPSERT:  # most of its time is the search for the keys
            run.ratio(f"{statement}: processor, marked / rewritten", 0.05, of, to, "processor_ms")


def _timed(
    run: Run,
    root: str,
    txn: lv.Transaction,
    name: str,
    statement: str,
    values: tuple[int, int, pa.Table],
    counts: bool,
) -> None:
    """Perform and commit a statement; note what it took if the turn ``counts``."""
    one, other, given = values
    before, begun, busy = _stored(run, root), time.perf_counter(), time.process_time()
    if statement == UPDATE:
        txn.update(name, {"b": "b + 1"}, where=f"id = {one}")
    elif statement == DELETE:
        txn.delete(name, where=f"id = {other}")
    else:
        txn.upsert(name, given, "id")
    txn.commit()
    measured = Measured(seconds=time.perf_counter() - begun)
    measured.record(statement, measured.seconds)
    figures = {
        "processor_ms": 1000 * (time.process_time() - busy),
        "stored_bytes": float(_stored(run, root) - before),
    }
    if counts:
        run.add(name, {"statement": statement}, measured, figures=figures)


def _stored(run: Run, root: str) -> int:
    """Return the bytes of all objects below a root."""
    listed = obstore.list(run.places.objects(root))
    return sum(int(found["size"]) for batch in listed for found in batch)


def _rows(draw: np.random.Generator, ids: np.ndarray) -> pa.Table:
    """Return rows of twenty bytes or so each."""
    return pa.table(
        {
            "id": ids,
            "a": draw.integers(0, 1 << 40, len(ids)),
            "b": draw.integers(0, 1 << 30, len(ids)),
        }
    )


BENCHMARK = Benchmark(
    name="marked_rows",
    summary="an update, a delete and an upsert of few rows of a large file",
    claim="none: the targets are a thousandth of the bytes and a twentieth of the processor time",
    deviations="the file is sorted by the key",
    parameters=(
        Parameter("rows", 9_000_000, 700_000, "of the only file at first", least=500_000),
        Parameter("repeats", 5, 1, "turns of all", least=1),
        Parameter("format", "delta", "delta", "of the tables: delta or iceberg"),
    ),
    run=measure,
    plots={"statements": lambda result: medians(result, lambda one: str(one.params["statement"]))},
    profile=LOCAL,
)
