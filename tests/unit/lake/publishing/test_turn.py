"""The turn to publish: the owner of the first pending commit publishes at once, others check
first.
"""

from __future__ import annotations

from typing import Any

import pytest

from lakevilla.global_log.head import Head
from lakevilla.lake.publishing.publish import LOOK_SECONDS, LOOKS, Published, publish_once
from lakevilla.store.effects import Get, Program, Put, Sleep
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.tables import delta_writer
from tests.support.simulated.memory_lake import MemoryLake, Peer

LOG = "a/_delta_log"


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


def decided(lake: MemoryLake, number: int) -> tuple[Peer, TransactionState]:
    """Decide a commit to ``a`` in a new process, without publishing it."""
    peer = lake.peer()
    return peer, peer.decide("a", number)


def its_sequence(txn: TransactionState) -> int:
    assert txn.ending.decided is not None
    return txn.ending.decided.summary.sequence


def log_entry(lake: MemoryLake) -> str:
    return f"{LOG}/{lake.version('a'):020}.json"


def head_of(lake: MemoryLake) -> Head:
    return lake.head


def publishing(peer: Peer, txn: TransactionState | None, head: Head) -> Program[Published]:
    """Publish the table as ``peer``; without ``txn``, it does not wait for owners of commits."""
    ours = frozenset() if txn is None else frozenset([txn.id])
    found = yield from publish_once(peer.context, head, "a", ours)
    assert isinstance(found, Published), found
    return found


def to_its_pause(process: Any) -> Any:
    """Run the process until it is about to pause for another process."""
    while not isinstance(process.next, Sleep):
        process.step()
    return process


def to_its_end(process: Any) -> tuple[Published, list[Any]]:
    """Run the process to its end; return its result, and its requests to the store."""
    asked = []
    while not process.done:
        asked.append(process.step()[0])
    return process.finish(), [one for one in asked if not isinstance(one, Sleep)]


def test_the_owner_of_the_first_commit_publishes_also_later_commits_at_once(
    lake: MemoryLake,
) -> None:
    (first, mine), _ = decided(lake, 7), decided(lake, 8)
    head, began = head_of(lake), lake.world.now
    first.asked.clear()
    assert first.run(publishing(first, mine, head)).complete
    assert lake.world.now == began, "it has waited for nobody"
    assert lake.ids("a") == [0, 1, 7, 8]
    assert len(first.asked_for(Put, LOG)) == 1


def test_a_later_publisher_finds_the_entry_and_writes_none(lake: MemoryLake) -> None:
    (first, mine), (second, its) = decided(lake, 7), decided(lake, 8)
    head = head_of(lake)
    waiting = to_its_pause(second.steps(publishing(second, its, head)))
    first.run(publishing(first, mine, head))
    found, asked = to_its_end(waiting)
    assert found.complete
    assert found.is_by_another(its_sequence(its)), "it must look whether it came in unchanged"
    assert [(type(one), LOG in one.key) for one in asked] == [(Get, True)]
    assert lake.ids("a") == [0, 1, 7, 8]


def test_a_commit_whose_owner_has_died_is_published_by_another_after_some_checks(
    lake: MemoryLake,
) -> None:
    _, (second, its) = decided(lake, 7), decided(lake, 8)
    head, began = head_of(lake), lake.world.now
    second.asked.clear()
    assert second.run(publishing(second, its, head)).complete
    assert lake.world.now - began <= LOOKS * LOOK_SECONDS["delta"] * 1.2 + 0.01
    assert len(second.asked_for(Get, LOG)) == LOOKS
    assert lake.ids("a") == [0, 1, 7, 8]


def test_a_publisher_does_not_wait_for_an_owner_that_has_had_enough_time(lake: MemoryLake) -> None:
    decided(lake, 7)
    lake.pass_by(5.0)
    second, its = decided(lake, 8)
    head, began = head_of(lake), lake.world.now
    second.run(publishing(second, its, head))
    assert lake.world.now == began
    assert lake.ids("a") == [0, 1, 7, 8]


def test_a_publisher_without_a_commit_of_its_own_does_not_wait(lake: MemoryLake) -> None:
    decided(lake, 7)
    other = lake.peer()
    began = lake.world.now
    other.run(publishing(other, None, head_of(lake)))
    assert lake.world.now == began
    assert lake.ids("a") == [0, 1, 7]


def test_the_owner_of_the_second_commit_publishes_once_the_first_is_published(
    lake: MemoryLake,
) -> None:
    """The owner of the first commit did not know of the second."""
    first, mine = decided(lake, 7)
    before = head_of(lake)
    second, its = decided(lake, 8)
    waiting = to_its_pause(second.steps(publishing(second, its, head_of(lake))))
    first.run(publishing(first, mine, before))
    began = lake.world.now
    found, asked = to_its_end(waiting)
    assert found.complete
    assert lake.world.now - began <= 1.2 * LOOK_SECONDS["delta"], "one pause, before it knew"
    assert [one.key for one in asked if isinstance(one, Put)] == [log_entry(lake)]
    assert lake.ids("a") == [0, 1, 7, 8]


def test_a_publisher_that_has_waited_includes_commits_made_meanwhile(lake: MemoryLake) -> None:
    first, mine = decided(lake, 7)
    before = head_of(lake)
    second, its = decided(lake, 8)
    waiting = to_its_pause(second.steps(publishing(second, its, head_of(lake))))
    third, last = decided(lake, 9)
    first.run(publishing(first, mine, before))
    found, _ = to_its_end(waiting)
    assert lake.ids("a") == [0, 1, 7, 8, 9]
    assert len(found.created) == 1
    third.asked.clear()
    assert third.run(publishing(third, last, head_of(lake))).complete
    assert third.asked_for(Put) == []


def test_a_publisher_that_has_waited_continues_after_a_foreign_entry(lake: MemoryLake) -> None:
    decided(lake, 7)
    second, its = decided(lake, 8)
    waiting = to_its_pause(second.steps(publishing(second, its, head_of(lake))))
    other = lake.peer()
    other.run(delta_writer.append(other.client, "a", [{"id": 9, "balance": 0, "items": ""}]))
    assert waiting.finish().complete
    assert lake.ids("a") == [0, 1, 7, 8, 9]


def test_a_planted_bug_without_a_limit_of_checks_waits_for_a_dead_owner_forever(
    lake: MemoryLake,
) -> None:
    _, (second, its) = decided(lake, 7), decided(lake, 8)
    waiting = second.steps(publishing(second, its, head_of(lake)))
    with PLANTED["only_owners_publish"].plant():
        for _ in range(50):
            to_its_pause(waiting).step()
    assert lake.ids("a") == [0, 1]
    assert waiting.finish().complete
    assert lake.ids("a") == [0, 1, 7, 8]
