"""Step 3: a commit stores all that it names, and requests what may prevent it, in one round."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.global_log.repo import LakeFile, lake_key
from lakevilla.store.base import ABSENT, NEW, Unknown
from lakevilla.store.codec import decode
from lakevilla.store.effects import Get, Parallel, Put
from lakevilla.transaction.commit.upload import seal_commit, upload
from lakevilla_testing.tables import delta_writer
from lakevilla_testing.world.programs import as_program
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def test_a_commit_to_a_cached_table_uploads_in_one_round(peer: Peer) -> None:
    peer.commit(peer.appending("a", 6))
    txn = peer.appending("a", 7)
    sealed = peer.run(seal_commit(txn))
    program = upload(txn, sealed)
    effect = next(program)
    assert isinstance(effect, Parallel)
    puts = [part for part in effect.parts if isinstance(part, Put)]
    assert {put.key for put in puts} == {*txn.work.bodies, sealed.key}
    assert {put.condition for put in puts if put.key == sealed.key} == {ABSENT}
    assert {put.condition for put in puts if put.key != sealed.key} == {NEW}
    with pytest.raises(StopIteration):
        program.send([peer.run(as_program(part)) for part in effect.parts])
    assert txn.work.bodies == {}


def test_keys_are_noted_before_their_objects_are_sent(lake: MemoryLake, peer: Peer) -> None:
    """If the client is interrupted in between, an abort finds all objects that may be stored."""
    txn = peer.appending("a", 7)
    made = set(txn.work.bodies)
    sealed = peer.run(seal_commit(txn))
    next(upload(txn, sealed))
    assert made | {sealed.key} <= set(txn.work.stored)


@pytest.mark.parametrize("word", ["a/lv-h-", "_lakevilla/commits/"])
def test_a_commit_never_names_objects_that_may_not_be_stored(peer: Peer, word: str) -> None:
    txn = peer.appending("a", 7)
    sealed = peer.run(seal_commit(txn))
    peer.instead(word, Unknown("cut"))
    with pytest.raises(lv.StoreError, match="nothing was committed"):
        peer.run(upload(txn, sealed))


def test_a_table_that_is_new_to_head_is_claimed_and_other_tables_are_not() -> None:
    lake = MemoryLake(warm=False)
    first, second = lake.peer(), lake.peer()
    first.commit(first.appending("a", 6))
    owner = decode("a", lake.store.objects[lake_key("a")].body, LakeFile)
    assert owner.lake_id == lake.head.lake_id
    second.uploaded(second.appending("a", 7))
    assert second.asked_for(Put, "lake.json") == []
    second.uploaded(second.appending("b", 7))
    assert second.asked_for(Put, "lake.json") == [lake_key("b")]


def test_a_table_of_another_lake_is_refused_before_anything_is_decided() -> None:
    lake = MemoryLake(warm=False)
    peer = lake.peer()
    txn = peer.appending("a", 7)
    foreign = b'{"format":1,"nonce":"n","lake_id":"other","root":"elsewhere"}'
    lake.store.put(lake_key("a"), foreign, ABSENT)
    with pytest.raises(lv.InvalidOperation, match="belongs to the lake at elsewhere"):
        peer.uploaded(txn)
    assert lake.head.sequence == 0


def test_foreign_entries_are_noticed_during_the_upload(lake: MemoryLake, peer: Peer) -> None:
    txn = peer.appending("a", 7)
    other = lake.peer()
    rows = [{"id": 8, "balance": 0, "items": ""}]
    other.run(delta_writer.append(other.client, "a", rows))
    peer.uploaded(txn)
    assert peer.context.tails["a"].tip == lake.version("a")


def test_an_unknown_commit_of_the_lake_in_a_log_makes_the_upload_request_head(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    other = lake.peer()
    other.commit(other.appending("a", 8))
    peer.asked.clear()
    peer.uploaded(txn)
    assert len(peer.asked_for(Get, "HEAD")) == 1
    assert peer.context.held is not None
    assert peer.context.held.head == lake.head
