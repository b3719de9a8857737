"""Fixtures: the places at which lakes are tested, and a small shop as initial data."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakevilla as lv
from lakevilla.global_log import head
from tests.support.places import Place, make_place

ORDERS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "sku": ["apple", "pear", "apple"],
        "qty": pa.array([10, 20, 30], pa.int64()),
    },
    schema=pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("sku", pa.string()),
            pa.field("qty", pa.int64()),
        ]
    ),
)
STOCK = pa.table({"sku": ["apple", "pear"], "left": pa.array([50, 60], pa.int64())})


@pytest.fixture(params=["memory", "local", "remote", "iceberg"])
def place(request: pytest.FixtureRequest) -> Place:
    """Return the place of a lake, on each store."""
    return make_place(request.param, request)


@pytest.fixture(params=["memory", "local", "iceberg"])
def quick_place(request: pytest.FixtureRequest) -> Place:
    """Return a place for tests whose outcome doesn't depend on the store."""
    return make_place(request.param, request)


@pytest.fixture(params=["memory", "local"])
def delta_place(request: pytest.FixtureRequest) -> Place:
    """Return a place for features of Delta tables only: constraints, checkpoints, guards."""
    return make_place(request.param, request)


@pytest.fixture(params=["local", "iceberg"])
def shared_place(request: pytest.FixtureRequest) -> Place:
    """Return a directory that other clients read and write, too, in either format."""
    return make_place(request.param, request)


@pytest.fixture
def local_place(request: pytest.FixtureRequest) -> Place:
    """Return a directory that other clients read and write, too."""
    return make_place("local", request)


@pytest.fixture(scope="session")
def tables_of_a_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the directory that `shop` copies, as making it anew takes ten times as long."""
    place = Place(str(tmp_path_factory.mktemp("shop")))
    place.write("orders", ORDERS)
    place.write("stock", STOCK)
    DeltaTable(place.uri("orders")).alter.add_constraint({"qty_positive": "qty > 0"})
    return Path(place.root)


@pytest.fixture
def shop(request: pytest.FixtureRequest, tables_of_a_shop: Path) -> Place:
    """Return a directory with ``orders`` (with a CHECK) and ``stock``, made by deltalake."""
    place = make_place("local", request)
    shutil.copytree(tables_of_a_shop, place.root)
    return place


@pytest.fixture
def lake(shop: Place) -> Iterator[lv.Lake]:
    """Yield the shop after one commit, so that objects that are written only once exist already."""
    with shop.connect() as lake:
        with lake.transaction() as txn:
            txn.append("orders", {"id": [4], "sku": ["plum"], "qty": [40]})
            txn.append("stock", {"sku": ["plum"], "left": [70]})
        yield lake


@pytest.fixture
def page_length(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return half of the most commits in HEAD, which is about a page; few in a small search."""
    from tests.support.search import WHOLE  # after the options of the search are known

    if not WHOLE:
        monkeypatch.setattr(head, "PAGE_LENGTH", 4)
        monkeypatch.setattr(head, "COMMITS_IN_HEAD", 8)
    return head.COMMITS_IN_HEAD // 2


@pytest.fixture
def root(shop: Place) -> Path:
    return Path(shop.root)
