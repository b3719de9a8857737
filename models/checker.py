"""A checker: it visits each state that a model can reach, and reports the first wrong one.

The search is breadth first, so the path to a violation is a shortest one.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

S = TypeVar("S", bound=Hashable)


class Model(Protocol[S]):
    """The rules of a protocol, over states that can be compared and hashed."""

    def initial(self) -> S:
        """Return the first state."""

    def steps(self, state: S) -> Iterator[tuple[str, S]]:
        """Yield each step that may come next, with its name and the state after it."""

    def violation(self, state: S) -> str | None:
        """Return the invariant that a state breaks, or None."""


@runtime_checkable
class Ending(Protocol):
    """A model whose runs must be able to end, from each state."""

    def has_ended(self, state: object) -> bool:
        """Return whether all is done that must be done."""


@dataclass(frozen=True, slots=True)
class Found(Generic[S]):
    """What the checker has found: a broken invariant and the steps to it, or None."""

    states: int
    violation: str | None = None
    path: tuple[str, ...] = ()


#: What breaks where a state is reached from which no run can end.
STUCK = "end"

#: Each state, with the one before it and the step between the two.
_Before = dict[S, tuple[S, str] | None]


def explore(model: Model[S]) -> Found[S]:
    """Visit all states of a model, until one breaks an invariant."""
    first = model.initial()
    before: _Before[S] = {first: None}
    waiting = deque([first])
    links: dict[S, list[S]] = defaultdict(list)
    must_end = isinstance(model, Ending)
    while waiting:
        state = waiting.popleft()
        for name, after in model.steps(state):
            if must_end:
                links[after].append(state)
            if after in before:
                continue
            before[after] = state, name
            wrong = model.violation(after)
            if wrong is not None:
                return Found(len(before), wrong, _path(before, after))
            waiting.append(after)
    if isinstance(model, Ending):
        stuck = _first_stuck(before, links, {one for one in before if model.has_ended(one)})
        if stuck is not None:
            return Found(len(before), STUCK, _path(before, stuck))
    return Found(len(before))


def walk(model: Model[S], source: random.Random, most: int = 300) -> Iterator[tuple[str, S]]:
    """Yield the steps of one run that is drawn, with the state after each, up to its end.

    Some runs go through many turns of one client: each step is likely of the client of the last.
    """
    state = model.initial()
    last = ""
    for _ in range(most):
        steps = list(model.steps(state))
        if not steps:
            return
        same = [step for step in steps if step[0].partition(" ")[0] == last]
        name, state = source.choice(same if same and source.random() < 0.6 else steps)
        last = name.partition(" ")[0]
        yield name, state


def _first_stuck(before: _Before[S], links: dict[S, list[S]], ended: set[S]) -> S | None:
    """Return the first state from which none of those that have ended is reached."""
    waiting = list(ended)
    while waiting:
        for state in links[waiting.pop()]:
            if state not in ended:
                ended.add(state)
                waiting.append(state)
    return next((state for state in before if state not in ended), None)


def _path(before: _Before[S], state: S) -> tuple[str, ...]:
    names: list[str] = []
    found = before[state]
    while found is not None:
        state, name = found
        names.append(name)
        found = before[state]
    return tuple(reversed(names))
