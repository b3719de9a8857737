"""Who moves next: by chance, by changing priorities, or by a script."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol


class Schedule(Protocol):
    """Picks the next request and says how long it takes."""

    def pick(self, ready: Sequence[str]) -> int:
        """Index of the request to perform; ``ready`` names each one's client, oldest first."""

    def latency_seconds(self) -> float:
        """Virtual time that passes with the request."""


class RandomSchedule:
    """Every client that can move is equally likely, however many requests it has in flight."""

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
    """The client of the highest priority moves, until it is demoted at a random step.

    Finds what needs one client to stand still while others run far ahead,
    which even chances almost never bring about (probabilistic concurrency
    testing: Burckhardt and others, ASPLOS 2010).
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
    """The given picks, then stay with the client that moved last.

    ``taken``, ``options`` and ``costs`` record every pick, what there was to
    choose from, and whether another pick would have been a preemption, so that
    a search can go on from here.
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
