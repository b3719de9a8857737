"""Compare old versions of a table with those that deltalake and pyiceberg read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.support.tables import bag

ROWS = pa.table({"id": pa.array(range(6), pa.int64()), "day": ["mon", "tue"] * 3})


def plain(rows: pa.Table) -> tuple[list[str], Any]:
    return rows.column_names, bag(rows)


def test_each_version_and_time_shows_the_rows_that_deltalake_reads(tmp_path: Path) -> None:
    path = str(tmp_path / "lake" / "a")
    write_deltalake(path, ROWS, partition_by=["day"])
    DeltaTable(path).delete("id = 3")
    write_deltalake(path, ROWS.slice(0, 2), mode="append")
    DeltaTable(path).create_checkpoint()
    DeltaTable(path).update({"id": "id + 100"}, predicate="day = 'mon'")
    with lv.connect(str(tmp_path / "lake")) as lake:
        lake.run(lambda txn: txn.append("a", ROWS.slice(4)))
        lake.run(lambda txn: txn.alter("a", add_columns=pa.schema([("more", pa.float64())])))
        lake.run(lambda txn: txn.append("a", [{"id": 9, "day": "wed", "more": 0.5}]))
        write_deltalake(
            path, ROWS.select(["id"]), mode="overwrite", schema_mode="overwrite", partition_by=[]
        )
        lake.table("a").optimize()
        table = lake.table("a")
        kept = table.versions()
        assert [one.version for one in kept] == list(range(DeltaTable(path).version(), -1, -1))
        opened = DeltaTable(path)
        for one in kept:
            opened.load_as_version(one.version)
            expected = plain(pa.table(opened.to_pyarrow_table()))
            assert plain(table.read(version=one.version)) == expected, one
            opened.load_as_version(one.timestamp)
            assert opened.version() == one.version
            assert plain(table.read(timestamp=one.timestamp)) == expected, one


def test_each_snapshot_and_version_shows_the_rows_that_pyiceberg_reads(tmp_path: Path) -> None:
    root = str(tmp_path / "lake")
    catalog = ObjectStoreCatalog("tests", warehouse=root)
    native = catalog.create_table("a", ROWS.schema)
    for at in (0, 3):
        native.append(ROWS.slice(at, 3))
    native.delete("id = 1")
    with lv.connect(root) as lake:
        lake.run(lambda txn: txn.update("a", {"day": "'sun'"}, where="id > 3"))
        lake.run(lambda txn: txn.alter("a", rename_columns={"day": "date"}))
        lake.run(lambda txn: txn.alter("a", add_columns=pa.schema([("more", pa.float64())])))
        lake.run(lambda txn: txn.append("a", [{"id": 9, "date": "wed", "more": 0.5}]))
        native = catalog.load_table("a")
        native.overwrite(native.scan().to_arrow().filter(pc.field("id") > 2))
        table = lake.table("a")
        kept = table.versions()
        native = catalog.load_table("a")
        by_id = {
            one.snapshot_id: native.scan(snapshot_id=one.snapshot_id).to_arrow()
            for one in native.snapshots()
        }
        for snapshot_id, expected in by_id.items():
            assert plain(table.read(iceberg_ref=snapshot_id)) == plain(expected)
        for one in kept:
            shown = table.read(version=one.version)
            if one.snapshot_id is None:
                assert shown.num_rows == 0
                continue
            # A version has the table's columns at that time, which a snapshot does not have yet.
            expected = renamed(by_id[one.snapshot_id])
            assert bag(renamed(shown).select(expected.column_names)) == bag(expected), one


def renamed(rows: pa.Table) -> pa.Table:
    return rows.rename_columns(["day" if n == "date" else n for n in rows.column_names])


def test_versions_of_a_catalog_s_table_are_found_beyond_one_metadata_log(tmp_path: Path) -> None:
    """The table's metadata files have names that can't be guessed: a later file names
    each of them.
    """
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    catalog = load_catalog("prod", **properties)
    catalog.create_namespace("sales")
    short = {"write.metadata.previous-versions-max": "2"}
    native = catalog.create_table("sales.orders", ROWS.schema, properties=short)
    for number in range(5):
        native.append(ROWS.slice(number, 1))
    with lv.connect(f"{tmp_path}/warehouse", catalogs={"prod": properties}) as lake:
        name = "prod.sales.orders"
        lake.run(lambda txn: txn.append(name, ROWS.slice(5)))
        table = lake.table(name)
        kept = table.versions()
        assert [one.version for one in kept] == [6, 5, 4, 3, 2, 1, 0]
        native = catalog.load_table("sales.orders")
        for one in kept[:-1]:
            expected = plain(native.scan(snapshot_id=one.snapshot_id).to_arrow())
            assert plain(table.read(version=one.version)) == expected
            assert plain(table.read(timestamp=one.timestamp)) == expected
            assert plain(table.read(iceberg_ref=one.snapshot_id)) == expected
        assert table.read(version=0).num_rows == 0
        with pytest.raises(lv.VersionNotFound, match=r"no version 7 .* are version 0 .* to 6 "):
            table.read(version=7)
