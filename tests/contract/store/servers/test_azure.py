"""Azure's API: no ranges from the end, unquoted ETags in a LIST, accounts in locations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lakevilla as lv
from lakevilla.errors import InvalidOperation
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import ANY, Failure, Found, Missing, ObjectInfo, Unchanged
from tests.fixtures import azure
from tests.fixtures.azure import AzureServer, serving_reads
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


@pytest.mark.parametrize("server", WHOLE, indirect=True)
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
