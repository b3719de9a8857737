"""The outcome of a transaction: once it was returned, it never changes."""

from __future__ import annotations

import msgspec
import pytest

import lakevilla as lv
from lakevilla.lake.publishing.outcome import abort, fence, is_forgotten, outcome
from lakevilla.maintenance.gc.gc import gc
from lakevilla.store.base import Unknown
from lakevilla.transaction.commit.decide import decide
from lakevilla.transaction.verbs.save import save
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def test_a_transaction_in_head_has_committed(lake: MemoryLake, peer: Peer) -> None:
    txn = lake.peer().decide("a", 7)
    found = peer.run(outcome(peer.context, txn.id))
    assert found.state == "committed"
    assert found.result is not None
    assert found.result.global_version == lake.head.sequence
    assert found.result.versions == {"a": None}, "it is not in the log, as far as is known here"


def test_a_transaction_whose_outcome_is_requested_before_its_decision_never_commits(
    lake: MemoryLake, peer: Peer
) -> None:
    slow = lake.peer()
    txn = slow.appending("a", 7)
    sealed = slow.uploaded(txn)
    steps = slow.steps(decide(txn, sealed)).until("HEAD")
    assert peer.run(outcome(peer.context, txn.id)).state == "aborted"
    with pytest.raises(lv.TransactionAborted):
        steps.finish()
    assert peer.run(outcome(peer.context, txn.id)).state == "aborted"
    assert lake.ids("a") == [0, 1]


def test_an_outcome_is_unknown_if_head_can_not_be_replaced(lake: MemoryLake, peer: Peer) -> None:
    txn = lake.peer().appending("a", 7)
    peer.instead("HEAD", lv.StoreError("no right"))
    with pytest.raises(lv.CommitOutcomeUnknown, match="try again"):
        peer.run(outcome(peer.context, txn.id))


def test_a_transaction_that_commits_by_log_entry_has_no_outcome_in_head_and_can_not_be_aborted(
    lake: MemoryLake, peer: Peer
) -> None:
    txn_id = peer.context.ids.txn_id(by_entry=True)
    before = lake.head
    with pytest.raises(lv.CommitOutcomeUnknown, match="table's history"):
        peer.run(outcome(peer.context, txn_id))
    with pytest.raises(lv.InvalidOperation, match="nothing can fence"):
        peer.run(abort(peer.context, txn_id))
    assert lake.head == before


def test_a_committed_transaction_is_not_aborted(lake: MemoryLake, peer: Peer) -> None:
    txn = lake.peer().decide("a", 7)
    with pytest.raises(lv.InvalidOperation, match="has committed as global version"):
        peer.run(abort(peer.context, txn.id))
    assert not lake.head.is_fenced(txn.id)


def test_requesting_the_outcome_of_an_undecided_transaction_deletes_its_record(
    lake: MemoryLake, peer: Peer
) -> None:
    owner = lake.peer()
    txn = owner.appending("a", 7)
    owner.run(save(txn))
    peer.run(outcome(peer.context, txn.id))
    assert [key for key in lake.keys("_lakevilla/txns") if key.endswith(f"{txn.id}.json")] == []


def test_a_fence_whose_response_is_lost_is_found_in_head_and_not_written_again(
    lake: MemoryLake, peer: Peer
) -> None:
    txn_id = peer.context.ids.txn_id()
    peer.instead("HEAD", Unknown("cut"), landed=True)
    assert peer.run(fence(peer.context, txn_id)) is None
    assert lake.head.aborted == (txn_id,)


def test_outcome_refuses_text_that_is_no_transaction_id(peer: Peer) -> None:
    for text in ("", "latest", "00000000-0000-0000-0000-000000000000", None, 7):
        with pytest.raises(lv.InvalidOperation, match="not a transaction id"):
            peer.run(outcome(peer.context, text))  # type: ignore[arg-type]
    assert peer.asked == []


def test_a_transaction_older_than_the_kept_history_has_an_unknown_outcome(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = lake.peer().decide("a", 7)
    lake.recover()
    lake.pass_by(peer.context.settings.outcome_retention_seconds + 10)
    lake.peer().decide("b", 7)
    for _ in range(2):
        cleaner = lake.peer()
        cleaner.run(gc(cleaner.context))
    late = lake.peer()
    assert late.run(outcome(late.context, txn.id)).state == "committed", "HEAD lists it still"
    older = "00000000-0000-7000-8000-000000000000"
    assert late.run(outcome(late.context, older)).state == "expired"
    with pytest.raises(lv.InvalidOperation, match="not known"):
        late.run(abort(late.context, older))


def test_the_last_forgotten_transaction_is_not_called_aborted(lake: MemoryLake) -> None:
    txn = lake.peer().decide("a", 7)
    head = msgspec.structs.replace(lake.head, floor=txn.id, forgotten=txn.id)
    assert is_forgotten(head, txn.id)
    lake.pass_by(1)
    assert not is_forgotten(head, lake.peer().begin().id)
