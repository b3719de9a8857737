"""A small shop in a directory, as most tests of the API need it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakevilla as lv
from tests.builders import Place, make_place

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


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    """A directory with ``orders`` (with a CHECK) and ``stock``, made by deltalake."""
    place = make_place("local", request)
    place.write("orders", ORDERS)
    place.write("stock", STOCK)
    DeltaTable(place.uri("orders")).alter.add_constraint({"qty_positive": "qty > 0"})
    return place


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    """A lake that has committed once, so that nothing is written for the first time later."""
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.append("orders", {"id": [4], "sku": ["plum"], "qty": [40]})
            txn.append("stock", {"sku": ["plum"], "left": [70]})
        yield lake


@pytest.fixture
def root(place: Place) -> Path:
    return Path(place.root)
