"""An idempotency key commits once, however often its user runs."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.maintenance.gc.gc import gc
from lakevilla.store.effects import Put
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import KeyUse
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.bind import bind_to_head
from lakevilla.transaction.verbs.idempotency import bind_key
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


def keyed(peer: Peer, version: int | None = None, key: str = "load") -> TransactionState:
    txn = peer.begin()
    txn.claims.key = KeyUse(key, version)
    return txn


def committed(peer: Peer, number: int, version: int | None = None) -> TransactionState:
    txn = keyed(peer, version)
    peer.append(txn, "a", number)
    peer.commit(txn)
    return txn


def test_a_second_run_with_a_key_gets_the_first_ones_result_before_it_has_done_anything(
    lake: MemoryLake,
) -> None:
    first = committed(lake.peer(), 7)
    peer = lake.peer()
    with pytest.raises(lv.AlreadyCommitted) as caught:
        peer.run(bind_to_head(keyed(peer)))
    assert caught.value.txn_id == first.id
    assert caught.value.result is not None
    assert caught.value.result.global_version == lake.head.sequence
    assert peer.asked_for(Put) == []


@pytest.mark.parametrize(("version", "is_done"), [(3, True), (4, True), (5, False)])
def test_an_application_version_that_is_not_higher_counts_as_committed(
    lake: MemoryLake, version: int, is_done: bool
) -> None:
    committed(lake.peer(), 7, version=4)
    peer = lake.peer()
    if is_done:
        with pytest.raises(lv.AlreadyCommitted, match="has committed version 4"):
            committed(peer, 8, version=version)
    else:
        committed(peer, 8, version=version)
    assert lake.ids("a") == [0, 1, 7] + [8] * (not is_done)


def test_an_open_transaction_with_the_same_key_is_waited_for_and_then_fenced(
    lake: MemoryLake,
) -> None:
    slow, peer = lake.peer(), lake.peer()
    hanging = keyed(slow)
    slow.append(hanging, "a", 7)
    slow.uploaded(hanging)  # it is at its commit point
    before = lake.world.now
    committed(peer, 8)
    assert lake.world.now - before >= peer.context.settings.lease_seconds
    assert lake.head.is_fenced(hanging.id)
    with pytest.raises(lv.TransactionAborted):
        slow.commit(hanging)
    assert lake.ids("a") == [0, 1, 8]


def test_a_transaction_with_the_same_key_that_this_process_has_ended_is_not_waited_for(
    lake: MemoryLake,
) -> None:
    peer = lake.peer()
    failed = keyed(peer)
    peer.append(failed, "a", 7)
    peer.uploaded(failed)
    failed.fail(lv.ConflictError("lost"))
    peer.run(abort(failed))
    before = lake.world.now
    committed(peer, 8)
    assert lake.world.now == before


def test_one_of_two_transactions_that_bind_a_key_concurrently_commits(lake: MemoryLake) -> None:
    first, second = lake.peer(), lake.peer()
    one, other = keyed(first), keyed(second)
    first.append(one, "a", 7)
    second.append(other, "a", 8)
    assert one.claims.key is not None
    first.run(bind_key(one, one.claims.key))
    with pytest.raises(lv.ConflictError, match="was taken by another"):
        second.commit(other)
    first.commit(one)
    assert lake.ids("a") == [0, 1, 7]


def test_a_plain_key_is_free_once_its_history_has_expired_and_an_applications_key_is_not(
    lake: MemoryLake,
) -> None:
    for key, version in (("plain", None), ("app", 1)):
        peer = lake.peer()
        txn = keyed(peer, version, key)
        peer.append(txn, "a", 7)
        peer.commit(txn)
    settings = lake.peer().context.settings
    lake.pass_by(settings.outcome_retention_seconds + 10)
    last = lake.peer()
    last.commit(last.appending("b", 7))  # the newest commit is always kept
    cleaner = lake.peer()
    for _ in range(2):  # HEAD keeps entries of pending commits
        cleaner.run(gc(cleaner.context))
    peer = lake.peer()
    peer.run(bind_to_head(keyed(peer, key="plain")))
    with pytest.raises(lv.AlreadyCommitted):
        peer.run(bind_to_head(keyed(peer, 1, "app")))
