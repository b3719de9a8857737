"""Publishing: any client may write decided commits into their tables' logs; each is written
once.
"""

from __future__ import annotations

import pytest

from lakevilla.global_log.head import application_id
from lakevilla.lake.publishing.publish import Published, publish_once, publish_table
from lakevilla.store.base import Refused, Unknown
from lakevilla.store.effects import Put
from lakevilla_testing.tables import delta_writer
from lakevilla_testing.tables.delta_reader import read_log
from tests.support.simulated.memory_lake import MemoryLake, Peer

LOG = "a/_delta_log"


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def published(peer: Peer, table: str = "a") -> Published:
    head = peer.run_head()
    assert head is not None
    return peer.run(publish_table(peer.context, head, table))


def test_pending_commits_are_published_in_one_entry_that_records_them(
    lake: MemoryLake, peer: Peer
) -> None:
    sequences = [lake.peer().decide("a", number).bound.sequence + 1 for number in (7, 8)]
    before = lake.version("a")
    found = published(peer)
    assert found.complete
    assert (lake.ids("a"), lake.version("a")) == ([0, 1, 7, 8], before + 1)
    assert [found.version_of(sequence) for sequence in sequences] == [before + 1] * 2
    log = peer.run(read_log("a", None))
    assert log is not None
    assert log.sequence(lake.head.lake_id) == sequences[-1]
    assert application_id(lake.head) in found.tail.entries[before + 1].applications


def test_publishing_a_second_time_writes_nothing(lake: MemoryLake, peer: Peer) -> None:
    lake.peer().decide("a", 7)
    published(peer)
    peer.asked.clear()
    published(peer)
    other = lake.peer()
    published(other)
    assert lake.ids("a") == [0, 1, 7]
    assert peer.asked_for(Put) == other.asked_for(Put) == []


def test_two_clients_that_publish_concurrently_write_one_entry(
    lake: MemoryLake, peer: Peer
) -> None:
    lake.peer().decide("a", 7)
    head = peer.run_head()
    assert head is not None
    slow = peer.steps(publish_table(peer.context, head, "a")).until(LOG)
    published(lake.peer())
    found = slow.finish()
    assert found.complete
    assert not found.created
    assert lake.ids("a") == [0, 1, 7]


def test_a_program_that_asks_while_another_publishes_is_given_the_same_answer(
    lake: MemoryLake, peer: Peer
) -> None:
    lake.peer().decide("a", 7)
    head, before = peer.run_head(), lake.version("a")
    assert head is not None
    first = peer.steps(publish_once(peer.context, head, "a")).until(LOG)
    beside = peer.steps(publish_once(peer.context, head, "a"))
    lake.peer().decide("a", 8)
    newer = peer.run_head()
    assert newer is not None
    later = peer.steps(publish_once(peer.context, newer, "a"))
    found = first.finish()
    assert beside.finish() is found
    assert found.created == {before + 1}
    assert later.finish().created == {before + 2}  # it is about a commit that came after the first
    assert lake.ids("a") == [0, 1, 7, 8]


@pytest.mark.parametrize("answer", [Refused(), Unknown("cut")])
def test_an_entry_that_was_stored_without_a_response_is_not_written_again(
    lake: MemoryLake, peer: Peer, answer: object
) -> None:
    lake.peer().decide("a", 7)
    before = lake.version("a")
    peer.instead(LOG, answer, landed=True)
    assert published(peer).complete
    assert (lake.ids("a"), lake.version("a")) == ([0, 1, 7], before + 1)


def test_publishing_continues_after_an_entry_of_another_client(
    lake: MemoryLake, peer: Peer
) -> None:
    lake.peer().decide("a", 7)
    other = lake.peer()
    other.run(delta_writer.append(other.client, "a", [{"id": 9, "balance": 0, "items": ""}]))
    assert published(peer).complete
    assert lake.ids("a") == [0, 1, 7, 9]


def test_commits_that_touch_the_same_file_are_published_in_separate_entries(
    lake: MemoryLake, peer: Peer
) -> None:
    """In a common entry, the log would not show the change of the first commit."""
    for amount in (1, 2):
        other = lake.peer()
        txn = other.begin()
        other.add(txn, "a", amount)
        other.commit(txn, publish=False)
    before = lake.version("a")
    published(peer)
    assert (lake.rows("a"), lake.version("a")) == ({0: 103, 1: 100}, before + 2)


def test_publishing_that_times_out_leaves_the_rest_to_the_next_client(
    lake: MemoryLake, peer: Peer
) -> None:
    lake.peer().decide("a", 7)

    def slowly() -> Refused:
        lake.pass_by(peer.context.settings.publish_timeout_seconds)
        return Refused()

    peer.instead(LOG, slowly)
    assert not published(peer).complete
    assert published(lake.peer()).complete
    assert lake.ids("a") == [0, 1, 7]


def test_one_transaction_of_a_process_publishes_for_all_others_that_wait(
    lake: MemoryLake, peer: Peer
) -> None:
    lake.peer().decide("a", 7)
    head = peer.run_head()
    assert head is not None
    first = peer.steps(publish_once(peer.context, head, "a")).until(LOG)
    others = [peer.steps(publish_once(peer.context, head, "a")) for _ in range(2)]
    before = lake.version("a")
    answers = [program.finish() for program in (first, *others)]
    assert all(answer.complete for answer in answers)
    assert answers[1] is answers[2], "the second walk of the log is for both"
    assert lake.version("a") == before + 1
