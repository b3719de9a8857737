"""Transactions of one process that wait for HEAD: the leader commits for all, and each gets an
answer.
"""

from __future__ import annotations

from typing import Any

import pytest

import lakevilla as lv
from lakevilla.transaction.commit.together.crowd import commit_together, commits_of
from lakevilla.transaction.commit.together.group import Candidate, Failed, Settled
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def candidates(peer: Peer, *ids: int) -> list[Candidate]:
    return [peer.candidate(peer.appending("a", number)) for number in ids]


def at_the_door(peer: Peer, some: list[Candidate]) -> list[Any]:
    """Start the commits of these candidates: the first is about to replace HEAD, the others
    wait.
    """
    return [peer.steps(commit_together(one)) for one in some]


def test_transactions_that_arrive_while_another_leads_share_the_next_replacement(
    lake: MemoryLake, peer: Peer
) -> None:
    first, second, third = candidates(peer, 7, 8, 9)
    leader, follower, last = at_the_door(peer, [first, second, third])
    before, stored = lake.head.sequence, lake.replacements()
    leader.finish()
    assert lake.replacements() == stored + 1
    follower.finish()
    assert lake.replacements() == stored + 2
    assert third.answer is not None, "it was answered by the one before it"
    answers = [leader.result, follower.result, last.finish()]
    assert lake.replacements() == stored + 2
    assert [answer.summary.sequence for answer in answers] == [before + 1, before + 2, before + 3]
    assert [answer.summary.txn for answer in answers] == [
        one.txn.id for one in (first, second, third)
    ]


def test_an_error_of_the_store_is_raised_to_each_transaction_of_a_group_as_a_separate_error(
    lake: MemoryLake, peer: Peer
) -> None:
    some = candidates(peer, 7, 8, 9)
    leader, follower, last = at_the_door(peer, some)
    leader.finish()
    follower.until("HEAD").fail(lv.StoreError("no right to write"))
    answers = [follower.finish(), last.finish()]
    assert all(isinstance(answer, Failed) for answer in answers)
    errors = [answer.error for answer in answers]
    assert errors[0] is not errors[1]
    for error, candidate in zip(errors, some[1:], strict=True):
        assert error.txn_id == candidate.txn.id
        assert f"nothing of transaction {candidate.txn.id} was committed" in str(error)


def test_a_replacement_of_an_interrupted_leader_is_settled_by_its_follower(
    lake: MemoryLake, peer: Peer
) -> None:
    some = candidates(peer, 7, 8, 9)
    leader, follower, last = at_the_door(peer, some)
    leader.finish()
    sent = follower.until("HEAD")
    request = sent.next
    lake.store.apply(request)  # it is stored, and its sender gets no response
    with pytest.raises(KeyboardInterrupt):
        sent.interrupt()
    stored = lake.replacements()
    answer = last.finish()
    assert isinstance(answer, Settled)
    assert lake.replacements() == stored, "the same write was sent again, and refused"
    assert {commit.txn for commit in lake.head.commits[-2:]} == {one.txn.id for one in some[1:]}


def test_a_replacement_that_was_not_stored_is_sent_again_unchanged(
    lake: MemoryLake, peer: Peer
) -> None:
    some = candidates(peer, 7, 8, 9)
    leader, follower, last = at_the_door(peer, some)
    leader.finish()
    request = follower.until("HEAD").next
    with pytest.raises(KeyboardInterrupt):
        follower.interrupt()
    again = last.until("HEAD").next
    assert again == request, "until it is settled nobody may be refused by another write"
    assert isinstance(last.finish(), Settled)
    assert some[1].txn.id in {commit.txn for commit in lake.head.commits}


def test_an_unsettled_replacement_in_which_no_member_waits_is_dropped(
    lake: MemoryLake, peer: Peer
) -> None:
    first = peer.steps(commit_together(candidates(peer, 7)[0]))
    request = first.until("HEAD").next
    with pytest.raises(KeyboardInterrupt):
        first.interrupt()
    assert commits_of(peer.context).unsettled is not None
    second = peer.steps(commit_together(candidates(peer, 8)[0]))
    assert second.until("HEAD").next != request
    assert isinstance(second.finish(), Settled)
    assert commits_of(peer.context).unsettled is None


def test_a_leader_waits_after_each_lost_race_for_head(lake: MemoryLake, peer: Peer) -> None:
    candidate = candidates(peer, 7)[0]
    program = peer.steps(commit_together(candidate))
    waited = []
    for number in (8, 9, 10):
        program.until("HEAD")
        lake.peer().decide("b", number)
        before = lake.world.now
        program.step()
        while not hasattr(program.next, "condition"):
            program.step()
        waited.append(lake.world.now - before)
    assert isinstance(program.finish(), Settled)
    assert candidate.races == candidate.txn.ending.retries == 3
    assert waited[0] == 0, "the first repeat goes at once"
    assert min(waited[1:]) > 0
