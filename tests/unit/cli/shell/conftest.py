"""A small lake for the shell."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from tests.support.copied import copy_lake


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("furnished")
    with lv.connect(root) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}, {"sku": "jam", "qty": 1}])
        lake.create_table("sales/orders", [{"id": 1, "day": "2026-01-01"}], partition_by=["day"])
    return root


@pytest.fixture
def root(furnished: Path, tmp_path: Path) -> str:
    """A copy of the small lake, for one test."""
    return copy_lake(furnished, tmp_path / "warehouse")
