"""Write a batch where nobody sees it, check it together with what is there, and publish it."""

from __future__ import annotations

import sys
import tempfile

import lakevilla as lv

CHECKS = [
    "SELECT min(quantity) >= 0 FROM stock",
    "SELECT count(*) = count(DISTINCT sku) FROM stock",
]


def load(lake: lv.Lake, batch: list[dict[str, object]]) -> None:
    """Add a batch to two tables, if what they hold then is sound."""
    with lake.audited("night", checks=CHECKS) as night:
        night.run(lambda txn: txn.append("stock", batch))
        night.run(lambda txn: txn.append("loads", [{"rows": len(batch)}]))


def main(root: str) -> None:
    """Load a good batch and a bad one, and look at what is wrong with that."""
    with lv.connect(root) as lake:
        lake.create_table("stock", [{"sku": "tea", "quantity": 5}])
        lake.create_table("loads", [{"rows": 1}])

        load(lake, [{"sku": "jam", "quantity": 2}, {"sku": "rum", "quantity": 1}])
        print(lake.sql("SELECT sku, quantity FROM stock ORDER BY sku").to_pylist())

        try:
            load(lake, [{"sku": "tea", "quantity": 9}, {"sku": "oil", "quantity": -4}])
        except lv.AuditFailed as error:
            print(f"{len(error.failed)} checks failed")
        print(lake.sql("SELECT count(*) AS articles FROM stock").to_pylist())

        # The bad batch is still on its branch.
        bad = lake.on("night").sql("SELECT sku FROM stock WHERE quantity < 0")
        print(bad.to_pylist())
        lake.delete_ref("night")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(directory)
