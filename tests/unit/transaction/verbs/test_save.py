"""A transaction that outlives its process; two owners of one id never both commit."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.lake.publishing.outcome import fence
from lakevilla.store.base import Unknown
from lakevilla.store.effects import DeleteObject, Get
from lakevilla.sublogs.record import TXNS_PREFIX
from lakevilla.transaction.state import late_reads as due
from lakevilla.transaction.state.late_reads import is_due, is_due_between_verbs, is_due_in_verb
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.save import (
    forget,
    resume,
    save,
    unsave,
)
from tests.support.simulated.memory_lake import BY_ENTRY, MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def saved(peer: Peer) -> TransactionState:
    txn = peer.begin()
    peer.add(txn, "a", 5)
    peer.read(txn, "b")
    peer.run(save(txn))
    return txn


def resumed(peer: Peer, txn: TransactionState) -> TransactionState:
    return peer.run(resume(peer.context, txn.id, "somebody"))


def test_a_resumed_transaction_has_the_operations_and_reads_that_were_saved(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = saved(peer)
    heir = lake.peer()
    again = resumed(heir, txn)
    assert again.id == txn.id
    assert again.work.reads == txn.work.reads
    assert [done.operation for done in again.work.done] == [d.operation for d in txn.work.done]
    assert heir.read(again, "a") == {0: 105, 1: 100}
    heir.commit(again)
    assert lake.rows("a") == {0: 105, 1: 100}
    assert lake.keys(TXNS_PREFIX) == []


def test_a_resumed_transaction_can_not_be_saved_or_committed_by_its_old_owner(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = saved(peer)
    heir = lake.peer()
    again = resumed(heir, txn)
    with pytest.raises(lv.TransactionAborted, match="resumed"):
        peer.run(save(txn))
    heir.commit(again)
    with pytest.raises(lv.LakeVillaError):
        peer.commit(txn)
    assert lake.rows("a") == {0: 105, 1: 100}


def test_a_read_that_changed_while_its_transaction_was_saved_is_a_conflict(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = saved(peer)
    other = lake.peer()
    theirs = other.begin()
    other.add(theirs, "b", 1)
    other.commit(theirs)
    heir = lake.peer()
    again = resumed(heir, txn)
    with pytest.raises(lv.ConflictError):
        heir.commit(again)


@pytest.mark.parametrize(
    ("ending", "error"), [("committed", lv.AlreadyCommitted), ("fenced", lv.TransactionAborted)]
)
def test_a_saved_transaction_that_has_ended_is_not_resumed(
    lake: MemoryLake, peer: Peer, ending: str, error: type[Exception]
) -> None:
    txn = saved(peer)
    if ending == "committed":
        peer.commit(txn)
    else:
        other = lake.peer()
        other.run(fence(other.context, txn.id))
    with pytest.raises(error):
        resumed(lake.peer(), txn)


def test_a_transaction_that_was_never_saved_is_not_found(lake: MemoryLake, peer: Peer) -> None:
    with pytest.raises(lv.TransactionNotFound, match="only saved ones"):
        resumed(lake.peer(), peer.appending("a", 7))


def test_only_one_of_two_processes_that_resume_concurrently_succeeds(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = saved(peer)
    first, second = lake.peer(), lake.peer()
    first.run(resume(first.context, txn.id, "first"))
    steps = second.steps(resume(second.context, txn.id, "second")).until(f"{txn.id}.json")
    resumed(first, txn)
    with pytest.raises(lv.CommitOutcomeUnknown, match="just now"):
        steps.finish()


def test_a_transaction_whose_log_entry_may_still_be_stored_is_not_saved(
    lake: MemoryLake, peer: Peer
) -> None:
    """Saved, it would commit through HEAD, and so could pass two commit points."""
    txn = peer.appending("a", 7, features=BY_ENTRY)
    peer.instead("_delta_log", Unknown("cut"), times=9)
    with pytest.raises(lv.CommitOutcomeUnknown):
        peer.commit(txn)
    with pytest.raises(lv.CommitOutcomeUnknown, match="commit it again"):
        peer.run(save(txn))
    assert not txn.through_head


def test_saving_a_transaction_whose_log_entry_was_stored_raises_already_committed(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7, features=BY_ENTRY)
    peer.instead("_delta_log", Unknown("cut"), times=9, landed=True)
    with pytest.raises(lv.CommitOutcomeUnknown):
        peer.commit(txn)
    with pytest.raises(lv.AlreadyCommitted) as caught:
        peer.run(save(txn))
    assert caught.value.result is not None
    assert caught.value.result.versions == {"a": lake.version("a")}


def test_an_unsaved_transaction_can_not_be_resumed(lake: MemoryLake, peer: Peer) -> None:
    txn = saved(peer)
    peer.run(unsave(txn))
    assert not txn.ending.shared
    with pytest.raises(lv.TransactionNotFound):
        resumed(lake.peer(), txn)


def test_a_record_is_deleted_before_the_objects_that_only_it_names(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = saved(peer)
    peer.asked.clear()
    peer.run(forget(txn))
    deleted = peer.asked_for(DeleteObject)
    assert deleted[0].endswith(f"{txn.id}.json")
    assert len(deleted) == 2
    assert lake.keys(TXNS_PREFIX) == []


def test_a_save_becomes_due_by_the_age_of_a_transaction_or_the_size_of_its_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(due, "MOST_HELD_BYTES", 1)
    lake = MemoryLake(save_interval_seconds=60.0)
    peer = lake.peer()
    txn = peer.appending("a", 7)
    assert txn.work.held_bytes == sum(map(len, txn.work.bodies.values())) > 0
    assert is_due(txn)
    assert is_due_in_verb(txn)
    peer.run(save(txn))
    assert txn.work.held_bytes == 0
    assert not is_due(txn)
    lake.pass_by(60)
    assert is_due(txn)
    assert not is_due_in_verb(txn), "the thread beside it has had no time yet"
    assert not is_due_between_verbs(txn), "nothing was done since"
    lake.pass_by(60)
    assert is_due_in_verb(txn)
    assert peer.asked_for(Get) != []


def test_many_small_operations_make_no_save_due(lake: MemoryLake, peer: Peer) -> None:
    txn = peer.appending("a", 7)
    for number in range(200):
        peer.append(txn, "a", number)
    assert not is_due(txn)
    assert not is_due_in_verb(txn)


def test_a_transaction_whose_commit_was_tried_is_not_saved_in_the_background(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    lake.pass_by(60)
    assert is_due_between_verbs(txn)
    txn.ending.tried = True
    assert not is_due_between_verbs(txn)
