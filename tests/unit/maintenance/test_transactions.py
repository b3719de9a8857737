"""The list of transactions, made from their records alone."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

import lakevilla as lv
from lakevilla.maintenance.recovery import abort
from lakevilla.maintenance.transactions import describe, lease_of, list_records, look, read_records
from lakevilla.settings import MOST_LEASE_SECONDS
from lakevilla.store.base import ANY
from lakevilla.store.effects import Put
from lakevilla.sublogs.record import TxnRecord, record_key
from lakevilla.transaction.verbs.save import save
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def described(lake: MemoryLake) -> Mapping[str, lv.TransactionInfo]:
    peer = lake.peer()
    records = peer.run(read_records(peer.run(list_records())))
    return peer.run(describe(peer.context, lake.head, records))


def saved(owner: Peer) -> str:
    txn = owner.appending("a", 7)
    owner.run(save(txn))
    return txn.id


def test_a_saved_transaction_counts_as_running_until_its_lease_is_over(
    lake: MemoryLake, peer: Peer
) -> None:
    txn_id = saved(peer)
    assert described(lake)[txn_id].state == "running"
    lake.pass_by(peer.context.settings.lease_seconds + 1)
    info = described(lake)[txn_id]
    assert (info.state, info.tables, info.waits_for) == ("saved", ("a",), ())


def test_a_transaction_with_a_leftover_record_is_listed_as_committed(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    peer.run(save(txn))
    key = record_key(txn.id)
    left_behind = lake.store.objects[key]
    peer.commit(txn)
    lake.store.objects[key] = left_behind
    assert described(lake)[txn.id].state == "committed"


def test_an_aborted_transaction_with_a_leftover_record_is_listed_as_aborted(
    lake: MemoryLake, peer: Peer
) -> None:
    txn_id = saved(peer)
    key = record_key(txn_id)
    left_behind = lake.store.objects[key]
    other = lake.peer()
    other.run(abort(other.context, txn_id))
    lake.store.objects[key] = left_behind
    assert described(lake)[txn_id].state == "aborted"


def test_an_unreadable_record_hides_no_other_record(lake: MemoryLake, peer: Peer) -> None:
    damaged, whole = saved(peer), saved(lake.peer())
    lake.store.apply(Put(record_key(damaged), b"\x00", ANY))
    records = peer.run(read_records(peer.run(list_records())))
    assert set(records.unreadable) == {damaged}
    assert set(records.records) == {whole}


def test_a_record_with_the_id_of_another_transaction_is_ignored(
    lake: MemoryLake, peer: Peer
) -> None:
    mine, theirs = saved(peer), saved(lake.peer())
    body = lake.store.get(record_key(theirs)).body
    lake.store.apply(Put(record_key(mine), body, ANY))
    records = peer.run(read_records(peer.run(list_records())))
    assert f"is the record of another transaction, '{theirs}'" in records.unreadable[mine].message


def test_queues_are_not_listed_for_tables_on_which_no_transaction_waits(
    lake: MemoryLake, peer: Peer
) -> None:
    saved(peer)
    found = peer.run(look(peer.context, lake.head))
    assert found.markers == {}
    assert found.failed == {}


@pytest.mark.parametrize(
    ("claimed", "believed"),
    [
        (None, 30.0),
        (5.0, 5.0),
        (0.0, 30.0),
        (-1.0, 30.0),
        (float("nan"), 30.0),
        (float("inf"), 30.0),
        (1e9, MOST_LEASE_SECONDS),
    ],
)
def test_the_lease_in_a_record_counts_only_within_sensible_limits(
    claimed: float | None, believed: float
) -> None:
    context = MemoryLake(lease_seconds=30.0).peer().context
    record = None if claimed is None else record_with(claimed)
    assert lease_of(context, record) == believed


def record_with(lease_seconds: float) -> TxnRecord:
    lake = MemoryLake()
    peer = lake.peer()
    saved(peer)
    records = peer.run(read_records(peer.run(list_records()))).records
    (record,) = records.values()
    return msgspec.structs.replace(record, lease_seconds=lease_seconds)
