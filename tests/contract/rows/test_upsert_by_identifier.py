"""``upsert`` without keys matches rows by the identifier fields of an Iceberg table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.contract.foreign_readers import read_by_others
from tests.support.tables import contents, in_order

SCHEMA = pa.schema(
    [
        pa.field("region", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("n", pa.int64()),
        pa.field("at", pa.struct([pa.field("x", pa.int64(), nullable=False)]), nullable=False),
    ]
)


def row(region: str, number: int, n: int) -> dict[str, Any]:
    return {"region": region, "id": number, "n": n, "at": {"x": number}}


def make(lake: lv.Lake, *identifier: str) -> None:
    lake.create_table("t", SCHEMA, format="iceberg")
    lake.run(lambda txn: txn.append("t", [row("eu", 1, 10), row("us", 1, 20)]))
    table = ObjectStoreCatalog("lake", warehouse=lake.root).load_table(("t",))
    with table.update_schema() as update:
        update.set_identifier_fields(*identifier)


def test_upsert_without_keys_matches_rows_by_the_tables_identifier_fields(tmp_path: Path) -> None:
    with lv.connect(tmp_path) as lake:
        make(lake, "region", "id")
        with lake.transaction() as txn:
            done = txn.upsert("t", [row("eu", 1, 11), row("eu", 2, 12)])
            assert (done.rows_updated, done.rows_inserted) == (1, 1)
        expected = [row("eu", 1, 11), row("eu", 2, 12), row("us", 1, 20)]
        assert in_order(lake.snapshot().read("t")) == expected
        for theirs in read_by_others(lake.table("t").uri, "iceberg").values():
            assert in_order(theirs) == expected


def test_named_keys_of_an_upsert_override_the_identifier_fields(tmp_path: Path) -> None:
    with lv.connect(tmp_path) as lake:
        make(lake, "region", "id")
        with lake.transaction() as txn:
            txn.upsert("t", [row("us", 1, 0)], keys="region")
        assert in_order(lake.snapshot().read("t")) == [row("eu", 1, 10), row("us", 1, 0)]


def test_an_upsert_into_a_table_without_identifier_fields_needs_keys(tmp_path: Path) -> None:
    with lv.connect(tmp_path) as lake:
        make(lake, "at.x")
        lake.create_table("plain", [{"id": 1}])
        before = contents(tmp_path)
        with lake.transaction() as txn:
            with pytest.raises(lv.InvalidOperation, match=r"has at\.x, and a nested field can"):
                txn.upsert("t", [row("eu", 1, 11)])
            with pytest.raises(lv.InvalidOperation, match=r"plain has none: name the key columns"):
                txn.upsert("plain", [{"id": 1}])
        assert contents(tmp_path) == before


def test_an_identifier_field_cannot_be_dropped(tmp_path: Path) -> None:
    with lv.connect(tmp_path) as lake:
        make(lake, "region", "id")
        before = contents(tmp_path)
        with lake.transaction() as txn:
            txn.read("t")  # reads the identifier fields that pyiceberg has set
            with pytest.raises(lv.InvalidOperation, match="part of the rows' identifier"):
                txn.alter("t", drop_columns=["region"])
            with pytest.raises(lv.InvalidOperation, match="part of the rows' identifier"):
                txn.overwrite("t", [{"n": 1}], schema_mode="overwrite")
        assert contents(tmp_path) == before
