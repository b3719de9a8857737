"""``verify="on"`` on a lake with Spark: the tasks compare the hashes of files that they read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql import SparkSession

import lakevilla as lv
from lakevilla.ids import txn_in
from tests.contract.integrity.damage import Objects, flipped
from tests.support.places import Place


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.seam
def test_tasks_verify_files_that_tasks_have_written(
    spark: SparkSession, tmp_path: Path, kind: Literal["delta", "iceberg"]
) -> None:
    place = Place(str(tmp_path / "lake"))
    lake = lv.connect(place.root, spark=spark)
    lake.create_table("t", [{"id": 1}], format=kind)
    lake.run(lambda txn: txn.append("t", spark.range(1000)))
    assert lake.read("t", verify="on").count() == 1001
    objects = Objects(place)
    key = max(objects.keys("t"), key=lambda key: (txn_in(key) or "", len(objects.body(key))))
    with objects.holding(key, flipped(random.Random(1), objects.body(key), [])):
        rows = lake.read("t", verify="on")
        with pytest.raises(Exception, match="has the blake3"):
            rows.count()
        with pytest.raises(lv.CorruptObject, match="has the blake3"):
            lake.scan("t", verify="on").read_all()
        counted = lake.snapshot(verify="on").sql("SELECT count(id) FROM t")
        with pytest.raises(Exception, match="has the blake3"):
            counted.collect()


def test_verified_reads_are_refused_with_the_native_spark_reader(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = lv.connect(str(tmp_path / "lake"), spark=spark, spark_reader="native")
    lake.create_table("t", [{"id": 1}])
    with pytest.raises(lv.InvalidOperation, match=r"spark_reader='native'.*verify='on'"):
        lake.read("t", verify="on")
