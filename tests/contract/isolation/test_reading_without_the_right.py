"""A client without write permission sees all decided commits, published or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lakevilla as lv
from tests.contract.foreign_writers.test_hidden_versions import add_five, decided_and_left
from tests.contract.store.test_lost_answers import Answer, Proxy
from tests.fixtures.servers import Server
from tests.support.places import Place
from tests.support.tables import accounts, values

TABLES = ("bank", "other")


class _ReadOnly(list[Any]):
    """An endless list of faults that forwards reads and forbids all other requests."""

    def __bool__(self) -> bool:
        return True

    def pop(self, index: Any = -1) -> Any:
        def rule(method: str, forward: Callable[[], Answer]) -> Answer:
            if method in ("GET", "HEAD"):
                return forward()
            return 403, b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"

        return rule


@pytest.fixture
def places(server: Server, server_root: str) -> Iterator[tuple[Place, Place, Proxy]]:
    """Make a lake with a decided commit that is published in one of its two tables only.

    Yield the lake's place as its writers reach it, the place of a client that may only read, and
    that client's proxy.
    """
    writer = Place(server_root, server.storage_options)
    writer.write("bank", accounts(4))
    writer.write("other", accounts(1))
    with writer.connect() as lake:
        lake.register({table: table for table in TABLES})
    decided_and_left(writer, add_five)
    proxy = Proxy(server)
    proxy.faults = _ReadOnly()
    yield writer, Place(server_root, server.at(proxy.endpoint).storage_options), proxy
    proxy.close()


def states(lake: lv.Lake) -> Iterator[dict[str, list[int]]]:
    """Yield the rows of the two tables, by every way to read them."""
    with lake.snapshot() as snapshot:
        yield {table: snapshot.read(table)["balance"].to_pylist() for table in TABLES}
    with lake.transaction(read_only=True) as txn:
        yield {table: txn.read(table)["balance"].to_pylist() for table in TABLES}
    with lake.transaction() as txn:  # this transaction could write, but doesn't
        yield {table: txn.read(table)["balance"].to_pylist() for table in TABLES}
    with lake.snapshot() as snapshot:
        told = snapshot.sql(
            "SELECT 'bank' AS t, balance FROM bank UNION ALL SELECT 'other', balance FROM other"
        ).to_pylist()
        yield {t: [row["balance"] for row in told if row["t"] == t] for t in TABLES}


def test_a_client_that_may_only_read_sees_a_decided_unpublished_transaction_as_a_whole(
    places: tuple[Place, Place, Proxy],
) -> None:
    writer, reader, proxy = places
    # A client without LakeVilla sees the transaction in one of the two tables only.
    assert sorted(values(writer.delta("other").to_pyarrow_table())) == [0, 8]
    assert sorted(values(writer.delta("bank").to_pyarrow_table(), "balance")) == [100] * 4
    with reader.connect() as lake:
        for state in states(lake):
            assert sorted(state["bank"]) == [100, 100, 100, 105]
            assert sorted(state["other"]) == [8, 100]
        assert lake.table("bank").version is None, "no log version shows this state"
        assert lake.table("other").version == 1
        assert sorted(table.name for table in lake.tables()) == sorted(TABLES)
        found = lake.doctor().findings
        assert [(finding.kind, finding.table) for finding in found] == [("unpublished", "bank")]
    assert set(proxy.requests) <= {"GET", "HEAD"}, "a reader wrote"


def test_a_read_only_client_sees_decided_and_foreign_commits_together_and_writes_nothing(
    places: tuple[Place, Place, Proxy],
) -> None:
    writer, reader, proxy = places
    writer.write("bank", [{"id": 9, "balance": 9}])
    with reader.connect() as lake:
        for state in states(lake):
            assert sorted(state["bank"]) == [9, 100, 100, 100, 105]
    assert set(proxy.requests) <= {"GET", "HEAD"}
    # The commit waits for a client that may write.
    with writer.connect() as lake:
        assert lake.recover().ok
    assert sorted(row["balance"] for row in writer.seen("bank")) == [9, 100, 100, 100, 105]


def test_a_write_by_a_read_only_client_reports_the_refused_request(
    places: tuple[Place, Place, Proxy],
) -> None:
    _, reader, _ = places
    with reader.connect(settings=lv.Settings(retry_limit=2, retry_base_seconds=0.01)) as lake:
        with pytest.raises(lv.StoreError) as caught, lake.transaction() as txn:
            txn.append("bank", [{"id": 9, "balance": 9}])
        assert "put" in str(caught.value).lower()
        with lake.snapshot() as snapshot:
            assert sorted(snapshot.read("bank")["balance"].to_pylist()) == [100, 100, 100, 105]
