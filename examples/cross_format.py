"""Stock moves between a Delta and an Iceberg table at once; deltalake and pyiceberg read it."""

from __future__ import annotations

import sys
import tempfile

from deltalake import DeltaTable
from pyiceberg.table import StaticTable

import lakevilla as lv


def move(txn: lv.Transaction, sku: str, quantity: int) -> None:
    """Take goods out of the shop, a Delta table, and put them into the depot, an Iceberg table."""
    taken = txn.update(
        "shop",
        {"quantity": "quantity - :n"},
        where="sku = :sku AND quantity >= :n",
        params={"n": quantity, "sku": sku},
    )
    if taken.rows_updated == 0:
        raise ValueError(f"the shop has no {quantity} of {sku}")
    txn.update(
        "depot",
        {"quantity": "quantity + :n"},
        where="sku = :sku",
        params={"n": quantity, "sku": sku},
    )


def main(root: str) -> None:
    """Make the two tables, move goods, and read both tables without LakeVilla."""
    goods = [{"sku": "jam", "quantity": 5}, {"sku": "tea", "quantity": 5}]
    with lv.connect(root) as lake:
        lake.create_table("shop", goods)
        lake.create_table("depot", goods, format="iceberg")
        lake.run(move, "tea", 2)
        try:
            lake.run(move, "jam", 9)
        except ValueError as error:
            print(error)

        with lake.snapshot() as state:
            both = "FROM shop UNION ALL FROM depot"
            print(state.sql(f"SELECT sum(quantity)::BIGINT AS goods FROM ({both})").to_pylist())

    shop = DeltaTable(f"{root}/shop").to_pyarrow_table()
    depot = StaticTable.from_metadata(f"{root}/depot").scan().to_arrow()
    for name, rows in (("deltalake", shop), ("pyiceberg", depot)):
        print(name, sorted((row["sku"], row["quantity"]) for row in rows.to_pylist()))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(directory)
