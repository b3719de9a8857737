"""Groups: one program of a process works for all programs that need the same work.

A group has members in order of arrival. The first of them is the leader: it works for all members
present, its batch, and gives each of them an answer. The other members are followers, which wait at
their gates. No member waits for a batch to fill: a member that finds the group empty leads at once,
and members that join while it works form the next batch.

A leader may fail at any point, by an error or by Ctrl-C; it leaves the group however its program
ends. Then the first of the remaining members leads.
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

    ``gate`` opens when there is an answer, or when the member must lead. The leader writes
    ``answer``, and the follower's thread reads it. ``has_left``: the member's program has ended or
    was interrupted, so that it does not wait for the answer.
    """

    gate: Gate = field(default_factory=Gate, init=False)
    answer: A | None = field(default=None, init=False)
    has_left: bool = field(default=False, init=False)


class Group(Generic[M]):
    """The members of one group, and the leader among them.

    The lock is held only for a few lines that never wait. Ctrl-C may interrupt them in the middle;
    so each method can be called again to complete its effect, and ``leave``, which every program
    calls at its end, completes it too.

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

    def release(self) -> None:
        """Release what the group keeps in memory for those to come: the lake is closed."""

    def enter(self, member: M) -> None:
        """Add a member as the last one; it leads if it is the only one."""
        with self._lock:
            self._members.append(member)
            self._appoint()

    def leads(self, member: M) -> bool:
        return self._leader is member

    def present(self, most: int | None = None) -> list[M]:
        """Return the first ``most`` members that wait for an answer, or all."""
        with self._lock:
            return [member for member in self._members if not member.has_left][:most]

    def begin(self, work: object, members: Iterable[M], note: Callable[[M], object]) -> bool:
        """Begin irrevocable work for members, unless one of them has left; return whether begun.

        This is safe because ``leave`` takes the same lock: a member has either left before, and
        then the work is not begun, or ``note`` has recorded for it that the work may be done. A
        ``note`` that returns False refuses the work.
        """
        with self._lock:
            chosen = list(members)
            if any(member.has_left for member in chosen):
                return False
            if any(note(member) is False for member in chosen):
                return False
            self.unsettled = work
            return True

    def answer(self, answers: Mapping[M, Any], *, settled: bool = False) -> None:
        """Give members their answers; with ``settled``, the work that was begun has ended."""
        try:
            self._answer(answers, settled)
        except BaseException:
            self._answer(answers, settled)  # Ctrl-C has interrupted the call, as in ``leave``
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
        """Remove a member, answered or not; if it led, the first remaining one leads.

        May be called twice.
        """
        try:
            self._leave(member)
        except BaseException:
            self._leave(member)  # Ctrl-C has interrupted the call: no member may wait for ever
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
    """The groups of one lake in one process, by name; each name stands for one kind of work."""

    def __init__(self) -> None:
        self.empty()

    def empty(self) -> None:
        """Forget all groups and their members."""
        self._groups: dict[str, Group[Any]] = {}

    def release(self) -> None:
        """Release what the groups keep in memory; they can go on being used."""
        for group in list(self._groups.values()):
            group.release()

    def named(self, name: str, make: Callable[[], Group[Any]] = Group) -> Group[Any]:
        """Return the group of this name; make it by ``make`` if there is none yet."""
        # ``setdefault`` is one step of the interpreter, so two threads get the same group.
        return self._groups.setdefault(name, make())


def lead_or_follow(
    group: Group[Any], member: Member[A], lead: Callable[[], Program[A]]
) -> Program[A]:
    """Return the member's answer, from another member that leads, or from ``lead``.

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
