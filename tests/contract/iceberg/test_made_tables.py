"""Tables that an Iceberg client makes with rows: one version of the lake, and answered truly."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

import lakevilla as lv
from lakevilla.api.given import TableChange, TableWish, give, stage
from lakevilla.global_log.head import HEAD_KEY
from tests.contract.iceberg.test_given import MORE, ROWS, Silent, append, ids, lake, log
from tests.support.iceberg_client import IcebergClient
from tests.support.inside import inside
from tests.support.stores import InterruptedStore, is_head, unpublished

__all__ = ["lake"]


@pytest.fixture
def client(lake: lv.Lake) -> IcebergClient:
    return IcebergClient(lake)


def place(change: TableChange) -> str:
    """Return the name of the directory at which a request makes its table."""
    (found,) = [one["location"] for one in change.updates if one["action"] == "set-location"]
    return str(found).rpartition("/")[2]


def is_first_version(key: str) -> bool:
    return key.startswith("new-") and key.endswith("/metadata/v1.metadata.json")


def test_a_table_is_made_with_its_rows_beside_a_change_of_another(
    lake: lv.Lake, client: IcebergClient
) -> None:
    changes = [client.making("new", ROWS), client.request(client.load("t"), append)]
    before = len(lake.history())
    assert "new" not in lake
    assert give(lake, changes).outcome == "done"
    assert len(lake.history()) == before + 1
    assert (ids(lake, "new"), ids(lake)) == ([1, 2, 3], [1, 2, 3, 4])
    assert log(lake, place(changes[0])) == ["v1.metadata.json"]
    append(client.load("new"))
    lake.run(lambda txn: txn.delete("new", where="id = 1"))
    assert ids(lake, "new") == [2, 3, 4]
    assert not lake.doctor().findings


def test_a_table_of_version_3_is_made_without_rows(lake: lv.Lake, client: IcebergClient) -> None:
    wish = TableWish("new", client.load("t").schema().model_dump())
    parts = stage(lake, "new", wish)
    updates = [
        {"action": "assign-uuid", "uuid": parts["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 3},
        {"action": "set-location", "location": parts["location"]},
        {"action": "add-schema", "schema": parts["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    change = TableChange("new", [{"type": "assert-create"}], updates, makes=True)
    assert give(lake, [change]).outcome == "done"
    lake.run(lambda txn: txn.append("new", [{"id": 1, "v": "a"}]))
    assert ids(lake, "new") == [1]
    assert client.load("new").metadata.format_version == 3


def test_a_table_is_made_once_whoever_is_asked_again(lake: lv.Lake, client: IcebergClient) -> None:
    changes = [client.making("new", ROWS), client.request(client.load("t"), append)]
    assert give(lake, changes).outcome == "done"
    append(client.load("t"))
    lake.rename_table("new", "renamed")
    lake.create_table("new", ROWS, format="iceberg")
    before = len(lake.history())
    with lv.connect(lake.root) as other:
        assert give(other, changes).outcome == "done"
    assert len(lake.history()) == before
    assert ids(lake, "renamed") == [1, 2, 3]


def test_the_second_of_two_tables_of_one_name_is_refused(
    lake: lv.Lake, client: IcebergClient
) -> None:
    first, second = client.making("new", ROWS), client.making("new", MORE)
    also = client.request(client.load("t"), append)
    store = inside(lake).store

    def make_first() -> None:
        with lv.connect(lake.root) as other:
            assert give(other, [first]).outcome == "done"

    inside(lake).store = InterruptedStore(store, is_head, make_first)
    answer = give(lake, [second, also])
    assert answer.outcome == "exists"
    assert answer.message.startswith("Requirement failed: table already exists")
    assert (ids(lake, "new"), ids(lake)) == ([1, 2, 3], [1, 2, 3])


def test_a_table_that_is_decided_and_not_in_its_log_is_read_and_published(
    lake: lv.Lake, client: IcebergClient
) -> None:
    changes = [client.making("new", ROWS), client.request(client.load("t"), append)]
    with unpublished(lake, lambda key: key.endswith(".metadata.json")):
        assert give(lake, changes).outcome == "unknown"
    assert not log(lake, place(changes[0]))
    with lv.connect(lake.root) as other:
        assert ids(other, "new") == [1, 2, 3]
        assert give(other, changes).outcome == "done"
    assert log(lake, place(changes[0])) == ["v1.metadata.json"]


def test_a_table_whose_decision_has_no_answer_is_made_once(
    lake: lv.Lake, client: IcebergClient
) -> None:
    change = client.making("new", ROWS)
    settings = lv.Settings(retry_limit=1, retry_base_seconds=0.001)
    with lv.connect(lake.root, settings=settings) as gateway:
        gateway.tables()
        inside(gateway).store = Silent(inside(gateway).store)
        assert give(gateway, [change]).outcome == "unknown"
    assert give(lake, [change]).outcome == "done"
    assert ids(lake, "new") == [1, 2, 3]


def test_a_request_beside_a_table_that_another_client_began_is_never_refused(
    lake: lv.Lake, client: IcebergClient
) -> None:
    """The place is random, so only a client that watches the lake can do this."""
    change = client.making("new", ROWS)

    def begin() -> None:
        text = Path(lake.root, "t/metadata/v1.metadata.json").read_text()
        metadata = json.loads(text) | {"table-uuid": str(UUID(int=1)), "properties": {}}
        at = Path(lake.root, place(change), "metadata/v1.metadata.json")
        at.write_text(json.dumps(metadata | {"location": f"{lake.root}/{place(change)}"}))

    inside(lake).store = store = InterruptedStore(inside(lake).store, is_first_version, begin)
    also = client.request(client.load("t"), append)
    assert give(lake, [change, also]).outcome == "unknown", "t has its rows"
    assert store.happened
    assert ids(lake) == [1, 2, 3, 4]
    assert give(lake, [change, also]).outcome == "unknown"


@pytest.mark.parametrize("with_data", [False, True])
def test_a_request_whose_table_was_dropped_is_not_refused_while_its_files_stay(
    lake: lv.Lake, client: IcebergClient, with_data: bool
) -> None:
    change = client.making("new", ROWS)
    assert give(lake, [change]).outcome == "done"
    if with_data:
        lake.drop_table("new")
    else:
        lake.unregister("new")
    assert give(lake, [change]).outcome == "unknown"
    assert "new" not in lake


def test_a_refusal_of_a_table_replaces_head(lake: lv.Lake, client: IcebergClient) -> None:
    """An earlier write of the same request may be on its way: it never lands then."""
    made = client.making("new", ROWS)
    wrong = [*made.requirements, {"type": "assert-current-schema-id", "current-schema-id": 7}]

    def replacement() -> int:
        return int(json.loads(Path(lake.root, HEAD_KEY).read_bytes())["replacement"])

    before = replacement()
    assert give(lake, [replace(made, requirements=wrong)]).outcome == "conflict"
    assert replacement() == before + 1


def test_gc_keeps_the_files_of_a_table_that_is_staged(lake: lv.Lake, client: IcebergClient) -> None:
    change = client.making("new", ROWS)
    with lv.connect(lake.root, settings=lv.Settings(max_age_seconds=0)) as other:
        other.gc()
        with unpublished(lake, lambda key: key.endswith(".metadata.json")):
            assert give(lake, [change]).outcome == "unknown"
        other.gc()
    assert give(lake, [change]).outcome == "done"
    assert ids(lake, "new") == [1, 2, 3]
