"""Read by Spark an export whose files are named by URIs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql import SparkSession

import lakevilla as lv


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.seam
def test_a_branch_that_was_exported_is_read_by_spark(
    kind: Literal["delta", "iceberg"], spark: SparkSession, tmp_path: Path
) -> None:
    rows = [{"sku": "tea", "qty": 5, "shop": "n b"}, {"sku": "jam", "qty": 2, "shop": "s"}]
    with lv.connect(str(tmp_path / "lake")) as lake:
        lake.create_table("stock", rows, format=kind, partition_by="shop")
        lake.branch("etl")
        etl = lake.on("etl")
        uri = etl.export("stock", "exports/stock")
        etl.run(lambda txn: txn.update("stock", {"qty": "qty + 1"}, where="shop = 'n b'"))
        etl.export("stock", uri)
        found = spark.read.format(kind).load(uri).orderBy("sku").collect()
        assert [row.asDict() for row in found] == etl.read("stock").sort_by("sku").to_pylist()
    assert not list(Path(uri).rglob("*.parquet"))
