"""Comparisons by tasks need no more memory of the driver for ten times the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import lakevilla as lv

FEW = 20_000
#: A driver that compares all these rows itself needs more than 100 MB.
MOST_BYTES = 24 << 20


def peak_beyond(work: Any) -> int:
    """Return by how many bytes this process grows at most while it runs ``work``."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = memory("VmRSS")
    work()
    return memory("VmHWM") - before


def memory(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) * 1024


def history(root: str, count: int) -> None:
    """Change half of the rows on a branch, and other rows on the lake."""
    ids = np.arange(count)
    made = pa.table({"id": ids, "x": ids * 0.5, "text": [f"row {n}" for n in ids]})
    with lv.connect(root) as lake:
        lake.create_table("t", made)
        lake.branch("etl")
        lake.on("etl").run(lambda txn: txn.update("t", {"x": "x + 1"}, where="id % 2 = 0"))
        lake.run(lambda txn: txn.update("t", {"x": "x + 2"}, where="id % 10 = 1"))


def test_a_merge_of_ten_times_the_rows_needs_no_more_memory_of_the_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    peaks: dict[str, list[int]] = {"merge": [], "diff": []}
    for count in (FEW, FEW, 10 * FEW):  # the first merge warms up
        root = str(tmp_path / f"lake{len(peaks['merge'])}")
        history(root, count)
        with lv.connect(root, spark=spark) as lake:
            found = lake.diff(1)
            peaks["diff"].append(peak_beyond(lambda found=found: found.rows("t", "id").count()))
            merging: Any = lambda lake=lake: lake.merge("etl", keys={"t": "id"})  # noqa: E731
            peaks["merge"].append(peak_beyond(merging))
    for name, (_, few, many) in peaks.items():
        assert many - few < MOST_BYTES, (name, few, many)
