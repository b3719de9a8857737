"""A checker: it visits each state that a model can reach, and reports the first wrong one.

The search is breadth first, so the path to a violation is a shortest one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Model(Protocol[S]):
    """The rules of a protocol, over states that can be compared and hashed."""

    def initial(self) -> S:
        """Return the first state."""

    def steps(self, state: S) -> Iterator[tuple[str, S]]:
        """Yield each step that may come next, with its name and the state after it."""

    def violation(self, state: S) -> str | None:
        """Return the invariant that a state breaks, or None."""


@dataclass(frozen=True, slots=True)
class Found(Generic[S]):
    """What the checker has found: a broken invariant and the steps to it, or None."""

    states: int
    violation: str | None = None
    path: tuple[str, ...] = ()


def explore(model: Model[S]) -> Found[S]:
    """Visit all states of a model, until one breaks an invariant."""
    first = model.initial()
    # Each state, with the one before it and the step between the two.
    before: dict[S, tuple[S, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for name, after in model.steps(state):
            if after in before:
                continue
            before[after] = state, name
            wrong = model.violation(after)
            if wrong is not None:
                return Found(len(before), wrong, _path(before, after))
            waiting.append(after)
    return Found(len(before))


def _path(before: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    names: list[str] = []
    found = before[state]
    while found is not None:
        state, name = found
        names.append(name)
        found = before[state]
    return tuple(reversed(names))
