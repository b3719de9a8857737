"""Read a clone's table by Spark after its first write: its log names files of its source."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql import SparkSession

import lakevilla as lv


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_of_a_clone_is_read_by_spark_from_its_first_write_on(
    kind: Literal["delta", "iceberg"], spark: SparkSession, tmp_path: Path
) -> None:
    rows = [{"sku": "tea", "qty": 5, "shop": "n b"}, {"sku": "jam", "qty": 2, "shop": "s"}]
    with lv.connect(str(tmp_path / "lake")) as lake:
        lake.create_table("shop/stock", rows, format=kind, partition_by="shop")
        lake.clone("shop", "trial")
        uri = str(Path(lake.root) / "trial" / "stock")
        for change in (
            lambda txn: txn.append("trial/stock", [{"sku": "ale", "qty": 1, "shop": "n b"}]),
            lambda txn: txn.update("trial/stock", {"qty": "qty + 1"}, where="sku = 'tea'"),
        ):
            lake.run(change)
            found = spark.read.format(kind).load(uri).orderBy("sku").collect()
            expected = lake.read("trial/stock").sort_by("sku").to_pylist()
            assert [row.asDict() for row in found] == expected
        assert lake.read("shop/stock").num_rows == 2
