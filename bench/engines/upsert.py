"""What an upsert of many keys costs beside deltalake's merge, in both formats.

Each statement finds a fresh table, whose files hold rows in random order: each file has keys of the
source. Two thirds of the keys are in the table. The processor time is that of this process, all its
threads, and includes the commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakevilla as lv
from bench.engines.row_ids import sales
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Measured
from bench.harness.drawing import medians
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, chosen, numbers
from bench.harness.store.places import LOCAL
from lakevilla.formats.base import FormatName

PEER = "deltalake"
SYSTEMS = ("LakeVilla+Delta", "LakeVilla+Iceberg", PEER)
#: The processor time that is aimed at, of each system as a share of deltalake's.
GOALS = dict(zip(SYSTEMS[:2], (1.0, 1.2), strict=True))
_UNTIL_QUIET_SECONDS = 0.2


def measure(run: Run) -> None:
    """Each system in turn, for each number of files."""
    wanted = chosen("systems", run["systems"], SYSTEMS)
    draw = np.random.default_rng(run.seed)
    rows, keys = run.number("rows"), run.number("keys")
    table = _with_ids(draw, draw.permutation(rows))
    old = keys * 2 // 3
    ids = np.concatenate(
        [draw.choice(rows, old, replace=False), np.arange(rows, rows + keys - old)]
    )
    source = _with_ids(draw, draw.permutation(ids))
    for turn in range(-1, run.number("repeats")):
        for files in numbers(run["files"]):
            parts = [table.slice(*part) for part in _cut(rows, files)]
            for system in wanted:
                run.advance(f"{system}, {files} files, turn {turn + 1}")
                found = _once(run, system, parts, source, counts=turn >= 0)
                if turn < 0:
                    name = f"{system} has the source's rows, and the others of the table"
                    run.check(name, found.equals(_due(table, source)))
    for files in numbers(run["files"]):
        peer = run.result.find(PEER, files=files)
        for system, goal in GOALS.items():
            one = run.result.find(system, files=files)
            name = f"upsert of {keys:,} keys into {rows:,} rows in {files} files, processor"
            run.ratio(f"{name}, {system} / deltalake", goal, one, peer, "cpu_s")


def _cut(rows: int, files: int) -> list[tuple[int, int]]:
    step = -(-rows // files)
    return [(start, step) for start in range(0, rows, step)]


def _with_ids(draw: np.random.Generator, ids: np.ndarray) -> pa.Table:
    return sales(draw, len(ids)).set_column(0, "id", pa.array(ids))


def _due(table: pa.Table, source: pa.Table) -> pa.Table:
    kept = table.filter(pc.invert(pc.is_in(table["id"], source["id"].combine_chunks())))
    return pa.concat_tables([kept, source]).sort_by("id")


def _once(
    run: Run, system: str, parts: list[pa.Table], source: pa.Table, *, counts: bool
) -> pa.Table:
    """Make a table, and note what the upsert took if the turn ``counts``; return its rows."""
    root = run.places.root(system)
    upsert, read, files = (_deltalake if system == PEER else _lakevilla)(
        run, root, system, parts, source
    )
    time.sleep(_UNTIL_QUIET_SECONDS)  # what goes on in the background is not the upsert's
    begun, busy = time.perf_counter(), time.process_time()
    upsert()
    measured = Measured(seconds=time.perf_counter() - begun)
    measured.record("upsert", measured.seconds)
    figures = {"cpu_s": time.process_time() - busy}
    found = pa.table([]) if counts else read()
    if counts:
        run.add(system, {"files": files}, measured, figures=figures)
    run.places.discard(root)
    return found


_Steps = tuple[Callable[[], object], Callable[[], pa.Table], int]


def _lakevilla(run: Run, root: str, system: str, parts: list[pa.Table], source: pa.Table) -> _Steps:
    kind: FormatName = "iceberg" if system.endswith("Iceberg") else "delta"
    lake = lv.connect(root, storage_options=run.places.options)
    lake.create_table("t", parts[0].schema, format=kind)
    for part in parts:
        lake.run(lambda txn, part=part: txn.append("t", part))

    def upsert() -> object:
        return lake.run(lambda txn: txn.upsert("t", source, keys="id"))

    return upsert, lambda: lake.read("t").sort_by("id"), len(parts)


def _deltalake(run: Run, root: str, system: str, parts: list[pa.Table], source: pa.Table) -> _Steps:
    uri, options = f"{root}/t", run.places.options
    for part in parts:
        deltalake.write_deltalake(uri, part, mode="append", storage_options=options)

    def upsert() -> object:
        return (
            deltalake.DeltaTable(uri, storage_options=options)
            .merge(source, "s.id = t.id", source_alias="s", target_alias="t")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )

    def read() -> pa.Table:
        rows = deltalake.DeltaTable(uri, storage_options=options).to_pyarrow_table()
        return rows.cast(source.schema).sort_by("id")

    return upsert, read, len(parts)


BENCHMARK = Benchmark(
    name="upsert",
    summary="processor time of an upsert of many keys, beside deltalake's merge",
    claim="none: the targets are deltalake's own processor time, and 1.2 times it for Iceberg",
    deviations="each system has its format's default compression: snappy, and zstd for Iceberg",
    parameters=(
        Parameter("rows", 1_000_000, 20_000, "of the table", least=1000),
        Parameter(
            "keys", 300_000, 6000, "of the source, two thirds of them in the table", least=10
        ),
        Parameter("files", "1,8", "1,2", "that the table is written into"),
        Parameter("systems", ",".join(SYSTEMS), ",".join(SYSTEMS), "in turns"),
        Parameter("repeats", 5, 1, "of each", least=1),
    ),
    run=measure,
    plots={
        "processor": lambda result: medians(
            result,
            lambda one: f"{one.params['files']} files",
            figure="cpu_s",
            unit="s of processor",
        )
    },
    profile=LOCAL,
    needs=lambda parameters: Needs(
        memory_bytes=2000 * int(parameters["rows"]), why="the rows, and their copies,"
    ),
)
