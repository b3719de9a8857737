"""The choice of the next move: by chance, by changing priorities, or by a script."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol


class Schedule(Protocol):
    """A choice of the next request, and of the time it takes."""

    def pick(self, ready: Sequence[str]) -> int:
        """Return the index of the next request; ``ready`` has each one's client, oldest first."""

    def latency_seconds(self) -> float:
        """Return the virtual time that passes with the request."""


class RandomSchedule:
    """A schedule in which all clients that can move are equally likely.

    The number of their requests under way does not matter.
    """

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def pick(self, ready: Sequence[str]) -> int:
        if len(ready) == 1:
            return 0
        clients = list(dict.fromkeys(ready))
        client = clients[int(self._random.random() * len(clients))]
        mine = [index for index, name in enumerate(ready) if name == client]
        return mine[int(self._random.random() * len(mine))]

    def latency_seconds(self) -> float:
        return 0.005 + 0.095 * self._random.random()


class PrioritySchedule:
    """A schedule in which the client of the highest priority moves, until a random step demotes it.

    It finds bugs that need one client to stop while others run far ahead, which even chances almost
    never cause (probabilistic concurrency testing: Burckhardt and others, ASPLOS 2010).
    """

    def __init__(self, source: random.Random, demotion_rate: float = 0.04) -> None:
        self._random = source
        self._demotion_rate = demotion_rate
        self._priorities: dict[str, float] = {}

    def pick(self, ready: Sequence[str]) -> int:
        for name in ready:
            if name not in self._priorities:
                self._priorities[name] = self._random.random()
        first = max(ready, key=self._priorities.__getitem__)
        if self._random.random() < self._demotion_rate:
            self._priorities[first] = min(self._priorities.values()) - 1.0
        mine = [index for index, name in enumerate(ready) if name == first]
        return mine[int(self._random.random() * len(mine))]

    def latency_seconds(self) -> float:
        return 0.005 + 0.095 * self._random.random()


class ScriptedSchedule:
    """A schedule of the given picks, then of the client that moved last.

    ``taken``, ``options`` and ``costs`` record every pick, its alternatives, and whether another
    pick would have been a preemption, so that a search can continue from here.
    """

    def __init__(self, script: Sequence[int] = ()) -> None:
        self._script = script
        self._last: str | None = None
        self.taken: list[int] = []
        self.options: list[tuple[str, ...]] = []
        self.costs: list[bool] = []

    def pick(self, ready: Sequence[str]) -> int:
        step = len(self.taken)
        default = ready.index(self._last) if self._last in ready else 0
        index = self._script[step] if step < len(self._script) else default
        self.options.append(tuple(ready))
        self.costs.append(self._last in ready)
        self.taken.append(index)
        self._last = ready[index]
        return index

    def latency_seconds(self) -> float:
        return 0.02
