"""Engines commit to the lake's Iceberg tables through the gateway."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table

import lakevilla as lv
from lakevilla.engines.duckdb.writing import rewrite
from lakevilla.engines.duckdb.writing.rewrite import Marks
from lakevilla.global_log.head import HEAD_KEY
from lakevilla.store.runner import Requests
from tests.contract.foreign_readers import HAS_EXTENSIONS
from tests.contract.serve.gateway import Gateway, body_of_commit, serving
from tests.support.inside import inside
from tests.support.marked import V3, kept, rows
from tests.support.tables import accounts, in_order


def arrow(count: int, table: Table) -> pa.Table:
    return pa.Table.from_pylist(accounts(count), schema=table.schema().as_arrow())


def test_pyiceberg_appends_and_deletes_rows(lake: lv.Lake, gateway: Gateway) -> None:
    table = gateway.pyiceberg().load_table("root.stock")
    before = lake.history(1)[0].version
    table.append(arrow(3, table))
    assert lake.read("stock").num_rows == 5
    table.delete("id = 1")
    assert in_order(lake.read("stock")) == in_order(table.scan().to_arrow())
    assert lake.history(1)[0].version == before + 2


@pytest.mark.skipif(not HAS_EXTENSIONS, reason="needs DuckDB's extension for Iceberg")
def test_a_transaction_of_duckdb_over_two_tables_is_one_version(
    lake: lv.Lake, gateway: Gateway
) -> None:
    connection, before = gateway.duckdb(), lake.history(1)[0].version
    connection.execute("BEGIN")
    connection.execute("INSERT INTO l.root.stock VALUES (8, 80)")
    connection.execute("INSERT INTO l.sales.orders VALUES (9, 90)")
    connection.execute("UPDATE l.root.stock SET balance = 7 WHERE id = 1")
    assert lake.read("stock").num_rows == 2
    connection.execute("COMMIT")
    assert lake.history(1)[0].version == before + 1
    assert {row["id"]: row["balance"] for row in lake.read("stock").to_pylist()}[1] == 7
    assert 8 in lake.read("stock")["id"].to_pylist()
    assert 9 in lake.read("sales/orders")["id"].to_pylist()


def test_a_client_with_an_old_state_is_refused_and_nothing_is_done(
    lake: lv.Lake, gateway: Gateway
) -> None:
    one, other = (gateway.pyiceberg().load_table("root.stock") for _ in range(2))
    one.append(arrow(1, one))
    before = in_order(lake.read("stock"))
    with pytest.raises((CommitFailedException, ValidationException)):
        other.overwrite(arrow(1, other))
    assert in_order(lake.read("stock")) == before


def test_lakevilla_and_iceberg_clients_write_one_table(lake: lv.Lake) -> None:
    failures: list[Exception] = []
    with serving(lake) as one, serving(lake) as two:

        def append(gateway: Gateway) -> None:
            table = gateway.pyiceberg().load_table("root.stock")
            try:
                for _ in range(3):
                    for attempt in range(20):
                        try:
                            table.refresh()
                            table.append(arrow(1, table))
                            break
                        except CommitFailedException:
                            if attempt == 19:
                                raise
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=append, args=(gateway,)) for gateway in (one, two)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            lake.run(lambda txn: txn.append("stock", accounts(1)))
        for thread in threads:
            thread.join()
    assert not failures
    assert lake.read("stock").num_rows == 2 + 9
    assert not lake.doctor().findings


def test_a_warm_commit_of_two_tables_costs_eleven_gets_and_six_puts(
    lake: lv.Lake, gateway: Gateway
) -> None:
    """Of each table: list, manifest, a look at the log, and two before the entry is created."""
    for _ in range(2):
        changes = [appended(gateway, *name) for name in (("root", "stock"), ("sales", "orders"))]
        with inside(lake).requests.counting() as made:
            answer = gateway.ask(
                "/transactions/commit", method="POST", json={"table-changes": changes}
            )
        assert answer.status_code == 204, answer.text
    assert made == Requests(get=1 + 2 * 5, put=2 + 2 * 2)
    assert (lake.read("stock").num_rows, lake.read("sales/orders").num_rows) == (4, 5)


def appended(gateway: Gateway, namespace: str, name: str) -> dict[str, Any]:
    """Return the change by which pyiceberg appends a row; its files are stored."""
    table = gateway.pyiceberg().load_table((namespace, name))
    txn = table.transaction()
    txn.append(arrow(1, table))
    return {
        "identifier": {"namespace": [namespace], "name": name},
        "requirements": [json.loads(one.model_dump_json()) for one in txn._requirements],
        "updates": [
            json.loads(one.model_dump_json(exclude_none=True, by_alias=True))
            for one in txn._updates
        ],
    }


def sent(gateway: Gateway, table: str, **body: Any) -> tuple[int, str, str]:
    return gateway.refused(f"/namespaces/root/tables/{table}", method="POST", json=body)


def test_a_request_is_refused_by_what_is_wrong_with_it(lake: lv.Lake, gateway: Gateway) -> None:
    lake.create_table("plain", accounts(1), format="delta")
    update = [{"action": "set-properties", "updates": {"a": "b"}}]
    assert sent(gateway, "nix", updates=update)[0] == 404
    assert sent(gateway, "plain", updates=update)[:2] == (400, "BadRequestException")
    wrong = [{"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}]
    assert sent(gateway, "stock", requirements=wrong, updates=update)[0] == 409
    assert sent(gateway, "stock", updates=[{"action": "fly"}])[0] in (400, 406)
    assert sent(gateway, "stock", updates=[{}])[0] == 400
    assert sent(gateway, "stock", updates="x")[0] == 400
    assert sent(gateway, "stock", updates=update * 1001)[0] == 413
    created = [{"type": "assert-create"}]
    assert sent(gateway, "new", requirements=created, updates=update)[0] == 400
    outside = [{"action": "set-location", "location": "/elsewhere"}]
    assert sent(gateway, "stock", updates=outside)[0] == 400
    empty = {"method": "POST", "json": {"table-changes": []}}
    assert gateway.refused("/transactions/commit", **empty)[0] == 400


def test_a_keyed_request_is_done_once(lake: lv.Lake, gateway: Gateway) -> None:
    body = {"updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    path, key = "/namespaces/root/tables/stock", {"Idempotency-Key": "k1"}
    before = lake.history(1)[0].version
    for _ in range(2):
        answer = gateway.ask(path, method="POST", json=body, headers=key)
        assert answer.status_code == 200
        assert answer.json()["metadata"]["properties"]["a"] == "b"
    assert lake.history(1)[0].version == before + 1


def test_a_protected_lake_is_written_by_no_iceberg_client(lake: lv.Lake, gateway: Gateway) -> None:
    lake.protect_main()
    table = gateway.pyiceberg().load_table("root.stock")
    with pytest.raises(Exception, match="protected"):
        table.append(arrow(1, table))
    assert lake.read("stock").num_rows == 2


@pytest.mark.parametrize(
    "change", ["rename", "unregister", "a Delta table", "second name", "protect"]
)
def test_a_request_whose_answer_was_lost_is_not_refused_however_the_lake_has_changed(
    lake: lv.Lake, gateway: Gateway, change: str
) -> None:
    """After 4xx its client deletes the files, which the table has."""
    table = gateway.pyiceberg().load_table("root.stock")
    body = body_of_commit(table, lambda: table.append(arrow(1, table)))
    if change == "rename":
        lake.rename_table("stock", "old")
    elif change == "unregister":
        lake.unregister("stock")
    elif change == "a Delta table":
        lake.unregister("stock")
        lake.create_table("root/stock", accounts(1), format="delta")
    elif change == "protect":
        lake.protect_main()
    else:
        lake.create_table("root/stock", accounts(1), format="iceberg")
    headers = {"Content-Type": "application/json"}
    path = "/namespaces/root/tables/stock"
    answer = gateway.ask(path, method="POST", data=body, headers=headers)
    assert answer.status_code == (200 if change == "protect" else 500)


def test_a_gateway_of_an_older_version_refuses_no_commit_for_good(
    lake: lv.Lake, gateway: Gateway
) -> None:
    """A newer gateway may have done it: after 4xx its client would delete the files."""
    change = appended(gateway, "root", "stock")
    path = Path(lake.root, HEAD_KEY)
    head = json.loads(path.read_bytes())
    path.write_text(json.dumps({**head, "format": 99, "replacement": head["replacement"] + 1}))
    for one in ({}, {"method": "POST", "json": change}):
        status, _, message = gateway.refused("/namespaces/root/tables/stock", **one)
        assert (status, "upgrade lakevilla" in message) == (500, True)


def test_a_commit_to_a_delta_table_itself_is_refused(lake: lv.Lake, gateway: Gateway) -> None:
    """Its files lie in the table's directory, and nothing names them."""
    lake.create_table("plain", accounts(1), format="delta")
    table = gateway.pyiceberg().load_table("root.plain")
    listed = f"{table.location()}/metadata/snap-1.avro"
    snapshot = {"snapshot-id": 1, "manifest-list": listed}
    updates = [{"action": "add-snapshot", "snapshot": snapshot}]
    assert sent(gateway, "plain", updates=updates)[:2] == (400, "BadRequestException")


@pytest.mark.skipif(not HAS_EXTENSIONS, reason="needs DuckDB's extension for Iceberg")
def test_a_commit_that_drops_the_vector_of_a_file_that_stays_is_refused(
    lake: lv.Lake, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the deleted row of the other data file, whose vector is in the same object, is back."""
    monkeypatch.setattr(rewrite, "MARKS", Marks(0, 1.0, 2000, 1.0))
    lake.create_table("t", rows((1, "a"), (2, "b")), format="iceberg", properties=V3)
    lake.run(lambda txn: txn.append("t", rows((11, "a"), (12, "b"), (13, "c"))))
    lake.run(lambda txn: txn.delete("t", where="k in (1, 11)"))
    left, connection = kept(lake), gateway.duckdb()
    for where in ("k = 2", "k = 12"):
        with pytest.raises(duckdb.Error, match="would be back"):
            connection.execute(f"UPDATE l.root.t SET v = 'new' WHERE {where}")
        assert kept(lake) == left
    lake.table("t").optimize()
    connection.execute("UPDATE l.root.t SET v = 'new' WHERE k = 12")
    assert kept(lake) == {2: "b", 12: "new", 13: "c"}


def test_a_spec_by_which_no_manifest_can_be_written_is_refused(
    lake: lv.Lake, gateway: Gateway
) -> None:
    """A later commit would be decided, and never published: the table would be stuck."""
    fields = [
        {"source-id": source, "field-id": 999 + source, "transform": "identity", "name": "x"}
        for source in (1, 2)
    ]
    updates = [
        {"action": "add-spec", "spec": {"fields": fields}},
        {"action": "set-default-spec", "spec-id": -1},
    ]
    assert sent(gateway, "stock", updates=updates)[0] in (400, 406)
    lake.run(lambda txn: txn.append("stock", accounts(1)))
    assert gateway.ask("/namespaces/root/tables/stock").status_code == 200
