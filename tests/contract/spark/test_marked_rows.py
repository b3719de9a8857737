"""Tasks of Spark mark few rows of a large file as deleted, and store the vectors of Iceberg."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakevilla as lv
from tests.support.row_ids_of_iceberg import row_ids

COUNT = 1_200_000  # the file has more than 8 MiB, however well it is encoded
PROPERTIES = {
    "delta": {"delta.enableDeletionVectors": "true"},
    "iceberg": {
        "format-version": "3",
        **{f"write.{one}.mode": "merge-on-read" for one in ("delete", "update", "merge")},
    },
}


def rows(keys: np.ndarray) -> pa.Table:
    return pa.table({"k": keys, "v": np.random.default_rng(1).integers(0, 1 << 60, len(keys))})


@pytest.mark.parametrize("kind", PROPERTIES)
def test_tasks_mark_rows_of_a_large_file(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    with lv.connect(str(tmp_path)) as plain:
        data = rows(np.arange(COUNT))
        plain.create_table("t", data, format=kind, properties=PROPERTIES[kind])
        before = set((tmp_path / "t").rglob("*.parquet"))
        with lv.connect(str(tmp_path), spark=spark) as lake:
            lake.run(lambda txn: txn.delete("t", where="k in (1, 2)"))
            with lake.transaction() as txn:
                txn.update("t", {"v": "0"}, where="k = 3")
                txn.upsert("t", spark.createDataFrame([(4, 0), (COUNT, 0)], "k long, v long"), "k")
            lake.run(lambda txn: txn.delete("t", where="k % 60 = 30"))
        made = set((tmp_path / "t").rglob("*.parquet")) - before
        assert any((tmp_path / "t").rglob("*.bin")) == (kind == "delta")
        assert sum(path.stat().st_size for path in made) < 100_000
        found = plain.read("t", where=f"k < 6 OR k >= {COUNT}").sort_by("k").to_pydict()
        assert found["k"] == [0, 3, 4, 5, COUNT]
        assert [found["v"][place] for place in (1, 2, 4)] == [0, 0, 0]
        counted = plain.sql("SELECT count(*) AS n FROM t")
        assert counted["n"].to_pylist() == [COUNT - 1 - COUNT // 60]
        if kind == "iceberg":
            ids = row_ids(plain, "t")
            assert [ids[k][0] for k in (0, 3, 4, 5)] == [0, 3, 4, 5]
        assert plain.verify().ok
