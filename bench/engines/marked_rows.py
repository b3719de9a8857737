"""What a statement takes that changes few rows of a large file: marked as deleted, or rewritten.

Both tables have the same rows in one file; one of them allows deletion vectors. With
``format=iceberg`` they are of version 3. With ``work=cdc`` processes upsert 100 rows each into one
table of four files, as a stream of changes does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

import lakevilla as lv
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Client, Counts, Manner, Measured, run_clients
from bench.harness.drawing import medians
from bench.harness.parameters import Parameter, Value, check_known, chosen
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
PART = "delete of a hundredth"


STATEMENTS, CDC = "statements", "cdc"
CHANGED = "each row that an acknowledged upsert has written is there, and no row twice"
_FILES, _KEYS = 4, 100


def measure(run: Run) -> None:
    """Each kind of work that was asked for."""
    works = chosen("work", run["work"], (STATEMENTS, CDC))
    if STATEMENTS in works:
        _statements(run)
    if CDC in works:
        _changes(run)


def _statements(run: Run) -> None:
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
        for turn in range(-1, run.number("repeats")):
            run.advance(f"turn {turn + 1} of large deletes")
            for name in tables:
                with lake.transaction() as txn:
                    _timed(run, root, txn, name, PART, (turn, turn, given), turn >= 0)
        marked, rewritten = (lake.read(name).sort_by("id") for name in tables)
        run.check("both tables have the same rows", marked.equals(rewritten))
    for statement in (UPDATE, DELETE, UPSERT, PART):
        found = (run.result.find(name, statement=statement) for name in (MARKED, REWRITTEN))
        of, to = found
        bytes_, processor = (0.02, 1.0) if statement == PART else (0.001, 0.05)
        run.ratio(f"{statement}: bytes stored, marked / rewritten", bytes_, of, to, "stored_bytes")
        if statement != UPSERT:  # most of its time is the search for the keys
            what = f"{statement}: processor, marked / rewritten"
            run.ratio(what, processor, of, to, "processor_ms")


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
    before, begun, busy = run.places.stored_bytes(root), time.perf_counter(), time.process_time()
    if statement == UPDATE:
        txn.update(name, {"b": "b + 1"}, where=f"id = {one}")
    elif statement == DELETE:
        txn.delete(name, where=f"id = {other}")
    elif statement == PART:
        txn.delete(name, where=f"id % 100 = {other + 1}")
    else:
        txn.upsert(name, given, "id")
    txn.commit()
    measured = Measured(seconds=time.perf_counter() - begun)
    measured.record(statement, measured.seconds)
    figures = {
        "processor_ms": 1000 * (time.process_time() - busy),
        "stored_bytes": float(run.places.stored_bytes(root) - before),
    }
    if counts:
        run.add(name, {"statement": statement}, measured, figures=figures)


@dataclass(frozen=True, slots=True)
class Opens:
    """The lake that a process opens to upsert rows."""

    root: str
    options: dict[str, str]
    rows: int

    @contextmanager
    def __call__(self) -> Iterator[tuple[lv.Lake, int]]:
        with lv.connect(self.root, storage_options=self.options) as lake:
            yield lake, self.rows


@dataclass(frozen=True, slots=True)
class Upserts:
    """A process that upserts rows of drawn keys, for some seconds or once."""

    seed: int
    seconds: float

    def __call__(self, opened: tuple[lv.Lake, int], counts: Counts) -> Iterator[str]:
        lake, count = opened
        draw = np.random.default_rng(self.seed)
        until = time.perf_counter() + self.seconds
        while True:
            ids = draw.choice(count, _KEYS, replace=False)
            # No other row has such a value.
            given = _rows(draw, ids).set_column(2, "b", pa.array(np.full(_KEYS, -1)))
            yield UPSERT
            began = time.process_time()
            while True:
                try:
                    with lake.transaction() as txn:
                        txn.upsert("t", given, "id")
                    break
                except lv.ConflictError:
                    counts.aborts += 1
            counts.spend(UPSERT, "processor", time.process_time() - began)
            counts.facts += ids.tolist()
            if time.perf_counter() >= until:
                return


def _changes(run: Run) -> None:
    """Processes upsert at once into tables that allow deletion vectors, and that do not."""
    count, writers = run.number("rows"), run.number("writers")
    for name in chosen("tables", run["tables"], PROPERTIES["delta"]):
        run.advance(f"{writers} processes, {name}")
        root, options = run.places.root("cdc"), run.places.options
        with lv.connect(root, storage_options=run.places.direct_options) as lake:
            draw = np.random.default_rng(run.seed)
            for ids in np.array_split(np.arange(count), _FILES):
                rows = _rows(draw, ids)
                if not ids[0]:
                    lake.create_table("t", rows, properties=PROPERTIES["delta"][name])
                else:
                    lake.run(lambda txn, rows=rows: txn.append("t", rows))
        crew = [
            Client(Upserts(10 * number + 1, float(run["seconds"])), Upserts(10 * number, 0.0))
            for number in range(writers)
        ]
        how = Manner("processes", seed=f"{run.seed}")
        measured = run_clients(Opens(root, options, count), crew, how, on_start=run.places.reset)
        with lv.connect(root, storage_options=run.places.direct_options) as lake:
            sql = "SELECT count(*) AS n, count(DISTINCT id) AS ids FROM t"
            all_ = lake.sql(sql).to_pylist()[0]
            found = set(lake.sql("SELECT id FROM t WHERE b = -1")["id"].to_pylist())
        acknowledged = set(measured.counts.facts)
        run.check(CHANGED, all_ == {"n": count, "ids": count} and acknowledged <= found)
        params: dict[str, Value] = {
            "statement": f"{UPSERT}, {writers} processes",
            "writers": writers,
        }
        run.add(name, params, measured, requests=run.places.count())
        run.places.discard(root)


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
    summary="an update, a delete and an upsert of few rows of a large file; upserts by processes",
    claim="none: the targets for few rows are a thousandth of the bytes, a twentieth of the time",
    deviations="the file is sorted by the key",
    parameters=(
        Parameter("rows", 9_000_000, 700_000, "of the only file at first", least=500_000),
        Parameter("repeats", 5, 1, "turns of all, at most 15", least=1),
        Parameter("work", STATEMENTS, STATEMENTS, "statements, cdc or both"),
        Parameter("tables", f"{MARKED},{REWRITTEN}", MARKED, "of cdc: marked, rewritten or both"),
        Parameter("writers", 8, 2, "processes of cdc", least=1),
        Parameter("seconds", 30.0, 1.0, "of cdc", least=0.0),
        Parameter("format", "delta", "delta", "of the tables: delta or iceberg"),
    ),
    run=measure,
    plots={"statements": lambda result: medians(result, lambda one: str(one.params["statement"]))},
    profile=LOCAL,
)
