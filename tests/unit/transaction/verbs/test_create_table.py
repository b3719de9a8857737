"""A table is created in its own directory, in which no table is or was."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.store.base import ANY
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.create_table import whole_or_not_at_all
from lakevilla.transaction.verbs.read_write import create, drop
from lakevilla_testing.histories.attempts import SCHEMA
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def creating(peer: Peer, location: str) -> TransactionState:
    txn = peer.begin()
    peer.run(create(txn, location, SCHEMA, (), {}))
    return txn


def test_a_created_table_has_its_rows_in_its_first_entry(lake: MemoryLake, peer: Peer) -> None:
    txn = creating(peer, "c")
    peer.append(txn, "c", 7)
    assert lake.keys("c/") == [], "nothing is there before it is decided"
    assert peer.commit(txn).versions == {"c": 0}
    assert lake.ids("c") == [7]


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("a", "exists already"),
        ("a/inner", "would be inside the directory of table a"),
        ("foreign", "holds files that no table names"),
    ],
)
def test_creating_a_table_at_an_occupied_or_reserved_location_is_refused(
    lake: MemoryLake, peer: Peer, location: str, why: str
) -> None:
    lake.store.put("foreign/part-0.parquet", b"rows", ANY)
    before = lake.head
    with pytest.raises(lv.LakeVillaError, match=why):
        creating(peer, location)
    assert lake.head == before


def test_the_second_of_two_creations_of_one_table_is_refused(lake: MemoryLake) -> None:
    first, second = lake.peer(), lake.peer()
    one, other = creating(first, "c"), creating(second, "c")
    first.commit(one)
    with pytest.raises(lv.LakeVillaError):
        second.commit(other)
    assert lake.version("c") == 0


def test_the_second_of_two_nested_tables_to_be_decided_is_refused(lake: MemoryLake) -> None:
    first, second = lake.peer(), lake.peer()
    one, other = creating(first, "c"), creating(second, "c/inner")
    first.commit(one)
    with pytest.raises(lv.LakeVillaError, match="inside"):
        second.commit(other)
    assert "c/inner" not in lake.head.tables


def test_one_transaction_may_not_create_two_nested_tables(peer: Peer) -> None:
    txn = creating(peer, "c")
    with pytest.raises(lv.InvalidOperation, match="be inside the other"):
        peer.run(create(txn, "c/inner", SCHEMA, (), {}))


def test_creating_a_dropped_table_whose_log_exists_is_refused_with_advice_to_register(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.begin()
    peer.run(drop(txn, "a"))
    peer.commit(txn)
    with pytest.raises(lv.TableExists, match=r"`register\(.a.\)` revives it"):
        creating(lake.peer(), "a")


def test_a_table_is_not_created_if_its_rows_are_refused(lake: MemoryLake, peer: Peer) -> None:
    txn = peer.appending("a", 7)
    with pytest.raises(ValueError, match="bad rows"), whole_or_not_at_all(txn, "c"):
        peer.run(create(txn, "c", SCHEMA, (), {}))
        peer.append(txn, "c", 7)
        raise ValueError("bad rows")
    peer.commit(txn)
    assert "c" not in lake.head.tables
    assert lake.keys("c/") == []
