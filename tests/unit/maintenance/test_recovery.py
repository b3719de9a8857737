"""Recovery: any client finishes what was decided; a second recovery changes nothing."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.maintenance.recovery import abort, recover
from lakevilla.store.base import ANY, Stored, Token
from lakevilla.store.effects import DeleteObject, Put
from lakevilla.sublogs.operations import Alter
from lakevilla.transaction.verbs import read_write
from lakevilla.transaction.verbs.save import save
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def kinds(report: lv.Report) -> list[str]:
    return [finding.kind for finding in report.findings]


def test_recovery_publishes_and_reports_the_commit_of_another_client(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = lake.peer().decide("a", 7)
    assert lake.ids("a") == [0, 1]
    report = peer.run(recover(peer.context))
    assert lake.ids("a") == [0, 1, 7]
    (finding,) = report.findings
    assert (finding.kind, finding.table, finding.txn_id) == ("published", "a", txn.id)
    assert [event.kind for event in peer.events] == ["helping"]


def test_a_second_recovery_finds_and_writes_nothing(lake: MemoryLake, peer: Peer) -> None:
    lake.peer().decide("a", 7)
    peer.run(recover(peer.context))
    again = lake.peer()
    report = again.run(recover(again.context))
    assert report.ok
    assert report.findings == ()
    assert again.asked_for(Put) == again.asked_for(DeleteObject) == []


def test_recovery_waits_for_a_slow_store_while_it_makes_progress() -> None:
    lake = MemoryLake(publish_timeout_seconds=10.0)
    for number in range(4):  # each commit needs an entry of its own
        owner = lake.peer()
        txn = owner.begin()
        noting = Alter("a", {"set_properties": {"note": str(number)}})
        owner.run(read_write.execute(txn, noting, "alter"))
        owner.commit(txn, publish=False)
    before = lake.version("a")
    peer = lake.peer()

    def slowly() -> Stored:
        lake.pass_by(20.0)
        return Stored(Token("tag", None))

    peer.instead("_delta_log", slowly, times=99, landed=True)
    assert peer.run(recover(peer.context)).ok
    assert lake.version("a") == before + 4


def test_recovery_of_other_tables_continues_if_one_table_can_not_be_read(
    lake: MemoryLake, peer: Peer
) -> None:
    lake.peer().decide("a", 7)
    lake.peer().decide("b", 8)
    first = f"b/_delta_log/{0:020}.json"
    lake.store.apply(Put(first, b"{", ANY))
    report = peer.run(recover(peer.context))
    assert not report.ok
    assert lake.ids("a") == [0, 1, 7]
    assert {finding.table for finding in report.findings if finding.severity == "error"} == {"b"}


def test_recovery_of_a_lake_without_head_reports_no_fault() -> None:
    peer = MemoryLake(warm=False).peer()
    assert peer.run(recover(peer.context)) == lv.Report(True)


def test_recovery_cancels_a_decided_commit_whose_object_is_gone_and_its_owner_gets_an_error(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = lake.peer().decide("a", 7)
    behind = lake.peer().decide("a", 8)
    (key,) = lake.keys(f"_lakevilla/commits/{txn.id}")
    del lake.store.objects[key]
    report = peer.run(recover(peer.context))
    assert not report.ok
    (finding,) = [one for one in report.findings if one.kind == "voided"]
    assert (finding.table, finding.txn_id, finding.key) == ("a", txn.id, key)
    assert "was acknowledged and is cancelled on table a" in finding.message
    assert behind.id not in finding.message
    assert lake.ids("a") == [0, 1, 8]


def test_a_transaction_aborted_by_another_client_can_not_commit_and_its_record_is_deleted(
    lake: MemoryLake, peer: Peer
) -> None:
    owner = lake.peer()
    txn = owner.appending("a", 7)
    owner.run(save(txn))
    assert lake.keys(f"_lakevilla/txns/{txn.id}")
    peer.run(abort(peer.context, txn.id))
    assert lake.keys(f"_lakevilla/txns/{txn.id}") == []
    assert lake.head.is_fenced(txn.id)
    with pytest.raises(lv.TransactionAborted):
        owner.commit(txn)
    assert lake.ids("a") == [0, 1]


def test_abort_of_a_committed_transaction_is_refused_and_keeps_its_objects(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = lake.peer().decide("a", 7)
    before = lake.keys("_lakevilla/")
    with pytest.raises(lv.InvalidOperation, match="has committed"):
        peer.run(abort(peer.context, txn.id))
    assert lake.keys("_lakevilla/") == before
