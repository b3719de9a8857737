"""Engines make tables in the lake through the gateway."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import FixedType, LongType, NestedField, StringType, StructType

import lakevilla as lv
from tests.contract.foreign_readers import HAS_EXTENSIONS
from tests.contract.serve.gateway import Gateway
from tests.support.tables import in_order

SCHEMA = Schema(
    NestedField(7, "id", LongType(), required=True),
    NestedField(9, "x", StructType(NestedField(11, "name", StringType())), required=False),
)


def test_pyiceberg_makes_a_table_and_writes_it(lake: lv.Lake, gateway: Gateway) -> None:
    spec = PartitionSpec(PartitionField(7, 1000, BucketTransform(4), "part"))
    catalog = gateway.pyiceberg()
    table = catalog.create_table("sales.new", SCHEMA, partition_spec=spec, properties={"k": "v"})
    rows = [{"id": number, "x": {"name": str(number)}} for number in range(10)]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    assert in_order(lake.read("sales/new")) == rows
    lake.run(lambda txn: txn.update("sales/new", {"x": "NULL"}, where="id = 3"))
    table.refresh()
    assert in_order(table.scan().to_arrow())[3] == {"id": 3, "x": None}
    assert table.properties["k"] == "v"
    assert not lake.doctor().findings


@pytest.mark.skipif(not HAS_EXTENSIONS, reason="needs DuckDB's extension for Iceberg")
def test_duckdb_makes_a_table(lake: lv.Lake, gateway: Gateway) -> None:
    connection = gateway.duckdb()
    connection.execute("CREATE SCHEMA l.lab")
    connection.execute("CREATE TABLE l.lab.t (id BIGINT, name VARCHAR)")
    connection.execute("INSERT INTO l.lab.t VALUES (1, 'a'), (2, 'b')")
    assert in_order(lake.read("lab/t")) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


@pytest.mark.parametrize(
    ("schema", "status", "why"),
    [
        (Schema(), 400, "has no columns"),
        (Schema(NestedField(1, "f", FixedType(4))), 406, "column f of the Iceberg type fixed[4]"),
    ],
    ids=["empty", "fixed"],
)
def test_a_table_that_lakevilla_could_not_write_is_refused_by_name(
    gateway: Gateway, schema: Schema, status: int, why: str
) -> None:
    wish = {"name": "new", "schema": schema.model_dump()}
    for staged in (False, True):
        body = {**wish, "stage-create": staged}
        refused = gateway.refused("/namespaces/sales/tables", method="POST", json=body)
        assert refused[0] == status
        assert why in refused[2]


def with_defaults(version: str) -> dict[str, Any]:
    """Return a request for a table whose fields have default values, at two depths."""
    inner = {"id": 12, "name": "n", "required": False, "type": "int", "initial-default": 8}
    kind = {"type": "struct", "fields": [inner]}
    fields = [
        {"id": 7, "name": "id", "required": True, "type": "long", "write-default": 5},
        {"id": 9, "name": "x", "required": False, "type": kind},
    ]
    schema = {"type": "struct", "fields": fields}
    return {"name": "new", "schema": schema, "properties": {"format-version": version}}


def test_default_values_of_fields_are_kept(lake: lv.Lake, gateway: Gateway) -> None:
    body = with_defaults("3")
    answer = gateway.ask("/namespaces/sales/tables", method="POST", json=body).json()
    first, second = answer["metadata"]["schemas"][0]["fields"]
    assert (first["write-default"], second["type"]["fields"][0]["initial-default"]) == (5, 8)
    lake.run(lambda txn: txn.append("sales/new", [{"x": None}]))
    assert lake.read("sales/new").to_pylist() == [{"id": 5, "x": None}]


def test_wrong_default_values_are_refused_and_so_are_those_of_version_2(gateway: Gateway) -> None:
    path = "/namespaces/sales/tables"
    assert gateway.refused(path, method="POST", json=with_defaults("2"))[0] == 400
    body = with_defaults("3")
    body["schema"]["fields"][0]["write-default"] = "five"
    assert gateway.refused(path, method="POST", json=body)[0] == 400


def staged(gateway: Gateway) -> dict[str, Any]:
    """Return a commit that makes the table which the gateway has staged."""
    body = {"name": "new", "schema": SCHEMA.model_dump(), "stage-create": True}
    answer = gateway.ask("/namespaces/sales/tables", method="POST", json=body).json()
    assert "metadata-location" not in answer
    made = answer["metadata"]
    return {
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": made["table-uuid"]},
            {"action": "set-location", "location": made["location"]},
            {"action": "add-schema", "schema": made["schemas"][0]},
            {"action": "set-current-schema", "schema-id": -1},
        ],
    }


def test_a_staged_table_is_made_once_by_its_commit(lake: lv.Lake, gateway: Gateway) -> None:
    first, second = staged(gateway), staged(gateway)
    assert "sales/new" not in lake
    path = "/namespaces/sales/tables/new"
    answers = [gateway.ask(path, method="POST", json=first) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert gateway.refused(path, method="POST", json=second)[0] == 409
    lake.run(lambda txn: txn.append("sales/new", [{"id": 1, "x": None}]))
    assert lake.read("sales/new").num_rows == 1


def test_a_staged_table_is_made_nowhere_else(lake: lv.Lake, gateway: Gateway) -> None:
    body = staged(gateway)
    path = "/namespaces/sales/tables/new"
    for location in (f"{lake.root}/stock", f"{lake.root}/sales/new", "/etc", "", f"{lake.root}/.."):
        body["updates"][1]["location"] = location
        status, _, message = gateway.refused(path, method="POST", json=body)
        assert status == 400, message
    assert "sales/new" not in lake


@pytest.mark.skipif(not HAS_EXTENSIONS, reason="needs DuckDB's extension for Iceberg")
def test_duckdb_makes_a_table_with_rows_in_one_version(lake: lv.Lake, gateway: Gateway) -> None:
    connection, before = gateway.duckdb(), lake.history(1)[0].version
    connection.execute("CREATE TABLE l.sales.new AS SELECT * FROM range(3) t(id)")
    assert sorted(lake.read("sales/new")["id"].to_pylist()) == [0, 1, 2]
    assert lake.history(1)[0].version == before + 1
    lake.run(lambda txn: txn.delete("sales/new", where="id = 1"))
    assert connection.execute("SELECT id FROM l.sales.new ORDER BY id").fetchall() == [(0,), (2,)]
    assert not lake.doctor().findings


def test_a_table_is_made_beside_changes_of_others_in_one_version(
    lake: lv.Lake, gateway: Gateway
) -> None:
    before = lake.history(1)[0].version
    change = [{"action": "set-properties", "updates": {"owner": "ann"}}]
    changes = [
        {"identifier": {"namespace": ["sales"], "name": "new"}, **staged(gateway)},
        {"identifier": {"namespace": ["root"], "name": "stock"}, "updates": change},
    ]
    body = {"table-changes": changes}
    assert gateway.ask("/transactions/commit", method="POST", json=body).status_code == 204
    assert lake.history(1)[0].version == before + 1
    assert lake.read("sales/new").num_rows == 0
    stock = gateway.ask("/namespaces/root/tables/stock").json()["metadata"]
    assert stock["properties"]["owner"] == "ann"


def test_a_name_is_free_once_its_table_is_dropped(lake: lv.Lake, gateway: Gateway) -> None:
    catalog = gateway.pyiceberg()
    for drop in (catalog.drop_table, catalog.purge_table, catalog.drop_table):
        catalog.create_table("sales.new", SCHEMA)
        with pytest.raises(TableAlreadyExistsError):
            catalog.create_table("sales.new", SCHEMA)
        drop("sales.new")
    assert not lake.doctor().findings


def test_a_table_is_made_in_a_namespace_that_exists(gateway: Gateway) -> None:
    with pytest.raises(NoSuchNamespaceError):
        gateway.pyiceberg().create_table("nix.new", SCHEMA)


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_client_chooses_the_version_of_the_format(
    lake: lv.Lake, gateway: Gateway, version: str
) -> None:
    body = {"name": "new", "schema": SCHEMA.model_dump(), "properties": {"format-version": version}}
    answer = gateway.ask("/namespaces/sales/tables", method="POST", json=body)
    assert answer.json()["metadata"]["format-version"] == int(version)
    lake.run(lambda txn: txn.append("sales/new", [{"id": 1, "x": None}]))
    assert lake.read("sales/new").num_rows == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"name": ""},
        {"schema": None},
        {"schema": {"type": "struct"}},
        {"schema": {"type": "struct", "fields": [{"id": 1, "name": "a", "type": "magic"}]}},
        {"schema": {"type": "struct", "fields": []}},
        {"partition-spec": {"fields": [{"source-id": 99, "transform": "identity", "name": "p"}]}},
        {"partition-spec": {"fields": [{"source-id": 7, "transform": "magic", "name": "p"}]}},
        {"write-order": {"order-id": 1, "fields": [{"source-id": 99}]}},
        {"properties": {"format-version": "1"}},
        {"properties": {"lakevilla.x": "y"}},
        {"properties": {"a": 1}},
    ],
)
def test_a_wrong_table_is_refused(lake: lv.Lake, gateway: Gateway, wrong: dict[str, Any]) -> None:
    body = {"name": "new", "schema": SCHEMA.model_dump(), **wrong} if wrong else {}
    status, _, message = gateway.refused("/namespaces/sales/tables", method="POST", json=body)
    assert status in (400, 406), message
    assert "sales/new" not in lake


@pytest.mark.parametrize("name", ["p.q", "..2", "v1.0.1"])
def test_a_dot_is_part_of_a_name(lake: lv.Lake, gateway: Gateway, name: str) -> None:
    catalog, tables = gateway.pyiceberg(), "/namespaces/root/tables"
    catalog.create_table(("root", name), SCHEMA)
    catalog.rename_table("root.stock", ("root", f"{name}.a"))
    found = {one["name"] for one in gateway.ask(tables).json()["identifiers"]}
    assert found == {name, f"{name}.a"}
    assert catalog.load_table(("root", f"{name}.a")).scan().to_arrow().num_rows == 2
    catalog.rename_table(("root", f"{name}.a"), "root.stock")
    assert lake.read("stock").num_rows == 2
    catalog.drop_table(("root", name))
    assert [one["name"] for one in gateway.ask(tables).json()["identifiers"]] == ["stock"]
