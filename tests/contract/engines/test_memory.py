"""A rewrite's memory does not grow with its table."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakevilla.engines.duckdb.database import is_duckdb_1
from lakevilla.settings import Settings

ROWS = 2_500_000
FILE_ROWS = 500_000
# The memory of the statement beyond that of the process with its libraries, since a process
# that is spawned after a Spark session also indexes the session's jars, which are on `sys.path`.
# DuckDB 2 takes a quarter more for a merge.
LIMIT_BYTES = (150 if is_duckdb_1() else 220) << 20


def batches() -> Any:
    generator = np.random.default_rng(3)
    for start in range(0, ROWS, FILE_ROWS):
        yield pa.record_batch(
            {
                "id": np.arange(start, start + FILE_ROWS),
                **{f"x{i}": generator.random(FILE_ROWS) for i in range(6)},
            }
        )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("large"))
    for batch in batches():
        write_deltalake(f"{root}/t", pa.Table.from_batches([batch]), mode="append")
    size = sum(path.stat().st_size for path in Path(root).rglob("*.parquet"))
    assert size > 130e6
    return root


def peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def rewrite(sender: Any, root: str, statement: str) -> None:
    import duckdb  # noqa: F401 (the engine loads it with the first statement)

    from tests.support.engine_lake import Lake

    pa.array([0])  # as pyarrow imports pandas, if installed, with the first value
    before = peak_bytes()
    lake = Lake(root, settings=Settings(memory_limit_bytes=256 << 20))
    if statement == "update":
        result = lake.update("t", {"x0": "x0 + 1"}, "id % 100 = 7")
    elif statement == "delete":
        result = lake.delete("t", "id % 100 = 8")
    else:
        source = pa.table({"id": np.arange(0, ROWS, 101), "x1": np.zeros(len(range(0, ROWS, 101)))})
        result = lake.merge(
            "t",
            source,
            "source.id = target.id",
            {"kind": "matched_update", "set": {"x1": "source.x1"}},
        )
    sender.send((peak_bytes() - before, len(result.removed), result.rows_matched))


@pytest.mark.cases(1)
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux to measure")
@pytest.mark.parametrize(("statement", "rows"), [("update", 25_000), ("merge", None)])
@pytest.mark.night
def test_rewriting_every_file_of_a_table_stays_within_a_limit(
    table: str, statement: str, rows: int | None
) -> None:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=rewrite, args=(sender, table, statement))
    process.start()
    sender.close()
    peak, files, matched = receiver.recv()
    process.join()
    assert files >= 2
    assert rows is None or matched == rows
    assert matched >= 24_000
    assert peak < LIMIT_BYTES, f"{statement} took {peak >> 20} MB"
