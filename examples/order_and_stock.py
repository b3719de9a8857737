"""Take stock from one table and add an order to another: both, or neither."""

from __future__ import annotations

import sys
import tempfile

import lakevilla as lv


class OutOfStock(Exception):
    """There is not enough of it."""


def sell(lake: lv.Lake, sku: str, quantity: int) -> None:
    """Sell some of an article."""
    with lake.transaction() as txn:
        sold = txn.update(
            "stock",
            {"quantity": "quantity - :n"},
            where="sku = :sku AND quantity >= :n",
            params={"n": quantity, "sku": sku},
        )
        if sold.rows_updated == 0:
            raise OutOfStock(sku)  # leaving by an exception undoes the transaction
        txn.append("orders", [{"sku": sku, "quantity": quantity}])


def main(root: str) -> None:
    """Make two tables, sell what there is, and fail to sell more."""
    with lv.connect(root) as lake:
        lake.create_table("stock", [{"sku": "tea", "quantity": 5}, {"sku": "jam", "quantity": 1}])
        lake.create_table("orders", [{"sku": "tea", "quantity": 1}])

        sell(lake, "tea", 2)
        try:
            sell(lake, "jam", 2)
        except OutOfStock as error:
            print(f"not enough {error}")

        with lake.snapshot() as state:
            print(state.sql("SELECT sku, quantity FROM stock ORDER BY sku").to_pylist())
            print(state.sql("SELECT count(*) AS orders FROM orders").to_pylist())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(directory)
