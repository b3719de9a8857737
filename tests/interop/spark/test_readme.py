"""What the README shows of Spark is run as written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakevilla as lv

README = Path(__file__).parents[3] / "README.md"


@pytest.mark.seam
def test_the_code_for_spark_runs(spark: SparkSession, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "spark=" in block]
    root, incoming = tmp_path / "lake", tmp_path / "incoming"
    with lv.connect(str(root)) as lake:
        order = {"sku": "tea", "state": "new"}
        lake.create_table("orders", [order])
        lake.create_table("shipped", [order])
        lake.create_table("stock", [{"sku": "tea", "count": 0}])
        incoming.mkdir()
        jam = {"sku": "jam", "state": "new"}
        (incoming / "1.json").write_text("\n".join(map(json.dumps, [jam, jam])))
        names = {
            "lv": lv,
            "spark": spark,
            "stream": spark.readStream.schema("sku string, state string").json(str(incoming)),
            "checkpoint": str(tmp_path / "checkpoint"),
        }
        exec(code.replace('"s3://warehouse"', repr(str(root))), names)
        with lake.snapshot() as now:
            assert sorted(now.read("shipped")["sku"].to_pylist()) == ["tea", "tea"]
            orders = [(row["sku"], row["state"]) for row in now.read("orders").to_pylist()]
            assert sorted(orders) == [("jam", "new"), ("jam", "new"), ("tea", "shipped")]
            stock = {row["sku"]: row["count"] for row in now.read("stock").to_pylist()}
            assert stock == {"tea": 0, "jam": 2}
