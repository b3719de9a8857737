"""Abort: the end of a transaction that does not commit."""

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


def test_abort_deletes_the_objects_of_a_transaction_that_can_not_have_committed(
    lake: MemoryLake, peer: Peer
) -> None:
    before = lake.keys("")
    txn = peer.appending("a", 7)
    peer.uploaded(txn)
    assert lake.keys("") != before
    peer.run(abort(txn))
    assert lake.keys("") == before
    assert txn.state is Status.ABORTED


def test_abort_keeps_the_files_of_a_transaction_that_may_have_committed(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    peer.uploaded(txn)
    stored = lake.keys("")
    txn.ending.tried = True
    peer.run(abort(txn))
    assert lake.keys("") == stored


def test_abort_keeps_the_files_of_a_transaction_that_another_process_may_have_resumed(
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


def test_verbs_of_an_aborted_transaction_are_refused(peer: Peer) -> None:
    txn = peer.appending("a", 7)
    peer.run(abort(txn))
    with pytest.raises(lv.InvalidOperation, match="begin a new one"):
        peer.append(txn, "a", 8)
