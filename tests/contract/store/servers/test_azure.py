"""Azure's API: what it lacks, what it answers, and the accounts in locations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakevilla as lv
from lakevilla.errors import InvalidOperation
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import (
    ABSENT,
    ANY,
    Failure,
    Found,
    Match,
    Missing,
    ObjectInfo,
    Stored,
    Unchanged,
)
from tests.fixtures import azure
from tests.fixtures.azure import ACCOUNT, KEY, AzureServer, send, serving_reads, token
from tests.fixtures.servers import Servers

#: The servers that support all requests of a lake.
WHOLE = list(azure.servers())


@pytest.fixture(scope="module", params=["reads", *WHOLE])
def server(request: pytest.FixtureRequest, servers: Servers) -> Iterator[AzureServer]:
    if request.param == "reads":
        with serving_reads() as found:
            yield found
    else:
        chosen = servers[request.param]
        assert isinstance(chosen, AzureServer)
        yield chosen


@pytest.fixture
def store(server: AzureServer) -> LakeStore:
    return open_store(server.new_root(), server.storage_options)


def test_a_range_from_the_end_of_an_object_is_read_on_azure(store: LakeStore) -> None:
    store.put("k", b"0123456789", ANY)
    for count, expected in ((4, b"6789"), (10, b"0123456789"), (50, b"0123456789")):
        found = store.get("k", byte_range=(-count, 0))
        assert isinstance(found, Found), found
        assert (found.body, found.size) == (expected, 10)
    assert store.get("k", known=found.token, byte_range=(-4, 0)) == Unchanged()
    assert store.get("nothing", byte_range=(-4, 0)) == Missing()
    store.put("empty", b"", ANY)
    empty = store.get("empty", byte_range=(-4, 0))
    assert isinstance(empty, Found)
    assert (empty.body, empty.size) == (b"", 0)


def test_a_range_read_of_an_object_that_is_replaced_meanwhile_fails_to_be_retried(
    store: LakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("k", b"0123456789", ANY)
    backend = next(iter(store._backends.values()))
    head = backend.head

    def replaced_after(key: str) -> object:
        described = head(key)
        store.put("k", b"another", ANY)
        return described

    with monkeypatch.context() as patched:
        patched.setattr(backend, "head", replaced_after)
        outcome = store.get("k", byte_range=(-4, 0))
        assert isinstance(outcome, Failure)
        assert not outcome.permanent, "it is asked for again"
    found = store.get("k", byte_range=(-4, 0))
    assert isinstance(found, Found)
    assert found.body == b"ther"


def test_a_list_gives_the_same_etag_as_a_read_on_azure(store: LakeStore) -> None:
    store.put("t/k", b"1", ANY)
    found, listed, info = store.get("t/k"), store.list("t"), store.head("t/k")
    assert isinstance(found, Found)
    assert isinstance(listed, list)
    assert isinstance(info, ObjectInfo)
    assert [one.token for one in listed] == [found.token] == [info.token]
    assert store.get("t/k", known=listed[0].token) == Unchanged()


def test_a_location_with_another_account_than_the_options_is_refused(
    server: AzureServer,
) -> None:
    root = server.new_root()
    open_store(root, server.storage_options).put("k", b"1", ANY)
    container, path = root.removeprefix("abfss://").split("@")[0], root.rpartition("/")[2]
    same = open_store(f"az://{container}/{path}", server.storage_options).get("k")
    assert isinstance(same, Found)
    other = root.replace("@devstoreaccount1", "@another")
    with pytest.raises(InvalidOperation, match=r"account 'another'.*'devstoreaccount1'"):
        open_store(other, server.storage_options)


def test_directories_of_a_hierarchical_namespace_are_no_objects(
    server: AzureServer, store: LakeStore
) -> None:
    store.put("t/a/k", b"1", ANY)
    listed = store.list("")
    assert isinstance(listed, list)
    assert [one.key for one in listed] == ["t/a/k"]
    assert store.get("t/a") == Missing()
    assert store.head("t/a") == Missing()


def whole(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test on the servers that support all requests, which are slow to start: at night."""
    on_them: Callable[..., None] = pytest.mark.parametrize("server", WHOLE, indirect=True)(test)
    return pytest.mark.night(on_them)


@whole
def test_a_container_is_one_lake_in_each_spelling_of_its_location(server: AzureServer) -> None:
    root, options = server.new_root(), server.storage_options
    path = root.rpartition("/")[2]
    spelled = [
        root,
        f"az://{server.container}/{path}",
        f"abfs://{server.container}/{path}",
        f"https://{ACCOUNT}.blob.core.windows.net/{server.container}/{path}",
        f"wasbs://{server.container}@{ACCOUNT}.blob.core.windows.net/{path}",
    ]
    for number, one in enumerate(spelled):
        with lv.connect(one, storage_options=options) as lake:
            assert lake.root == root
            if number == 0:
                lake.create_table("t", [{"id": 0}], format="iceberg")
            else:
                lake.run(lambda txn, id_=number: txn.append("t", [{"id": id_}]))
            for table in (f"{other}/t" for other in spelled):
                with lake.snapshot() as now:
                    assert now.read(table).num_rows == number + 1


@whole
def test_the_location_of_an_iceberg_table_names_the_account(server: AzureServer) -> None:
    root, options = server.new_root(), server.storage_options
    bare = f"az://{server.container}/{root.rpartition('/')[2]}"
    with lv.connect(bare, storage_options=options) as lake:
        lake.create_table("t", [{"id": 0}], format="iceberg")
    metadata = open_store(root, options).get("t/metadata/v1.metadata.json")
    assert isinstance(metadata, Found)
    assert json.loads(metadata.body)["location"] == f"{root}/t"


@whole
def test_pyiceberg_reads_and_writes_by_its_own_names_of_options(server: AzureServer) -> None:
    root = server.new_root()
    properties = {
        "adls.account-name": ACCOUNT,
        "adls.account-key": KEY,
        "adls.blob-storage-authority": server.endpoint.removeprefix("http://"),
        "adls.blob-storage-scheme": "http",
    }
    bare = f"abfss://{server.container}/{root.rpartition('/')[2]}"
    catalog = ObjectStoreCatalog("tests", warehouse=bare, **properties)
    rows = pa.table({"id": [1, 2]})
    catalog.create_table(("db", "t"), rows.schema).append(rows)
    with lv.connect(root, storage_options=server.storage_options) as lake:
        lake.register({"t": "db/t"})
        lake.run(lambda txn: txn.append("t", [{"id": 3}]))
    found = catalog.load_table(("db", "t"))
    assert found.location() == f"{root}/db/t"
    assert sorted(found.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]


@whole
def test_the_emulators_option_reaches_it(
    server: AzureServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", server.endpoint)
    root = f"az://{server.container}/{server.new_root().rpartition('/')[2]}"
    emulated = open_store(root, {"azure_storage_use_emulator": "true"})
    stored = emulated.put("k", b"1", ABSENT)
    assert isinstance(stored, Stored)
    assert emulated.root == open_store(root, server.storage_options).root
    assert isinstance(open_store(root, server.storage_options).get("k"), Found)


@whole
def test_a_token_allows_what_it_permits_and_errors_name_it(server: AzureServer) -> None:
    root, options = server.new_root(), server.storage_options
    del options["azure_storage_account_key"]
    with lv.connect(root, storage_options=options | {"sas_token": token("rwdlac")}) as lake:
        lake.create_table("t", [{"id": 0}])
    reader = open_store(root, options | {"sas_token": token("rl")})
    assert isinstance(reader.get("_lakevilla/HEAD.json"), Found)
    for refused in (
        reader.put("k", b"1", ABSENT),
        reader.delete("_lakevilla/HEAD.json"),
        reader.copy_object("_lakevilla/HEAD.json", "k"),
    ):
        assert isinstance(refused, Failure)
        assert refused.permanent
        assert refused.reason.startswith("403")
    assert isinstance(reader.get("_lakevilla/HEAD.json"), Found)
    with lv.connect(root, storage_options=options | {"sas_token": token("rl")}) as lake:
        assert lake.read("t").num_rows == 1
        with pytest.raises(lv.StoreError, match="403"):
            lake.run(lambda txn: txn.append("t", [{"id": 1}]))


@whole
def test_a_delete_in_a_missing_container_names_it_at_once(server: AzureServer) -> None:
    outcome = open_store(server.nowhere, server.storage_options).delete("k")
    assert isinstance(outcome, Failure)
    assert outcome.of_store
    assert "there is no such bucket or container" in outcome.reason


@whole
def test_an_object_on_which_another_client_holds_a_lease_is_named(
    server: AzureServer, store: LakeStore
) -> None:
    stored = store.put("k", b"1", ABSENT)
    assert isinstance(stored, Stored)
    lease = {"x-ms-lease-action": "acquire", "x-ms-lease-duration": "-1"}
    path = f"{server.container}/{store.root.path}/k"
    assert send(server, "PUT", path, {"comp": "lease"}, lease).status == 201
    outcome = store.put("k", b"2", Match(stored.token))
    assert isinstance(outcome, Failure)
    assert outcome.permanent
    assert "break the lease" in outcome.reason


@whole
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_partitions_whose_values_azure_would_change_are_written(
    server: AzureServer, form: str
) -> None:
    root, options = server.new_root(), server.storage_options
    values = ["Inc.", "a\\b", "..", ".", "a/b.", "x" * 199 + ".y"]
    rows = [{"p": value, "id": number} for number, value in enumerate(values)]
    with lv.connect(root, storage_options=options) as lake:
        lake.create_table("t", rows, format=form, partition_by=["p"])
        found = lake.read("t").to_pylist()
        assert sorted(found, key=lambda row: row["id"]) == rows
    if form == "delta":
        theirs = DeltaTable(f"{root}/t", storage_options=options).to_pyarrow_table().to_pylist()
        assert sorted(theirs, key=lambda row: row["id"]) == rows


@whole
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_lake_on_azure_is_written_and_opened_again(server: AzureServer, form: str) -> None:
    root, options = server.new_root(), server.storage_options
    with lv.connect(root, storage_options=options) as lake:
        lake.create_table("a", [{"id": 0}], format=form)
        for number in range(1, 12):
            with lake.transaction() as txn:
                txn.append("a", [{"id": number}])
    with lv.connect(root, storage_options=options) as lake:
        assert sorted(row["id"] for row in lake.read("a").to_pylist()) == list(range(12))
        assert lake.doctor().ok
        assert lake.gc().ok
