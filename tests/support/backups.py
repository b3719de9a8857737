"""Lakes that are backed up and restored, and what they show."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import lakevilla as lv

#: The lake itself, as `shown` names it.
MAIN = "main"
#: The rows of tables, by name.
Rows = dict[str, list[tuple[Any, ...]]]


def fill(lake: lv.Lake) -> None:
    """Give a lake two tables with a few commits, a tag and a branch that differ from them."""
    lake.create_table("stock", [{"sku": "tea", "qty": 5}, {"sku": "jam", "qty": 7}])
    lake.create_table("sales/orders", [{"sku": "tea", "qty": 1}])
    lake.tag("closing", metadata={"by": "audit"}, protected=True)
    lake.branch("etl")
    lake.on("etl").run(lambda txn: txn.append("stock", [{"sku": "ham", "qty": 2}]))
    sell(lake, "tea")


def sell(lake: lv.Lake, sku: str) -> None:
    """Change both tables by one commit."""
    with lake.transaction() as txn:
        txn.update("stock", {"qty": "qty - 1"}, where=f"sku = '{sku}'")
        txn.append("sales/orders", [{"sku": sku, "qty": 1}])


def rows_of(lake: lv.Lake, table: str) -> list[tuple[Any, ...]]:
    """Return a table's rows, sorted."""
    return sorted(tuple(row.values()) for row in lake.read(table).to_pylist())


def shown(lake: lv.Lake, among: Collection[str] | None = None) -> dict[str, Rows]:
    """Return the rows of all tables, of the lake, its tags and its branches, or some of these."""
    names = [MAIN, *(ref.name for ref in lake.refs() if ref.kind != "clone")]
    on = {
        name: lake if name == MAIN else lake.on(name)
        for name in names
        if among is None or name in among
    }
    return {
        name: {table.name: rows_of(one, table.name) for table in one.tables()}
        for name, one in on.items()
    }


def beside(root: str, name: str) -> str:
    """Return a directory next to a lake's root."""
    return str(Path(root).parent / f"{Path(root).name}-{name}")
