"""Fixtures: a lake with Iceberg tables, and a gateway that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lakevilla as lv
from tests.contract.serve.gateway import Gateway, serving
from tests.support.tables import accounts


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("stock", accounts(2), format="iceberg")
        lake.create_table("sales/orders", accounts(3), format="iceberg")
        yield lake


@pytest.fixture
def gateway(lake: lv.Lake) -> Iterator[Gateway]:
    with serving(lake) as gateway:
        yield gateway
