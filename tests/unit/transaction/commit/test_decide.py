"""Steps 4 and 5: a commit is validated against HEAD, and then put into HEAD, or not."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.lake.publishing.outcome import fence
from lakevilla.store.base import Unknown
from lakevilla.store.effects import Put
from lakevilla.transaction.commit.decide import Redone, decide
from lakevilla.transaction.commit.upload import Sealed
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Decided
from tests.support.simulated.memory_lake import MemoryLake, Peer

HEAD = "_lakevilla/HEAD.json"
LOST = Unknown("the connection was cut")


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def decided(peer: Peer, txn: TransactionState, sealed: Sealed) -> Decided:
    outcome = peer.run(decide(txn, sealed))
    assert isinstance(outcome, Decided), outcome
    return outcome


def test_a_commit_is_decided_once_head_names_its_commit_object(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    sealed = peer.uploaded(txn)
    before = lake.head
    found = decided(peer, txn, sealed)
    assert lake.head == found.held.head
    assert (lake.head.replacement, lake.head.sequence) == (
        before.replacement + 1,
        before.sequence + 1,
    )
    assert (found.summary.txn, found.summary.hash) == (txn.id, sealed.digest)
    assert sealed.key in lake.store.objects


def test_a_race_lost_to_an_irrelevant_commit_uploads_nothing_again(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    sealed = peer.uploaded(txn)
    other = lake.peer()
    other.commit(other.appending("a", 8))
    peer.asked.clear()
    found = decided(peer, txn, sealed)
    assert found.summary.hash == sealed.digest
    assert [key for key in peer.asked_for(Put) if "HEAD" not in key] == []
    assert txn.ending.retries == 1


def test_an_update_of_changed_files_is_redone_on_the_newer_head(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.begin()
    peer.add(txn, "a", 5, number=0)
    sealed = peer.uploaded(txn)
    other = lake.peer()
    theirs = other.begin()
    other.add(theirs, "a", 1, number=1)  # the changed row is in the same file
    other.commit(theirs)
    before = lake.head
    outcome = peer.run(decide(txn, sealed))
    assert isinstance(outcome, Redone)
    assert lake.head == before, "nothing is decided"
    assert txn.head == before
    again = peer.uploaded(txn)
    assert again.digest != sealed.digest, "other files make another commit object"
    decided(peer, txn, again)
    lake.recover()
    assert lake.rows("a") == {0: 105, 1: 101}


def test_a_commit_whose_reads_were_changed_meanwhile_raises_a_conflict(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.begin()
    peer.read(txn, "b")
    peer.append(txn, "a", 7)
    sealed = peer.uploaded(txn)
    other = lake.peer()
    theirs = other.begin()
    other.add(theirs, "b", 1)
    other.commit(theirs)
    before = lake.head
    with pytest.raises(lv.ConflictError, match="table b"):
        peer.run(decide(txn, sealed))
    assert txn.state is Status.FAILED
    assert not txn.ending.is_in_doubt, "no replacement of it is under way"
    assert lake.head == before


def test_a_head_replacement_without_a_response_is_sent_again_with_the_same_bytes(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    sealed = peer.uploaded(txn)
    peer.instead(HEAD, LOST, landed=True)
    before, stored = lake.head, lake.replacements()
    found = decided(peer, txn, sealed)
    sent = [effect for effect in peer.asked if isinstance(effect, Put) and effect.key == HEAD]
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert lake.replacements() == stored + 1
    assert found.summary.sequence == before.sequence + 1
    assert txn.ending.head_tried is None


def test_a_head_replacement_that_was_not_stored_is_sent_until_it_is(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    sealed = peer.uploaded(txn)
    peer.instead(HEAD, LOST, times=3)
    stored = lake.replacements()
    decided(peer, txn, sealed)
    assert lake.replacements() == stored + 1


def test_a_commit_is_found_in_head_below_that_of_another_client(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    sealed = peer.uploaded(txn)
    other = lake.peer()

    def landed_and_overtaken() -> Unknown:
        other.commit(other.appending("b", 8))
        return LOST

    before = lake.head.sequence
    peer.instead(HEAD, landed_and_overtaken, landed=True)
    found = decided(peer, txn, sealed)
    assert found.summary.sequence == before + 1
    assert lake.head.sequence == before + 2, "neither is lost, and it is there once"
    assert txn.ending.retries == 0, "it has lost no race"


def test_a_head_replacement_that_never_gets_a_response_is_unknown_and_stays_in_doubt(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    sealed = peer.uploaded(txn)
    peer.instead(HEAD, LOST, times=100)
    with pytest.raises(lv.CommitOutcomeUnknown, match=txn.id):
        peer.run(decide(txn, sealed))
    assert txn.ending.is_in_doubt
    assert txn.state is Status.OPEN, "it may be committed again"


def test_a_rejected_head_replacement_leaves_nothing_in_doubt(lake: MemoryLake, peer: Peer) -> None:
    txn = peer.appending("a", 7)
    sealed = peer.uploaded(txn)
    before = lake.head
    peer.instead(HEAD, lv.StoreError("no right to write"))
    with pytest.raises(lv.StoreError, match=f"nothing of transaction {txn.id}"):
        peer.run(decide(txn, sealed))
    assert not txn.ending.is_in_doubt
    assert lake.head == before


def test_a_fenced_transaction_is_never_put_into_head(lake: MemoryLake, peer: Peer) -> None:
    txn = peer.appending("a", 7)
    sealed = peer.uploaded(txn)
    other = lake.peer()
    other.run(fence(other.context, txn.id))
    before = lake.head
    with pytest.raises(lv.TransactionAborted, match="aborted by another client"):
        peer.run(decide(txn, sealed))
    assert lake.head == before


def test_a_transaction_that_another_process_has_resumed_and_committed_is_aborted(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    sealed = peer.uploaded(txn)
    other = lake.peer()
    resumed = other.begin()
    resumed.id = txn.id
    other.append(resumed, "a", 8)
    other.commit(resumed)
    with pytest.raises(lv.TransactionAborted, match="resumed and committed by another process"):
        peer.run(decide(txn, sealed))
    assert lake.ids("a") == [0, 1, 8]


def test_too_many_pending_commits_of_a_table_are_published_before_the_next_is_decided() -> None:
    lake = MemoryLake(max_pending=2)
    peer = lake.peer()
    for number in (7, 8, 9):
        lake.peer().decide("a", number)
    assert len(lake.head.tables["a"].pending) == 3
    txn = peer.appending("a", 10)
    decided(peer, txn, peer.uploaded(txn))
    assert len(lake.head.tables["a"].pending) == 1
    assert lake.ids("a") == [0, 1, 7, 8, 9]
