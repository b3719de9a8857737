"""A log whose entries another client deletes, while a transaction is working on the table."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.store.effects import List
from lakevilla_testing.tables import delta_cleaner
from tests.support.simulated.memory_lake import MemoryLake, Peer

LOG = "a/_delta_log"


def tear_holes(lake: MemoryLake, known: int) -> None:
    """Change the table by another client after version ``known``, and delete the log entries up
    to HEAD's.
    """
    other = lake.peer()
    for number in (1, 0, 1):
        txn = other.begin()
        other.add(txn, "a", 1, number)
        other.commit(txn)
        other.run(delta_cleaner.write_checkpoint(other.client, "a"))
    published = lake.head.tables["a"].published
    assert published > known + 1
    for version in range(known + 1, published + 1):
        del lake.store.objects[f"{LOG}/{version:020}.json"]


def hide(lake: MemoryLake, peer: Peer, known: int) -> None:
    """Make the store list the log as of version ``known``, but read it in its present state."""
    newest = f"{LOG}/{known:020}.json"
    lists = lake.store.apply(List(LOG))
    shown = [info for info in lists if info.key <= newest]  # type: ignore[attr-defined]
    peer.instead(LOG, shown, verb=List, times=100)


def test_a_transaction_whose_reads_can_not_be_compared_for_missing_entries_raises_a_conflict() -> (
    None
):
    lake = MemoryLake()
    peer = lake.peer()
    txn = peer.begin()
    peer.read(txn, "a")
    peer.add(txn, "b", 5)
    tear_holes(lake, lake.version("a"))
    with pytest.raises(lv.ConflictError, match="has read"):
        peer.commit(txn)
    assert lake.rows("b") == {0: 100, 1: 100}


def test_a_change_is_redone_on_the_newest_state_that_the_store_lists() -> None:
    lake = MemoryLake()
    peer = lake.peer()
    txn = peer.begin()
    peer.add(txn, "a", 5)
    tear_holes(lake, lake.version("a"))
    versions = peer.commit(txn).versions
    assert lake.rows("a") == {0: 106, 1: 102}
    assert versions == {"a": lake.version("a")}


def test_a_write_to_a_log_that_is_being_deleted_raises_a_conflict_and_changes_nothing() -> None:
    lake = MemoryLake()
    peer = lake.peer()
    txn = peer.begin()
    peer.add(txn, "a", 5)
    known = lake.version("a")
    tear_holes(lake, known)
    hide(lake, peer, known)
    with pytest.raises(lv.ConflictError, match="another client is deleting it"):
        peer.commit(txn)
    assert lake.rows("a") == {0: 101, 1: 102}
