"""The error for a missing table suggests the right name, or how to open the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

import lakevilla as lv

ROWS = pa.table({"id": [1]})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    for path in ("sales/orders", "stock"):
        write_deltalake(str(tmp_path / path), ROWS)
    with lv.connect(str(tmp_path)) as opened:
        opened.register("sales/orders")
        opened.register("goods", "stock")
        yield opened


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/cat.db", warehouse=f"file://{tmp_path}/wh")
    made.create_namespace("sales")
    made.create_table("sales.orders", schema=ROWS.schema)
    return made


def told(lake: lv.Lake, name: str) -> str:
    with pytest.raises(lv.TableNotFound) as error:
        lake.snapshot().read(name)
    with pytest.raises(lv.TableNotFound) as other:
        lake.table(name)
    assert str(other.value) == str(error.value)
    assert str(error.value).startswith("table ")
    assert " does not exist" in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("sales.ordrs", "sales/orders"),
        ("orders", "sales/orders"),
        ("/sales/orders", "sales/orders"),
        ("sales/ordrs", "sales/orders"),
        ("ordrs", "sales/orders"),
        ("good", "goods"),
    ],
)
def test_the_error_for_a_missing_table_suggests_a_similar_name(
    lake: lv.Lake, name: str, meant: str
) -> None:
    assert f"did you mean {meant}?" in told(lake, name)


def test_the_error_for_a_table_without_a_similar_name_says_how_to_list_tables(
    lake: lv.Lake,
) -> None:
    text = told(lake, "x")
    assert "did you mean" not in text
    assert "tables()" in text
    assert "discover()" in text
    assert len(text) < 150
    assert "\n" not in text


def test_the_error_for_a_missing_table_suggests_unregistered_tables_too(
    lake: lv.Lake, tmp_path: Path
) -> None:
    write_deltalake(str(tmp_path / "sales/returns"), ROWS)
    (tmp_path / "raw").mkdir()
    with pytest.raises(lv.TableNotFound, match=r"did you mean sales/returns, sales/orders\?"):
        lake.table("sales/return")
    with pytest.raises(lv.TableNotFound, match="directory has neither a Delta log nor Iceberg"):
        lake.table("raw")
    with (
        lv.connect(str(tmp_path / "sales")) as new,
        pytest.raises(lv.TableNotFound, match=r"did you mean returns\?"),
    ):
        new.table("retruns")


def test_the_error_for_a_frame_named_in_a_statement_suggests_views(lake: lv.Lake) -> None:
    for statement in (
        "SELECT * FROM df",
        "INSERT INTO goods SELECT * FROM df",
        "MERGE INTO goods USING df ON goods.id = df.id WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(lv.TableNotFound, match=r"views=\{'df': df\}"), lake.transaction() as t:
            t.sql(statement)
    with pytest.raises(lv.TableNotFound, match=r"did you mean goods\?") as error:
        lake.snapshot().sql("SELECT * FROM gods")
    assert "views" not in str(error.value)


def test_the_error_for_a_missing_table_suggests_no_dropped_table(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.drop_table("sales/orders")
    assert "sales/orders?" not in told(lake, "sales/order")


def test_the_error_for_a_table_of_an_unknown_catalog_says_how_to_connect(
    tmp_path: Path, catalog: Catalog
) -> None:
    root = str(tmp_path / "lake")
    with lv.connect(root) as lake:
        assert "catalogs={'prod': ...}" in told(lake, "prod.sales.orders")
    with lv.connect(root, catalogs={"prod": catalog}) as lake:
        lake.run(lambda txn: txn.append("prod.sales.orders", ROWS))
        assert "known catalogs: prod" in told(lake, "prd.sales.orders")
        assert "did you mean prod.sales.orders?" in told(lake, "prd.sales.orders")
        # The catalog is known, but has no table of that name.
        with pytest.raises(lv.TableNotFound, match="in its catalog"):
            lake.table("prod.sales.order")
    with lv.connect(root) as lake:
        assert "catalogs={'prod': ...}" in told(lake, "prod.sales.orders")
        with pytest.raises(lv.TableNotFound, match=r"catalogs=\{'prod': \.\.\.\}"):
            lake.snapshot().sql("select * from prod.sales.orders")


def test_the_error_for_the_directory_of_a_catalogs_table_says_so(
    tmp_path: Path, catalog: Catalog
) -> None:
    location = catalog.load_table("sales.orders").location()
    with lv.connect(str(tmp_path)) as lake:
        with pytest.raises(lv.TableNotFound, match="kept by a catalog") as error:
            lake.register("orders", location)
        assert "catalog.namespace.table" in str(error.value)
        assert "catalogs={" in told(lake, location)
    with lv.connect(str(tmp_path), catalogs={"prod": catalog}) as lake:
        with pytest.raises(lv.TableNotFound, match=r"by its name there, prod\.namespace\.table"):
            lake.register("orders", location)
        lake.register("orders", "prod.sales.orders")
        assert lake.table("orders").format == "iceberg"
