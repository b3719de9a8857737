"""Break the library on purpose: the benchmark of Spark finds wrong reads, appends and merges."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakevilla as lv
from bench.harness.running import execute
from bench.registry import benchmark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_benchmark_finds_lost_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, merge, read = lv.Transaction.create_table, lv.Transaction.merge, lv.Snapshot.read

    def creates_less(txn: Any, name: str, data: Any, **options: Any) -> Any:
        return create(txn, name, data.where("id <> 7"), **options)

    def merges_less(txn: Any, name: str, source: Any, on: str, **options: Any) -> Any:
        return merge(txn, name, source, f"{on} AND s.id <> 107", **options)

    def reads_less(snapshot: Any, name: str) -> Any:
        return read(snapshot, name, where="id <> 7")

    monkeypatch.setattr(lv.Transaction, "create_table", creates_less)
    monkeypatch.setattr(lv.Transaction, "merge", merges_less)
    monkeypatch.setattr(lv.Snapshot, "read", reads_less)
    monkeypatch.setattr("bench.engines.spark._session", lambda run: nullcontext(spark))
    given = {"rows": "1000", "repeats": "1", "parts": "read,append,merge"}
    result = execute(benchmark("spark"), tmp_path, given=given, seed=1)
    assert result.checks == {
        "LakeVilla reads every row": False,
        "LakeVilla, python reader reads every row": False,
        "what LakeVilla has written is the same": False,
        "an append by Spark+Delta has every row": True,
        "an append by LakeVilla has every row": False,
        "an append by LakeVilla, data source has every row": True,
        "a merge by LakeVilla and one by Spark agree": False,
    }
    assert not result.ok
