"""The seven steps of a commit in their order, and a commit that has nothing to decide."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.store.effects import Put
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.status import Status
from tests.support.simulated.memory_lake import BY_ENTRY, MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def test_a_commit_writes_its_objects_first_then_head_and_then_logs(peer: Peer) -> None:
    """A crash between two of these steps leaves nothing, or a state that any client can finish."""
    txn = peer.appending("a", 7)
    peer.append(txn, "b", 7)
    peer.commit(txn)
    kinds = [
        "head" if "HEAD" in key else "log" if "_delta_log" in key else "object"
        for key in peer.asked_for(Put)
    ]
    assert kinds == sorted(kinds, key=["object", "head", "log"].index)
    assert kinds.count("head") == 1


def test_a_commit_without_writes_sends_no_request(peer: Peer) -> None:
    result = peer.commit(peer.begin())
    assert peer.asked == []
    assert (result.versions, result.global_version) == ({}, None)


def test_the_result_of_a_read_only_commit_has_the_global_version_that_was_read(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.begin()
    peer.read(txn, "a")
    before = lake.head
    assert peer.commit(txn).global_version == before.sequence
    assert lake.head == before


def test_a_commit_without_publishing_returns_once_it_is_decided(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    result = peer.commit(txn, publish=False)
    assert result.versions is None
    assert result.global_version == lake.head.sequence
    assert 7 not in lake.rows("a")


def test_a_commit_interrupted_after_its_commit_point_continues_from_there(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    steps = peer.steps(commit(txn)).until("a/_delta_log")
    with pytest.raises(KeyboardInterrupt):
        steps.interrupt()
    assert txn.state is Status.COMMITTED
    decided = lake.head
    assert peer.commit(txn).versions == {"a": 2}
    assert lake.head == decided, "HEAD is not replaced again"
    with pytest.raises(lv.InvalidOperation, match="has committed already"):
        peer.commit(txn)


def test_a_commit_interrupted_before_its_commit_point_may_be_called_again(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    steps = peer.steps(commit(txn)).until("HEAD")
    with pytest.raises(KeyboardInterrupt):
        steps.interrupt()
    assert txn.state is Status.OPEN
    peer.commit(txn)
    assert lake.ids("a") == [0, 1, 7]


@pytest.mark.parametrize("features", [BY_ENTRY, lv.Feature.R | lv.Feature.I])
def test_a_transaction_commits_only_once(peer: Peer, features: lv.Feature) -> None:
    txn = peer.appending("a", 7, features=features)
    peer.commit(txn)
    with pytest.raises(lv.InvalidOperation, match="has committed already"):
        peer.commit(txn)
