"""Steps 6 and 7: a decided commit is written into logs; no error during that undoes it."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.store.base import Unknown
from lakevilla.store.effects import DeleteObject, List, Put
from lakevilla.sublogs.record import TXNS_PREFIX
from lakevilla.transaction.commit.decide import decide
from lakevilla.transaction.commit.publish import publish_decided, release_claims
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Decided
from lakevilla.transaction.verbs.save import save
from lakevilla_testing.tables import delta_writer
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def decided(peer: Peer, txn: TransactionState) -> Decided:
    outcome = peer.run(decide(txn, peer.uploaded(txn)))
    assert isinstance(outcome, Decided)
    txn.note_committed(None, outcome.summary.sequence)
    return outcome


def both(peer: Peer) -> TransactionState:
    txn = peer.appending("a", 7)
    peer.append(txn, "b", 7)
    return txn


def test_each_table_is_published_and_its_new_version_returned(lake: MemoryLake, peer: Peer) -> None:
    txn = both(peer)
    result = peer.run(publish_decided(txn, decided(peer, txn)))
    assert result.versions == {"a": 2, "b": 2}
    assert (lake.version("a"), lake.version("b")) == (2, 2)


@pytest.mark.parametrize("error", [lv.StoreError("no right"), lv.CorruptObject("torn", key="k")])
def test_a_table_that_can_not_be_published_now_is_left_to_the_next_client(
    lake: MemoryLake, peer: Peer, error: Exception
) -> None:
    txn = both(peer)
    found = decided(peer, txn)
    peer.instead("b/_delta_log", error)
    result = peer.run(publish_decided(txn, found))
    assert result.versions == {"a": 2, "b": None}
    assert txn.state is Status.COMMITTED
    (event,) = [event for event in peer.events if event.kind == "published"]
    assert event.detail["table"] == "b"
    assert lake.recover().ok
    assert 7 in lake.rows("b")


def test_the_record_of_a_transaction_is_deleted_with_the_publishing(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = both(peer)
    peer.run(save(txn))
    assert lake.keys(TXNS_PREFIX) != []
    peer.run(publish_decided(txn, decided(peer, txn)))
    assert lake.keys(TXNS_PREFIX) == []


def test_a_record_that_can_not_be_deleted_fails_no_transaction(peer: Peer) -> None:
    txn = both(peer)
    peer.run(save(txn))
    found = decided(peer, txn)
    for verb in (DeleteObject, Put, List):
        peer.instead(TXNS_PREFIX, lv.StoreError("no right"), verb=verb, times=9)
    peer.run(release_claims(txn))
    assert [event.kind for event in peer.events][-1:] == ["retry"]
    assert peer.run(publish_decided(txn, found)).versions == {"a": 2, "b": 2}


def test_foreign_changes_to_rows_read_are_reported_if_they_come_before_publishing(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.begin()
    peer.read(txn, "a")
    peer.add(txn, "a", 5)
    found = decided(peer, txn)
    other = lake.peer()
    other.run(delta_writer.rewrite(other.client, "a", lambda row: {**row, "balance": 1000}))
    with pytest.raises(lv.ForeignConflict, match="rows that it had read were changed") as caught:
        peer.run(publish_decided(txn, found))
    assert caught.value.result is not None
    assert caught.value.result.global_version == found.summary.sequence
    assert txn.state is Status.COMMITTED
    assert lake.rows("a") == {0: 1005, 1: 1000}


def test_a_log_entry_without_a_response_is_not_published_twice(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = both(peer)
    found = decided(peer, txn)
    peer.instead("a/_delta_log", Unknown("cut"), landed=True)
    peer.instead("b/_delta_log", Unknown("cut"))
    assert peer.run(publish_decided(txn, found)).versions == {"a": 2, "b": 2}
    assert list(lake.rows("a")) == list(lake.rows("b"))
    assert (lake.version("a"), lake.version("b")) == (2, 2)
