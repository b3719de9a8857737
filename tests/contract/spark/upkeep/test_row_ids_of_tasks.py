"""Tasks of Spark keep the ids of rows that they write into other files (note 63)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.foreign_changes import delete_by_vector
from tests.support.places import Place
from tests.support.row_ids import Bank, changed, kept, rows


@pytest.mark.seam
def test_rows_keep_their_ids_in_files_that_tasks_write(
    spark: SparkSession, lake: Any, tmp_path: Path, jobs: list[str]
) -> None:
    bank = Bank(Place(str(tmp_path)))
    bank.append_by_others(*range(100, 500), row_group_size=40)
    bank.lake.run(lambda txn: txn.append("bank", rows(500)))
    delete_by_vector(bank.place, 130)
    source = spark.createDataFrame([(4, 7), (300, 7), (900, 7)], "id long, balance long")

    def step(do: Callable[[], object], *written: int) -> None:
        before = bank.lineage
        do()
        after = bank.lineage
        assert kept(before, after)
        assert changed(before, after) == set(written)

    def on_both_sides() -> None:
        lake.branch("night")
        night = lake.on("night")
        night.run(lambda txn: txn.update("bank", {"balance": "3"}, where="id = 101"))
        bank.lake.run(lambda txn: txn.update("bank", {"balance": "4"}, where="id in (102, 499)"))
        lake.merge("night", keys={"bank": "id"})

    update = {"balance": "1"}
    step(lambda: lake.run(lambda txn: txn.update("bank", update, where="id in (1, 255)")), 1, 255)
    assert jobs == ["UpdateTask", "CopyTask"]
    step(lambda: lake.run(lambda txn: txn.delete("bank", where="id in (2, 400)")))
    step(lambda: lake.run(lambda txn: txn.upsert("bank", source, keys="id")), 4, 300)
    step(on_both_sides, 101, 102, 499)
    jobs.clear()
    step(lambda: lake.table("bank").optimize())
    step(
        lambda: lake.table("bank").optimize(
            z_order_by=["balance", "id"], target_file_size_bytes=1500
        )
    )
    assert jobs == ["MoveTask", "SampleTask", "RangeTask"]
    assert len(bank.lineage) == 8 + 400 + 1 - 3 + 1
    bank.lake.close()
