"""Changes of a table between two global versions, as rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.global_log.history import Timeline
from lakevilla.lake.operations.changes import changes
from lakevilla.lake.past import past_at
from lakevilla.store.effects import Program
from lakevilla.transaction.verbs.read_write import drop
from lakevilla_testing.tables import delta_writer
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def changed(lake: MemoryLake, since: int, until: int | None = None, table: str = "a") -> list[str]:
    """Return each changed row as ``kind id @ version``, in order."""
    peer = lake.peer()

    def program() -> Program[pa.Table]:
        head = lake.head
        past = yield from past_at(Timeline.of(head), head.sequence if until is None else until)
        return (yield from changes(peer.context, past, table, since))

    rows = peer.run(program()).to_pylist()
    return [f"{row['_change_type']} {row['id']} @ {row['_commit_version']}" for row in rows]


def test_each_changed_row_has_the_version_of_the_commit_that_changed_it(lake: MemoryLake) -> None:
    since = lake.head.sequence
    for number in (7, 8):
        peer = lake.peer()
        peer.commit(peer.appending("a", number))
    assert changed(lake, since) == [f"insert 7 @ {since + 1}", f"insert 8 @ {since + 2}"]
    assert changed(lake, since + 1) == [f"insert 8 @ {since + 2}"]
    assert changed(lake, since, since + 1) == [f"insert 7 @ {since + 1}"]
    assert changed(lake, since + 2) == []


def test_changes_include_a_commit_that_is_decided_and_not_published(lake: MemoryLake) -> None:
    since = lake.head.sequence
    lake.peer().decide("a", 7)
    assert changed(lake, since) == [f"insert 7 @ {since + 1}"]


def test_a_commit_to_another_table_gives_no_changes(lake: MemoryLake) -> None:
    since = lake.head.sequence
    lake.peer().decide("b", 7)
    assert changed(lake, since) == []


def test_changes_by_another_client_appear_with_the_commit_that_absorbed_them(
    lake: MemoryLake,
) -> None:
    since = lake.head.sequence
    other = lake.peer()
    other.run(delta_writer.append(other.client, "a", [{"id": 9, "balance": 0, "items": ""}]))
    peer = lake.peer()
    peer.commit(peer.appending("a", 7))
    assert changed(lake, since) == [f"insert 9 @ {since + 1}", f"insert 7 @ {since + 2}"]


def test_a_start_version_that_does_not_exist_yet_is_refused(lake: MemoryLake) -> None:
    now = lake.head.sequence
    with pytest.raises(lv.VersionNotFound, match="the state that is read is the older"):
        changed(lake, now + 1, now)


def test_a_deleted_data_file_is_reported_by_name(lake: MemoryLake) -> None:
    since = lake.head.sequence
    peer = lake.peer()
    txn = peer.appending("a", 7)
    peer.commit(txn)
    (file,) = [key for key in lake.keys("a/") if txn.id in key]
    lake.store.delete(file)
    with pytest.raises(lv.VersionNotFound, match=file):
        changed(lake, since)


def test_changes_of_a_table_that_was_dropped_meanwhile_are_refused(
    lake: MemoryLake, peer: Peer
) -> None:
    since = lake.head.sequence
    txn = peer.begin()
    peer.run(drop(txn, "a"))
    peer.commit(txn)
    with pytest.raises(lv.TableNotFound):
        changed(lake, since)
