"""Groups: one program of a process does the work for all programs that wait for it.

A group has members in order of arrival. The first of them is the leader: the members present
are its batch, it works for all of them, and answers each. The other members are followers: they
wait at their gates, and cost nothing. No member waits for company: a member that finds the group
empty leads at once, and members that join while it works make up the next batch.

A leader may fail anywhere, by an error or by Ctrl-C, and it leaves the group however
its program ends. The first of the remaining members leads on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lakevilla.store.effects import Gate, Program, wait_at

A = TypeVar("A")
M = TypeVar("M", bound="Member[Any]")


@dataclass(slots=True, eq=False)
class Member(Generic[A]):
    """A request for work, by one program.

    ``gate`` opens with the answer, or once the member must lead. The leader writes ``answer``, and
    the follower's thread reads it. ``has_left`` says that its program has ended or was interrupted,
    so that it does not wait for the answer.
    """

    gate: Gate = field(default_factory=Gate, init=False)
    answer: A | None = field(default=None, init=False)
    has_left: bool = field(default=False, init=False)


class Group(Generic[M]):
    """The members of one group, and the leader among them.

    The lock is held for a few lines that wait for nothing. Ctrl-C may strike in the
    middle of them; so the effect of each method can be completed by another call
    of it, and by ``leave``, which every program calls at its end.

    Attributes
    ----------
    unsettled : object
        Work that a leader has begun and that the next leader must finish first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: list[M] = []
        self._leader: M | None = None
        self.unsettled: Any = None

    def enter(self, member: M) -> None:
        """Take the last place; the member leads if there is no other."""
        with self._lock:
            self._members.append(member)
            self._appoint()

    def leads(self, member: M) -> bool:
        return self._leader is member

    def present(self, most: int | None = None) -> list[M]:
        """Return the first ``most`` members that wait for an answer, or all."""
        with self._lock:
            return [member for member in self._members if not member.has_left][:most]

    def begin(self, work: object, members: Iterable[M], note: Callable[[M], None]) -> bool:
        """Begin work that can't be taken back, unless a member of it has left.

        This is safe because ``leave`` takes the same lock: a member either left before and is
        not in the work, or it knows, by what ``note`` has noted, that the work may be done.
        """
        with self._lock:
            chosen = list(members)
            if any(member.has_left for member in chosen):
                return False
            for member in chosen:
                note(member)
            self.unsettled = work
            return True

    def answer(self, answers: Mapping[M, Any], *, settled: bool = False) -> None:
        """Give members their answers; ``settled`` ends the work that was begun."""
        try:
            self._answer(answers, settled)
        except BaseException:
            self._answer(answers, settled)  # Ctrl-C in the middle of it, as in ``leave``
            raise

    def _answer(self, answers: Mapping[M, Any], settled: bool) -> None:
        with self._lock:
            for member, answer in answers.items():
                member.answer = answer
            if settled:
                self.unsettled = None
            self._members = [member for member in self._members if member.answer is None]
        for member in answers:
            member.gate.open()

    def leave(self, member: M) -> None:
        """Leave the group, answered or not; the first member leads now. Harmless twice."""
        try:
            self._leave(member)
        except BaseException:
            self._leave(member)  # Ctrl-C in the middle of it: no member may wait for ever
            raise

    def _leave(self, member: M) -> None:
        with self._lock:
            member.has_left = True
            self._members = [other for other in self._members if other is not member]
            if self._leader is member:
                self._leader = None
            self._appoint()
        if member.answer is not None:
            member.gate.open()

    def _appoint(self) -> None:
        if self._leader is None and self._members:
            self._leader = self._members[0]
        if self._leader is not None:
            self._leader.gate.open()


class Groups:
    """The groups of one lake in one process, by name: the name says which work a group does."""

    def __init__(self) -> None:
        self.empty()

    def empty(self) -> None:
        """Begin again, with no members."""
        self._groups: dict[str, Group[Any]] = {}

    def named(self, name: str, make: Callable[[], Group[Any]] = Group) -> Group[Any]:
        """Return the group of this name, made by ``make`` where there is none yet."""
        # One step of the interpreter, so that two threads get the same.
        return self._groups.setdefault(name, make())


def lead_or_follow(
    group: Group[Any], member: Member[A], lead: Callable[[], Program[A]]
) -> Program[A]:
    """Return the member's answer: that of another leader, or its own as the leader.

    ``lead`` works for the group until ``member`` is answered, and returns that answer; it answers
    all other members that it can.
    """
    try:
        group.enter(member)
        while (answer := member.answer) is None:
            if group.leads(member):
                return (yield from lead())
            yield from wait_at(member.gate)
        return answer
    finally:
        group.leave(member)
