"""What is told of an Iceberg table."""

from __future__ import annotations

import datetime
from pathlib import Path

import lakevilla as lv


def test_partitions_are_told_as_they_were_given(tmp_path: Path) -> None:
    rows = [{"sku": "a", "region": "n", "day": datetime.date(2026, 1, 2)}]
    parts = ("region", "month(day)", "bucket(4, sku)", "truncate(2, sku)")
    with lv.connect(str(tmp_path)) as lake:
        made = lake.create_table("t", rows, format="iceberg", partition_by=parts)
        assert made.partition_by == lake.table("t").partition_by == parts
        again = lake.create_table("u", rows, format="iceberg", partition_by=made.partition_by)
        assert again.partition_by == parts
