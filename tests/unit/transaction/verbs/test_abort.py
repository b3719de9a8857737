"""The end of a transaction that does not commit."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.save import save
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def test_objects_of_an_aborted_transaction_are_deleted_where_it_can_not_have_committed(
    lake: MemoryLake, peer: Peer
) -> None:
    before = lake.keys("")
    txn = peer.appending("a", 7)
    peer.uploaded(txn)
    assert lake.keys("") != before
    peer.run(abort(txn))
    assert lake.keys("") == before
    assert txn.state is Status.ABORTED


def test_files_of_one_that_may_have_committed_stay(lake: MemoryLake, peer: Peer) -> None:
    txn = peer.appending("a", 7)
    peer.uploaded(txn)
    stored = lake.keys("")
    txn.ending.tried = True
    peer.run(abort(txn))
    assert lake.keys("") == stored


def test_files_of_one_that_another_process_may_have_resumed_stay(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    peer.run(save(txn))
    stored = lake.keys("")
    peer.run(abort(txn))
    assert lake.keys("") == stored


def test_abort_of_a_committed_transaction_changes_nothing(lake: MemoryLake, peer: Peer) -> None:
    txn = peer.appending("a", 7)
    peer.commit(txn)
    stored = lake.keys("")
    peer.run(abort(txn))
    assert txn.state is Status.COMMITTED
    assert lake.keys("") == stored


def test_nothing_is_done_with_one_that_was_aborted(peer: Peer) -> None:
    txn = peer.appending("a", 7)
    peer.run(abort(txn))
    with pytest.raises(lv.InvalidOperation, match="begin a new one"):
        peer.append(txn, "a", 8)
