"""A lake into which branches are merged, in part by rows, rolled back and merged again, step by
step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa

import lakevilla as lv

#: The rows of a table, in a form that can be compared.
Rows = list[tuple[Any, ...]]
NOBODY_SEES = 1000
#: After these steps only a branch needs files that the tables do not need: other clients may delete
#: all such files that they find.
QUIET = ("written on branches", "one table merged", "the other one merged", "no branch is left")


def rows_of(table: pa.Table) -> Rows:
    """Return the rows of a table, sorted, with values by column name: all clients agree on them."""
    names = sorted(table.schema.names)
    return sorted(tuple(row[name] for name in names) for row in table.to_pylist())


def steps(lake: lv.Lake, format: Literal["delta", "iceberg"]) -> Iterator[str]:
    """Change the tables of a lake step by step, and yield the name of each step.

    Other clients may read and clean up after each step: they see the state of ``lake``. Rows from
    ``NOBODY_SEES`` on are on a branch that is never merged.
    """
    for name in ("stock", "sales/orders"):
        rows = [{"id": number, "n": 0, "part": number % 2} for number in range(6)]
        partition = ["part"] if name == "stock" else []
        lake.create_table(name, rows, partition_by=partition, format=format)
    lake.branch("hidden")
    hidden = lake.on("hidden")
    lake.branch("etl")
    etl = lake.on("etl")

    def change(where: lv.Lake, number: int) -> None:
        with where.transaction() as txn:
            for name in ("stock", "sales/orders"):
                txn.append(name, [{"id": number, "n": 1, "part": number % 2}])
                txn.update(name, {"n": "n + 1"}, where=f"id = {number % 6}")

    change(hidden, NOBODY_SEES)
    change(etl, 10)
    etl.run(lambda txn: txn.delete("stock", where="id = 5"))
    yield "written on branches"
    lake.merge("etl", tables=["stock"])
    yield "one table merged"
    lake.merge("etl")
    yield "the other one merged"
    hidden.run(lambda txn: txn.append("stock", [{"id": NOBODY_SEES + 1, "n": 1, "part": 1}]))
    change(etl, 11)
    etl.create_table("made", [{"id": 1, "n": 1, "part": 1}], format=format)
    change(lake, 20)  # the branch and the lake rewrite the same files
    good = lake.merge("etl", keys={"stock": ["id"], "sales/orders": ["id"]}).version
    assert good is not None
    yield "merged by rows"
    lake.run(lambda txn: txn.delete("stock", where="part = 1"))
    lake.run(lambda txn: txn.overwrite("sales/orders", [{"id": 9, "n": 9, "part": 9}]))
    yield "written in between"
    lake.rollback(good)
    yield "rolled back"
    change(etl, 12)
    lake.delete_ref("hidden")
    lake.merge("etl", keys={"stock": "id", "sales/orders": "id"}, delete=True)
    lake.gc()
    yield "no branch is left"
