"""Garbage collection: it fences dead transactions in HEAD, and then deletes their objects."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.maintenance.gc.gc import gc
from lakevilla.store.effects import DeleteObject, Put
from lakevilla.transaction.verbs.save import save
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def left_behind(lake: MemoryLake) -> tuple[list[str], Peer, object]:
    """Upload the objects of a client that stops before its commit; return them and the client."""
    before = set(lake.keys(""))
    slow = lake.peer()
    txn = slow.appending("a", 7)
    slow.uploaded(txn)
    return sorted(set(lake.keys("")) - before), slow, txn


def go_on(lake: MemoryLake, number: int = 8) -> None:
    """Commit later, so that transactions decided before are in HEAD."""
    other = lake.peer()
    other.commit(other.appending("a", number))


def grow_old(lake: MemoryLake) -> None:
    lake.pass_by(lake.peer().context.settings.max_age_seconds + 1)


def test_gc_keeps_files_of_a_transaction_that_may_still_commit(
    lake: MemoryLake, peer: Peer
) -> None:
    files, slow, txn = left_behind(lake)
    assert files
    peer.run(gc(peer.context))
    assert set(files) <= set(lake.keys(""))
    slow.commit(txn)  # type: ignore[arg-type]
    assert lake.ids("a") == [0, 1, 7]


def test_gc_fences_a_transaction_that_is_too_old_and_deletes_its_files(
    lake: MemoryLake, peer: Peer
) -> None:
    files, slow, txn = left_behind(lake)
    go_on(lake)
    grow_old(lake)
    peer.run(gc(peer.context))
    assert not set(files) & set(lake.keys(""))
    with pytest.raises(lv.TransactionAborted):
        slow.commit(txn)  # type: ignore[arg-type]
    assert lake.ids("a") == [0, 1, 8]


def test_gc_keeps_files_that_a_lost_head_may_have_decided_until_the_next_commit(
    lake: MemoryLake, peer: Peer
) -> None:
    files, _, _ = left_behind(lake)
    for _ in range(2):
        grow_old(lake)
        peer.run(gc(peer.context))
        assert set(files) <= set(lake.keys(""))
    go_on(lake)
    peer.run(gc(peer.context))
    assert not set(files) & set(lake.keys(""))


def test_gc_replaces_head_before_it_deletes_anything(lake: MemoryLake, peer: Peer) -> None:
    left_behind(lake)
    go_on(lake)
    grow_old(lake)
    peer.run(gc(peer.context))
    verbs = [
        type(effect)
        for effect in peer.asked
        if isinstance(effect, DeleteObject) or (isinstance(effect, Put) and "HEAD" in effect.key)
    ]
    assert verbs[0] is Put
    assert DeleteObject in verbs
    assert Put not in verbs[verbs.index(DeleteObject) :]


def test_gc_deletes_nothing_if_head_can_not_be_replaced(lake: MemoryLake, peer: Peer) -> None:
    files, _, _ = left_behind(lake)
    grow_old(lake)
    peer.instead("HEAD", lv.StoreError("no right"))
    with pytest.raises(lv.StoreError):
        peer.run(gc(peer.context))
    assert set(files) <= set(lake.keys(""))
    assert peer.asked_for(DeleteObject) == []


def test_a_dry_run_of_gc_reports_the_same_and_writes_nothing(lake: MemoryLake, peer: Peer) -> None:
    left_behind(lake)
    grow_old(lake)
    before, objects = lake.head, lake.keys("")
    dry = peer.run(gc(peer.context, dry_run=True))
    assert peer.asked_for(Put) == peer.asked_for(DeleteObject) == []
    assert (lake.head, lake.keys("")) == (before, objects)
    done = lake.peer()
    report = done.run(gc(done.context))
    assert {one.key for one in dry.findings} == {one.key for one in report.findings}


def test_gc_keeps_all_objects_that_unpublished_commits_need(lake: MemoryLake, peer: Peer) -> None:
    lake.peer().decide("a", 7)
    grow_old(lake)
    peer.run(gc(peer.context))
    assert lake.recover().ok
    assert lake.ids("a") == [0, 1, 7]


def test_gc_deletes_the_record_of_a_transaction_that_is_too_old(
    lake: MemoryLake, peer: Peer
) -> None:
    owner = lake.peer()
    txn = owner.appending("a", 7)
    owner.run(save(txn))
    peer.run(gc(peer.context))
    assert lake.keys(f"_lakevilla/txns/{txn.id}")
    grow_old(lake)
    later = lake.peer()
    later.run(gc(later.context))
    assert lake.keys(f"_lakevilla/txns/{txn.id}") == []
