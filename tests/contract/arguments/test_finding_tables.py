"""Finding tables: a lake as a mapping of names, and tables stored below its root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.tables import contents

ROWS = pa.table({"id": [1]})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    for path in ("sales/orders", "stock"):
        write_deltalake(str(tmp_path / path), ROWS)
    with lv.connect(str(tmp_path)) as opened:
        opened.register("sales/orders")
        opened.register("goods", "stock")
        yield opened


def test_a_lake_is_a_mapping_of_names_to_tables(lake: lv.Lake) -> None:
    assert list(lake) == ["sales/orders", "goods"]
    assert list(lake) == [table.name for table in lake.tables()]
    assert len(lake) == 2
    assert lake["goods"].name == "goods"
    assert lake["goods"] == lake.table("goods")
    with pytest.raises(lv.TableNotFound):
        lake["nothing"]


def test_all_spellings_of_a_name_are_in_the_lake(lake: lv.Lake) -> None:
    for name in ("goods", "stock", "sales/orders", "./sales//orders/", f"{lake.root}/stock"):
        assert name in lake
    for other in ("", "../stock", "_lakevilla", "orders", "s3:/half", "\0", 7, None):
        assert other not in lake


def test_an_unregistered_table_under_the_root_can_be_opened_but_is_not_in_the_lake(
    lake: lv.Lake,
) -> None:
    write_deltalake(f"{lake.root}/new", ROWS)
    assert "new" not in lake
    assert lake["new"].version == 0
    lake.run(lambda txn: txn.append("new", ROWS))
    assert "new" in lake


def test_a_dropped_table_is_not_in_the_lake(lake: lv.Lake) -> None:
    lake.drop_table("goods")
    assert "goods" not in lake
    assert "stock" not in lake
    assert list(lake) == ["sales/orders"]


def test_a_lake_without_tables_is_true_in_a_condition(tmp_path: Path) -> None:
    with lv.connect(tmp_path / "empty") as lake:
        assert lake
        assert len(lake) == 0
        assert list(lake) == []
        assert "orders" not in lake
    assert not (tmp_path / "empty").exists()


def test_the_length_of_a_lake_is_current_during_an_iteration_over_its_tables(lake: lv.Lake) -> None:
    names = iter(lake)
    first = next(names)
    lake.create_table("more", ROWS)
    assert len(lake) == 3
    assert [first, *names] == ["sales/orders", "goods"]


def test_a_table_of_a_catalog_is_named_by_its_name_in_the_catalog(tmp_path: Path) -> None:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("sales")
    catalog.create_table("sales.orders", schema=ROWS.schema)
    root = str(tmp_path / "lake")
    with lv.connect(root, catalogs={"prod": catalog}) as lake:
        with lake.transaction() as txn:
            txn.append("prod.sales.orders", ROWS)
            txn.create_table("own", ROWS)
        assert txn.result is not None
        assert sorted(txn.result.versions or {}) == ["own", "prod.sales.orders"]
        assert list(lake) == ["prod.sales.orders", "own"]
        assert "prod.sales.orders" in lake
        assert [table.name for table in lake.tables()] == ["prod.sales.orders", "own"]
        assert sorted(lake.snapshot().versions) == ["own", "prod.sales.orders"]
        assert lake.history(1)[0].tables == ("own", "prod.sales.orders")
        assert {one.table for one in lake.history(1)[0].operations} == {"own", "prod.sales.orders"}
        assert "prod.sales.orders" in lake._repr_html_()
        pointed = Path(catalog.load_table("sales.orders").metadata_location.removeprefix("file://"))
        pointed.rename(pointed.with_suffix(".moved"))
    with lv.connect(root, catalogs={"prod": catalog}) as lake:
        (found,) = [one for one in lake.doctor().findings if one.severity == "error"]
        assert found.table == "prod.sales.orders"
        assert "/wh/" not in found.message.replace(str(pointed.parent), "")
        for look in (lambda: lake.table("prod.sales.orders"), lambda: lake["prod.sales.orders"]):
            with pytest.raises(lv.LakeVillaError) as error:
                look()
            assert error.value.table == "prod.sales.orders"
        pointed.with_suffix(".moved").rename(pointed)
    with lv.connect(root) as other:
        assert list(other) == ["prod.sales.orders", "own"]
        # Without the catalog, the table is listed but can't be opened.
        with pytest.warns(lv.LakeVillaWarning, match=r"table prod\.sales\.orders is left out"):
            assert [table.name for table in other.tables()] == ["own"]


@pytest.mark.parametrize("uri", ["prod.sales.orders", "wh/sales/orders"])
def test_a_catalogs_table_keeps_its_name_when_its_uri_is_registered_under_another_name(
    tmp_path: Path, uri: str
) -> None:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("sales")
    catalog.create_table("sales.orders", schema=ROWS.schema)
    with lv.connect(str(tmp_path), catalogs={"prod": catalog}) as lake:
        lake.run(lambda txn: txn.append("prod.sales.orders", ROWS))
        lake.register("orders", uri)
        lake.register("prod.sales.orders")
        assert list(lake) == ["prod.sales.orders"]
        assert lake.read("orders").num_rows == 1
        lake.unregister("orders")
        assert list(lake) == ["prod.sales.orders"]


def test_errors_in_rows_name_a_catalog_table_by_its_name_in_the_catalog(
    tmp_path: Path,
) -> None:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("sales")
    catalog.create_table("sales.orders", schema=ROWS.schema)
    with lv.connect(str(tmp_path), catalogs={"prod": catalog}) as lake:
        for rows in ([{"id": 1, "other": 1}], [{"id": "one"}]):
            with pytest.raises(
                lv.InvalidOperation, match=r"table 'prod\.sales\.orders' has "
            ) as error:
                lake.run(lambda txn, rows=rows: txn.append("prod.sales.orders", rows))
            assert "wh/sales" not in str(error.value)


def test_errors_about_a_renamed_table_have_its_present_name(lake: lv.Lake) -> None:
    lake.rename_table("sales/orders", "sold")
    with pytest.raises(lv.InvalidOperation, match="table 'sold' has no column 'other'"):
        lake.run(lambda txn: txn.append("sold", [{"id": 1, "other": 1}]))
    with pytest.raises(lv.InvalidOperation, match="column 'id' of table sold is long already"):
        lake.run(lambda txn: txn.alter("sold", change_types={"id": "bigint"}))
    lake.drop_table("sold")
    with pytest.raises(lv.TableExists, match=r"`register\('sales/orders'\)` revives it"):
        lake.create_table("sold", ROWS)
    lake.register("sales/orders")
    assert lake.read("sales/orders").num_rows == 1


# -- what is not in the lake yet -------------------------------------------------------

ODD = ["with space", "it's", 'say "so"', "100%", "naïve", "dots.in.name", "a+b&c", "-- drop"]


def states(lake: lv.Lake) -> dict[str, str]:
    return {table.name: table.state for table in lake.discover()}


@pytest.fixture(params=["local", "remote"])
def anywhere(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


def test_tables_of_both_formats_are_found_and_registered_by_one_commit(anywhere: Place) -> None:
    anywhere.write("sales/orders", ROWS)
    anywhere.write("parts", pa.table({"id": [1, 2], "p": ["a", "b"]}), partition_by=["p"])
    with anywhere.connect() as lake:
        for name in ("ice", "deep/er/ice"):
            lake.create_table(name, ROWS, format="iceberg")
            lake.unregister(name)  # as a foreign client's table
        lake.create_table("own", ROWS)
        lake.register("goods", anywhere.uri("own"))
    with anywhere.connect() as lake:
        before = lake.snapshot().version
        found = {table.name: table for table in lake.discover()}
        assert {name: (table.format, table.state) for name, table in found.items()} == {
            "sales/orders": ("delta", "new"),
            "parts": ("delta", "new"),
            "ice": ("iceberg", "dropped"),
            "deep/er/ice": ("iceberg", "dropped"),
        }
        assert found["sales/orders"].uri == anywhere.uri("sales/orders")
        assert lake.snapshot().version == before
        assert lake.register(discover=True) == ["parts", "sales/orders"]
        assert lake.snapshot().version == before + 1
        assert sorted(lake.history(1)[0].tables) == ["parts", "sales/orders"]
        assert lake.register(discover=True) == []
        assert lake.snapshot().version == before + 1
        assert lake.doctor().ok
        assert len(lake.snapshot().read("parts")) == 2


def test_discover_finds_tables_that_pyiceberg_has_created(tmp_path: Path) -> None:
    catalog = ObjectStoreCatalog("other", warehouse=str(tmp_path))
    catalog.create_table(("sales", "empty"), ROWS.schema)  # a table with metadata and without data
    catalog.create_table(("sales", "orders"), ROWS.schema).append(ROWS)
    with lv.connect(str(tmp_path)) as lake:
        assert states(lake) == {"sales/empty": "new", "sales/orders": "new"}
        assert lake.register(discover=True) == ["sales/empty", "sales/orders"]
        assert len(lake.snapshot().read("sales/orders")) == 1


@pytest.mark.parametrize("name", ODD)
def test_discover_finds_a_table_whose_name_needs_quotes(tmp_path: Path, name: str) -> None:
    with lv.connect(str(tmp_path / "made")) as made:
        made.create_table(f"x/{name}", ROWS)
        made.unregister(f"x/{name}")
    (tmp_path / "made" / "x").rename(tmp_path / "lake")
    with lv.connect(str(tmp_path / "lake")) as lake:
        assert states(lake) == {name: "new"}
        assert lake.register(discover=True) == [name]
        assert name in lake
        assert [table.name for table in lake.tables()] == [name]


def test_register_discover_reports_damaged_tables_and_registers_the_others(tmp_path: Path) -> None:
    for name in ("good", "torn", "gap", "fine/too"):
        write_deltalake(str(tmp_path / name), ROWS)
        write_deltalake(str(tmp_path / name), ROWS, mode="append")
    log = "_delta_log/00000000000000000000.json"
    (tmp_path / "torn" / log).write_text('{"metaData": {"id"')
    (tmp_path / "gap" / log).unlink()
    (tmp_path / "hollow" / "_delta_log").mkdir(parents=True)
    (tmp_path / "ice" / "metadata").mkdir(parents=True)
    (tmp_path / "ice" / "metadata" / "v1.metadata.json").write_text("{")
    with lv.connect(str(tmp_path)) as lake:
        found = {table.name: table for table in lake.discover()}
        refused = {name for name, table in found.items() if table.state == "refused"}
        assert refused == {"torn", "gap", "hollow", "ice"}
        assert log in found["torn"].reason
        assert log in found["gap"].reason
        assert "hollow/_delta_log" in found["hollow"].reason
        assert "ice/metadata/v1.metadata.json" in found["ice"].reason
        with pytest.warns(lv.LakeVillaWarning) as warned:
            assert lake.register(discover=True) == ["fine/too", "good"]
        assert {str(one.message).split()[1] for one in warned} == refused
        assert list(lake) == ["fine/too", "good"]


def test_discover_registers_no_tables_of_other_lakes_or_catalogs_and_no_hidden_ones(
    tmp_path: Path,
) -> None:
    with lv.connect(str(tmp_path / "theirs")) as theirs:
        write_deltalake(str(tmp_path / "lake" / "shared"), ROWS)
        theirs.register("shared", str(tmp_path / "lake" / "shared"))
    with lv.connect(str(tmp_path / "lake" / "inner")) as inner:
        inner.create_table("t", ROWS)
    catalog = SqlCatalog(
        "c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/lake/warehouse"
    )
    catalog.create_namespace("sales")
    catalog.create_table("sales.orders", schema=ROWS.schema)
    for hidden in ("_archive/t", ".trash/t", "raw/day=1/t"):
        write_deltalake(str(tmp_path / "lake" / hidden), ROWS)
    (tmp_path / "lake" / "link").symlink_to(tmp_path / "theirs")
    with lv.connect(str(tmp_path / "lake")) as lake:
        reasons = {table.name: table.reason for table in lake.discover()}
        assert f"belongs to the lake at {tmp_path}/theirs" in reasons.pop("shared")
        assert f"another lake, whose tables are its own: connect to {tmp_path}" in (
            reasons.pop("inner")
        )
        assert "is kept by a catalog" in reasons.pop("warehouse/sales/orders")
        assert reasons == {}
        before = contents(tmp_path)
        with pytest.warns(lv.LakeVillaWarning, match="shared is left out"):
            assert lake.register(discover=True) == []
        assert contents(tmp_path) == before


def test_register_discover_does_not_revive_a_dropped_table(lake: lv.Lake) -> None:
    lake.drop_table("sales/orders")
    assert states(lake) == {"sales/orders": "dropped"}
    assert lake.register(discover=True) == []
    assert "sales/orders" not in lake
    assert lake.register("sales/orders") == ["sales/orders"]
    assert states(lake) == {}


def test_discover_refuses_a_table_whose_name_is_registered_for_another(lake: lv.Lake) -> None:
    write_deltalake(f"{lake.root}/goods", ROWS)
    (found,) = lake.discover()
    assert (found.name, found.state) == ("goods", "refused")
    assert "'goods' is registered for stock" in found.reason


def test_a_table_that_another_client_drops_during_discovery_is_not_registered(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("new", "other"):
        write_deltalake(f"{lake.root}/{name}", ROWS)
    real = inside(lake).store.put

    def put(key: str, body: bytes, condition: object) -> object:
        if key == "_lakevilla/HEAD.json":
            monkeypatch.undo()
            with lv.connect(lake.root) as faster:
                faster.register("new")
                faster.drop_table("new")
        return real(key, body, condition)

    monkeypatch.setattr(inside(lake).store, "put", put)
    with pytest.warns(lv.LakeVillaWarning, match="new is left out: another client dropped it"):
        assert lake.register(discover=True) == ["other"]
    assert "new" not in lake


@pytest.mark.parametrize("root", ["stock", "stok", "nothing/here"])
def test_the_error_for_a_root_that_is_no_lake_suggests_the_right_one(
    tmp_path: Path, root: str
) -> None:
    write_deltalake(str(tmp_path / "stock"), ROWS)
    before = contents(tmp_path)
    meant = {
        "stock": f"is a table itself, .* connect to {tmp_path}, where this is table stock",
        "stok": rf"nothing is at the root {tmp_path}/stok; did you mean {tmp_path}/stock",
        "nothing/here": "nothing is at the root .*; check the root",
    }[root]
    with pytest.MonkeyPatch.context() as patch:
        # The replacement avoids the warning about a table around the root.
        patch.setattr("lakevilla.api.connecting.table_around", lambda root: None)
        lake = lv.connect(str(tmp_path / root))
    for look in (lake.discover, lambda: lake.register(discover=True), lambda: lake["t"]):
        with pytest.raises(lv.LakeVillaError, match=meant):
            look()
    assert contents(tmp_path) == before


def test_a_file_is_refused_as_a_root(tmp_path: Path) -> None:
    (tmp_path / "stock.csv").write_text("id\n1\n")
    with pytest.raises(
        lv.InvalidOperation, match=r"stock\.csv is a file, and a lake is a directory"
    ):
        lv.connect(str(tmp_path / "stock.csv"))


@pytest.mark.parametrize("arguments", [(), ("t", None), (None, "uri"), ({"a": "b"}, None)])
def test_register_takes_either_a_table_or_discover(
    lake: lv.Lake, arguments: tuple[object, ...]
) -> None:
    discover = bool(arguments)
    with pytest.raises(lv.InvalidOperation, match="discover=True"):
        lake.register(*arguments, discover=discover)  # type: ignore[arg-type]


# -- names with dots ---------------------------------------------------------------------


def test_a_dotted_name_means_a_path_everywhere(lake: lv.Lake) -> None:
    assert "sales.orders" in lake
    assert lake["sales.orders"].uri == f"{lake.root}/sales/orders"
    with lake.transaction() as txn:
        txn.append("sales.orders", [{"id": 2}])
        txn.sql("INSERT INTO sales.orders VALUES (3)")
        txn.update("sales.orders", {"id": "id + 10"}, where="id = 3")
        assert len(txn.read("sales/orders")) == len(txn.sql("FROM sales.orders")) == 3
    lake.create_table("hr.people", ROWS)
    assert "hr/people" in list(lake)
    lake.table("hr.people").vacuum()
    write_deltalake(f"{lake.root}/hr/offices", ROWS)
    assert lake.table("hr.offices").version == 0
    lake.register("hr.offices")
    assert "hr/offices" in list(lake)
    lake.unregister("hr.offices")
    lake.drop_table("hr.people")
    assert list(lake) == ["sales/orders", "goods"]


def test_a_dotted_name_means_a_table_whose_path_has_these_dots_if_there_is_one(
    lake: lv.Lake,
) -> None:
    write_deltalake(f"{lake.root}/events.v2", ROWS)
    assert lake.table("events.v2").uri == f"{lake.root}/events.v2"
    lake.run(lambda txn: txn.append("events.v2", ROWS))
    assert "events.v2" in list(lake)
    assert len(lake.snapshot().sql("SELECT * FROM events.v2")) == 2
    assert len(lake.snapshot().sql('SELECT * FROM "events.v2"')) == 2
    lake.run(lambda txn: txn.sql("DELETE FROM events.v2 WHERE true"))
    assert len(lake.snapshot().read("events.v2")) == 0


def test_a_dotted_name_that_could_mean_two_tables_is_refused(lake: lv.Lake) -> None:
    for path in ("a.b", "a/b"):
        write_deltalake(f"{lake.root}/{path}", ROWS)
    two = r"could mean two tables, at a\.b and at a/b: write 'a/b'"
    with pytest.raises(lv.InvalidOperation, match=two):
        lake.table("a.b")
    with pytest.raises(lv.InvalidOperation, match=two):
        lake.snapshot().sql("FROM a.b")
    with pytest.raises(lv.InvalidOperation, match=two):
        lake.register("a.b")
    assert lake.table("a/b").version == lake.table(f"{lake.root}/a.b").version == 0
    # Once one of the tables is registered, the name means it, and the other can't be registered.
    lake.register("a/b")
    assert lake.table("a.b").uri == f"{lake.root}/a/b"
    assert states(lake) == {"a.b": "refused"}
    with pytest.raises(lv.InvalidOperation, match=r"could both be meant by 'a\.b'"):
        lake.register("twin", f"{lake.root}/a.b")
    with pytest.raises(lv.InvalidOperation, match=r"could both be meant by 'sales\.orders'"):
        lake.create_table(f"{lake.root}/sales.orders", ROWS)


def test_discover_registers_only_one_of_two_tables_that_a_dotted_name_could_mean(
    lake: lv.Lake,
) -> None:
    for path in ("a.b", "a/b"):
        write_deltalake(f"{lake.root}/{path}", ROWS)
    assert states(lake) == {"a.b": "refused", "a/b": "new"}
    with pytest.warns(lv.LakeVillaWarning, match=r"a\.b is left out"):
        assert lake.register(discover=True) == ["a/b"]


def test_a_registered_name_with_dots_is_not_a_path(lake: lv.Lake, tmp_path: Path) -> None:
    lake.register("shop.goods", "stock")
    assert lake.table("shop.goods").uri == f"{lake.root}/stock"
    assert len(lake.snapshot().sql("FROM shop.goods")) == 1
    with pytest.raises(lv.TableNotFound):
        lake.table("shop/goods")
