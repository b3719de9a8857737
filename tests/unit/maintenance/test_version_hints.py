"""Version hints: they lead readers of other clients to the newest version of an Iceberg table."""

from __future__ import annotations

import pytest

from lakevilla.lake.table_log import open_tail
from lakevilla.maintenance.recovery import announce_tables, report_behind
from lakevilla.store.base import ANY
from lakevilla.store.effects import Put
from tests.support.simulated.memory_lake import MemoryLake, Peer

HINT = "a/metadata/version-hint.text"


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake(iceberg=("a",))


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def behind(lake: MemoryLake) -> bytes:
    """Set the hint back, as if its writer had died before writing it; return the right hint."""
    right = lake.store.get(HINT).body
    lake.store.apply(Put(HINT, b"1", ANY))
    return bytes(right)


def test_an_outdated_version_hint_is_reported_and_corrected(lake: MemoryLake, peer: Peer) -> None:
    right = behind(lake)
    tail = peer.run(open_tail(peer.context, "a"))
    (finding,) = peer.run(report_behind(peer.context, tail))
    assert (finding.kind, finding.table) == ("unannounced", "a")
    assert peer.run(announce_tables(peer.context, lake.head, ())) == []
    assert lake.store.get(HINT).body == right


def test_a_correct_version_hint_is_not_written_again(lake: MemoryLake, peer: Peer) -> None:
    tail = peer.run(open_tail(peer.context, "a"))
    assert peer.run(report_behind(peer.context, tail)) == []
    assert peer.run(announce_tables(peer.context, lake.head, ())) == []
    assert peer.asked_for(Put) == []


def test_delta_tables_and_excluded_tables_are_not_opened(lake: MemoryLake, peer: Peer) -> None:
    behind(lake)
    head = lake.head
    peer.asked.clear()
    assert peer.run(announce_tables(peer.context, head, ("a",))) == []
    assert peer.asked == []
