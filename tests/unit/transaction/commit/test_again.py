"""A second call of commit, after a first whose outcome its client does not know."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.store.base import Unknown
from lakevilla.store.effects import Get, Put
from lakevilla.transaction.commit.commit import check_may_commit, found_in_head
from lakevilla.transaction.commit.decide import decide
from lakevilla.transaction.state.transaction import TransactionState
from tests.support import by_hand
from tests.support.simulated.memory_lake import MemoryLake, Peer

LOST = Unknown("the connection was cut")


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def in_doubt(peer: Peer, *, landed: bool) -> TransactionState:
    txn = peer.appending("a", 7)
    sealed = peer.uploaded(txn)
    peer.instead("HEAD", LOST, times=6, landed=landed)
    peer.instead("HEAD", lv.StoreError("no connection"), verb=Get)
    with pytest.raises(lv.CommitOutcomeUnknown):
        peer.run(decide(txn, sealed))
    peer.asked.clear()
    return txn


def test_looking_for_a_commit_that_was_never_tried_sends_no_request(peer: Peer) -> None:
    txn = peer.appending("a", 7)
    peer.asked.clear()
    assert peer.run(found_in_head(txn)) is None
    assert peer.asked == []


def test_a_commit_that_was_stored_is_found_in_head_without_a_write(peer: Peer) -> None:
    txn = in_doubt(peer, landed=True)
    found = peer.run(found_in_head(txn))
    assert found is not None
    assert found.summary.txn == txn.id
    assert peer.asked_for(Put) == []
    assert not txn.ending.is_in_doubt


def test_a_commit_stays_in_doubt_while_head_is_the_one_that_it_was_to_replace(peer: Peer) -> None:
    txn = in_doubt(peer, landed=False)
    assert peer.run(found_in_head(txn)) is None
    assert txn.ending.is_in_doubt


def test_a_commit_is_no_longer_in_doubt_once_another_client_has_replaced_that_head(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = in_doubt(peer, landed=False)
    lake.peer().decide("b", 8)
    assert peer.run(found_in_head(txn)) is None
    assert not txn.ending.is_in_doubt


def test_a_second_call_of_commit_adds_the_rows_once(lake: MemoryLake, peer: Peer) -> None:
    for landed in (True, False):
        peer = lake.peer()
        before = lake.ids("a")
        peer.commit(in_doubt(peer, landed=landed))
        assert lake.ids("a") == sorted([*before, 7])


def test_a_transaction_that_has_ended_refuses_to_commit() -> None:
    context = by_hand.make_context()
    by_hand.make_tail(context)
    txn = by_hand.begun(context)
    check_may_commit(txn)
    failure = txn.fail(lv.ConflictError("lost"))
    with pytest.raises(lv.ConflictError) as caught:
        check_may_commit(txn)
    assert caught.value is failure
    txn.ending.head_tried = 3
    with pytest.raises(lv.CommitOutcomeUnknown, match="may have committed"):
        check_may_commit(txn)
    txn.note_aborted()
    with pytest.raises(lv.InvalidOperation, match="has aborted already"):
        check_may_commit(txn)
