"""A lane: one works for all, and whoever fails leaves it to the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lakevilla.lake.lanes import Lane, Lanes, Member, pass_through
from lakevilla.store.effects import Await, Program
from tests.support.by_hand import outcome

Asker = Member[str]


@pytest.fixture
def lane() -> Lane[Asker]:
    return Lane()


def entered(lane: Lane[Asker], count: int) -> list[Asker]:
    members = [Asker() for _ in range(count)]
    for member in members:
        lane.enter(member)
    return members


def is_open(member: Asker) -> bool:
    return member.gate.is_open


def test_the_first_leads_and_the_others_wait(lane: Lane[Asker]) -> None:
    first, second, third = entered(lane, 3)
    assert [lane.leads(member) for member in (first, second, third)] == [True, False, False]
    assert [is_open(member) for member in (first, second, third)] == [True, False, False]
    assert lane.present(2) == [first, second]


def test_an_answer_opens_the_gates_of_those_that_it_is_for(lane: Lane[Asker]) -> None:
    first, second, third = entered(lane, 3)
    lane.answer({first: "done", second: "done too"})
    assert (second.answer, is_open(second), is_open(third)) == ("done too", True, False)
    lane.leave(first)
    assert lane.leads(third), "who is answered does not lead on"


def test_a_leader_that_leaves_hands_over_what_it_has_begun(lane: Lane[Asker]) -> None:
    first, second = entered(lane, 2)
    noted: list[Asker] = []
    assert lane.begin("sent", [first, second], noted.append)
    assert noted == [first, second]
    lane.leave(first)
    assert lane.leads(second)
    assert lane.unsettled == "sent"
    lane.answer({second: "done"}, settled=True)
    assert lane.unsettled is None


def test_a_member_that_has_left_a_lane_is_in_no_work(lane: Lane[Asker]) -> None:
    first, second = entered(lane, 2)
    lane.leave(second)
    lane.leave(second)
    assert lane.present(9) == [first]
    noted: list[Asker] = []
    assert not lane.begin("sent", [first, second], noted.append)
    assert (noted, lane.unsettled) == ([], None)


def test_a_member_waits_at_its_gate_until_it_leads_or_is_answered(lane: Lane[Asker]) -> None:
    (leader,) = entered(lane, 1)
    second = Asker()

    def lead() -> Program[None]:
        raise AssertionError("it does not lead")

    program = pass_through(lane, second, lead)
    assert next(program) == Await(second.gate)
    lane.answer({leader: "done", second: "done by another"})
    with pytest.raises(StopIteration):
        program.send(None)
    assert second.answer == "done by another"


def test_a_leader_that_fails_leaves_the_lane_to_the_next(lane: Lane[Asker]) -> None:
    first, second = Asker(), Asker()

    def fails() -> Program[None]:
        yield from ()
        lane.enter(second)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outcome(pass_through(lane, first, fails))
    assert lane.leads(second)

    lane.leave(second)
    again = Asker()

    def works_again() -> Program[None]:
        yield from ()
        lane.answer({again: "done"})

    outcome(pass_through(lane, again, works_again))
    assert again.answer == "done"
    assert lane.present(9) == []


def test_threads_that_ask_for_one_name_get_one_lane() -> None:
    lanes, ready = Lanes(), threading.Barrier(4)

    def ask(_: int) -> Lane[Asker]:
        ready.wait()
        return lanes.named("commit")

    with ThreadPoolExecutor(4) as pool:
        assert len({id(lane) for lane in pool.map(ask, range(4))}) == 1
    assert lanes.named("commit") is not lanes.named("publish")


class _Struck(dict[Any, Any]):
    """Answers whose giver is struck by Ctrl-C right after he has let go of the lock."""

    passes = 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        if self.passes == 1:
            raise KeyboardInterrupt
        return super().__iter__()


def test_ctrl_c_as_answers_are_given_leaves_nobody_waiting() -> None:
    lane: Lane[Member[str]] = Lane()
    leader, follower = Member[str](), Member[str]()
    lane.enter(leader)
    lane.enter(follower)
    with pytest.raises(KeyboardInterrupt):
        lane.answer(_Struck({leader: "x", follower: "y"}), settled=True)
    lane.leave(leader)
    assert follower.gate.is_open
