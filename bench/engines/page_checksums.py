"""What checksums of Parquet pages cost: to write, and to verify beside a scan by DuckDB.

Processor time on one thread. The floor of any verification beside DuckDB's scan is the checksum of
the file's bytes alone: headers of pages are not even parsed for it.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Measured
from bench.harness.drawing import medians
from bench.harness.parameters import Parameter
from bench.harness.store.places import LOCAL

PLAIN, SUMMED = "without checksums", "with checksums"
READ = "beside a scan"
SCAN, PART = "DuckDB: the whole table", "DuckDB: two of four columns"
BYTES, AGAIN = "the checksum of all bytes alone", "read again by pyarrow, which verifies"


def measure(run: Run) -> None:
    """Each way in turn."""
    rows = run.number("rows")
    table = _rows(rows)
    few = table.slice(0, 100)
    path = run.places.directory / "rows.parquet"
    path.write_bytes(written(table, checksums=True))
    body = path.read_bytes()
    connection = duckdb.connect(config={"threads": 1})
    whole = f"SELECT * FROM '{path}'"
    part = f"SELECT sum(x), count(*) FROM '{path}' WHERE k < 500"
    steps: dict[tuple[str, str], Callable[[], object]] = {
        ("write 100 rows", PLAIN): lambda: written(few, checksums=False),
        ("write 100 rows", SUMMED): lambda: written(few, checksums=True),
        (f"write {rows:,} rows", PLAIN): lambda: written(table, checksums=False),
        (f"write {rows:,} rows", SUMMED): lambda: written(table, checksums=True),
        (READ, SCAN): lambda: connection.sql(whole).to_arrow_table(),
        (READ, PART): lambda: connection.execute(part).fetchall(),
        (READ, BYTES): lambda: zlib.crc32(body),
        (READ, AGAIN): lambda: pq.read_table(path, page_checksum_verification=True),
    }
    for turn in range(-1, run.number("repeats")):
        for (step, way), work in steps.items():
            run.advance(f"{step}: {way}, turn {turn + 1}")
            times = 100 if step == "write 100 rows" else 1
            begun = time.process_time()
            for _ in range(times):
                work()
            took = (time.process_time() - begun) / times
            if turn >= 0:
                measured = Measured(seconds=took)
                measured.record(way, took)
                run.add(way, {"step": step}, measured)
    connection.close()
    run.note("times are of the processor, not of the clock")
    summed, scanned = (run.result.find(way, step=READ) for way in (BYTES, SCAN))
    run.ratio("the checksum of all bytes / DuckDB's scan", 0.03, summed, scanned)


def written(table: pa.Table, *, checksums: bool) -> bytes:
    """A Parquet file as LakeVilla writes it."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_checksum=checksums, store_schema=False)
    return bytes(sink.getvalue())


def _rows(count: int) -> pa.Table:
    draw = np.random.default_rng(1)
    return pa.table(
        {
            "id": np.arange(count),
            "x": draw.random(count),
            "k": draw.integers(0, 1000, count),
            "s": [f"name {n % 5000}" for n in range(count)],
        }
    )


BENCHMARK = Benchmark(
    name="page_checksums",
    summary="what checksums of Parquet pages cost, to write and to verify",
    claim="none: the target is 3% of a scan, for verification",
    deviations="processor time on one thread, on a local file",
    parameters=(
        Parameter("rows", 2_000_000, 200_000, "of the large file", least=100),
        Parameter("repeats", 5, 2, "of each", least=1),
    ),
    run=measure,
    plots={"steps": lambda result: medians(result, lambda one: str(one.params["step"]))},
    profile=LOCAL,
)
