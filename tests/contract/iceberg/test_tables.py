"""Descriptions of Iceberg tables."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
from pyiceberg.types import LongType

import lakevilla as lv
from tests.support.places import Place
from tests.support.tables import values


def test_partition_by_is_returned_as_it_was_given(tmp_path: Path) -> None:
    rows = [{"sku": "a", "region": "n", "day": datetime.date(2026, 1, 2)}]
    parts = ("region", "month(day)", "bucket(4, sku)", "truncate(2, sku)")
    with lv.connect(str(tmp_path)) as lake:
        made = lake.create_table("t", rows, format="iceberg", partition_by=parts)
        assert made.partition_by == lake.table("t").partition_by == parts
        again = lake.create_table("u", rows, format="iceberg", partition_by=made.partition_by)
        assert again.partition_by == parts


def test_a_client_that_only_appends_notices_a_widened_column(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"), format="iceberg")
    place.write("t", pa.table({"id": pa.array([1], pa.int32())}))
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.append("t", [{"id": 2}])
        with place.catalog().load_table(("t",)).update_schema() as update:
            update.update_column("id", LongType())
        with lake.transaction() as txn:
            txn.append("t", pa.table({"id": [2**40]}))
        assert values(lake.snapshot().read("t")) == [1, 2, 2**40]
