"""Branches of a lake with ``spark=``: Spark jobs write, read and merge them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql import SparkSession

import lakevilla as lv

DELTA = pytest.param("delta", marks=pytest.mark.connector("delta"))


@pytest.mark.parametrize("kind", [DELTA, "iceberg"])
@pytest.mark.seam
def test_a_branch_written_by_spark_is_merged(
    kind: Literal["delta", "iceberg"], spark: SparkSession, tmp_path: Path
) -> None:
    root = str(tmp_path / "lake")
    with lv.connect(root, spark=spark) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}], format=kind)
        lake.branch("etl")
        etl = lake.on("etl")
        more = spark.createDataFrame([("jam", 1), ("rum", 2)], "sku string, qty long")
        etl.run(lambda txn: txn.append("stock", more))
        with etl.transaction() as txn:
            txn.update("stock", {"qty": "qty + 10"}, where="sku <> 'rum'")
            txn.delete("stock", where="sku = 'rum'")
            txn.merge(
                "stock",
                spark.createDataFrame([("tea", 1), ("ale", 3)], "sku string, qty long"),
                on="target.sku = source.sku",
            ).when_matched_delete().when_not_matched_insert_all().execute()
            assert _rows(txn.read("stock")) == {"jam": 11, "ale": 3}
        etl.create_table("report", spark.createDataFrame([(1,)], "a long"), format=kind)
        assert _rows(etl.read("stock")) == {"jam": 11, "ale": 3}
        assert _rows(lake.read("stock")) == {"tea": 5}
        assert etl.sql("SELECT sum(qty) AS n FROM stock").collect()[0].n == 14
        done = lake.merge("etl", checks=["SELECT min(qty) > 0 FROM stock"], delete=True)
        assert done.tables == {"stock": "physical", "report": "created"}
        assert _rows(lake.read("stock")) == {"jam": 11, "ale": 3}
    with lv.connect(root) as embedded:
        assert {row["sku"] for row in embedded.read("stock").to_pylist()} == {"jam", "ale"}
        assert embedded.read("report").to_pylist() == [{"a": 1}]
    if kind == "delta":
        found = spark.read.format("delta").load(f"{root}/stock")
        assert _rows(found) == {"jam": 11, "ale": 3}


def _rows(frame: object) -> dict[str, int]:
    return {row.sku: row.qty for row in frame.collect()}  # type: ignore[attr-defined]
