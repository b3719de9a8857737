"""Bodies and paths that no client sends are answered, and say nothing of the gateway's inside.

Valid requests are changed at random: parts are left out, doubled, and become other values.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import requests

import lakevilla as lv
from tests.contract.serve.gateway import Gateway
from tests.support.search import first_seed, how_many
from tests.support.tables import accounts

_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "type": "long", "required": False}],
}
_SPEC = {
    "spec-id": 0,
    "fields": [{"source-id": 1, "field-id": 1000, "transform": "bucket[4]", "name": "b"}],
}
_ORDER = {
    "order-id": 1,
    "fields": [
        {"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
    ],
}
_SNAPSHOT = {
    "snapshot-id": 5,
    "sequence-number": 9,
    "timestamp-ms": 1,
    "manifest-list": "/x/metadata/l.avro",
    "summary": {"operation": "append"},
    "schema-id": 0,
}
_UPDATES: list[Mapping[str, Any]] = [
    {"action": "add-schema", "schema": _SCHEMA},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "add-spec", "spec": _SPEC},
    {"action": "set-default-spec", "spec-id": -1},
    {"action": "add-sort-order", "sort-order": _ORDER},
    {"action": "set-default-sort-order", "sort-order-id": -1},
    {"action": "add-snapshot", "snapshot": _SNAPSHOT},
    {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 5},
    {"action": "remove-snapshot-ref", "ref-name": "main"},
    {"action": "remove-snapshots", "snapshot-ids": [5]},
    {"action": "set-properties", "updates": {"a": "b"}},
    {"action": "remove-properties", "removals": ["a"]},
    {"action": "set-location", "location": "/elsewhere"},
    {"action": "upgrade-format-version", "format-version": 3},
    {"action": "assign-uuid", "uuid": "00000000-0000-0000-0000-000000000000"},
    {"action": "remove-schemas", "schema-ids": [0]},
    {"action": "remove-partition-specs", "spec-ids": [0]},
    {"action": "set-statistics", "statistics": {"snapshot-id": 5, "statistics-path": "/s"}},
]
_REQUIREMENTS: list[Mapping[str, Any]] = [
    {"type": "assert-create"},
    {"type": "assert-table-uuid", "uuid": "x"},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-default-spec-id", "default-spec-id": 0},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 1},
]
_WEIRD: list[Any] = [
    None,
    True,
    -1,
    0,
    2**63,
    1.5,
    "",
    "../../_lakevilla/HEAD.json",
    "/etc/passwd",
    "a\u0000b",
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    "x" * 5000,
    [],
    [[]],
    {},
    {"a": {"b": []}},
    {"type": "struct", "fields": []},
    {"type": "list", "element-id": 1, "element": "long"},
]
_TABLE = "/namespaces/root/tables/stock"
_NAMES = [
    "..",
    "../..",
    "_lakevilla",
    ".",
    "%2e%2e",
    "HEAD.json",
    "a\u0000",
    "stock/metadata",
    "x" * 300,
    "ä" * 90,
]


def drawn(random: random.Random) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of a request that a client may send."""
    updates = random.sample(_UPDATES, random.randint(1, 4))
    change = {"requirements": random.sample(_REQUIREMENTS, 1), "updates": updates}
    stock = {"namespace": ["root"], "name": "stock"}
    new = {"name": "new", "schema": _SCHEMA, "partition-spec": _SPEC, "write-order": _ORDER}
    requests: list[tuple[str, dict[str, Any]]] = [
        (_TABLE, change),
        (_TABLE, {**change, "requirements": []}),
        ("/transactions/commit", {"table-changes": [{"identifier": stock, **change}]}),
        ("/namespaces/sales/tables", new),
        ("/namespaces/sales/tables", {**new, "stage-create": True}),
        ("/namespaces", {"namespace": ["n"], "properties": {"a": "b"}}),
        ("/namespaces/sales/properties", {"updates": {"a": "b"}, "removals": ["c"]}),
        ("/namespaces/sales/register", {"name": "r", "metadata-location": "/x/metadata/v1"}),
        ("/tables/rename", {"source": stock, "destination": stock}),
        (f"{_TABLE}/metrics", {"report-type": "scan-report"}),
    ]
    return random.choice(requests)


def changed(random: random.Random, body: dict[str, Any]) -> dict[str, Any]:
    """Return a body with one part, somewhere, left out or something else."""
    body = copy.deepcopy(body)
    places = list(_places(body))
    for where, key in random.sample(places, min(len(places), random.choice([1, 1, 2]))):
        if random.random() < 0.2:
            where.pop(key) if isinstance(where, dict) else where.append(copy.deepcopy(where[key]))
        else:
            where[key] = random.choice(_WEIRD)
    return body


def _places(part: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(part, dict | list):
        for key in list(part) if isinstance(part, dict) else range(len(part)):
            yield part, key
            yield from _places(part[key])


def check(answer: requests.Response, asked: str) -> None:
    """Fail if an answer is no JSON of the protocol, or tells of the gateway's inside."""
    if answer.status_code in (200, 204):
        return
    assert 400 <= answer.status_code < 600, asked
    error = answer.json()["error"]
    assert error["code"] == answer.status_code, asked
    assert error["type"] != "InternalServerError", (asked, error)
    for word in ("Traceback", 'File "', ".py", "site-packages", "object at 0x"):
        assert word not in answer.text, (asked, answer.text)


@pytest.mark.parametrize("number", range(4))
def test_hostile_bodies_get_errors_of_the_protocol(
    lake: lv.Lake, gateway: Gateway, number: int
) -> None:
    with requests.Session() as session:
        for seed in range(how_many(40, whole=400, soak=10_000)):
            found = random.Random(f"{first_seed()} {number} {seed}")
            path, body = drawn(found)
            body = changed(found, body)
            asked = f"{number} {seed}: {path} {json.dumps(body)[:500]}"
            check(session.post(f"{gateway.uri}/v1{path}", json=body, timeout=60), asked)
    lake.run(lambda txn: txn.append("sales/orders", accounts(1)))
    assert lake.read("sales/orders").num_rows == 4


@pytest.mark.parametrize("name", _NAMES)
def test_a_name_leads_out_of_no_directory(lake: lv.Lake, gateway: Gateway, name: str) -> None:
    part = requests.utils.quote(name, safe="")
    for path in (f"/namespaces/{part}/tables/HEAD.json", f"/namespaces/root/tables/{part}"):
        check(gateway.ask(path), path)
        for method in ("HEAD", "DELETE"):
            assert gateway.ask(path, method=method).status_code in (400, 404)
    schema = {"name": name, "schema": _SCHEMA}
    check(gateway.ask(f"/namespaces/{part}/tables", method="POST", json=schema), name)
    made = gateway.ask("/namespaces/root/tables", method="POST", json=schema)
    check(made, name)
    if made.ok:
        place = made.json()["metadata"]["location"]
        assert place.removeprefix("file://").startswith(f"{lake.root.removeprefix('file://')}/")
        assert "_lakevilla" not in place.split("/")
        assert ".." not in place.split("/")
    lake.run(lambda txn: txn.append("stock", accounts(1)))
    assert lake.read("stock").num_rows == 3
