"""A simulated client: one process with its own clock and ids."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, Protocol

from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.effects import Program
from lakevilla_testing.world.faults import Fault
from lakevilla_testing.world.store import SimulatedStore

#: Virtual time 0, in seconds since the epoch.
EPOCH = 1_750_000_000.0


class Environment(Protocol):
    """The part of the simulation that a client sees."""

    seed: int
    now: float
    store: SimulatedStore
    settings: Settings
    fired: Counter[Fault]

    def spawn(self, client: Client, program: Program[Any]) -> None:
        """Start another strand of a client."""


class ClientClock:
    """A client's own clock: off by an offset, fast or slow by a rate."""

    def __init__(self, simulation: Environment, rate: float = 1.0) -> None:
        self._simulation = simulation
        self._rate = rate
        self._skewed = False
        self.offset_seconds = 0.0

    def now(self) -> float:
        if self._skewed:
            # Counted when a program first reads the wrong time.
            self._skewed = False
            self._simulation.fired[Fault.CLOCK_SKEW] += 1
        return EPOCH + self._simulation.now * self._rate + self.offset_seconds

    def elapsed(self) -> float:
        return self._simulation.now * self._rate

    def skew(self, offset_seconds: float) -> None:
        self.offset_seconds = offset_seconds
        self._skewed = True


class Client:
    """One process: its clock, its ids, and its end."""

    def __init__(self, simulation: Environment, name: str, seed: str, rate: float) -> None:
        self.simulation = simulation
        self.name = name
        self.clock = ClientClock(simulation, rate)
        self.ids = Ids(self.clock, random.Random(seed))
        #: The source of the client's own choices.
        self.random = random.Random(f"{seed}/choices")
        self.status: Literal["running", "done", "crashed"] = "running"
        self.result: Any = None
        self.requests = 0
        self.faulty = True
        self.paused_until = 0.0
        self.paused_at = 0
        self.offline_until = 0.0
        self.restart: Callable[[Client], Program[Any]] | None = None
        self.mains = 0

    def __repr__(self) -> str:
        return f"<client {self.name}: {self.status}>"
