"""Tables are registered in a lake's map, under names, and unregistered."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.global_log.head import Head, successor
from lakevilla.global_log.repo import LakeFile, claim_of, lake_key
from lakevilla.lake.tables.registration import register, replace_until_stored, unregister
from lakevilla.store.base import ANY
from lakevilla.store.codec import encode
from lakevilla.store.effects import Program
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake(warm=False)


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def registered(peer: Peer, **names: str) -> None:
    peer.run(register(peer.context, names, {name: name for name in names}))


def test_all_given_tables_are_registered_in_one_replacement_at_their_present_versions(
    lake: MemoryLake, peer: Peer
) -> None:
    registered(peer, a="a", b="b")
    assert lake.replacements() == 2, "the one that made HEAD, and this one"
    assert {name: state.published for name, state in lake.head.tables.items()} == {"a": 0, "b": 0}
    assert lake.head.commits[-1].kind == "register"


def test_registering_a_table_twice_changes_nothing(lake: MemoryLake, peer: Peer) -> None:
    registered(peer, orders="a")
    before = lake.head
    registered(lake.peer(), orders="a")
    assert lake.head == before


def test_a_name_that_is_registered_for_another_table_is_refused(
    lake: MemoryLake, peer: Peer
) -> None:
    registered(peer, orders="a")
    before = lake.head
    with pytest.raises(lv.InvalidOperation, match="is registered for a"):
        registered(lake.peer(), orders="b")
    assert lake.head == before


def test_a_name_that_is_also_the_path_of_a_table_under_the_root_is_refused(peer: Peer) -> None:
    with pytest.raises(lv.InvalidOperation, match="could mean two tables"):
        registered(peer, b="a")


def test_registering_a_place_without_a_table_is_refused_with_all_other_tables(
    lake: MemoryLake, peer: Peer
) -> None:
    with pytest.raises(lv.TableNotFound):
        registered(peer, a="a", c="c")
    assert lake.keys("_lakevilla") == []


def test_registering_a_table_of_another_lake_is_refused(lake: MemoryLake, peer: Peer) -> None:
    theirs = LakeFile(1, "n", "another", "elsewhere")
    lake.store.put(lake_key("a"), encode(theirs), ANY)
    with pytest.raises(lv.InvalidOperation, match="belongs to the lake at elsewhere"):
        registered(peer, a="a")
    assert "a" not in lake.head.tables


def test_a_table_registered_under_a_second_name_keeps_its_path_as_a_name(
    lake: MemoryLake, peer: Peer
) -> None:
    registered(peer, a="a")
    registered(peer, orders="a")
    assert dict(lake.head.names) == {"a": "a", "orders": "a"}


def test_unregistering_the_last_name_publishes_and_then_removes_the_table(
    lake: MemoryLake, peer: Peer
) -> None:
    registered(peer, a="a")
    registered(peer, orders="a")
    lake.peer().decide("a", 7)
    peer.run(unregister(peer.context, "orders", "a"))
    assert not lake.head.tables["a"].dropped
    peer.run(unregister(peer.context, "a", "a"))
    state = lake.head.tables["a"]
    assert (state.dropped, state.pending) == (True, ())
    assert lake.ids("a") == [0, 1, 7]
    assert peer.run(claim_of("a")) is None


def test_two_clients_that_remove_the_last_two_names_unregister_the_table(
    lake: MemoryLake, peer: Peer
) -> None:
    registered(peer, a="a")
    registered(peer, orders="a")
    slow = peer.steps(unregister(peer.context, "a", "a")).until("HEAD")
    other = lake.peer()
    other.run(unregister(other.context, "orders", "a"))
    assert not lake.head.tables["a"].dropped
    slow.finish()
    assert lake.head.tables["a"].dropped
    assert dict(lake.head.names) == {}


def test_a_table_registered_again_keeps_its_rows_and_takes_commits(
    lake: MemoryLake, peer: Peer
) -> None:
    registered(peer, a="a")
    peer.run(unregister(peer.context, "a", "a"))
    registered(lake.peer(), a="a")
    assert not lake.head.tables["a"].dropped
    again = lake.peer()
    again.commit(again.appending("a", 7))
    assert lake.ids("a") == [0, 1, 7]


def test_a_change_of_head_is_computed_again_on_each_newer_head(
    lake: MemoryLake, peer: Peer
) -> None:
    registered(peer, a="a")
    seen: list[int] = []

    def change(head: Head) -> Program[Head]:
        yield from ()
        seen.append(head.replacement)
        if len(seen) == 1:
            lake.peer().decide("a", 7)
        return successor(head, nonce=peer.context.ids.nonce(), now_ms=1, aborted=("x",))

    peer.run(replace_until_stored(peer.context, change))
    assert seen == [1, 2]
    assert lake.head.aborted == ("x",)
    assert len(lake.head.tables["a"].pending) == 1, "what came first is in it"


def test_a_lake_that_was_copied_elsewhere_refuses_writes() -> None:
    lake = MemoryLake()
    peer = lake.peer()
    peer.context.root = "elsewhere"
    before = lake.head
    with pytest.raises(lv.InvalidOperation, match="copied or moved"):
        peer.run(unregister(peer.context, "a", "a"))
    assert lake.head == before
