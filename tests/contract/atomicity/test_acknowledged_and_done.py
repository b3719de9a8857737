"""Each committed change takes effect once, and at the place that its caller named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakevilla as lv
from tests.support.places import Place, make_place
from tests.support.tables import accounts, values


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    with place.connect() as lake:
        lake.create_table("t", accounts(1))
        lake.create_table("u", accounts(1))
        yield lake


def balances(lake: lv.Lake, table: str = "t") -> list[object]:
    return values(lake.read(table), "balance")


def test_a_commit_with_wait_decided_on_a_branch_writes_no_tables_log(
    place: Place, lake: lv.Lake
) -> None:
    lake.branch("b")
    with lake.on("b") as branch:
        branch.run(lambda txn: txn.append("t", accounts(1, 7)), wait="decided")
        branch.run(lambda txn: txn.create_table("new", accounts(1)), wait="decided")
    assert len(place.seen("t")) == 1
    assert not Path(place.root, "new/_delta_log").exists()
    lake.run(lambda txn: txn.append("t", accounts(1, 5)))
    assert balances(lake) == [5, 100]
    lake.merge("b")
    assert balances(lake) == [5, 7, 100]


def test_a_rename_with_wait_decided_is_recorded_in_the_tables_claim(
    place: Place, lake: lv.Lake
) -> None:
    """A rebuild of a lost HEAD finds the names of tables in their claims."""
    with place.connect() as other, other.transaction(wait="decided") as txn:
        txn.rename_table("t", "ledger")
    claim = json.loads(Path(place.root, "t/_lakevilla/lake.json").read_bytes())
    assert "ledger" in json.dumps(claim)


def test_an_append_that_began_before_unguard_leaves_the_table_unguarded(
    place: Place, lake: lv.Lake
) -> None:
    """Otherwise tags and branches would leave out later rows of foreign clients."""
    lake.guard("t")
    txn = lake.transaction()
    txn.append("t", accounts(1, 3))
    with place.connect() as other:
        other.unguard("t")
    txn.commit()
    assert [t.guarded for t in lake.tables(details=False) if t.name == "t"] == [False]
    row = pa.table({"id": pa.array([9], pa.int64()), "balance": pa.array([9], pa.int64())})
    write_deltalake(place.uri("t"), row, mode="append")
    lake.tag("closing")
    assert 9 in balances(lake.on("closing"))


def test_a_merge_of_some_tables_can_not_delete_the_branch(lake: lv.Lake) -> None:
    lake.branch("b")

    def both(txn: lv.Transaction) -> None:
        txn.append("t", accounts(1, 7))
        txn.append("u", accounts(1, 7))

    lake.on("b").run(both)
    with pytest.raises(lv.InvalidOperation, match="the changes of other tables would be lost"):
        lake.merge("b", tables=["t"], delete=True)
    assert balances(lake) == [100]
    lake.merge("b", tables=["t"])
    assert balances(lake.on("b"), "u") == [7, 100]
    with (
        pytest.raises(lv.InvalidOperation, match="the changes of other tables would be lost"),
        lake.audited(checks=[lambda txn: True], tables=["t"]),
    ):
        raise AssertionError("the block is not entered")
    assert [ref.name for ref in lake.refs()] == ["b"]


def test_a_resumed_read_only_transaction_is_still_read_only(place: Place, lake: lv.Lake) -> None:
    txn = lake.transaction(read_only=True)
    txn.read("t")
    txn.save()
    with place.connect() as other:
        resumed = other.resume(txn.id)
        with pytest.raises(lv.InvalidOperation, match="read-only"):
            resumed.append("t", accounts(1, 7))
        resumed.abort()
    assert balances(lake) == [100]


@pytest.mark.parametrize("spelling", ["p/b", "p.b", "./p/b"])
def test_a_table_with_two_names_stays_in_the_lake_when_its_path_is_unregistered(
    place: Place, lake: lv.Lake, spelling: str
) -> None:
    lake.create_table("p/b", accounts(1))
    lake.register("alias", place.uri("p/b"))
    lake.unregister(spelling)
    assert "alias" in [table.name for table in lake.tables()]
    assert balances(lake, "alias") == [100]


def test_run_raises_if_its_function_finds_the_key_of_another_transaction_committed(
    lake: lv.Lake,
) -> None:
    """Otherwise the rows of the function's own transaction would be lost silently."""
    with lake.transaction(idempotency_key="inner") as txn:
        txn.append("u", accounts(1, 7))

    def outer(txn: lv.Transaction) -> None:
        txn.append("t", accounts(1, 8))
        with lake.transaction(idempotency_key="inner") as inner:
            inner.append("u", accounts(1, 9))

    with pytest.raises(lv.AlreadyCommitted, match="inner"):
        lake.run(outer)
    assert balances(lake) == [100]
    for _ in range(2):
        lake.run(lambda txn: txn.append("t", accounts(1, 8)), idempotency_key="own")
    assert balances(lake) == [8, 100]
