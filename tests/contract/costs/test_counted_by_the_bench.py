"""The benchmark of requests counts each HTTP request to the store, and every byte.

Bytes written have bounds of 10%, as Parquet files depend on the installed pyarrow.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.harness.running import execute
from bench.registry import benchmark


def test_the_benchmark_counts_the_requests_of_warm_appends(tmp_path: Path) -> None:
    given = {"systems": "NONE,R|I,deltalake", "kinds": "append", "tables": "1", "transactions": "3"}
    result = execute(benchmark("requests"), tmp_path, given=given, seed=1)
    assert result.ok
    counted = {one.system: one.requests for one in result.series}
    none = {"get": 0, "put": 0, "head": 0, "list": 0, "delete": 0}
    assert counted["NONE"] == {**none, "put": 3 * 2}
    assert counted["R|I"] == {**none, "get": 3 * 2, "put": 3 * 4}
    assert sum(counted["deltalake"].values()) > sum(counted["R|I"].values())
    moved = {one.system: one.bytes_moved for one in result.series}
    assert moved["NONE"] == {"read": 0, "written": pytest.approx(5271, rel=0.1)}
    assert moved["R|I"]["written"] == pytest.approx(12936, rel=0.1)
    assert moved["R|I"]["read"] < 3 * 500, "what is answered where no next entry is, nothing else"
    assert moved["deltalake"]["read"] > 3 * 500
