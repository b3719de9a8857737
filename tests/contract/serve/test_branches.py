"""Engines commit to the tables of a branch through the gateway, and the lake merges it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table
from pyiceberg.types import StringType

import lakevilla as lv
from tests.contract.foreign_readers import HAS_EXTENSIONS
from tests.contract.serve.gateway import Gateway, body_of_commit
from tests.support.tables import accounts, in_order


@pytest.fixture
def etl(lake: lv.Lake) -> lv.Lake:
    lake.branch("etl")
    return lake.on("etl")


def arrow(count: int, table: Table) -> pa.Table:
    return pa.Table.from_pylist(accounts(count), schema=table.schema().as_arrow())


def test_pyiceberg_writes_on_a_branch_that_is_merged(
    lake: lv.Lake, etl: lv.Lake, gateway: Gateway
) -> None:
    before = in_order(lake.read("stock"))
    table = gateway.pyiceberg("lake@etl").load_table("root.stock")
    assert "/_lakevilla/b/" in table.location()
    table.append(arrow(3, table))
    wanted = table.current_snapshot()
    table.delete("id = 1")
    table.append(arrow(1, table))
    with table.update_schema() as update:
        update.add_column("note", StringType())
    again = gateway.pyiceberg("lake@etl").load_table("root.stock")
    assert in_order(again.scan().to_arrow()) == in_order(etl.read("stock"))
    assert wanted is not None
    assert in_order(lake.read("stock")) == before
    on_branch = in_order(etl.read("stock"))
    lake.run(lambda txn: txn.append("sales/orders", accounts(1)))
    lake.merge("etl", delete=True)
    assert in_order(lake.read("stock")) == on_branch
    now = gateway.pyiceberg().load_table("root.stock")
    assert in_order(now.scan().to_arrow()) == on_branch
    assert not lake.doctor().findings


@pytest.mark.skipif(not HAS_EXTENSIONS, reason="needs DuckDB's extension for Iceberg")
def test_a_transaction_of_duckdb_is_one_version_of_the_branch(
    lake: lv.Lake, etl: lv.Lake, gateway: Gateway
) -> None:
    connection, before = gateway.duckdb("lake@etl"), len(etl.history())
    connection.execute("BEGIN")
    connection.execute("INSERT INTO l.root.stock VALUES (8, 80)")
    connection.execute("INSERT INTO l.sales.orders VALUES (9, 90)")
    connection.execute("COMMIT")
    assert len(etl.history()) == before + 1
    assert 8 in etl.read("stock")["id"].to_pylist()
    assert 9 in etl.read("sales/orders")["id"].to_pylist()
    assert 8 not in lake.read("stock")["id"].to_pylist()
    connection.execute("INSERT INTO l.root.stock VALUES (10, 100)")
    etl.run(lambda txn: txn.update("stock", {"balance": "1"}, where="id = 8"))
    found = in_order(connection.execute("FROM l.root.stock").to_arrow_table())
    assert found == in_order(etl.read("stock"))
    lake.merge("etl", delete=True)
    assert in_order(lake.read("stock")) == found


@pytest.mark.skipif(not HAS_EXTENSIONS, reason="needs DuckDB's extension for Iceberg")
@pytest.mark.parametrize("version", [2, 3])
def test_duckdb_updates_and_deletes_rows_on_a_branch_by_delete_files(
    lake: lv.Lake, gateway: Gateway, version: int
) -> None:
    """What lies in the branch's table are marks of LakeVilla, one object for each data file."""
    rows = [{"id": number, "balance": number} for number in range(20)]
    marks = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update")}
    lake.create_table(
        "t", rows[:10], format="iceberg", properties={"format-version": str(version), **marks}
    )
    lake.run(lambda txn: txn.append("t", rows[10:]))
    lake.branch("marks")
    branch, connection = lake.on("marks"), gateway.duckdb("lake@marks")

    def compare() -> None:
        found = in_order(connection.execute("FROM l.root.t").to_arrow_table())
        assert found == in_order(branch.read("t"))

    connection.execute("DELETE FROM l.root.t WHERE id IN (3, 13)")
    compare()
    connection.execute("UPDATE l.root.t SET balance = 0 WHERE id < 6")
    compare()
    branch.run(lambda txn: txn.delete("t", where="id = 15"))
    connection.execute("DELETE FROM l.root.t WHERE id = 16")
    compare()
    files = list(Path(lake.root, "t/_lakevilla/b").rglob("*"))
    assert any(
        one.name.endswith(".puffin" if version == 3 else "-deletes.parquet") for one in files
    )
    left = in_order(branch.read("t"))
    assert {row["id"] for row in left} == {*range(20)} - {3, 13, 15, 16}
    lake.merge("marks", delete=True)
    assert in_order(lake.read("t")) == left
    here = gateway.duckdb()
    assert in_order(here.execute("FROM l.root.t").to_arrow_table()) == left
    assert not lake.doctor().findings


def test_a_client_with_an_old_state_of_the_branch_is_refused(
    etl: lv.Lake, gateway: Gateway
) -> None:
    one, other = (gateway.pyiceberg("lake@etl").load_table("root.stock") for _ in range(2))
    one.append(arrow(1, one))
    before = in_order(etl.read("stock"))
    with pytest.raises((CommitFailedException, ValidationException)):
        other.overwrite(arrow(1, other))
    assert in_order(etl.read("stock")) == before


def sent(gateway: Gateway, state: str = "etl", **body: Any) -> tuple[int, str, str]:
    path = f"/{state}/namespaces/root/tables/stock"
    return gateway.refused(path, method="POST", json=body)


@pytest.mark.parametrize(
    "update",
    [
        {"action": "set-snapshot-ref", "ref-name": "x", "type": "tag", "snapshot-id": 1},
        {"action": "remove-snapshots", "snapshot-ids": [1]},
        {"action": "set-statistics", "statistics": {"snapshot-id": 1, "statistics-path": "x"}},
        {"action": "upgrade-format-version", "format-version": 3},
    ],
    ids=lambda one: one["action"],
)
def test_an_update_that_no_branch_has_is_refused_by_name(
    etl: lv.Lake, gateway: Gateway, update: dict[str, Any]
) -> None:
    status, kind, message = sent(gateway, updates=[update])
    assert (status, kind) == (406, "UnsupportedOperationException")
    assert update["action"] in message


def test_a_branch_takes_commits_and_no_new_names(etl: lv.Lake, gateway: Gateway) -> None:
    offered = gateway.ask("/config", params={"warehouse": "lake@etl"}).json()["endpoints"]
    assert "POST /v1/{prefix}/transactions/commit" in offered
    assert "POST /v1/{prefix}/tables/rename" not in offered
    stock = "/etl/namespaces/root/tables/stock"
    assert gateway.refused(stock, method="DELETE")[0] == 406
    made = {"namespace": ["new"]}
    assert gateway.refused("/etl/namespaces", method="POST", json=made)[0] == 406


def test_a_commit_on_a_branch_that_has_ended_is_never_refused_for_good(
    lake: lv.Lake, etl: lv.Lake, gateway: Gateway
) -> None:
    """It may have been merged: after a 404 the client would delete the lake's files."""
    table = gateway.pyiceberg("lake@etl").load_table("root.stock")
    table.append(arrow(3, table))
    lake.merge("etl", delete=True)
    status, kind, _ = sent(gateway, updates=[])
    assert (status, kind) == (500, "CommitStateUnknownException")
    assert gateway.ask("/etl/namespaces/root/tables/stock").status_code == 404
    lake.branch("etl")
    lake.on("etl").drop_table("stock")
    assert sent(gateway, updates=[])[:2] == (500, "CommitStateUnknownException")


def test_a_commit_that_was_merged_is_not_refused_by_a_tag_of_the_branch_s_name(
    lake: lv.Lake, etl: lv.Lake, gateway: Gateway
) -> None:
    """After 403 its client would delete files that the lake has by now."""
    table = gateway.pyiceberg("lake@etl").load_table("root.stock")
    body = body_of_commit(table, lambda: table.append(arrow(3, table)))
    lake.merge("etl", delete=True)
    lake.tag("etl")
    headers = {"Content-Type": "application/json"}
    path = "/etl/namespaces/root/tables/stock"
    status, kind, message = gateway.refused(path, method="POST", data=body, headers=headers)
    assert (status, kind) == (500, "CommitStateUnknownException")
    assert "may have been merged" in message
    assert sent(gateway, updates=[])[:2] == (403, "ForbiddenException")


def test_a_keyed_request_is_done_once_on_a_branch(etl: lv.Lake, gateway: Gateway) -> None:
    body = {"updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    path, key = "/etl/namespaces/root/tables/stock", {"Idempotency-Key": "k1"}
    before = len(etl.history())
    for _ in range(2):
        answer = gateway.ask(path, method="POST", json=body, headers=key)
        assert answer.status_code == 200, answer.text
        assert answer.json()["metadata"]["properties"]["a"] == "b"
    assert len(etl.history()) == before + 1


def test_a_client_s_files_are_kept_as_long_as_the_branch(
    lake: lv.Lake, etl: lv.Lake, gateway: Gateway
) -> None:
    table = gateway.pyiceberg("lake@etl").load_table("root.stock")
    table.append(arrow(3, table))
    with lv.connect(lake.root, settings=lv.Settings(max_age_seconds=0)) as other:
        other["stock"].vacuum(0, dry_run=False, enforce_retention_duration=False)
        other.gc()
        assert other.on("etl").read("stock").num_rows == 5
        files = list(Path(lake.root, "stock/_lakevilla/b").rglob("*.parquet"))
        other.delete_ref("etl")
        other.gc()
        other["stock"].vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert files
    assert not any(file.exists() for file in files)
