"""Traces of a model on the code: real clients are led through the steps of a run of the model.

After each step the store is compared with the model's state. A step of the model is a few requests
of a client.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Any

from lakevilla.global_log.head import HEAD_KEY, Head
from lakevilla.store.codec import decode
from lakevilla_testing.histories.exhaustive import one_search
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.following import Diverged, Leader
from lakevilla_testing.world.scheduler import ClientFailed, Simulation
from lakevilla_testing.world.trace import Line
from models.checker import Model, walk


class Traced(ABC):
    """A run of a model, and the real clients that follow it."""

    def __init__(self, scenario: str, seed: int, flaw: str = "") -> None:
        self.scenario, self.seed, self.flaw = scenario, seed, flaw
        self.path: list[str] = []
        self.clients: dict[str, Client] = {}
        self.simulation = self.tables()
        self.leader = Leader(self.simulation)

    def follow(self) -> int:
        """Lead the clients along a run that is drawn; return how many steps were compared."""
        name, state = "", None
        try:
            for name, state in walk(self.model(), random.Random(f"{self.scenario}/{self.seed}")):
                if not self.path:
                    self.begin(state)
                elif not self.step(name):
                    break
                self.path.append(name)
                self.compare(state)
            else:
                self.compare_ends(state)
        except AssertionError as error:
            error.add_note(f"after {' > '.join(self.path)}, at {name}; the requests:")
            error.add_note("\n".join(map(str, self.simulation.trace)))
            raise
        finally:
            self.simulation.dispose()
        return len(self.path) - 1

    @abstractmethod
    def tables(self) -> Simulation:
        """Return a simulation with the tables that the model begins with."""

    @abstractmethod
    def model(self) -> Model[Any]:
        """Return the model, with the scenario and the flaw of this run."""

    @abstractmethod
    def begin(self, state: Any) -> None:
        """Begin the clients of a state."""

    @abstractmethod
    def step(self, name: str) -> bool:
        """Lead a client through a step; return False where the code goes on in another way."""

    @abstractmethod
    def compare(self, state: Any) -> None:
        """Compare the store with the model's state, and raise ``Diverged`` if they differ."""

    @abstractmethod
    def compare_ends(self, state: Any) -> None:
        """Compare what is left to compare once the run has come to its end."""

    def expect(self, client: Client, verb: str, key: str, outcome: str) -> Line:
        """Let a client make one request, of this verb, on a key with this text."""
        line = self.leader.once(client)
        found = line.verb.startswith(verb) and key in line.key and line.outcome.startswith(outcome)
        if not found:
            raise Diverged(f"not {verb} {key} {outcome}, but {line}")
        return line

    def same(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            raise Diverged(f"{what}: {found}, and the model has {wanted}")

    def head(self, key: str = HEAD_KEY) -> Head:
        return decode(key, self.simulation.store.objects[key].body, Head)


@one_search
def follow(traced: type[Traced], scenario: str, runs: int, flaw: str = "") -> int:
    """Follow runs of a scenario; return how many steps were compared."""
    return sum(traced(scenario, seed, flaw).follow() for seed in range(runs))


@one_search
def differs(traced: type[Traced], scenario: str, bug: str, runs: int) -> bool:
    """Return whether clients with a planted bug do something else than the model."""
    traced(scenario, 0).simulation.dispose()  # the tables are made without the bug
    with PLANTED[bug].plant():
        for seed in range(runs):
            try:
                traced(scenario, seed).follow()
            except (Diverged, ClientFailed):
                return True
    return False
