"""Commits of Iceberg clients: decided in HEAD, published as they are, and answered truly."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestFile, write_manifest, write_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.types import StringType

import lakevilla as lv
from lakevilla.api.given import Answer, TableChange, give
from lakevilla.formats.iceberg import table_format
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from lakevilla.global_log.head import HEAD_KEY
from lakevilla.store.base import (
    Condition,
    Failure,
    GetOutcome,
    Refused,
    Stored,
    Token,
    WrappedStore,
)
from tests.support.iceberg_client import IcebergClient
from tests.support.inside import inside
from tests.support.stores import InterruptedStore, interrupted, is_head, unpublished

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "v": ["a", "b", "c"]})
MORE = pa.table({"id": pa.array([4], pa.int64()), "v": ["d"]})
OTHERS = pa.table({"id": pa.array([9], pa.int64()), "v": ["z"]})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path / "lake") as lake:
        for name in ("t", "u"):
            lake.create_table(name, ROWS, format="iceberg")
        yield lake


@pytest.fixture
def client(lake: lv.Lake) -> IcebergClient:
    return IcebergClient(lake)


def ids(lake: lv.Lake, name: str = "t") -> list[int]:
    return sorted(lake.table(name).read()["id"].to_pylist())


def log(lake: lv.Lake, name: str = "t") -> list[str]:
    """Return the names of a table's versions."""
    return sorted(one.name for one in Path(lake.root, name, "metadata").glob("v*.metadata.json"))


def append(table: Table, rows: pa.Table = MORE) -> None:
    table.append(rows)


def by_foreign_client(lake: lv.Lake, change: Callable[[Table], object], name: str = "t") -> None:
    """Commit as a client of the directory does, which knows no lake."""
    change(ObjectStoreCatalog("foreign", warehouse=lake.root).load_table(name))


def with_foreign(
    lake: lv.Lake, change: Callable[[Table], object], before: Callable[[str], bool], name: str = "t"
) -> InterruptedStore:
    """Have a foreign client commit just before a write of the lake's next request."""
    store = InterruptedStore(
        inside(lake).store, before, lambda: by_foreign_client(lake, change, name)
    )
    inside(lake).store = store
    return store


def is_version(key: str, name: str = "t") -> bool:
    return key.startswith(f"{name}/metadata/v") and key.endswith(".metadata.json")


def snapshot_of(change: TableChange) -> dict[str, Any]:
    (found,) = [one["snapshot"] for one in change.updates if one["action"] == "add-snapshot"]
    return dict(found)


# -- one table -----------------------------------------------------------------------


def test_a_client_s_snapshot_keeps_its_id_and_its_list(
    lake: lv.Lake, client: IcebergClient
) -> None:
    table = client.load("t")
    change = client.request(table, append)
    wanted = snapshot_of(change)
    assert give(lake, [change]).outcome == "done"
    now = client.load("t").current_snapshot()
    assert now is not None
    assert (now.snapshot_id, now.manifest_list) == (wanted["snapshot-id"], wanted["manifest-list"])
    assert ids(lake) == [1, 2, 3, 4]
    assert client.load("t").scan().to_arrow()["id"].to_pylist() == [4, 1, 2, 3]


def delete_a_row(table: Table) -> None:
    table.delete("id = 2")


def overwrite_all(table: Table) -> None:
    table.overwrite(MORE)


def add_a_column(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("w", StringType())


def partition_by_id(table: Table) -> None:
    with table.update_spec() as update:
        update.add_identity("id")


def tag(table: Table) -> None:
    current = table.current_snapshot()
    assert current is not None
    with table.manage_snapshots() as manage:
        manage.create_tag(current.snapshot_id, "first")


def set_a_property(table: Table) -> None:
    with table.transaction() as txn:
        txn.set_properties({"owner": "ann"})


def append_and_tag(table: Table) -> None:
    with table.transaction() as txn:
        txn.append(MORE)
        current = txn.table_metadata.current_snapshot_id
        assert current is not None
        with ManageSnapshots(transaction=txn) as manage:
            manage.create_tag(current, "first")


CHANGES: dict[str, tuple[Callable[[Table], object], list[int]]] = {
    "append": (append, [1, 2, 3, 4]),
    "delete": (delete_a_row, [1, 3]),
    "overwrite": (overwrite_all, [4]),
    "column": (add_a_column, [1, 2, 3]),
    "spec": (partition_by_id, [1, 2, 3]),
    "tag": (tag, [1, 2, 3]),
    "append and tag": (append_and_tag, [1, 2, 3, 4]),
    "property": (set_a_property, [1, 2, 3]),
}


#: pyiceberg writes no rows of version 3.
OF_VERSION_3 = ("column", "spec", "tag", "property")


@pytest.mark.parametrize(
    ("name", "version"),
    [*((name, "2") for name in CHANGES), *((name, "3") for name in OF_VERSION_3)],
)
def test_a_client_s_change_is_one_version_of_the_table_and_of_the_lake(
    tmp_path: Path, name: str, version: str
) -> None:
    change, wanted = CHANGES[name]
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("t", ROWS, format="iceberg", properties={"format-version": version})
        client, versions = IcebergClient(lake), len(lake.history())
        table = client.load("t")
        before = log(lake)
        change(table)
        assert client.answers[-1].outcome == "done"
        assert len(log(lake)) == len(before) + len(client.answers)
        assert len(lake.history()) == versions + len(client.answers)
        assert ids(lake) == wanted
        lake.run(lambda txn: txn.append("t", [{"id": 9, "v": "z"}]))
        assert ids(lake) == sorted([*wanted, 9]), "LakeVilla goes on from there"
        now = client.load("t")
        if name.endswith("tag"):
            assert "first" in now.metadata.refs
        if name == "property":
            assert now.metadata.properties["owner"] == "ann"
        if name == "column":
            assert "w" in lake.table("t").read().column_names


def test_a_client_whose_state_is_old_is_refused_and_nothing_changes(
    lake: lv.Lake, client: IcebergClient
) -> None:
    change = client.request(client.load("t"), append)
    append(client.load("t"), OTHERS)
    before = log(lake)
    answer = give(lake, [change])
    assert answer.outcome == "conflict"
    assert "branch main has changed: expected id" in answer.message
    assert log(lake) == before
    assert ids(lake) == [1, 2, 3, 9]


def test_a_client_that_is_refused_loads_the_table_again_and_repeats(
    lake: lv.Lake, client: IcebergClient
) -> None:
    old = client.load("t")
    append(client.load("t"), OTHERS)
    append(old)
    assert [one.outcome for one in client.answers] == ["done", "conflict", "done"]
    assert ids(lake) == [1, 2, 3, 4, 9]


def test_a_request_that_is_sent_again_is_done_and_not_done_twice(
    lake: lv.Lake, client: IcebergClient
) -> None:
    change = client.request(client.load("t"), append)
    assert give(lake, [change]).outcome == "done"
    before = log(lake)
    append(client.load("t"), OTHERS)
    again = give(lake, [change])
    assert again.outcome == "done"
    assert len(log(lake)) == len(before) + 1
    assert ids(lake) == [1, 2, 3, 4, 9]


def test_a_load_publishes_what_is_pending_and_older_states_are_refused(
    lake: lv.Lake, client: IcebergClient
) -> None:
    change = client.request(client.load("t"), append)
    with unpublished(lake, is_version):
        lake.run(lambda txn: txn.append("t", [{"id": 7, "v": "y"}]))
    before = log(lake)
    assert give(lake, [change]).outcome == "conflict"
    assert len(log(lake)) == len(before) + 1
    append(client.load("t"))
    assert ids(lake) == [1, 2, 3, 4, 7]


# -- several tables --------------------------------------------------------------------


def test_changes_of_two_tables_are_one_version_of_the_lake(
    lake: lv.Lake, client: IcebergClient
) -> None:
    changes = [client.request(client.load(name), append) for name in ("t", "u")]
    before = len(lake.history())
    answer = give(lake, changes)
    assert (answer.outcome, set(answer.tables)) == ("done", {"t", "u"})
    assert len(lake.history()) == before + 1
    assert (ids(lake, "t"), ids(lake, "u")) == ([1, 2, 3, 4], [1, 2, 3, 4])


def test_a_requirement_that_fails_on_one_table_leaves_all_of_them(
    lake: lv.Lake, client: IcebergClient
) -> None:
    changes = [client.request(client.load(name), append) for name in ("t", "u")]
    append(client.load("u"), OTHERS)
    assert give(lake, changes).outcome == "conflict"
    assert (ids(lake, "t"), ids(lake, "u")) == ([1, 2, 3], [1, 2, 3, 9])


def test_a_request_relies_on_a_table_that_it_does_not_change(
    lake: lv.Lake, client: IcebergClient
) -> None:
    written = client.request(client.load("t"), append)
    relied = client.request(client.load("u"), append)
    relied = TableChange("u", relied.requirements)
    assert relied.requirements
    append(client.load("u"), OTHERS)
    assert give(lake, [written, relied]).outcome == "conflict"
    assert ids(lake, "t") == [1, 2, 3]
    relied = TableChange("u", client.request(client.load("u"), append).requirements)
    before = log(lake, "u")
    assert give(lake, [written, relied]).outcome == "done"
    assert ids(lake, "t") == [1, 2, 3, 4]
    assert log(lake, "u") == before


def test_a_table_that_is_relied_on_is_compared_in_the_head_that_is_replaced(
    lake: lv.Lake, client: IcebergClient
) -> None:
    written = client.request(client.load("t"), append)
    relied = TableChange("u", client.request(client.load("u"), append).requirements)
    with lv.connect(lake.root) as other:

        def meanwhile() -> None:
            other.run(lambda txn: txn.append("u", [{"id": 9, "v": "z"}]))

        with interrupted(lake, is_head, meanwhile):
            answer = give(lake, [written, relied])
    assert answer.outcome == "conflict"
    assert (ids(lake, "t"), ids(lake, "u")) == ([1, 2, 3], [1, 2, 3, 9])


def test_a_table_that_is_relied_on_is_looked_at_before_head_is_replaced(
    lake: lv.Lake, client: IcebergClient
) -> None:
    """The process knows the state on which the request relies, and not the foreign one above it."""
    written = client.request(client.load("t"), append)
    relied = TableChange("u", client.request(client.load("u"), append).requirements)
    by_foreign_client(lake, lambda table: append(table, OTHERS), "u")
    assert give(lake, [written, relied]).outcome == "conflict"
    assert (ids(lake, "t"), ids(lake, "u")) == ([1, 2, 3], [1, 2, 3, 9])


def test_two_changes_of_one_table_are_put_together_in_their_order(
    lake: lv.Lake, client: IcebergClient
) -> None:
    table = client.load("t")
    changes = [client.request(table, append), client.request(table, set_a_property)]
    before = log(lake)
    assert give(lake, changes).outcome == "done"
    assert len(log(lake)) == len(before) + 1
    assert client.load("t").metadata.properties["owner"] == "ann"


# -- foreign clients between HEAD and the log ----------------------------------------------


def test_files_follow_a_foreign_version_under_the_client_s_snapshot_id(
    lake: lv.Lake, client: IcebergClient
) -> None:
    change = client.request(client.load("t"), append)
    wanted = snapshot_of(change)
    store = with_foreign(lake, lambda table: append(table, OTHERS), is_version)
    answer = give(lake, [change])
    assert store.happened
    assert answer.outcome == "done", answer
    now = client.load("t").current_snapshot()
    assert now is not None
    assert now.snapshot_id == wanted["snapshot-id"]
    assert now.manifest_list != wanted["manifest-list"]
    assert ids(lake) == [1, 2, 3, 4, 9]
    assert sorted(client.load("t").scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 9]
    assert give(lake, [change]).outcome == "done", "asked again"


@pytest.mark.parametrize(
    "change", [tag, append_and_tag, set_a_property, add_a_column, overwrite_all]
)
def test_a_change_of_its_version_alone_is_void_on_a_foreign_one_and_refused(
    lake: lv.Lake, client: IcebergClient, change: Callable[[Table], object]
) -> None:
    request = client.request(client.load("t"), change)
    store = with_foreign(lake, overwrite_all_by_others, is_version)
    answer = give(lake, [request])
    assert store.happened
    assert answer.outcome == "conflict", answer
    assert ids(lake) == [9]
    now = client.load("t").metadata
    assert set(now.refs) == {"main"}
    assert "owner" not in now.properties


def overwrite_all_by_others(table: Table) -> None:
    table.overwrite(OTHERS)


def test_a_request_that_is_void_on_one_of_two_tables_is_never_refused(
    lake: lv.Lake, client: IcebergClient
) -> None:
    changes = [
        client.request(client.load("t"), overwrite_all),
        client.request(client.load("u"), append),
    ]
    store = with_foreign(lake, overwrite_all_by_others, is_version)
    answer = give(lake, changes)
    assert store.happened
    assert answer.outcome == "unknown"
    assert "clients without lakevilla have changed t" in answer.message
    assert (ids(lake, "t"), ids(lake, "u")) == ([9], [1, 2, 3, 4])
    assert give(lake, changes).outcome == "unknown", "asked again"


def test_a_request_that_is_void_on_a_table_without_a_snapshot_is_never_done(
    lake: lv.Lake, client: IcebergClient
) -> None:
    changes = [
        client.request(client.load("t"), append),
        client.request(client.load("u"), set_a_property),
    ]
    store = with_foreign(lake, lambda t: append(t, OTHERS), lambda k: is_version(k, "u"), "u")
    assert give(lake, changes).outcome == "unknown"
    assert store.happened
    again = give(lake, changes)
    assert again.outcome == "unknown", "asked again: t has its snapshot, u not its property"
    assert "have changed u" in again.message
    assert "owner" not in client.load("u").metadata.properties


def test_a_request_with_a_table_without_a_snapshot_is_done_once(
    lake: lv.Lake, client: IcebergClient
) -> None:
    changes = [
        client.request(client.load("t"), append),
        client.request(client.load("u"), set_a_property),
    ]
    assert give(lake, changes).outcome == "done"
    before = log(lake, "u")
    lake.run(lambda txn: txn.append("t", [{"id": 7, "v": "y"}]))
    assert give(lake, changes).outcome == "done", "asked again"
    assert log(lake, "u") == before
    assert ids(lake) == [1, 2, 3, 4, 7]


def test_a_refusal_by_a_version_that_head_does_not_know_replaces_head(
    lake: lv.Lake, client: IcebergClient
) -> None:
    change = client.request(client.load("t"), append)
    before = replacement(lake)
    by_foreign_client(lake, lambda table: append(table, OTHERS))
    assert give(lake, [change]).outcome == "conflict"
    assert replacement(lake) == before + 1
    append(client.load("t"))
    before = replacement(lake)
    with lv.connect(lake.root) as other:  # a second refusal here would reserve the table
        assert give(other, [change]).outcome == "conflict"
        assert replacement(other) == before, "HEAD knows what it was refused by"


def replacement(lake: lv.Lake) -> int:
    return int(json.loads(Path(lake.root, HEAD_KEY).read_bytes())["replacement"])


class Silent(WrappedStore):
    """Store HEAD, and answer nothing from then on."""

    is_silent = False

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if not self.is_silent:
            outcome = self.inner.put(key, body, condition)
            if not key.endswith("HEAD.json"):  # of the lake, or of a branch
                return outcome
        self.is_silent = True
        return Failure("no answer")

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        return Failure("no answer") if self.is_silent else self.inner.get(key, known, byte_range)


def test_a_request_whose_decision_has_no_answer_is_never_refused(
    lake: lv.Lake, client: IcebergClient
) -> None:
    change = client.request(client.load("t"), append)
    settings = lv.Settings(retry_limit=1, retry_base_seconds=0.001)
    with lv.connect(lake.root, settings=settings) as gateway:
        gateway.tables()
        inside(gateway).store = Silent(inside(gateway).store)
        assert give(gateway, [change]).outcome == "unknown"
    assert give(lake, [change]).outcome == "done", "asked again, of another process"
    assert ids(lake) == [1, 2, 3, 4]


class Full(WrappedStore):
    """Take no version of the table t, as if other clients were always first."""

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        is_version = key.startswith("t/metadata/v") and key.endswith(".metadata.json")
        return Refused() if is_version else self.inner.put(key, body, condition)


def test_a_request_that_is_in_no_log_in_time_is_not_done(
    lake: lv.Lake, client: IcebergClient
) -> None:
    change = client.request(client.load("t"), append)
    impatient = lv.Settings(publish_timeout_seconds=0.01, retry_base_seconds=0.001)
    with lv.connect(lake.root, settings=impatient) as gateway:
        gateway.tables()
        inside(gateway).store = Full(inside(gateway).store)
        assert give(gateway, [change]).outcome == "unknown"
    assert give(lake, [change]).outcome == "done", "asked again"
    assert ids(lake) == [1, 2, 3, 4]


@pytest.mark.cases(None)
@pytest.mark.parametrize("replaced", [False, True])
def test_a_request_for_a_table_that_has_left_the_lake_is_not_refused(
    replaced: bool, lake: lv.Lake, client: IcebergClient
) -> None:
    """It may have taken effect before: a refused client deletes what are the table's files."""
    lake.rename_table("t", "named")
    change = client.request(client.load("named"), append)
    assert give(lake, [change]).outcome == "done"
    lake.unregister("named")
    if replaced:
        lake.rename_table("u", "named")
    assert give(lake, [change]).outcome == "unknown"
    without_rows = TableChange("named", change.requirements, [])
    assert give(lake, [without_rows]).outcome == ("conflict" if replaced else "missing")


# -- what is refused -------------------------------------------------------------------


def refusal(lake: lv.Lake, *updates: dict[str, Any], table: str = "t") -> Answer:
    return give(lake, [TableChange(table, (), updates)])


def test_an_unknown_update_is_refused_by_name(lake: lv.Lake) -> None:
    answer = refusal(lake, {"action": "make-coffee"})
    assert answer.outcome == "invalid"
    assert "'make-coffee'" in answer.message


def test_a_manifest_list_elsewhere_is_refused(lake: lv.Lake, client: IcebergClient) -> None:
    change = client.request(client.load("t"), append)
    updates = [dict(one) for one in change.updates]
    for one in updates:
        if one["action"] == "add-snapshot":
            one["snapshot"] = {**one["snapshot"], "manifest-list": "/tmp/elsewhere.avro"}
    answer = give(lake, [TableChange("t", change.requirements, updates)])
    assert answer.outcome == "invalid"
    assert "/tmp/elsewhere.avro is not in the directory of table t" in answer.message


def test_a_data_file_elsewhere_is_taken_by_a_lake_that_reads_there(
    lake: lv.Lake, client: IcebergClient, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    pq.write_table(MORE, elsewhere / "more.parquet")
    path = str(elsewhere / "more.parquet")
    change = client.request(client.load("t"), lambda table: table.add_files([path]))
    answer = give(lake, [change])
    assert answer.outcome == "invalid"
    assert f"{path} is not in the directory of table t" in answer.message
    with lv.connect(lake.root, files_outside=[str(elsewhere)]) as allowed:
        assert give(allowed, [change]).outcome == "done"
        assert ids(allowed) == [1, 2, 3, 4]
    with lv.connect(lake.root) as strict, pytest.raises(lv.InvalidOperation, match="files_outside"):
        strict.table("t").read()


def test_a_manifest_list_that_is_missing_or_of_another_table_is_refused(
    lake: lv.Lake, client: IcebergClient
) -> None:
    change = client.request(client.load("t"), append)
    answer = give(lake, [TableChange("u", (), change.updates)])
    assert answer.outcome == "invalid"
    assert "is not in the directory of table u" in answer.message
    Path(snapshot_of(change)["manifest-list"].removeprefix("file://")).unlink()
    answer = give(lake, [change])
    assert answer.outcome == "invalid"
    assert "can't be read" in answer.message
    assert ids(lake) == [1, 2, 3]


def test_a_snapshot_that_a_ref_keeps_is_not_removed(lake: lv.Lake, client: IcebergClient) -> None:
    first = client.load("t").metadata.current_snapshot_id
    lake.tag("kept")
    append(client.load("t"))
    removal = {"action": "remove-snapshots", "snapshot-ids": [first]}
    answer = refusal(lake, removal)
    assert answer.outcome == "invalid"
    assert f"a ref of the lake keeps snapshot {first}" in answer.message
    lake.delete_ref("kept")
    assert refusal(lake, removal).outcome == "done"
    assert [one.snapshot_id for one in client.load("t").metadata.snapshots] != [first]
    assert len(client.load("t").metadata.snapshots) == 1


def test_a_ref_that_is_made_just_before_head_is_replaced_keeps_its_snapshot(
    lake: lv.Lake, client: IcebergClient
) -> None:
    first = client.load("t").metadata.current_snapshot_id
    with lv.connect(lake.root) as other:
        version = other.history()[0].version
        append(client.load("t"))
        with interrupted(lake, is_head, lambda: other.tag("kept", at=version)):
            answer = refusal(lake, {"action": "remove-snapshots", "snapshot-ids": [first]})
        assert answer.outcome == "invalid"
        assert sorted(other.on("kept").table("t").read()["id"].to_pylist()) == [1, 2, 3]


def test_a_table_that_is_moved_is_refused(lake: lv.Lake) -> None:
    answer = refusal(lake, {"action": "set-location", "location": "/tmp/elsewhere"})
    assert answer.outcome == "invalid"
    assert "can't be moved" in answer.message


def test_a_delta_table_takes_no_commit_of_an_iceberg_client(lake: lv.Lake) -> None:
    lake.create_table("d", ROWS)
    answer = refusal(lake, {"action": "set-properties", "updates": {"a": "b"}}, table="d")
    assert answer.outcome == "unsupported"
    assert "d is a Delta table" in answer.message


def test_a_table_that_is_not_there_is_missing(lake: lv.Lake) -> None:
    assert refusal(lake, table="none").outcome == "missing"


def test_a_protected_main_takes_no_commit_of_an_iceberg_client(lake: lv.Lake) -> None:
    lake.protect_main()
    answer = refusal(lake, {"action": "set-properties", "updates": {"a": "b"}})
    assert answer.outcome == "protected"


def test_a_table_is_not_made_unwritable_for_lakevilla(lake: lv.Lake) -> None:
    answer = refusal(lake, {"action": "set-properties", "updates": {"write.data.path": "/tmp/x"}})
    assert answer.outcome == "unsupported"
    assert "write.data.path" in answer.message


# -- formats, keys, clean-up -----------------------------------------------------------


def test_the_first_given_commit_makes_older_clients_refuse_head_and_the_commit(
    lake: lv.Lake, client: IcebergClient
) -> None:
    def formats() -> tuple[int, set[int]]:
        head = json.loads(Path(lake.root, HEAD_KEY).read_bytes())
        commits = Path(lake.root, "_lakevilla/commits").glob("*.json")
        return head["format"], {json.loads(one.read_bytes())["format"] for one in commits}

    before = formats()
    assert before[0] < 5
    assert 4 not in before[1]
    append(client.load("t"))
    assert formats() == (5, {*before[1], 4})
    lake.run(lambda txn: txn.append("t", [{"id": 9, "v": "z"}]))
    assert formats() == (5, {*before[1], 4}), "never back"


def test_a_key_that_has_committed_answers_by_what_became_of_it(
    lake: lv.Lake, client: IcebergClient
) -> None:
    update = TableChange("t", (), [{"action": "set-properties", "updates": {"a": "1"}}])
    assert give(lake, [update], key="k1").outcome == "done"
    before = log(lake)
    assert give(lake, [update], key="k1").outcome == "done"
    assert log(lake) == before
    assert give(lake, [update], key="k2").outcome == "done"
    assert len(log(lake)) == len(before) + 1


def test_vacuum_keeps_what_a_decided_and_unpublished_commit_names(
    lake: lv.Lake, client: IcebergClient
) -> None:
    change = with_statistics(lake, client.request(client.load("t"), append))

    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    inside(lake).store = InterruptedStore(inside(lake).store, is_version, die)
    with pytest.raises(Died):
        give(lake, [change])
    with lv.connect(lake.root) as other:
        assert ids(other) == [1, 2, 3, 4], "decided, and in no log"
        other.table("t").vacuum(0, dry_run=False, enforce_retention_duration=False)
        other.recover()
        assert ids(other) == [1, 2, 3, 4]
        now = IcebergClient(other).load("t")
        assert [one.snapshot_id for one in now.metadata.statistics] == [
            now.metadata.current_snapshot_id
        ]
        assert now.metadata.current_snapshot_id == snapshot_of(change)["snapshot-id"]
        assert Path(lake.root, STATISTICS).exists()
        assert give(other, [change]).outcome == "done"


STATISTICS = "t/metadata/of-the-client.puffin"


def with_statistics(lake: lv.Lake, change: TableChange) -> TableChange:
    """Return a request that also sets statistics of its snapshot, in a file that is stored."""
    Path(lake.root, STATISTICS).write_bytes(b"PFA1")
    one = {
        "snapshot-id": snapshot_of(change)["snapshot-id"],
        "statistics-path": f"{lake.root}/{STATISTICS}",
        "file-size-in-bytes": 4,
        "file-footer-size-in-bytes": 0,
        "blob-metadata": [],
    }
    update = {"action": "set-statistics", "statistics": one}
    return TableChange(change.table, change.requirements, [*change.updates, update])


def test_a_request_that_is_decided_is_not_refused_by_a_log_that_takes_no_version(
    lake: lv.Lake, client: IcebergClient
) -> None:
    change = client.request(client.load("t"), append)
    with unpublished(lake, is_version):
        assert give(lake, [change]).outcome == "unknown"
    metadata = Path(lake.root, "t/metadata")
    compressed = metadata / "v2.gz.metadata.json"
    compressed.write_bytes(gzip.compress((metadata / "v1.metadata.json").read_bytes()))
    with lv.connect(lake.root) as other:
        answer = give(other, [change])
        assert answer.outcome == "unknown"
        assert "compressed" in answer.message
        compressed.unlink()
        assert give(other, [change]).outcome == "done"
    assert ids(lake) == [1, 2, 3, 4]


def test_a_request_with_a_key_that_begins_again_does_not_wait_for_itself(
    lake: lv.Lake, client: IcebergClient
) -> None:
    change = client.request(client.load("t"), set_a_property)
    change = TableChange("t", (), change.updates)
    with lv.connect(lake.root) as other:

        def meanwhile() -> None:
            other.run(lambda txn: txn.append("t", OTHERS))

        began = time.monotonic()
        with interrupted(lake, is_head, meanwhile):
            assert give(lake, [change], key="k").outcome == "done"
    assert time.monotonic() - began < lv.Settings().lease_seconds / 2
    assert give(lake, [change], key="k").outcome == "done"
    assert ids(lake) == [1, 2, 3, 9]
    assert client.load("t").metadata.properties["owner"] == "ann"


def test_files_of_a_client_stay_where_its_request_is_refused(
    lake: lv.Lake, client: IcebergClient
) -> None:
    change = client.request(client.load("t"), append)
    there = set(Path(lake.root, "t").rglob("*"))
    with lv.connect(lake.root) as other:

        def meanwhile() -> None:
            other.run(lambda txn: txn.append("t", OTHERS))

        with interrupted(lake, is_head, meanwhile):
            assert give(lake, [change], key="k").outcome == "conflict"
    assert there <= set(Path(lake.root, "t").rglob("*")), "only the client deletes them"


def test_a_rollback_of_a_client_is_the_lake_s_own_version(
    lake: lv.Lake, client: IcebergClient
) -> None:
    first = client.load("t").metadata.current_snapshot_id
    lake.run(lambda txn: txn.append("t", MORE))
    back = {
        "action": "set-snapshot-ref",
        "ref-name": "main",
        "type": "branch",
        "snapshot-id": first,
    }
    assert give(lake, [TableChange("t", (), [back])]).outcome == "done"
    assert ids(lake) == [1, 2, 3]
    txn = lake.history(1)[0].txn_id
    Path(lake.root, HEAD_KEY).unlink()
    with lv.connect(lake.root) as other:
        report = other.recover(rebuild_head=True)
    assert txn not in [one.txn_id for one in report.findings], "it is in the table's log"


def test_a_request_whose_snapshot_is_expired_is_not_refused(
    lake: lv.Lake, client: IcebergClient
) -> None:
    """A client that is refused deletes its files, which are the table's by now."""
    change = client.request(client.load("t"), append)
    assert give(lake, [change]).outcome == "done"
    number = client.load("t").metadata.current_snapshot_id
    lake.run(lambda txn: txn.append("t", OTHERS))
    expire = {"action": "remove-snapshots", "snapshot-ids": [number]}
    assert give(lake, [TableChange("t", (), [expire])]).outcome == "done"
    answer = give(lake, [change])
    assert answer.outcome == "unknown"
    assert "may have taken effect" in answer.message
    assert ids(lake) == [1, 2, 3, 4, 9]


def test_a_key_of_other_tables_is_refused(lake: lv.Lake, client: IcebergClient) -> None:
    one, other = (
        TableChange(name, (), client.request(client.load(name), set_a_property).updates)
        for name in ("t", "u")
    )
    assert give(lake, [one], key="k").outcome == "done"
    assert give(lake, [one], key="k").outcome == "done"
    answer = give(lake, [other], key="k")
    assert answer.outcome == "invalid"
    assert "idempotency key" in answer.message
    assert "owner" not in client.load("u").metadata.properties


def test_a_key_that_has_committed_a_part_of_the_tables_is_refused(
    lake: lv.Lake, client: IcebergClient
) -> None:
    one, other = (
        TableChange(name, (), client.request(client.load(name), set_a_property).updates)
        for name in ("t", "u")
    )
    assert give(lake, [one], key="k").outcome == "done"
    assert give(lake, [one, other], key="k").outcome == "invalid"
    assert "owner" not in client.load("u").metadata.properties


# -- commits of which no version can be made ------------------------------------------


def breaking(monkeypatch: pytest.MonkeyPatch, what: str, error: Exception) -> None:
    """Have the versions that a function makes fail, as by another library's fault."""

    def broken(*_: object) -> Any:
        raise error

    monkeypatch.setattr(table_format, what, broken)


def pending(lake: lv.Lake, name: str = "t") -> list[str]:
    """Return the transactions whose commits are decided, and not known to be in a table's log."""
    return [one.txn for one in inside(lake).held.head.tables[name].pending]


@pytest.mark.parametrize("error", [KeyError("snapshots"), lv.InvalidOperation("no such schema")])
def test_a_commit_that_can_t_be_applied_is_said_by_name_and_cancelled_by_recover(
    lake: lv.Lake, client: IcebergClient, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    both = [client.request(client.load(name), append) for name in ("t", "u")]
    with monkeypatch.context() as within:
        breaking(within, "prepare_given", error)
        assert give(lake, both).outcome == "unknown"  # it is decided, and in no log
        (txn,) = pending(lake)
        with pytest.raises(lv.StoreError, match=f"transaction {txn}, which is decided .*recover"):
            client.load("t")
        report = lake.recover()
        assert {one.table for one in report.findings if txn in one.message} == {"t", "u"}
        assert ids(lake) == ids(lake, "u") == [1, 2, 3]
        lake.run(lambda txn: txn.append("t", OTHERS))
    # Another client, which could have applied it, sees that it is void.
    with lv.connect(lake.root) as other:
        assert ids(other) == [1, 2, 3, 9]
        assert give(other, both).outcome == "conflict"
        client.load("u").append(MORE)
        assert ids(other, "u") == [1, 2, 3, 4]
        assert {one.kind for one in other.doctor().findings} == {"voided"}


def test_a_fault_in_publishing_a_lake_s_own_commit_is_said_by_name_and_cancels_nothing(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as within:
        breaking(within, "prepare", KeyError("x"))
        lake.run(lambda txn: txn.append("t", MORE))
        (waiting,) = pending(lake)
        report = lake.recover()
        (finding,) = [one for one in report.findings if one.severity == "error"]
        assert waiting in finding.message
        assert "stays pending" in finding.message
    assert lake.recover().ok
    assert ids(lake) == [1, 2, 3, 4]


# -- fairness --------------------------------------------------------------------------


def test_a_table_is_reserved_for_the_client_that_was_refused_twice(
    lake: lv.Lake, client: IcebergClient
) -> None:
    stale = client.request(client.load("t"), append)
    lake.run(lambda txn: txn.append("t", OTHERS))
    assert give(lake, [stale]).outcome == "conflict"
    assert not lake.doctor().findings
    assert give(lake, [stale]).outcome == "conflict"
    (finding,) = lake.doctor().findings
    assert "t: reserved for the next commit of an Iceberg client" in finding.message
    with lv.connect(lake.root) as other:  # another gateway passes what this one has reserved
        append(IcebergClient(other).load("t"))
    assert not lake.doctor().findings
    assert not list(Path(lake.root, "_lakevilla", "txns").glob("*"))
    assert ids(lake) == [1, 2, 3, 4, 9]


def test_a_client_that_did_not_know_the_table_gets_nothing_reserved(
    lake: lv.Lake, client: IcebergClient
) -> None:
    unknown = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7}
    update = {"action": "set-properties", "updates": {"a": "b"}}
    for _ in range(3):
        assert give(lake, [TableChange("t", [unknown], [update])]).outcome == "conflict"
    assert not lake.doctor().findings


# -- keys of refused requests ------------------------------------------------------------


def set_main_to(number: int) -> TableChange:
    update = {
        "action": "set-snapshot-ref",
        "ref-name": "main",
        "type": "branch",
        "snapshot-id": number,
    }
    return TableChange("t", (), (update,))


def test_a_keyed_request_that_was_refused_is_refused_again_though_it_would_fit(
    lake: lv.Lake, client: IcebergClient
) -> None:
    """Its client has deleted its files, or has done something else, after the refusal."""
    first = client.load("t").current_snapshot()
    assert first is not None
    on_first = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": first.snapshot_id}
    owner = {"action": "set-properties", "updates": {"owner": "ann"}}
    change = TableChange("t", (on_first,), (owner,))
    append(client.load("t"), OTHERS)
    refused = give(lake, [change], key="k")
    assert refused.outcome == "conflict"
    assert give(lake, [set_main_to(first.snapshot_id)]).outcome == "done"
    with lv.connect(lake.root) as other:
        for gateway in (lake, other):
            assert give(gateway, [change], key="k") == refused
    assert "owner" not in client.load("t").metadata.properties
    assert lake.outcome(idempotency_key="iceberg/k").state == "aborted"
    with pytest.raises(lv.InvalidOperation, match="branch main has changed"):
        lake.run(lambda txn: txn.append("t", [{"id": 5, "v": "e"}]), idempotency_key="iceberg/k")
    assert give(lake, [change], key="another").outcome == "done", "it would fit"


def test_a_key_that_has_committed_is_not_bound_to_the_refusal_of_another_request(
    lake: lv.Lake, client: IcebergClient
) -> None:
    changes = [client.request(client.load(name), append) for name in ("t", "u")]
    assert give(lake, changes[:1], key="k").outcome == "done"
    assert give(lake, changes[1:], key="k").outcome == "invalid"
    assert give(lake, changes[:1], key="k").outcome == "done"
    assert (ids(lake, "t"), ids(lake, "u")) == ([1, 2, 3, 4], [1, 2, 3])


def test_a_refusal_that_may_not_last_is_bound_to_no_key(
    lake: lv.Lake, client: IcebergClient
) -> None:
    change = client.request(client.load("t"), append)
    lake.unregister("t")
    assert give(lake, [change], key="k").outcome == "unknown"
    lake.register("t")
    assert give(lake, [change], key="k").outcome == "done"
    assert ids(lake) == [1, 2, 3, 4]


# -- files that were removed -------------------------------------------------------------


def relisted(table: Table, change: TableChange, *more: ManifestFile) -> TableChange:
    """Return a request whose snapshot lists further manifests."""
    snapshot, path = snapshot_of(change), f"{table.location()}/metadata/{uuid4()}.avro"
    own = Snapshot.model_validate(snapshot).manifests(table.io)
    ends = (snapshot["parent-snapshot-id"], snapshot["sequence-number"], "deflate")
    output = table.io.new_output(path)
    with write_manifest_list(2, output, snapshot["snapshot-id"], *ends) as writer:
        writer.add_manifests([*own, *more])
    told = [
        {**one, "snapshot": {**snapshot, "manifest-list": path}} if "snapshot" in one else one
        for one in change.updates
    ]
    return TableChange(change.table, change.requirements, told)


def with_entries_of(table: Table, number: int, old: ManifestFile) -> ManifestFile:
    """Store a manifest that has the files of another one as existing ones."""
    output = table.io.new_output(f"{table.location()}/metadata/{uuid4()}.avro")
    with write_manifest(2, table.spec(), table.schema(), output, number, "deflate") as writer:
        for entry in old.fetch_manifest_entry(table.io):
            writer.existing(entry)
    return writer.to_manifest_file()


@pytest.mark.parametrize("way", ["the manifest", "its entries"])
def test_a_snapshot_that_names_removed_files_is_refused(
    lake: lv.Lake, client: IcebergClient, way: str
) -> None:
    before = client.load("t").current_snapshot()
    assert before is not None
    (old,) = before.manifests(client.load("t").io)
    lake.run(lambda txn: txn.overwrite("t", OTHERS))
    table = client.load("t")
    request = client.request(table, append)
    if way == "its entries":
        old = with_entries_of(table, snapshot_of(request)["snapshot-id"], old)
    answer = give(lake, [relisted(table, request, old)])
    assert answer.outcome == "invalid"
    assert "which it does not add" in answer.message
    assert ids(lake) == [9]
    assert give(lake, [relisted(table, request)]).outcome == "done"
    assert ids(lake) == [4, 9]


def test_snapshots_that_are_each_other_s_parents_are_refused(
    lake: lv.Lake, client: IcebergClient
) -> None:
    table = client.load("t")
    request = client.request(table, append)
    one = snapshot_of(request)
    other = {**one, "snapshot-id": 7, "parent-snapshot-id": one["snapshot-id"]}
    added = [{**one, "parent-snapshot-id": 7}, {**other, "sequence-number": 9}]
    updates = [{"action": "add-snapshot", "snapshot": each} for each in added]
    rest = [each for each in request.updates if each["action"] != "add-snapshot"]
    answer = give(lake, [TableChange("t", request.requirements, [*updates, *rest])])
    assert answer.outcome == "invalid", answer
    assert ids(lake) == [1, 2, 3]
