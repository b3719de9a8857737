"""Files that were stored long before the commit are checked before the commit names them."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.store.base import ANY
from lakevilla.store.effects import Stat
from lakevilla.transaction.commit.upload import check_files
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from tests.support.simulated.memory_lake import MemoryLake, Peer

HOUR = 3600.0


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


@pytest.fixture
def txn(peer: Peer) -> TransactionState:
    txn = peer.appending("a", 7)
    peer.append(txn, "b", 7)
    peer.uploaded(txn)
    peer.asked.clear()
    return txn


def files(lake: MemoryLake, txn: TransactionState, table: str) -> list[str]:
    return [key for key in lake.keys(f"{table}/") if txn.id in key]


def test_a_young_transaction_commits_without_a_check_of_its_files(
    lake: MemoryLake, peer: Peer, txn: TransactionState
) -> None:
    lake.pass_by(HOUR - 10)
    peer.run(check_files(txn))
    assert peer.asked == []


def test_an_old_transaction_whose_files_all_exist_continues(
    lake: MemoryLake, peer: Peer, txn: TransactionState
) -> None:
    lake.pass_by(HOUR)
    peer.run(check_files(txn))
    assert set(peer.asked_for(Stat)) == {*files(lake, txn, "a"), *files(lake, txn, "b")}
    assert txn.state is Status.OPEN


@pytest.mark.parametrize("table", ["a", "b"])
def test_an_old_transaction_is_aborted_if_one_of_its_files_was_removed(
    lake: MemoryLake, peer: Peer, txn: TransactionState, table: str
) -> None:
    lake.pass_by(HOUR)
    (lost,) = files(lake, txn, table)
    lake.store.delete(lost)
    with pytest.raises(lv.TransactionAborted, match=lost):
        peer.run(check_files(txn))
    assert txn.state is Status.FAILED


def test_neither_kind_of_commit_names_a_file_that_was_removed(lake: MemoryLake, peer: Peer) -> None:
    for features in (lv.Feature.R, lv.Feature.R | lv.Feature.I):
        txn = peer.appending("a", 7, features=features)
        for key, body in txn.work.bodies.items():
            lake.store.put(key, body, ANY)
        txn.work.bodies.clear()
        lake.pass_by(HOUR)
        lake.store.delete(files(lake, txn, "a")[0])
        before = lake.head.sequence, lake.version("a")
        with pytest.raises(lv.TransactionAborted):
            peer.commit(txn)
        assert (lake.head.sequence, lake.version("a")) == before
