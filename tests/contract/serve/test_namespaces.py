"""Namespaces and names of tables are made, changed and dropped through the gateway."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)

import lakevilla as lv
from tests.contract.serve.gateway import Gateway
from tests.support.tables import accounts


def test_an_empty_namespace_exists_with_its_properties_until_it_is_dropped(
    gateway: Gateway,
) -> None:
    catalog = gateway.pyiceberg()
    catalog.create_namespace(("lab", "eu"), {"owner": "ada"})
    assert catalog.list_namespaces("lab") == [("lab", "eu")]
    assert catalog.load_namespace_properties(("lab", "eu")) == {"owner": "ada"}
    assert ("lab",) in catalog.list_namespaces()
    catalog.drop_namespace(("lab", "eu"))
    with pytest.raises(NoSuchNamespaceError):
        catalog.load_namespace_properties(("lab", "eu"))
    assert ("lab",) not in catalog.list_namespaces()


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", [" ", "50%", "a%20b", "a/b", "ä"])
def test_a_namespace_of_any_name_has_namespaces_within(name: str, gateway: Gateway) -> None:
    catalog = gateway.pyiceberg()
    catalog.create_namespace((name, "eu"))
    assert (name,) in catalog.list_namespaces()
    assert catalog.list_namespaces((name,)) == [(name, "eu")]


def test_the_properties_of_a_directory_of_tables_are_changed(gateway: Gateway) -> None:
    catalog = gateway.pyiceberg()
    catalog.update_namespace_properties("sales", updates={"a": "1", "b": "2"})
    summary = catalog.update_namespace_properties("sales", removals={"a", "c"}, updates={"b": "3"})
    assert (summary.updated, summary.removed, summary.missing) == (["b"], ["a"], ["c"])
    assert catalog.load_namespace_properties("sales") == {"b": "3"}
    body = {"updates": {"a": "1"}, "removals": ["a"]}
    assert gateway.refused("/namespaces/sales/properties", method="POST", json=body)[0] == 422


def test_a_namespace_that_exists_is_not_made_again(gateway: Gateway) -> None:
    catalog = gateway.pyiceberg()
    catalog.create_namespace("lab")
    for name in ("lab", "sales", "root"):
        with pytest.raises(NamespaceAlreadyExistsError):
            catalog.create_namespace(name)


def test_a_namespace_with_tables_is_not_dropped(lake: lv.Lake, gateway: Gateway) -> None:
    lake.create_table("deep/er/t", accounts(1), format="iceberg")
    for name in ("sales", "deep", ("deep", "er")):
        with pytest.raises(NamespaceNotEmptyError):
            gateway.pyiceberg().drop_namespace(name)


def test_gc_and_doctor_leave_namespaces_as_they_are(lake: lv.Lake, gateway: Gateway) -> None:
    gateway.pyiceberg().create_namespace("lab", {"owner": "ada"})
    lake.gc()
    assert not lake.doctor().findings
    assert gateway.pyiceberg().load_namespace_properties("lab") == {"owner": "ada"}


def test_lists_come_in_pages_of_the_size_that_a_client_asks_for(
    lake: lv.Lake, gateway: Gateway
) -> None:
    for number in range(5):
        lake.create_table(f"many/t{number}", accounts(1), format="iceberg")
        gateway.pyiceberg().create_namespace(f"n{number}")
    for path, key in (("/namespaces/many/tables", "identifiers"), ("/namespaces", "namespaces")):
        (every,) = [gateway.ask(path).json()[key]]
        found, params = [], {"pageSize": "2"}
        while True:
            page = gateway.ask(path, params=params).json()
            assert len(page[key]) <= 2
            found += page[key]
            if page["next-page-token"] is None:
                break
            params["pageToken"] = page["next-page-token"]
        assert found == every
        assert gateway.refused(path, params={"pageSize": "none"})[0] == 400


def test_pages_of_tables_and_namespaces_show_the_state_of_the_first(
    lake: lv.Lake, gateway: Gateway
) -> None:
    for number in range(4):
        lake.create_table(f"many/t{number}", accounts(1), format="iceberg")
    size = {"pageSize": "2"}
    tables = gateway.ask("/namespaces/many/tables", params=size).json()
    spaces = gateway.ask("/namespaces", params=size).json()
    lake.create_table("many/t1x", accounts(1), format="iceberg")
    lake.drop_table("many/t2")
    lake.create_table("new/t", accounts(1), format="iceberg")
    lake.drop_table("stock")
    size["pageToken"] = tables["next-page-token"]
    page = gateway.ask("/namespaces/many/tables", params=size).json()
    assert [one["name"] for one in page["identifiers"]] == ["t2", "t3"]
    size["pageToken"] = spaces["next-page-token"]
    page = gateway.ask("/namespaces", params=size).json()
    assert [*spaces["namespaces"], *page["namespaces"]] == [["many"], ["root"], ["sales"]]


def test_a_page_of_a_state_that_is_gone_is_refused_with_what_to_do(
    lake: lv.Lake, gateway: Gateway
) -> None:
    lake.create_table("sales/others", accounts(1), format="iceberg")
    size = {"pageSize": "1"}
    tokens = {
        path: gateway.ask(path, params=size).json()["next-page-token"]
        for path in ("/namespaces/sales/tables", "/namespaces")
    }
    gateway.pyiceberg().create_namespace("lab")
    lake.rename_table("stock", "sales/goods")
    for path, token in tokens.items():
        status, kind, message = gateway.refused(path, params={**size, "pageToken": token})
        assert (status, kind) == (400, "BadRequestException")
        assert re.search("begin with (the first page|it) again", message)
        for wrong in ("x", "é", token[:-3], next(t for t in tokens.values() if t != token)):
            assert gateway.refused(path, params={**size, "pageToken": wrong})[0] == 400


def test_a_table_is_renamed_into_another_namespace(lake: lv.Lake, gateway: Gateway) -> None:
    catalog = gateway.pyiceberg()
    with pytest.raises(NoSuchNamespaceError):
        catalog.rename_table("root.stock", "lab.stock")
    catalog.create_namespace("lab")
    catalog.rename_table("root.stock", "lab.goods")
    assert catalog.load_table("lab.goods").scan().to_arrow().num_rows == 2
    assert lake.read("lab/goods").num_rows == 2
    with pytest.raises(NoSuchTableError):
        catalog.load_table("root.stock")
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table("lab.goods", "sales.orders")


def test_a_dropped_table_leaves_its_files_unless_it_is_purged(
    lake: lv.Lake, gateway: Gateway
) -> None:
    catalog = gateway.pyiceberg()
    where = catalog.load_table("root.stock").metadata_location
    catalog.drop_table("root.stock")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("root.stock")
    assert catalog.register_table("sales.stock", where).scan().to_arrow().num_rows == 2
    catalog.rename_table("sales.orders", "sales.old")
    catalog.purge_table("sales.old")
    assert not lake.tables("sales/o")
    assert not list(Path(lake.root, "sales/orders").rglob("*.parquet"))


def test_a_table_that_a_tag_needs_is_not_dropped(lake: lv.Lake, gateway: Gateway) -> None:
    lake.tag("monday")
    path = "/namespaces/root/tables/stock"
    status, _, message = gateway.refused(path, method="DELETE")
    assert status == 409
    assert "monday" in message
    assert gateway.refused(f"{path}?purgeRequested=true", method="DELETE")[0] == 409
    assert gateway.pyiceberg().load_table("root.stock").scan().to_arrow().num_rows == 2


def test_an_older_metadata_file_is_not_registered(lake: lv.Lake, gateway: Gateway) -> None:
    catalog = gateway.pyiceberg()
    old = catalog.load_table("root.stock").metadata_location
    lake.run(lambda txn: txn.append("stock", accounts(1)))
    new = catalog.load_table("root.stock").metadata_location
    catalog.drop_table("root.stock")
    body = {"name": "stock", "metadata-location": old}
    status, _, message = gateway.refused("/namespaces/root/register", method="POST", json=body)
    assert status == 400
    assert new in message
    assert "stock" not in lake
    body["metadata-location"] = "/etc/passwd"
    assert gateway.refused("/namespaces/root/register", method="POST", json=body)[0] == 400


def test_a_table_outside_of_the_lake_is_not_registered(
    lake: lv.Lake, gateway: Gateway, tmp_path: Path
) -> None:
    with lv.connect(tmp_path / "other") as other:
        other.create_table("t", accounts(1), format="iceberg")
        other.unregister("t")
    there = tmp_path / "other/t/metadata/v1.metadata.json"
    for location in (str(there), f"file://{there}"):
        body = {"name": "t", "metadata-location": location}
        asked = gateway.refused("/namespaces/sales/register", method="POST", json=body)
        assert asked[0] == 400
        assert "not below the lake's root" in asked[2]
    assert (
        gateway.refused("/namespaces/sales/tables/t?purgeRequested=true", method="DELETE")[0] == 404
    )
    assert there.exists()


def test_a_delta_table_that_is_refused_is_not_registered(lake: lv.Lake, gateway: Gateway) -> None:
    lake.create_table("plain", accounts(1), format="delta")
    lake.unregister("plain")
    location = f"{lake.root}/plain/metadata/v1.metadata.json"
    body = {"name": "plain", "metadata-location": location}
    status, _, message = gateway.refused("/namespaces/sales/register", method="POST", json=body)
    assert status == 400
    assert "is of a Delta table" in message
    assert "sales/plain" not in lake
    assert "plain" not in lake


def test_a_name_of_two_tables_means_none_of_them(lake: lv.Lake, gateway: Gateway) -> None:
    lake.create_table("root/stock", accounts(5), format="iceberg")
    path = "/namespaces/root/tables/stock"
    for options in ({}, {"method": "DELETE"}, {"method": "POST", "json": {}}):
        status, _, message = gateway.refused(path, **options)
        assert status == 400
        assert "stock and root/stock" in message
    assert "stock" in lake
    lake.rename_table("root/stock", "shop/stock")
    assert gateway.ask(path, method="DELETE").status_code == 204
    assert gateway.refused(path, method="DELETE")[0] == 404
    assert lake.read("shop/stock").num_rows == 5
