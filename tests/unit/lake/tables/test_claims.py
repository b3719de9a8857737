"""Each table's claim, ``lake.json``: the names noted in it, and claims that were lost."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.global_log.repo import LakeFile, claim_of, lake_key
from lakevilla.lake.tables.claims import note_names, restore_claims
from lakevilla.lake.tables.registration import register, unregister
from lakevilla.store.base import ANY
from lakevilla.store.codec import decode, encode
from lakevilla.store.effects import Get, Put
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def claim(lake: MemoryLake, table: str = "a") -> LakeFile | None:
    return lake.peer().run(claim_of(table))


def restored(peer: Peer) -> list[str]:
    head = peer.run_head()
    assert head is not None
    return [f"{one.severity} {one.table}" for one in peer.run(restore_claims(peer.context, head))]


def test_a_missing_claim_is_written_again_once(lake: MemoryLake, peer: Peer) -> None:
    before = claim(lake)
    lake.store.delete(lake_key("a"))
    assert restored(peer) == ["note a"]
    after = claim(lake)
    assert before is not None
    assert after is not None
    assert (after.lake_id, after.root) == (before.lake_id, before.root)
    assert restored(peer) == []


def test_a_claim_of_another_lake_is_never_replaced(lake: MemoryLake, peer: Peer) -> None:
    other = LakeFile(1, "n", "another", "elsewhere")
    lake.store.put(lake_key("a"), encode(other), ANY)
    assert restored(peer) == ["error a"]
    assert claim(lake) == other


def test_a_damaged_claim_is_reported_and_other_claims_are_still_restored(
    lake: MemoryLake, peer: Peer
) -> None:
    lake.store.put(lake_key("a"), b"torn", ANY)
    lake.store.delete(lake_key("b"))
    assert restored(peer) == ["error a", "note b"]


def test_a_table_that_is_unregistered_meanwhile_is_not_claimed_again(
    lake: MemoryLake, peer: Peer
) -> None:
    lake.store.delete(lake_key("a"))
    head = peer.run_head()
    assert head is not None
    slow = peer.steps(restore_claims(peer.context, head)).until("a/_lakevilla/lake.json")
    other = lake.peer()
    other.run(unregister(other.context, "a", "a"))
    assert slow.finish() == []
    assert claim(lake) is None


def named(lake: MemoryLake, name: str) -> None:
    peer = lake.peer()
    peer.run(register(peer.context, {name: "a"}, {name: name}))


def test_the_names_of_a_table_are_noted_in_its_claim(lake: MemoryLake) -> None:
    for name in ("orders", "sales"):
        named(lake, name)
    found = claim(lake)
    assert found is not None
    assert found.aliases == tuple(lake.head.names)


def test_a_slow_client_does_not_overwrite_newer_names_in_a_claim(
    lake: MemoryLake, peer: Peer
) -> None:
    named(lake, "orders")
    owner = claim(lake)
    assert owner is not None
    stale = encode(LakeFile(1, "stale", owner.lake_id, owner.root))
    lake.store.put(lake_key("a"), stale, ANY)
    slow = peer.steps(note_names(peer.context, ["a"])).until("lake.json", Put)
    named(lake, "sales")
    slow.finish()
    found = claim(lake)
    assert found is not None
    assert found.aliases == tuple(lake.head.names)


def test_a_failure_to_note_a_name_in_a_claim_raises_no_error(lake: MemoryLake, peer: Peer) -> None:
    peer.instead("lake.json", lv.StoreError("no right"), verb=Get)
    peer.run(note_names(peer.context, ["a"]))
    assert decode("a", lake.store.objects[lake_key("a")].body, LakeFile).aliases == ()
