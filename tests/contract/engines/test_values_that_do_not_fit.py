"""Files of others whose values their columns can't hold are refused by file and column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import StringType

import lakevilla as lv
from lakevilla.formats.iceberg.object_store_catalog import ObjectStoreCatalog
from tests.fixtures.delta import Tables, add, field, metadata, protocol


def delta_table(root: Path, kinds: Sequence[dict[str, Any]], *files: pa.Table) -> None:
    """A table ``t`` of files by other clients: ``f0.parquet`` and so on."""
    tables = Tables(root)
    tables.log().mkdir(parents=True)
    adds = []
    for number, rows in enumerate(files):
        path = tables.log().parent / f"f{number}.parquet"
        pq.write_table(rows, path)
        adds.append(add(path.name, size=path.stat().st_size))
    tables.write_entry(0, protocol(), metadata(kinds), *adds)


def refused(lake: lv.Lake, *words: str) -> None:
    """Every way of reading the table ``t`` says ``words``, and what reads ``id`` alone works."""
    for read in (
        lambda: lake.snapshot().read("t"),
        lambda: lake.snapshot().sql("select * from t"),
        lambda: lake.run(lambda txn: txn.update("t", {"id": "id + 1"}, "true")),
    ):
        with pytest.raises(lv.UnsupportedTableFeature) as told:
            read()
        for word in words:
            assert word in str(told.value)
        assert "correct the statement" not in str(told.value)


def struct(kind: str) -> dict[str, Any]:
    return {"type": "struct", "fields": [field("a", kind)]}


def array(kind: str) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


LARGE = 2**40
TOO_LARGE: dict[str, Any] = {
    "double in float": ("float", pa.array([1e300]), "1e+300"),
    "long in int": ("integer", pa.array([LARGE]), str(LARGE)),
    "long in int in a struct": (struct("integer"), pa.array([{"a": LARGE}]), str(LARGE)),
    "int in short in a list": (array("short"), pa.array([[70_000]], pa.list_(pa.int32())), "70000"),
    "unsigned": ("long", pa.array([2**64 - 1], pa.uint64()), str(2**64 - 1)),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_a_number_that_its_column_can_not_hold(tmp_path: Path, case: str) -> None:
    kind, values, shown = TOO_LARGE[case]
    sound = pa.table({"id": [1]})
    delta_table(
        tmp_path, [field("id"), field("v", kind)], sound, pa.table({"id": [2], "v": values})
    )
    with lv.connect(str(tmp_path)) as lake:
        refused(lake, "column v of table t", "t/f1.parquet", shown)
        assert lake.snapshot().read("t", columns=["id"]).num_rows == 2


@pytest.mark.parametrize("beside_bytes", [False, True])
@pytest.mark.parametrize("kind", ["plain", "struct", "list", "map"])
def test_bytes_within_a_column_that_are_no_text(
    tmp_path: Path, kind: str, beside_bytes: bool
) -> None:
    bad = b"\xff"
    of_map = {"type": "map", "keyType": "long", "valueType": "string", "valueContainsNull": True}
    wanted, values = {
        "plain": ("string", pa.array([bad])),
        "struct": (struct("string"), pa.array([{"a": bad}])),
        "list": (array("string"), pa.array([[bad]])),
        "map": (of_map, pa.array([[(1, bad)]], pa.map_(pa.int64(), pa.binary()))),
    }[kind]
    fields = [field("id"), field("v", wanted)]
    rows = pa.table({"id": [1], "v": values})
    if beside_bytes:
        fields.append(field("raw", "binary"))
        rows = rows.append_column("raw", pa.array([b"a"]))
    delta_table(tmp_path, fields, rows)
    with lv.connect(str(tmp_path)) as lake:
        refused(lake, "column v of table t", "t/f0.parquet", "not UTF-8")


@pytest.mark.parametrize("nested", [False, True])
def test_bytes_that_are_no_text_in_a_renamed_iceberg_column(tmp_path: Path, nested: bool) -> None:
    values = pa.array([{"a": b"\xff"}]) if nested else pa.array([b"\xff"])
    rows = pa.table({"id": [1], "old": values})
    table = ObjectStoreCatalog("c", warehouse=str(tmp_path)).create_table("t", rows.schema)
    table.append(rows)
    with table.update_schema() as update:
        update.update_column("old.a" if nested else "old", StringType())
    with table.update_schema() as update:
        update.rename_column("old", "new")
        if nested:
            update.rename_column("old.a", "b")
    with lv.connect(str(tmp_path)) as lake:
        refused(lake, "column new of table t", ".parquet", "not UTF-8")
        assert lake.snapshot().read("t", columns=["id"])["id"].to_pylist() == [1]
