"""The data of a dropped table is deleted; only later its path can be used again."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.lake.tables.drop_data import clean_emptied, delete_data, make_free
from lakevilla.lake.tables.dropped import is_abandoned, is_half_deleted
from lakevilla.results import Finding
from lakevilla.store.base import ANY
from lakevilla.store.effects import DeleteObject
from lakevilla.transaction.verbs.read_write import drop
from tests.support.simulated.memory_lake import MemoryLake, Peer

STRAY = f"a/_delta_log/{7:020}.json"


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def dropped(peer: Peer) -> None:
    txn = peer.begin()
    peer.run(drop(txn, "a"))
    peer.commit(txn)


def emptied(peer: Peer) -> None:
    dropped(peer)
    peer.run(delete_data(peer.context, "a"))


def cleaned(peer: Peer, *, dry_run: bool = False) -> list[Finding]:
    head = peer.run_head()
    assert head is not None
    return peer.run(clean_emptied(peer.context, head, peer.context.now_ms(), dry_run=dry_run))


def test_deleting_the_data_of_a_table_deletes_the_newest_log_entries_first(
    lake: MemoryLake, peer: Peer
) -> None:
    """A reader meanwhile sees an old state of the table, or no table, and never half of a state."""
    dropped(peer)
    peer.run(delete_data(peer.context, "a"))
    assert lake.keys("a/") == []
    assert lake.keys("b/") != []
    entries = peer.asked_for(DeleteObject, "_delta_log")
    assert list(entries) == sorted(entries, reverse=True)
    # The claim last: it is needed to finish the deletion of a table outside the root.
    assert peer.asked_for(DeleteObject)[-2:] == [entries[-1], "a/_lakevilla/lake.json"]
    assert not peer.run(is_half_deleted(peer.context, "a"))


def test_delete_data_is_refused_for_a_table_that_is_in_the_lake(
    lake: MemoryLake, peer: Peer
) -> None:
    before = lake.keys("a/")
    with pytest.raises(lv.InvalidOperation, match="its data stays"):
        peer.run(delete_data(peer.context, "a"))
    assert lake.keys("a/") == before


def test_head_marks_a_table_as_emptying_before_its_first_object_is_deleted(
    lake: MemoryLake, peer: Peer
) -> None:
    dropped(peer)
    steps = peer.steps(delete_data(peer.context, "a")).until("a/", DeleteObject)
    state = lake.head.tables["a"]
    assert state.emptying
    assert not is_abandoned(peer.context, state, peer.context.now_ms())
    lake.pass_by(peer.context.settings.reuse_after_seconds)
    assert is_abandoned(peer.context, state, peer.context.now_ms())
    steps.finish()
    assert not lake.head.tables["a"].emptying


@pytest.mark.parametrize("objects", [1, 4, 7])
def test_an_interrupted_deletion_is_finished_by_the_next_call(
    lake: MemoryLake, peer: Peer, objects: int
) -> None:
    dropped(peer)
    steps = peer.steps(delete_data(peer.context, "a")).until("a/", DeleteObject)
    for _ in range(min(objects, len(lake.keys("a/")) - 1)):
        steps.step()
    assert lake.keys("a/") != []
    other = lake.peer()
    assert other.run(is_half_deleted(other.context, "a"))
    other.run(delete_data(other.context, "a"))
    assert lake.keys("a/") == []
    assert not lake.head.tables["a"].emptying


def test_pending_commits_are_not_published_into_an_emptied_directory(
    lake: MemoryLake, peer: Peer
) -> None:
    lake.peer().decide("a", 7)
    emptied(peer)
    assert lake.head.tables["a"].pending == ()
    lake.recover()
    assert lake.keys("a/") == []


def test_a_path_is_reusable_only_after_reuse_after_seconds(lake: MemoryLake, peer: Peer) -> None:
    emptied(peer)
    with pytest.raises(lv.TableExists, match="reuse_after_seconds"):
        peer.run(make_free(peer.context, "a"))
    lake.pass_by(peer.context.settings.reuse_after_seconds)
    assert not peer.run(make_free(peer.context, "a"))


def test_a_late_log_entry_in_an_emptied_directory_is_deleted_and_restarts_the_waiting_time(
    lake: MemoryLake, peer: Peer
) -> None:
    emptied(peer)
    lake.pass_by(peer.context.settings.reuse_after_seconds)
    lake.store.put(STRAY, b"{}\n", ANY)
    with pytest.raises(lv.TableExists):
        peer.run(make_free(peer.context, "a"))
    assert lake.keys("a/") == []


def test_gc_deletes_objects_written_after_a_drop_and_a_dry_run_only_reports_them(
    lake: MemoryLake, peer: Peer
) -> None:
    emptied(peer)
    lake.store.put(STRAY, b"{}\n", ANY)
    for dry_run, left in ((True, [STRAY]), (False, [])):
        (found,) = cleaned(lake.peer(), dry_run=dry_run)
        assert (found.kind, found.key) == ("stray", STRAY)
        assert lake.keys("a/") == left


def test_gc_finishes_a_deletion_whose_client_has_died(lake: MemoryLake, peer: Peer) -> None:
    dropped(peer)
    peer.steps(delete_data(peer.context, "a")).until("a/", DeleteObject).step()
    assert cleaned(lake.peer()) == []
    lake.pass_by(peer.context.settings.reuse_after_seconds)
    assert [one.kind for one in cleaned(lake.peer())] == ["half_deleted"]
    assert lake.keys("a/") == []


def test_a_table_inside_a_deleted_table_keeps_its_files(lake: MemoryLake, peer: Peer) -> None:
    inner = [f"a/inner/{key.removeprefix('b/')}" for key in lake.keys("b/")]
    for key in inner:
        source = key.replace("a/inner/", "b/")
        lake.store.put(key, lake.store.objects[source].body, ANY)
    emptied(peer)
    assert lake.keys("a/") == sorted(inner)
