"""Lakes in memory: those with a name are shared, those without are private."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.formats.base import FormatName


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_lake_in_memory_without_a_name_is_new_on_each_connect(
    table_format: FormatName,
) -> None:
    lake = lv.connect("memory://")
    lake.create_table("sales/a", pa.table({"x": [1]}), format=table_format)
    lake.run(lambda txn: txn.append("sales/a", pa.table({"x": [2]})))
    assert lake.table("sales/a").uri == "memory:///sales/a"
    assert sorted(lake.read("sales/a")["x"].to_pylist()) == [1, 2]
    assert lv.connect("memory://").tables() == []


def test_a_name_means_the_same_lake_in_memory_throughout_the_process() -> None:
    lv.connect("memory://of-one-name").create_table("a", pa.table({"x": [1]}))
    assert lv.connect("memory://of-one-name/").read("a")["x"].to_pylist() == [1]
