"""Engines read the lake's Iceberg tables through the gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import StaticTable

import lakevilla as lv
from lakevilla.store.runner import Requests
from tests.contract.foreign_readers import HAS_EXTENSIONS
from tests.contract.serve.gateway import Gateway, serving
from tests.support.inside import inside
from tests.support.places import Place, decide_and_leave
from tests.support.tables import accounts, in_order


def test_pyiceberg_lists_and_reads_the_tables_of_a_lake(lake: lv.Lake, gateway: Gateway) -> None:
    catalog = gateway.pyiceberg()
    assert catalog.list_namespaces() == [("root",), ("sales",)]
    assert catalog.list_tables("root") == [("root", "stock")]
    assert catalog.list_tables("sales") == [("sales", "orders")]
    assert catalog.table_exists("sales.orders")
    assert not catalog.table_exists("sales.order")
    rows = in_order(catalog.load_table("sales.orders").scan().to_arrow())
    assert rows == in_order(lake.read("sales/orders"))


@pytest.mark.skipif(not HAS_EXTENSIONS, reason="needs DuckDB's extension for Iceberg")
def test_duckdb_joins_the_tables_of_a_lake(lake: lv.Lake, gateway: Gateway) -> None:
    connection = gateway.duckdb()
    query = (
        "SELECT count(*), sum(balance) FROM l.root.stock JOIN l.sales.orders USING (id, balance)"
    )
    mine = lake.sql(
        'SELECT count(*), sum(balance) FROM stock JOIN "sales/orders" USING (id, balance)'
    )
    assert connection.sql(query).fetchall() == [tuple(mine.to_pylist()[0].values())]


def test_a_client_sees_each_commit_with_its_next_load(lake: lv.Lake, gateway: Gateway) -> None:
    catalog = gateway.pyiceberg()
    table = catalog.load_table("root.stock")
    for number in range(3):
        with lake.transaction() as txn:
            txn.append("stock", accounts(1))
            txn.append("sales/orders", accounts(1))
        table.refresh()
        assert table.scan().to_arrow().num_rows == 3 + number


def test_a_load_publishes_what_is_decided(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"), format="iceberg")
    with place.connect() as lake:
        for name in ("bank", "other"):
            lake.create_table(name, accounts(3), format="iceberg")
    decide_and_leave(place)
    with place.connect() as lake, serving(lake) as gateway:
        (there,) = gateway.pyiceberg().load_table("root.bank").scan().to_arrow().to_batches()
        assert in_order(lake.read("bank")) == in_order(there)


def test_a_gateway_that_only_reads_publishes_nothing(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"), format="iceberg")
    with place.connect() as lake:
        for name in ("bank", "other"):
            lake.create_table(name, accounts(3), format="iceberg")
    decide_and_leave(place)
    with place.connect() as lake, serving(lake, read_only=True) as gateway:
        with inside(lake).requests.counting() as made:
            answer = gateway.ask("/namespaces/root/tables/bank")
        assert (made.put, made.delete) == (0, 0)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert "a read-only gateway publishes none" in answer.json()["error"]["message"]
        status, kind, _ = gateway.refused("/namespaces", method="POST", json={"namespace": ["a"]})
        assert (status, kind) == (403, "ForbiddenException")


def test_the_metadata_location_is_a_file_that_others_read_alike(
    lake: lv.Lake, gateway: Gateway
) -> None:
    answer = gateway.ask("/namespaces/sales/tables/orders").json()
    by_file = StaticTable.from_metadata(answer["metadata-location"])
    assert in_order(by_file.scan().to_arrow()) == in_order(lake.read("sales/orders"))
    assert answer["metadata"]["current-snapshot-id"] == by_file.metadata.current_snapshot_id


def test_a_table_that_has_not_changed_is_not_sent_again(lake: lv.Lake, gateway: Gateway) -> None:
    path = "/namespaces/root/tables/stock"
    tag = gateway.ask(path).headers["ETag"]
    assert gateway.ask(path, headers={"If-None-Match": tag}).status_code == 304
    lake.run(lambda txn: txn.append("stock", accounts(1)))
    changed = gateway.ask(path, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["ETag"] != tag


def test_a_table_that_is_made_again_is_sent_again(lake: lv.Lake, gateway: Gateway) -> None:
    path = "/namespaces/root/tables/stock"
    first = gateway.ask(path)
    assert gateway.ask(f"{path}?purgeRequested=true", method="DELETE").status_code == 204
    with lv.connect(lake.root, settings=lv.Settings(reuse_after_seconds=0)) as other:
        other.create_table("stock", accounts(7), format="iceberg")
    again = gateway.ask(path, headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 200
    assert again.json()["metadata-location"] == first.json()["metadata-location"]
    assert again.json()["metadata"]["table-uuid"] != first.json()["metadata"]["table-uuid"]


def test_a_client_that_wants_named_snapshots_gets_no_others(
    lake: lv.Lake, gateway: Gateway
) -> None:
    lake.run(lambda txn: txn.append("stock", accounts(1)))
    path = "/namespaces/root/tables/stock"
    every, named = gateway.ask(path), gateway.ask(f"{path}?snapshots=refs")
    assert len(every.json()["metadata"]["snapshots"]) == 2
    (one,) = named.json()["metadata"]["snapshots"]
    assert one["snapshot-id"] == every.json()["metadata"]["current-snapshot-id"]
    assert named.headers["ETag"] != every.headers["ETag"]


def test_the_current_snapshot_of_a_file_without_refs_is_named(
    lake: lv.Lake, gateway: Gateway
) -> None:
    (file,) = Path(lake.root, "stock/metadata").glob("v1.metadata.json")
    parts = json.loads(file.read_bytes())
    del parts["refs"]  # an older writer's
    file.write_text(json.dumps(parts))
    with lv.connect(lake.root) as other, serving(other) as fresh:
        told = fresh.ask("/namespaces/root/tables/stock?snapshots=refs").json()["metadata"]
    assert [one["snapshot-id"] for one in told["snapshots"]] == [told["current-snapshot-id"]]


def test_a_warm_load_costs_two_gets(lake: lv.Lake, gateway: Gateway) -> None:
    gateway.ask("/namespaces/sales/tables/orders")
    with inside(lake).requests.counting() as made:
        gateway.ask("/namespaces/sales/tables/orders")
    assert made == Requests(get=2)


def test_names_with_any_character_reach_their_tables(lake: lv.Lake, gateway: Gateway) -> None:
    catalog = gateway.pyiceberg()
    for name in ("a b", "50%", "größe", "x+y", "a.b"):
        lake.create_table(f"odd {name}/{name}", accounts(1), format="iceberg")
        (found,) = catalog.list_tables((f"odd {name}",))
        assert found == (f"odd {name}", name)
        assert catalog.load_table(found).scan().to_arrow().num_rows == 1


@pytest.mark.parametrize("name", ["_lakevilla", "../..", "a/../../b", "/etc", "\\", "%2e%2e"])
def test_no_name_leads_out_of_the_lake(gateway: Gateway, name: str) -> None:
    catalog = gateway.pyiceberg()
    for identifier in ((name, "HEAD.json"), ("root", name), ("root", f"{name}/stock")):
        with pytest.raises((NoSuchTableError, NoSuchNamespaceError)):
            catalog.load_table(identifier)


def test_the_gateway_refuses_by_name_what_it_does_not_have(gateway: Gateway) -> None:
    for path in ("/namespaces/root/views", "/namespaces/root/tables/stock/plan"):
        status, _, message = gateway.refused(path)
        assert status == 404
        assert path in message
