"""A lake with two tables, which no process has open."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}, {"sku": "jam", "qty": 2}])
        lake.create_table("sales/orders", [{"id": 1, "sku": "tea"}])
    return tmp_path / "lake"
