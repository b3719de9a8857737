"""Exports: tables of a branch, a tag or the lake, for readers without LakeVilla."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.contract.foreign_readers import read_by_others
from tests.property.position_deletes import delete_positions
from tests.support.foreign_changes import delete_by_vector
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.stores import Dying
from tests.support.tables import accounts, bag, values

Format = Literal["delta", "iceberg"]
ROWS = [{"sku": "tea", "qty": 5, "shop": "n"}, {"sku": "jam", "qty": 2, "shop": "s"}]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(str(tmp_path)) as lake:
        yield lake


def newest(uri: str) -> str:
    """Return the newest metadata file of an Iceberg table."""
    found = Path(uri, "metadata").glob("v*.metadata.json")
    return str(max(found, key=lambda path: int(path.name[1:].partition(".")[0])))


def shown(uri: str, kind: Format) -> pa.Table:
    """Return the rows as a client without LakeVilla reads them."""
    if kind == "delta":
        return deltalake.DeltaTable(uri).to_pyarrow_table().sort_by("sku")
    return StaticTable.from_metadata(newest(uri)).scan().to_arrow().sort_by("sku")


def version(uri: str, kind: Format) -> int:
    if kind == "delta":
        return deltalake.DeltaTable(uri).version()
    return int(Path(newest(uri)).name[1:].partition(".")[0]) - 1


def change(lake: lv.Lake) -> None:
    lake.run(lambda txn: txn.update("stock", {"qty": "qty + 1"}, where="shop = 'n'"))
    lake.run(lambda txn: txn.append("stock", [{"sku": "ale", "qty": 1, "shop": "w"}]))


def by_polars(uri: str, kind: Format) -> pa.Table:
    if kind == "delta":
        return pl.scan_delta(uri).collect().to_arrow()
    return pl.scan_iceberg(newest(uri)).collect().to_arrow()


@pytest.mark.parametrize(
    ("kind", "copies"), [("delta", True), ("iceberg", True), ("iceberg", False)]
)
def test_foreign_clients_read_the_export_of_a_branch(
    lake: lv.Lake, kind: Format, copies: bool
) -> None:
    lake.create_table("stock", ROWS, format=kind, partition_by="shop")
    lake.branch("etl")
    etl = lake.on("etl")
    change(etl)
    uri = etl.export("stock", "exports/stock", copy=copies)
    assert shown(uri, kind).to_pylist() == etl.read("stock").sort_by("sku").to_pylist()
    assert version(uri, kind) == 0
    before = set(Path(uri).rglob("*.parquet"))
    etl.run(lambda txn: txn.delete("stock", where="sku = 'ale'"))
    etl.run(lambda txn: txn.alter("stock", add_columns={"note": "string"}))
    assert etl.export("stock", uri, copy=copies) == uri
    assert shown(uri, kind).to_pylist() == etl.read("stock").sort_by("sku").to_pylist()
    assert version(uri, kind) == 1
    assert set(Path(uri).rglob("*.parquet")) == before  # copied files are not copied again
    etl.export("stock", uri, copy=copies)
    assert version(uri, kind) == 1  # the branch has no new commit
    expected = bag(etl.read("stock"))
    for reader, found in read_by_others(uri, kind).items():
        assert bag(found.select(etl["stock"].schema.names)) == expected, reader
    assert bag(by_polars(uri, kind)) == expected
    assert lake.read("stock").num_rows == 2
    assert lake.discover() == []
    assert lake.doctor(files=True).ok


def test_the_log_of_a_delta_export_names_files_of_the_source_by_their_uris(
    lake: lv.Lake, tmp_path: Path
) -> None:
    """Spark and Trino read such URIs: tests/interop/spark tests it."""
    lake.create_table("stock", ROWS, partition_by="shop")
    uri = lake.export("stock", str(tmp_path / "exports" / "stock"))
    entry = Path(uri, "_delta_log", f"{0:020}.json").read_text()
    assert f'"path":"file://{tmp_path}/stock/shop=n/' in entry
    assert not list(Path(uri).rglob("*.parquet"))
    with lv.connect(str(tmp_path / "other"), files_outside=[tmp_path / "stock"]) as other:
        other.register("stock", uri)
        assert other.read("stock").sort_by("sku") == lake.read("stock").sort_by("sku")


@pytest.mark.parametrize("copies", [True, False])
def test_rows_deleted_by_a_deletion_vector_stay_deleted_in_an_export(
    local_place: Place, copies: bool
) -> None:
    local_place.write("bank", accounts(3))
    delete_by_vector(local_place, row=2)
    with local_place.connect() as lake:
        uri = lake.export("bank", "exports/bank", copy=copies)
    reader = str(Path(local_place.root).parent / "reader")
    with lv.connect(reader, files_outside=[local_place.root]) as other:
        other.register("bank", uri)
        assert values(other.read("bank")) == [0, 1]


def test_a_tag_can_be_exported(lake: lv.Lake) -> None:
    lake.create_table("stock", ROWS)
    lake.tag("closing")
    change(lake)
    uri = lake.on("closing").export("stock", "exports/stock", copy=True)
    assert shown(uri, "delta")["qty"].to_pylist() == [2, 5]
    lake.export("stock", uri, copy=True)
    assert shown(uri, "delta").num_rows == 3
    lake.keep("closing")
    lake.on("closing").export("stock", uri, copy=True)
    assert shown(uri, "delta")["qty"].to_pylist() == [2, 5]
    assert version(uri, "delta") == 2


def test_an_export_to_a_bucket_can_be_registered_and_read(shared_place: Place) -> None:
    with shared_place.connect() as lake:
        lake.create_table("stock", ROWS)
        lake.branch("etl")
        change(lake.on("etl"))
        for copies in (False, True):
            lake.on("etl").export("stock", f"exports/{copies}", copy=copies)
            lake.register(f"exports/{copies}")
            found = lake.read(f"exports/{copies}").sort_by("sku")
            assert found == lake.on("etl").read("stock").sort_by("sku")


@pytest.mark.parametrize("copies", [True, False])
def test_an_export_that_dies_before_any_write_leaves_the_old_state_whole(
    lake: lv.Lake, copies: bool
) -> None:
    lake.create_table("stock", ROWS)
    uri = lake.export("stock", "exports/stock", copy=copies)
    died = 0
    for writes in range(20):
        change(lake)
        with lv.connect(lake.root) as other:
            other.exists()
            inside(other).client.ensure_safe_store()
            inside(other).store = Dying(inside(other).store, writes)
            try:
                other.export("stock", uri, copy=copies)
            except Dying.Death:
                died += 1
            else:
                break
        assert lake.read(uri).num_rows == 2  # the old state, whole
        lake.run(lambda txn: txn.delete("stock", where="sku = 'ale'"))
    assert died == (3 if copies else 1)
    assert lake.read(uri).sort_by("sku") == lake.read("stock").sort_by("sku")


def test_concurrent_exports_of_a_table_write_one_version(lake: lv.Lake) -> None:
    lake.create_table("stock", ROWS)
    uri = lake.export("stock", "exports/stock", copy=True)
    change(lake)
    threads = [
        threading.Thread(target=lake.export, args=("stock", uri), kwargs={"copy": True})
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shown(uri, "delta").num_rows == 3
    assert version(uri, "delta") == 1


def test_an_export_is_refused_at_a_place_that_is_used_otherwise(
    lake: lv.Lake, tmp_path: Path
) -> None:
    lake.create_table("stock", ROWS)
    lake.create_table("sales/orders", [{"id": 1}])
    deltalake.write_deltalake(str(tmp_path / "theirs"), pa.table({"x": [1]}))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "x.parquet").write_bytes(b"PAR1")
    lake.export("stock", "exports/stock")
    for to, hint in {
        "stock": "is a table of the lake",
        "sales/orders": "is a table of the lake",
        "stock/inner": "inside the directory of table stock",
        "sales": "around|contain|inside",
        "theirs": "is a table, and no export",
        "exports/stock/deeper": "inside the directory",
        "files": "files",
        "_lakevilla/x": "_lakevilla",
        "": "a path or a URI",
    }.items():
        with pytest.raises(lv.InvalidOperation, match=hint):
            lake.export("stock", to)
    with pytest.raises(lv.InvalidOperation, match="is an export of another table"):
        lake.export("sales/orders", "exports/stock")
    with pytest.raises(lv.TableNotFound):
        lake.export("nowhere", "exports/nowhere")
    assert not (tmp_path / "exports" / "nowhere").exists()


def test_an_export_undoes_writes_of_other_clients_to_its_copy(lake: lv.Lake) -> None:
    lake.create_table("stock", ROWS)
    uri = lake.export("stock", "exports/stock", copy=True)
    deltalake.write_deltalake(uri, pa.Table.from_pylist(ROWS), mode="append")
    lake.export("stock", uri, copy=True)
    assert shown(uri, "delta").num_rows == 2
    assert lake.read("stock").num_rows == 2


def test_the_log_of_an_export_gets_checkpoints(lake: lv.Lake) -> None:
    lake.create_table("stock", ROWS, properties={"delta.checkpointInterval": "2"})
    for number in range(5):
        lake.run(lambda txn, number: txn.append("stock", [{**ROWS[0], "qty": number}]), number)
        uri = lake.export("stock", "exports/stock", copy=True)
    assert list(Path(uri, "_delta_log").glob("*.checkpoint.parquet"))
    assert shown(uri, "delta").num_rows == 7


def test_the_export_of_a_guarded_table_is_not_guarded(lake: lv.Lake) -> None:
    lake.create_table("stock", ROWS)
    lake.guard("stock")
    uri = lake.export("stock", "exports/stock", copy=True)
    assert shown(uri, "delta").num_rows == 2
    features: Any = deltalake.DeltaTable(uri).protocol().writer_features or []
    assert "lakevilla" not in features


@pytest.mark.parametrize("copies", [True, False])
def test_an_export_of_an_iceberg_table_with_position_deletes_is_refused(
    lake: lv.Lake, copies: bool
) -> None:
    lake.create_table("bank", accounts(3), format="iceberg")
    table = ObjectStoreCatalog("tests", warehouse=lake.root).load_table(("bank",))
    delete_positions(table, [2], Random(1))
    with pytest.raises(lv.InvalidOperation, match="optimize the table first"):
        lake.export("bank", "exports/bank", copy=copies)
    lake.table("bank").optimize()
    metadata = newest(lake.export("bank", "exports/bank", copy=copies))
    assert StaticTable.from_metadata(metadata).scan().to_arrow().num_rows == 2


def configurations(uri: Path) -> list[dict[str, str]]:
    """Return the properties of each version that sets some."""
    entries = sorted((uri / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for entry in entries for line in entry.read_text().splitlines()]
    return [action["metaData"]["configuration"] for action in actions if "metaData" in action]


def test_an_export_records_from_which_version_it_has_in_commit_timestamps(
    lake: lv.Lake, tmp_path: Path
) -> None:
    lake.create_table("stock", pa.Table.from_pylist(ROWS))
    uri = tmp_path / "copy"
    lake.export("stock", str(uri))
    change(lake)
    lake.run(
        lambda txn: txn.alter("stock", set_properties={"delta.enableInCommitTimestamps": "true"})
    )
    lake.export("stock", str(uri))
    lake.export("stock", str(uri))
    change(lake)
    lake.export("stock", str(uri))
    assert version(str(uri), "delta") == 2
    versions = [c.get("delta.inCommitTimestampEnablementVersion") for c in configurations(uri)]
    assert versions == [None, "1"]


def test_the_highest_row_id_of_an_export_never_goes_down(lake: lv.Lake, tmp_path: Path) -> None:
    lake.create_table(
        "stock", pa.Table.from_pylist(ROWS), properties={"delta.enableRowTracking": "true"}
    )
    lake.export("stock", str(tmp_path / "copy"))
    off = {"delta.enableRowTracking": "false", "delta.rowTrackingSuspended": "true"}
    lake.run(lambda txn: txn.alter("stock", set_properties=off))
    lake.export("stock", str(tmp_path / "copy"))
    entries = sorted((tmp_path / "copy" / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for entry in entries for line in entry.read_text().splitlines()]
    told = [
        json.loads(a["domainMetadata"]["configuration"]) for a in actions if "domainMetadata" in a
    ]
    assert [one["rowIdHighWaterMark"] for one in told] == [len(ROWS) - 1]
