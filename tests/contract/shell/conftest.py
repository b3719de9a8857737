"""A small lake for the shell's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv


@pytest.fixture
def root(tmp_path: Path) -> str:
    with lv.connect(str(tmp_path / "warehouse")) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}, {"sku": "jam", "qty": 1}])
        lake.create_table("sales/orders", [{"id": 1, "day": "2026-01-01"}], partition_by=["day"])
    return str(tmp_path / "warehouse")
