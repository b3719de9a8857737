"""A lake of two tables, and the clients that clean up there."""

from __future__ import annotations

import lakevilla as lv
from tests.contract.foreign_readers import Format


def shop(lake: lv.Lake, kind: Format = "delta") -> None:
    """Make a lake with the versions 1 and 2."""
    lake.create_table("stock", [{"sku": "tea", "qty": 5}], format=kind)
    lake.create_table("sales/orders", [{"id": 1}], format=kind)


def stock(lake: lv.Lake) -> dict[str, int]:
    """Return the quantity of each article."""
    return {row["sku"]: row["qty"] for row in lake.read("stock").to_pylist()}


def clean_up(lake: lv.Lake) -> None:
    """Delete at once all that nothing needs."""
    for name in lake:
        lake[name].vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    lake.gc()
