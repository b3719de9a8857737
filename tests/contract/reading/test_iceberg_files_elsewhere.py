"""Iceberg tables whose data or manifests lie outside the lake, and tables of catalogs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import lakevilla as lv
from tests.support.places import Place

OWN = pa.table({"n": ["own"]})


@pytest.fixture
def warehouse(tmp_path: Path) -> SqlCatalog:
    (tmp_path / "wh").mkdir()
    uri = f"sqlite:///{tmp_path}/catalog.db"
    catalog = SqlCatalog("prod", uri=uri, warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("db")
    return catalog


def connect(catalog: SqlCatalog, root: Path, **options: Any) -> lv.Lake:
    return lv.connect(root, catalogs={"prod": dict(catalog.properties)}, **options)


def test_a_data_file_outside_the_lake_is_neither_read_nor_rewritten(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"), format="iceberg")
    place.write("t", OWN)
    pq.write_table(pa.table({"n": ["private"]}), tmp_path / "private.parquet")
    place.catalog().load_table("t").add_files([f"file://{tmp_path}/private.parquet"])

    with place.connect() as lake:
        for verb in (
            lambda: lake.read("t"),
            lambda: lake.sql("SELECT * FROM t"),
            lambda: lake.table("t").optimize(),
            lambda: lake.run(lambda txn: txn.update("t", {"n": "'x'"}, where="n > 'o'")),
        ):
            with pytest.raises(lv.InvalidOperation, match=r"table t .*private\.parquet.*files_out"):
                verb()
    with place.connect(files_outside=[str(tmp_path)]) as lake:
        assert sorted(lake.read("t")["n"].to_pylist()) == ["own", "private"]


def test_a_catalogs_table_reads_and_writes_files_below_its_own_location(
    warehouse: SqlCatalog, tmp_path: Path
) -> None:
    warehouse.create_table("db.t", OWN.schema).append(OWN)

    with connect(warehouse, tmp_path / "lake") as lake:
        assert lake.read("prod.db.t").to_pylist() == [{"n": "own"}]
        assert lake.sql("SELECT * FROM prod.db.t").to_pylist() == [{"n": "own"}]
        lake.run(lambda txn: txn.append("prod.db.t", [{"n": "more"}]))
    with connect(warehouse, tmp_path / "lake") as lake:
        assert lake.read("prod.db.t").num_rows == 2


def test_a_catalogs_table_can_be_used_through_a_link_to_its_warehouse(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    uri = f"sqlite:///{tmp_path}/catalog.db"
    catalog = SqlCatalog("prod", uri=uri, warehouse=f"file://{tmp_path}/link/lake")
    catalog.create_namespace("db")
    catalog.create_table("db.t", OWN.schema).append(OWN)

    for root in ("link/lake", "disk/lake"):
        with connect(catalog, tmp_path / root) as lake, lake.transaction() as txn:
            txn.append("prod.db.t", [{"n": root}])
    seen = connect(catalog, tmp_path / "link" / "lake").read("prod.db.t")["n"].to_pylist()
    assert sorted(seen) == ["disk/lake", "link/lake", "own"]
    assert sorted(catalog.load_table("db.t").scan().to_arrow()["n"].to_pylist()) == sorted(seen)


@pytest.mark.parametrize("path", ["data", "metadata"])
def test_a_tables_write_path_properties_do_not_allow_files_at_other_places(
    warehouse: SqlCatalog, tmp_path: Path, path: str
) -> None:
    elsewhere = f"file://{tmp_path}/elsewhere"
    table = warehouse.create_table("db.t", OWN.schema, properties={f"write.{path}.path": elsewhere})
    table.append(OWN)

    if path == "metadata":
        # The catalog itself names the metadata file at the other place.
        assert connect(warehouse, tmp_path / "lake").read("prod.db.t").num_rows == 1
        return
    with pytest.raises(lv.InvalidOperation, match="files_outside"):
        connect(warehouse, tmp_path / "lake").read("prod.db.t")
    allowed = connect(warehouse, tmp_path / "lake", files_outside=[f"{tmp_path}/elsewhere"])
    assert allowed.read("prod.db.t").num_rows == 1


def test_a_manifest_list_outside_the_lake_is_not_read(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"), format="iceberg")
    place.write("t", OWN)
    metadata = max(Path(place.uri("t"), "metadata").glob("v*.metadata.json"))
    listed = next(Path(place.uri("t"), "metadata").glob("snap-*.avro"))
    moved = tmp_path / listed.name
    moved.write_bytes(listed.read_bytes())
    metadata.write_text(metadata.read_text().replace(f"{listed.parent}/{listed.name}", str(moved)))

    with pytest.raises(lv.InvalidOperation, match=r"\.avro.*files_outside"):
        place.connect().read("t")
    assert place.connect(files_outside=[str(tmp_path)]).read("t").num_rows == 1
