"""What the README and examples/ show is run as written."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv

ROOT = Path(__file__).parents[2]

EXPECTED = {
    "order_and_stock.py": (
        "not enough jam\n"
        "[{'sku': 'jam', 'quantity': 1}, {'sku': 'tea', 'quantity': 3}]\n"
        "[{'orders': 2}]\n"
    ),
    "bank_transfer.py": "[{'total': 2000}]\n",
    "cross_format.py": (
        "the shop has no 9 of jam\n"
        "[{'goods': 20}]\n"
        "deltalake [('jam', 5), ('tea', 3)]\n"
        "pyiceberg [('jam', 5), ('tea', 7)]\n"
    ),
    "beside_deltalake.py": (
        "[{'id': 1, 'kind': 'made by deltalake'}, {'id': 2, 'kind': 'deltalake again'},"
        " {'id': 3, 'kind': 'LakeVilla'}]\n"
        "['events', 'totals']\n"
        "deltalake sees 3 events\n"
    ),
}


def test_every_example_is_tested() -> None:
    on_spark = {"pyspark_pipeline.py"}  # tests/interop/spark/test_pipeline_example.py
    examples = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert examples == set(EXPECTED) | on_spark


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_prints_what_it_says(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == EXPECTED[name]


def test_the_code_in_the_readme_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    blocks = [block for block in blocks if "spark=" not in block]  # tests/interop/spark has that
    assert len(blocks) == 4
    old = {"sku": "jam", "qty": 1, "day": date(2023, 12, 31), "state": "open"}
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        for table in ("orders", "archive"):
            lake.create_table(table, pa.Table.from_pylist([old]))
        lake.run(lambda txn: txn.delete("archive", "true"))
        for bank in ("bank_x", "bank_y"):
            lake.create_table(bank, [{"id": 1, "balance": 100}])
    names: dict[str, object] = {
        "sku": "tea",
        "orders": [{"sku": "tea", "qty": 2}],
        "OutOfStock": LookupError,
    }
    code = "".join(blocks).replace('"s3://warehouse"', repr(str(tmp_path)))
    exec(code, names)
    total = names["total"]
    assert isinstance(total, pa.Table)
    assert total.to_pylist() == [{"total": 200}]
    with lv.connect(str(tmp_path)) as lake, lake.snapshot() as state:
        rows = state.sql("SELECT (FROM stock SELECT qty) AS left, count(*) AS n FROM orders")
        assert rows.to_pylist() == [{"left": 3, "n": 1}]
        assert state.read("archive").to_pylist() == [{**old, "state": "closed"}]
        assert state.read("bank_x")["balance"].to_pylist() == [0]
