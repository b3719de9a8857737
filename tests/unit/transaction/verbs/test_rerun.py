"""A rerun after a conflict: the same id, and nothing of the earlier attempt."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.store.effects import Put
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.abort import rerun
from lakevilla.transaction.verbs.save import resume, save
from tests.support.simulated.memory_lake import BY_ENTRY, MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def lost(
    lake: MemoryLake, peer: Peer, features: Feature = Feature.R | Feature.I
) -> TransactionState:
    """Return a transaction whose reads were changed before it could commit."""
    txn = peer.begin(features)
    peer.read(txn, "a")
    peer.append(txn, "a", 7)
    other = lake.peer()
    theirs = other.begin()
    other.add(theirs, "a", 1)
    other.commit(theirs)
    with pytest.raises(lv.ConflictError):
        peer.commit(txn)
    assert txn.ending.may_run_again
    return txn


def test_a_rerun_is_the_same_transaction_with_nothing_done(lake: MemoryLake, peer: Peer) -> None:
    old = lost(lake, peer)
    new = peer.run(rerun(old))
    assert (new.id, new.state, old.state) == (old.id, Status.OPEN, Status.ABORTED)
    assert (new.work.done, new.work.reads) == ([], {})
    assert peer.read(new, "a") == {0: 101, 1: 100}
    peer.append(new, "a", 7)
    peer.commit(new)
    assert lake.ids("a") == [0, 1, 7]


def test_an_escalated_rerun_reserves_the_tables_that_earlier_attempts_have_used(
    lake: MemoryLake, peer: Peer
) -> None:
    old = lost(lake, peer)
    new = peer.run(rerun(old, escalate=True))
    assert Feature.CT in new.options.features
    assert [(one.txn, one.tables) for one in lake.head.reserved] == [(old.id, ("a",))]
    peer.append(new, "a", 7)
    peer.commit(new)
    assert lake.head.reserved == ()


def test_a_rerun_of_a_commit_by_log_entry_gets_an_id_that_commits_through_head(
    lake: MemoryLake, peer: Peer
) -> None:
    old = lost(lake, peer, BY_ENTRY)
    old.id = peer.context.ids.txn_id(by_entry=True)
    new = peer.run(rerun(old, escalate=True))
    assert new.through_head
    assert new.id != old.id


def test_a_transaction_resumed_by_another_process_is_not_rerun(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    peer.run(save(txn))
    heir = lake.peer()
    heir.run(resume(heir.context, txn.id, "heir"))
    txn.fail(lv.ConflictError("lost"))
    with pytest.raises(lv.TransactionAborted):
        peer.run(rerun(txn))


def test_a_rerun_is_not_escalated_on_a_store_that_can_not_replace_head(lake: MemoryLake) -> None:
    lake = MemoryLake(warm=False)
    lake.store.replaces = False
    peer = lake.peer()
    txn = peer.appending("a", 7)
    txn.fail(lv.ConflictError("lost"))
    new = peer.run(rerun(txn, escalate=True))
    assert Feature.CT not in new.options.features
    assert peer.asked_for(Put, "txns") == []
