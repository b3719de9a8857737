"""A commit group: one member works for all; if it fails, the next member takes over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lakevilla.lake.groups import Group, Groups, Member, lead_or_follow
from lakevilla.store.effects import Await, Program
from tests.support.by_hand import outcome

Asker = Member[str]


@pytest.fixture
def group() -> Group[Asker]:
    return Group()


def entered(group: Group[Asker], count: int) -> list[Asker]:
    members = [Asker() for _ in range(count)]
    for member in members:
        group.enter(member)
    return members


def is_open(member: Asker) -> bool:
    return member.gate.is_open


def test_the_first_member_of_a_group_leads_and_the_others_wait(group: Group[Asker]) -> None:
    first, second, third = entered(group, 3)
    assert [group.leads(member) for member in (first, second, third)] == [True, False, False]
    assert [is_open(member) for member in (first, second, third)] == [True, False, False]
    assert group.present(2) == [first, second]


def test_an_answer_opens_the_gates_of_the_members_that_it_is_for(group: Group[Asker]) -> None:
    first, second, third = entered(group, 3)
    group.answer({first: "done", second: "done too"})
    assert (second.answer, is_open(second), is_open(third)) == ("done too", True, False)
    group.leave(first)
    assert group.leads(third), "who is answered does not lead on"


def test_a_leader_that_leaves_passes_its_unsettled_work_to_the_next(group: Group[Asker]) -> None:
    first, second = entered(group, 2)
    noted: list[Asker] = []
    assert group.begin("sent", [first, second], noted.append)
    assert noted == [first, second]
    group.leave(first)
    assert group.leads(second)
    assert group.unsettled == "sent"
    group.answer({second: "done"}, settled=True)
    assert group.unsettled is None


def test_a_member_that_has_left_a_group_is_not_included_in_its_work(group: Group[Asker]) -> None:
    first, second = entered(group, 2)
    group.leave(second)
    group.leave(second)
    assert group.present(9) == [first]
    noted: list[Asker] = []
    assert not group.begin("sent", [first, second], noted.append)
    assert (noted, group.unsettled) == ([], None)


def test_a_member_waits_at_its_gate_until_it_leads_or_is_answered(group: Group[Asker]) -> None:
    (leader,) = entered(group, 1)
    second = Asker()

    def lead() -> Program[str]:
        raise AssertionError("it does not lead")

    program = lead_or_follow(group, second, lead)
    assert next(program) == Await(second.gate)
    group.answer({leader: "done", second: "done by another"})
    with pytest.raises(StopIteration) as returned:
        program.send(None)
    assert returned.value.value == "done by another"


def test_a_leader_that_fails_leaves_the_group_to_the_next_member(group: Group[Asker]) -> None:
    first, second = Asker(), Asker()

    def fails() -> Program[str]:
        yield from ()
        group.enter(second)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outcome(lead_or_follow(group, first, fails))
    assert group.leads(second)

    group.leave(second)
    again = Asker()

    def works_again() -> Program[str]:
        yield from ()
        group.answer({again: "done"})
        return "done"

    assert outcome(lead_or_follow(group, again, works_again)) == "done"
    assert group.present(9) == []


def test_threads_that_request_the_same_name_get_the_same_group() -> None:
    groups, ready = Groups(), threading.Barrier(4)

    def ask(_: int) -> Group[Asker]:
        ready.wait()
        return groups.named("commit")

    with ThreadPoolExecutor(4) as pool:
        assert len({id(group) for group in pool.map(ask, range(4))}) == 1
    assert groups.named("commit") is not groups.named("publish")


class _Struck(dict[Any, Any]):
    """Answers during whose delivery the sender gets Ctrl-C, right after it has released the
    lock.
    """

    passes = 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        if self.passes == 1:
            raise KeyboardInterrupt
        return super().__iter__()


def test_ctrl_c_during_the_delivery_of_answers_leaves_no_member_waiting() -> None:
    group: Group[Member[str]] = Group()
    leader, follower = Member[str](), Member[str]()
    group.enter(leader)
    group.enter(follower)
    with pytest.raises(KeyboardInterrupt):
        group.answer(_Struck({leader: "x", follower: "y"}), settled=True)
    group.leave(leader)
    assert follower.gate.is_open
