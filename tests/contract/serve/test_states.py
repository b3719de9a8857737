"""Engines read branches, tags and versions of a lake through the gateway."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

import lakevilla as lv
from tests.contract.foreign_readers import HAS_EXTENSIONS
from tests.contract.serve.gateway import Gateway, serving
from tests.contract.serve.pages import look
from tests.support.inside import inside
from tests.support.tables import accounts, in_order


def rows(table: Table) -> list[dict[str, object]]:
    return in_order(table.scan().to_arrow())


@pytest.fixture
def grown(lake: lv.Lake) -> lv.Lake:
    """Return a lake with a tag, a branch of two commits, and a commit after both."""
    lake.tag("monday")
    lake.branch("etl")
    with lake.on("etl").transaction() as txn:
        txn.update("stock", {"balance": "7"}, where="id = 1")
        txn.append("sales/orders", accounts(1))
    lake.on("etl").run(lambda txn: txn.delete("sales/orders", "id = 2"))
    lake.run(lambda txn: txn.append("stock", accounts(4)))
    return lake


@pytest.mark.parametrize("name", ["monday", "etl"])
def test_a_ref_is_a_warehouse(grown: lv.Lake, gateway: Gateway, name: str) -> None:
    catalog, there = gateway.pyiceberg(f"lake@{name}"), grown.on(name)
    assert catalog.list_tables("sales") == [("sales", "orders")]
    for mine, theirs in (("stock", "root.stock"), ("sales/orders", "sales.orders")):
        assert rows(catalog.load_table(theirs)) == in_order(there.read(mine))
    assert rows(gateway.pyiceberg().load_table("root.stock")) == in_order(grown.read("stock"))


def test_main_is_the_lake_itself_and_is_written(grown: lv.Lake, gateway: Gateway) -> None:
    catalog = gateway.pyiceberg("lake@main")
    table = catalog.load_table("root.stock")
    table.append(table.scan().to_arrow())
    assert rows(gateway.pyiceberg().load_table("root.stock")) == in_order(grown.read("stock"))
    assert grown.read("stock").num_rows == 2 * (2 + 4)
    catalog.create_namespace("lab")
    catalog.rename_table("root.stock", "lab.stock")
    assert catalog.list_tables("lab") == [("lab", "stock")]
    assert (
        gateway.ask("/config", params={"warehouse": "lake@main"}).json()["endpoints"]
        == (gateway.ask("/config", params={"warehouse": "lake"}).json()["endpoints"])
    )


@pytest.mark.skipif(not HAS_EXTENSIONS, reason="needs DuckDB's extension for Iceberg")
def test_duckdb_reads_a_branch(grown: lv.Lake, gateway: Gateway) -> None:
    found = gateway.duckdb("lake@etl").sql("FROM l.sales.orders").to_arrow_table()
    assert in_order(found) == in_order(grown.on("etl").read("sales/orders"))


def test_each_version_is_a_warehouse_that_others_commits_leave_as_it_is(
    grown: lv.Lake, gateway: Gateway
) -> None:
    now = gateway.pyiceberg("lake@now")
    before = rows(now.load_table("root.stock"))
    grown.run(lambda txn: txn.append("stock", accounts(1)))
    assert rows(now.load_table("root.stock")) == before
    for version in range(2, grown.history(1)[0].version + 1):
        then = gateway.pyiceberg(f"lake@v{version}").load_table("root.stock")
        with grown.snapshot(version=version) as mine:
            assert rows(then) == in_order(mine.read("stock"))
    with pytest.raises(NoSuchTableError):
        gateway.pyiceberg("lake@v1").load_table("sales.orders")


def test_a_version_is_listed_without_the_tables_that_clients_made_since(
    grown: lv.Lake, gateway: Gateway
) -> None:
    before = grown.history(1)[0].version
    made = gateway.pyiceberg().create_table("sales.made", Schema(NestedField(1, "id", LongType())))
    assert made.name() == ("sales", "made")
    then = gateway.pyiceberg(f"lake@v{before}")
    assert then.list_tables("sales") == [("sales", "orders")]
    assert not then.table_exists("sales.made")
    names = look(gateway, "/tables", on=f"v{before}").links()
    assert "sales/orders" in names
    assert "sales/made" not in names


def test_a_state_is_made_once_and_named_by_what_it_has(grown: lv.Lake, gateway: Gateway) -> None:
    path = "/etl/namespaces/root/tables/stock"
    first = gateway.ask(path)
    with inside(grown).requests.counting() as made:
        again = gateway.ask(path)
    assert made.put == 0
    assert again.content == first.content
    assert again.headers["ETag"] == first.headers["ETag"]
    grown.on("etl").run(lambda txn: txn.append("stock", accounts(1)))
    newer = gateway.ask(path)
    assert newer.json()["metadata-location"] != first.json()["metadata-location"]


def test_two_gateways_make_the_same_file_of_a_state(grown: lv.Lake, tmp_path: Path) -> None:
    answers = []
    for _ in range(2):
        with lv.connect(grown.root) as lake, serving(lake) as gateway:
            answers.append(gateway.ask("/etl/namespaces/sales/tables/orders").json())
        Path(answers[-1]["metadata-location"].removeprefix("file://")).unlink()
    assert answers[0] == answers[1]


def test_vacuum_deletes_the_files_of_states_after_the_retention(
    grown: lv.Lake, gateway: Gateway
) -> None:
    gateway.ask("/etl/namespaces/root/tables/stock")
    metadata = Path(grown.root, "stock/metadata")
    (state,) = metadata.glob("state-*.metadata.json")
    grown["stock"].vacuum(dry_run=False)
    assert state.exists()
    grown["stock"].vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert not state.exists()
    assert not grown.doctor().findings
    assert rows(gateway.pyiceberg("lake@etl").load_table("root.stock"))


def test_tags_and_versions_are_only_read(grown: lv.Lake, gateway: Gateway) -> None:
    for state in ("monday", "v2"):
        options = {"method": "POST", "json": {"namespace": ["a"]}}
        status, kind, _ = gateway.refused(f"/{state}/namespaces", **options)
        assert (status, kind) == (403, "ForbiddenException")
        assert gateway.refused(f"/{state}/namespaces/root/tables/stock", method="DELETE")[0] == 403


@pytest.mark.parametrize("name", ["nix", "v99", "v1x", "r-zz", "r-00", "", "a@b@c", "../x"])
def test_a_state_that_does_not_exist_is_refused(
    grown: lv.Lake, gateway: Gateway, name: str
) -> None:
    status, kind, _ = gateway.refused("/config", params={"warehouse": f"lake@{name}"})
    assert (status, kind) == (404, "NoSuchWarehouseException")


@pytest.mark.parametrize("name", ["v7", "a/b", "namespaces", "config", "r-x", "E.t_l"])
def test_a_ref_of_any_name_is_a_warehouse(lake: lv.Lake, gateway: Gateway, name: str) -> None:
    lake.tag(name)
    catalog = gateway.pyiceberg(f"lake@{name}")
    assert catalog.load_table("root.stock").scan().to_arrow().num_rows == 2


@pytest.mark.parametrize("name", ["etl", "monday", "v1", "now"])
def test_a_state_without_the_lake_before_it_is_refused_by_how_to_write_it(
    grown: lv.Lake, gateway: Gateway, name: str
) -> None:
    status, kind, message = gateway.refused(f"/config?warehouse={name}")
    assert (status, kind) == (404, "NoSuchWarehouseException")
    assert f"'lake@{name}'" in message
    for other in ("lake", "", "prod"):
        assert gateway.ask(f"/config?warehouse={other}").status_code == 200


def test_a_gateway_that_only_reads_makes_no_file(grown: lv.Lake) -> None:
    with lv.connect(grown.root) as lake, serving(lake, read_only=True) as gateway:
        assert rows(gateway.pyiceberg("lake@monday").load_table("root.stock"))
        with inside(lake).requests.counting() as made:
            assert gateway.refused("/etl/namespaces/root/tables/stock")[0] == 406
        assert (made.put, made.delete) == (0, 0)


def test_a_clone_is_shown_from_its_first_write_on(lake: lv.Lake, gateway: Gateway) -> None:
    lake.clone("sales", "trial/sales")
    path = "/namespaces/trial%1Fsales/tables/orders"
    catalog = gateway.pyiceberg()
    assert catalog.list_tables("trial.sales") == [("trial", "sales", "orders")]
    lake.tag("then")
    for state in ("", "/then"):
        status, _, message = gateway.refused(f"{state}{path}")
        assert status == 406
        assert "clone of sales/orders" in message
    schema = {
        "type": "struct",
        "fields": [{"id": 1, "name": "a", "type": "int", "required": False}],
    }
    made = {"method": "POST", "json": {"name": "orders", "schema": schema}}
    assert gateway.refused("/namespaces/trial%1Fsales/tables", **made)[0] == 409
    lake.run(lambda txn: txn.append("trial/sales/orders", accounts(1)))
    found = rows(catalog.load_table("trial.sales.orders"))
    assert found == in_order(lake.read("trial/sales/orders"))
    assert len(found) == 4
