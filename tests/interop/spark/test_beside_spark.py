"""Use Spark with the Delta connector on the same tables while LakeVilla transacts on them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakevilla as lv


@pytest.mark.seam
def test_spark_reads_rows_that_a_transaction_wrote(spark: SparkSession, tmp_path: Path) -> None:
    lake = lv.connect(str(tmp_path))
    lake.create_table("t", pa.table({"k": [1, 2], "v": ["a", "b"]}))
    with lake.transaction() as txn:
        txn.update("t", {"v": "v || 'x'"}, where="k = 1")
    rows = spark.read.format("delta").load(f"{tmp_path}/t").orderBy("k").collect()
    assert [tuple(row) for row in rows] == [(1, "ax"), (2, "b")]
