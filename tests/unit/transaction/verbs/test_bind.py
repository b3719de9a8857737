"""The HEAD to which a transaction is bound, and each table when it is first used."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.maintenance.gc.gc import gc
from lakevilla.store.effects import Get, Put
from lakevilla.transaction.verbs.bind import bind_to_head, touch
from lakevilla.transaction.verbs.read_write import drop
from lakevilla_testing.tables import delta_writer
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def test_a_transaction_is_bound_at_its_first_use_and_keeps_that_state(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.begin()
    before = lake.peer()
    before.commit(before.appending("a", 7))
    assert sorted(peer.read(txn, "a")) == [0, 1, 7]
    after = lake.peer()
    after.commit(after.appending("a", 8))
    assert sorted(peer.read(txn, "a")) == [0, 1, 7]
    bound = txn.bound.sequence
    assert bound == lake.head.sequence - 1


def test_two_tables_are_read_in_one_state_of_the_lake(lake: MemoryLake, peer: Peer) -> None:
    txn = peer.begin()
    assert peer.read(txn, "a") == {0: 100, 1: 100}
    other = lake.peer()
    transfer = other.begin()
    other.add(transfer, "a", -5)
    other.add(transfer, "b", 5)
    other.commit(transfer)
    assert peer.read(txn, "b") == {0: 100, 1: 100}


def test_a_commit_that_is_decided_and_not_published_is_seen_by_the_next_transaction(
    lake: MemoryLake, peer: Peer
) -> None:
    lake.peer().decide("a", 7)
    assert sorted(peer.read(peer.begin(), "a")) == [0, 1, 7]
    assert lake.ids("a") == [0, 1]


def test_foreign_appends_are_seen_by_the_next_transaction(lake: MemoryLake, peer: Peer) -> None:
    peer.read(peer.begin(), "a")
    other = lake.peer()
    other.run(delta_writer.append(other.client, "a", [{"id": 9, "balance": 0, "items": ""}]))
    assert sorted(peer.read(peer.begin(), "a")) == [0, 1, 9]


def test_a_cached_table_is_probed_in_the_round_in_which_head_is_read(peer: Peer) -> None:
    peer.read(peer.begin(), "a")
    txn = peer.begin()
    effect = next(touch(txn, ["a"], probing=True))
    assert len(getattr(effect, "parts", ())) == 2


def test_a_writer_creates_a_missing_head_and_a_reader_does_not() -> None:
    lake = MemoryLake(warm=False)
    peer = lake.peer()
    peer.read(peer.begin(read_only=True), "a")
    assert peer.asked_for(Put) == []
    peer.run(bind_to_head(peer.begin()))
    assert peer.asked_for(Put) == ["_lakevilla/HEAD.json"]


def test_a_transaction_that_commits_by_log_entry_reads_head_only_now_and_then(
    lake: MemoryLake, peer: Peer
) -> None:
    def asked() -> int:
        peer.asked.clear()
        peer.read(peer.begin(lv.Feature.R), "a")
        return len(peer.asked_for(Get, "HEAD"))

    assert [asked(), asked()] == [1, 0]
    lake.pass_by(11)
    effect = next(touch(peer.begin(lv.Feature.R), ["a"], probing=True))
    assert len(getattr(effect, "parts", ())) == 2
    assert [asked(), asked()] == [1, 0]


def test_a_head_that_was_replaced_by_an_older_one_is_refused(lake: MemoryLake) -> None:
    old = lake.store.objects["_lakevilla/HEAD.json"]
    other = lake.peer()
    other.commit(other.appending("a", 7))
    lake.store.objects["_lakevilla/HEAD.json"] = old
    peer = lake.peer()
    with pytest.raises(lv.CorruptObject, match="was set back"):
        peer.read(peer.begin(), "a")


def test_a_table_that_was_dropped_is_not_found(lake: MemoryLake, peer: Peer) -> None:
    other = lake.peer()
    dropping = other.begin()
    other.run(drop(dropping, "a"))
    other.commit(dropping)
    with pytest.raises(lv.TableNotFound, match="was dropped"):
        peer.read(peer.begin(), "a")


def test_a_client_whose_clock_is_behind_the_floor_gets_an_id_above_it(lake: MemoryLake) -> None:
    lake.pass_by(3 * 24 * 3600)
    cleaner = lake.peer()
    cleaner.run(gc(cleaner.context))
    slow = lake.peer()
    slow.client.clock.skew(-3 * 24 * 3600)
    txn = slow.begin()
    assert lake.head.is_fenced(txn.id)
    slow.run(bind_to_head(txn))
    assert not lake.head.is_fenced(txn.id)
    slow.append(txn, "a", 7)
    slow.commit(txn)
    assert lake.ids("a") == [0, 1, 7]
