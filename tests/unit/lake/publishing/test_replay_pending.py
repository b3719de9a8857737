"""Decided commits that a foreign commit has made unfit: they are replayed or cancelled, never
guessed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.global_log.commits import CommitObject, commit_key
from lakevilla.lake.publishing.outcome import void_lost
from lakevilla.lake.publishing.publish import publish_table
from lakevilla.lake.publishing.reconcile import reconcile
from lakevilla.maintenance.gc.gc import gc
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.store.base import ANY, Unknown
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Update
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.read_write import execute
from lakevilla_testing.tables import delta_cleaner, delta_writer
from lakevilla_testing.tables.delta_reader import read_log
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.client import Client
from tests.support.simulated.memory_lake import MemoryLake, Peer

DAY = 24 * 3600


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def update_decided(lake: MemoryLake, *, reads: bool = False) -> TransactionState:
    other = lake.peer()
    txn = other.begin()
    if reads:
        other.read(txn, "a")
    other.add(txn, "a", 5)
    other.commit(txn, publish=False)
    return txn


def rewritten(lake: MemoryLake, change: Any = lambda row: {**row, "balance": 1000}) -> None:
    """Rewrite the table's files as a client without LakeVilla."""
    other = lake.peer()
    assert other.run(delta_writer.rewrite(other.client, "a", change))


def reconciled(lake: MemoryLake, peer: Peer, *, gives_up: bool = False) -> CommitObject:
    head = peer.run(reconcile(peer.context, "a", gives_up=gives_up))
    assert head is not None
    last = head.commits[-1]
    assert last.kind == "reconcile"
    return peer.run(peer.context.commit_object(last.txn, last.hash))


def test_a_pending_commit_that_fits_is_not_changed(lake: MemoryLake, peer: Peer) -> None:
    update_decided(lake)
    before = lake.head
    assert peer.run(reconcile(peer.context, "a")) == before
    assert lake.head == before


def test_operations_of_an_unfit_commit_are_replayed_on_the_foreign_state(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = update_decided(lake)
    rewritten(lake)
    sequence = lake.head.sequence
    commit = reconciled(lake, peer)
    assert [(number, who) for number, who, _ in commit.replaces] == [(sequence, txn.id)]
    assert commit.voided == ()
    lake.recover()
    assert lake.rows("a") == {0: 1005, 1: 1000}


def test_a_replayed_commit_still_tells_its_metadata_and_the_version_of_its_application(
    lake: MemoryLake, peer: Peer
) -> None:
    """Otherwise Delta's own sink, which looks for the version in the log, writes a batch again."""
    other = lake.peer()
    txn = other.begin(metadata={"by": "job"}, applications={"stream": 7})
    other.add(txn, "a", 5)
    other.commit(txn, publish=False)
    gone = other.begin(metadata={"by": "void"}, applications={"stream": 8})
    too_large = "CASE WHEN balance = 1005 THEN 9223372036854775807 + 1 ELSE 0 END"
    value = {"balance": parse_expression(too_large)}
    other.run(execute(gone, Update("a", value, parse_predicate("id = 0")), "update"))
    other.commit(gone, publish=False)
    rewritten(lake)
    commit = reconciled(lake, peer)
    assert [void for void, _ in commit.voided] == [gone.id]
    lake.recover()
    table = run_now(lake.store, read_log("a"))
    assert table is not None
    assert table.applications["stream"]["version"] == 7
    infos = [one["commitInfo"] for one in table.entries[table.version] if "commitInfo" in one]
    assert [json.loads(info["userMetadata"]) for info in infos] == [{"by": "job"}]


def test_the_slower_of_two_clients_that_reconcile_takes_the_result_of_the_faster(
    lake: MemoryLake, peer: Peer
) -> None:
    update_decided(lake)
    rewritten(lake)
    slow = peer.steps(reconcile(peer.context, "a")).until("HEAD")
    other = lake.peer()
    decided = other.run(reconcile(other.context, "a"))
    assert slow.finish() == decided
    lake.recover()
    assert lake.rows("a") == {0: 1005, 1: 1000}


@pytest.mark.parametrize("reads", [True, False])
def test_a_replayed_commit_whose_reads_have_changed_is_listed(
    lake: MemoryLake, peer: Peer, reads: bool
) -> None:
    txn = update_decided(lake, reads=reads)
    rewritten(lake)
    commit = reconciled(lake, peer)
    assert commit.touched_reads == ((txn.id,) if reads else ())
    assert not commit.quiet


def test_rows_that_were_only_moved_do_not_count_as_changed_reads(
    lake: MemoryLake, peer: Peer
) -> None:
    other = lake.peer()
    other.run(delta_writer.append(other.client, "a", [{"id": 9, "balance": 0, "items": ""}]))
    update_decided(lake, reads=True)
    other.run(delta_writer.optimize(other.client, "a"))
    commit = reconciled(lake, peer)
    assert commit.quiet
    assert commit.touched_reads == ()


def test_a_replay_lists_appended_files_again_and_does_not_rewrite_them(
    lake: MemoryLake, peer: Peer
) -> None:
    """The data files of an append are the source of its replay."""
    update_decided(lake)
    appended = lake.peer().decide("a", 7)
    rewritten(lake)
    files = [file.path for done in appended.work.done for file in done.change.adds]
    commit = reconciled(lake, peer)
    added = [file.path for file in commit.tables["a"].change.adds]
    assert set(files) < set(added)
    lake.recover()
    assert lake.ids("a") == [0, 1, 7]


def test_a_commit_that_can_not_be_replayed_is_cancelled_and_the_next_one_is_not(
    lake: MemoryLake, peer: Peer
) -> None:
    bad = lake.peer().decide("a", 7)
    good = lake.peer().decide("a", 8)
    (file,) = [f for f in lake.keys("a/lv-h-") if bad.id in f]
    lake.store.delete(file)
    lake.pass_by(peer.context.settings.checked_tip_seconds)
    commit = reconciled(lake, peer)
    assert [txn for txn, _ in commit.voided] == [bad.id]
    assert file in commit.voided[0][1]
    assert [who for _, who, _ in commit.replaces] == [bad.id, good.id]
    lake.recover()
    assert lake.ids("a") == [0, 1, 8]


def test_pending_commits_are_cancelled_only_on_request_if_the_table_is_gone(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = update_decided(lake)
    for key in lake.keys("a/_delta_log"):
        lake.store.delete(key)
    with pytest.raises(lv.TableNotFound, match="restore"):
        reconciled(lake, peer)
    commit = reconciled(lake, peer, gives_up=True)
    assert [who for who, _ in commit.voided] == [txn.id]
    assert "dropped or created again" in commit.voided[0][1]
    assert lake.head.tables["a"].dropped


def cleaned_up(lake: MemoryLake, *others: Callable[[Client], Program[bool]]) -> None:
    """Let other clients write to the table, make a checkpoint, and delete all but the last two
    entries.

    So the log has neither the base of the commits decided before nor the state after it.
    """
    peer = lake.peer()
    lake.pass_by(2 * DAY)
    for other in others:
        assert peer.run(other(peer.client))
    assert peer.run(delta_writer.append(peer.client, "a", []))
    assert peer.run(delta_cleaner.write_checkpoint(peer.client, "a"))
    peer.run(delta_cleaner.clean_log(peer.client, "a", DAY))
    assert "a/_delta_log/00000000000000000001.json" not in lake.keys("a/_delta_log")


def raised(client: Client) -> Program[bool]:
    return delta_writer.rewrite(client, "a", lambda row: {**row, "balance": 1000})


def described(client: Client) -> Program[bool]:
    return delta_writer.set_property(client, "a", "x", "y")


def constrained(client: Client) -> Program[bool]:
    return delta_writer.toggle_constraint(client, "a", "balance")


@pytest.mark.parametrize("others", [[raised], [described, raised], [raised, described]])
def test_pending_commits_are_replayed_although_their_base_was_cleaned_up(
    lake: MemoryLake, peer: Peer, others: list[Callable[[Client], Program[bool]]]
) -> None:
    """A commit object shows by itself that appended rows fit; rows that were read count as
    changed.
    """
    txn = update_decided(lake, reads=True)
    lake.peer().decide("a", 7)
    cleaned_up(lake, *others)
    commit = reconciled(lake, peer)
    assert commit.voided == ()
    assert commit.touched_reads == (txn.id,)
    assert lake.recover().ok
    assert lake.rows("a") == {0: 1005, 1: 1000, 7: 0}


def test_pending_rows_are_cancelled_if_a_cleaned_up_log_can_not_show_that_they_fit(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = lake.peer().decide("a", 7)
    cleaned_up(lake, constrained)
    commit = reconciled(lake, peer)
    assert [who for who, _ in commit.voided] == [txn.id]
    assert "no longer fit" in commit.voided[0][1]
    lake.recover()
    assert lake.rows("a") == {0: 100, 1: 100}


def test_a_property_set_in_cleaned_up_entries_makes_no_commit_unfit(
    lake: MemoryLake, peer: Peer
) -> None:
    update_decided(lake, reads=True)
    cleaned_up(lake, described)
    before = lake.head
    assert peer.run(reconcile(peer.context, "a")) == before
    assert lake.recover().ok
    assert lake.rows("a") == {0: 105, 1: 100}


def test_gc_absorbs_no_entry_that_was_cleaned_up(lake: MemoryLake, peer: Peer) -> None:
    """Past versions would be shown with rows that other clients wrote later."""
    update_decided(lake)
    rewritten(lake)  # days earlier, so that this entry is cleaned up, too
    cleaned_up(lake, described)
    assert "a/_delta_log/00000000000000000002.json" not in lake.keys("a/_delta_log")
    peer.run(gc(peer.context))
    state = lake.head.tables["a"]
    commits = [commit.kind for commit in lake.head.commits if "a" in commit.tables]
    assert (state.published, "foreign" in commits) == (1, False)
    lake.recover()
    assert lake.rows("a") == {0: 1005, 1: 1000}


def test_the_next_writer_replays_pending_commits_whose_base_was_cleaned_up(
    lake: MemoryLake, peer: Peer
) -> None:
    update_decided(lake)
    cleaned_up(lake, raised)
    txn = peer.begin()
    assert peer.read(txn, "a") == {0: 1005, 1: 1000}
    peer.append(txn, "a", 8)
    peer.commit(txn)
    assert lake.rows("a") == {0: 1005, 1: 1000, 8: 0}


def test_a_reader_of_pending_commits_whose_base_was_cleaned_up_is_told_to_recover(
    lake: MemoryLake, peer: Peer
) -> None:
    update_decided(lake)
    cleaned_up(lake, raised)
    with pytest.raises(lv.VersionNotFound, match=r"table a .*`lakevilla recover` replays"):
        peer.read(peer.begin(read_only=True), "a")
    lake.recover()
    reader = lake.peer()
    assert reader.read(reader.begin(read_only=True), "a") == {0: 1005, 1: 1000}


@pytest.mark.parametrize("body", [b"{}", b"torn", None])
def test_a_commit_object_with_other_bytes_than_were_decided_is_never_replayed(
    lake: MemoryLake, peer: Peer, body: bytes | None
) -> None:
    txn = update_decided(lake)
    (ref,) = lake.head.tables["a"].pending
    key = commit_key(txn.id, ref.hash)
    if body is None:  # a complete commit of the same transaction, but not the one that was decided
        body = lake.store.objects[key].body.replace(b'"format":1', b'"format":1 ', 1)
    lake.store.put(key, body, ANY)
    rewritten(lake)
    before = lake.head
    with pytest.raises(lv.CorruptObject) as caught:
        peer.run(reconcile(peer.context, "a"))
    assert caught.value.key == key
    assert lake.head == before


def test_head_never_names_a_commit_object_that_may_not_be_stored(
    lake: MemoryLake, peer: Peer
) -> None:
    update_decided(lake)
    rewritten(lake)
    peer.instead("_lakevilla/commits", Unknown("cut"))
    before = lake.head
    with pytest.raises(lv.StoreError, match="stays unpublished"):
        peer.run(reconcile(peer.context, "a"))
    assert lake.head == before


def test_a_commit_whose_object_was_deleted_is_cancelled_only_after_an_entry_excludes_it(
    lake: MemoryLake, peer: Peer
) -> None:
    """Another client may have the object in memory, and be about to publish it."""
    holder = lake.peer()
    txn = holder.decide("a", 7)
    (ref,) = lake.head.tables["a"].pending
    lake.store.delete(commit_key(txn.id, ref.hash))
    before, version = lake.head, lake.version("a")
    head = peer.run(void_lost(peer.context, before, "a"))
    assert lake.version("a") == version + 1
    assert head.commits[-1].kind == "reconcile"
    assert holder.run(publish_table(holder.context, before, "a")).complete
    assert lake.ids("a") == [0, 1], "void for all, also for who has it"


def test_a_commit_with_a_deleted_object_is_kept_if_another_client_publishes_it_first(
    lake: MemoryLake, peer: Peer
) -> None:
    holder = lake.peer()
    txn = holder.decide("a", 7)
    (ref,) = lake.head.tables["a"].pending
    lake.store.delete(commit_key(txn.id, ref.hash))
    head = lake.head
    slow = peer.steps(void_lost(peer.context, head, "a")).until("a/_delta_log")
    holder.run(publish_table(holder.context, head, "a"))
    assert slow.finish() == head
    assert lake.ids("a") == [0, 1, 7]
