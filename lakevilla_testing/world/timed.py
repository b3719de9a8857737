"""A simulation in which requests take their time, to show the throughput of many processes.

The simulator proper picks the next client by chance, so that every order occurs. Here each request
takes its time of a latency profile, takes effect in the middle of it, and is answered at its end;
requests of all clients are under way at the same time. Clients run the library's own code, whose
CPU costs nothing here: so the simulation shows the costs of the protocol, for more processes than a
machine has cores.
"""

from __future__ import annotations

import random
from collections import Counter

from lakevilla.settings import Settings
from lakevilla.store.effects import DeleteObject, Effect, Get, List, Put, Stat
from lakevilla_testing.world.latency import S3, LatencyProfile
from lakevilla_testing.world.scheduler import Simulation, Strand
from lakevilla_testing.world.trace import verb_of


class TimedSimulation(Simulation):
    """A simulation without faults, in virtual seconds of a profile.

    Parameters
    ----------
    seed : int
        Decides ids and latencies.
    profile : LatencyProfile
        The time that each verb takes.
    settings, seconds_between_writes : Settings, float
        As for ``Simulation``.
    max_steps : int
        The greatest number of steps.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        profile: LatencyProfile = S3,
        settings: Settings | None = None,
        seconds_between_writes: float = 0.0,
        max_steps: int = 10_000_000,
    ) -> None:
        super().__init__(
            seed,
            settings=settings,
            seconds_between_writes=seconds_between_writes,
            max_steps=max_steps,
        )
        self._profile = profile
        self._latencies = random.Random(f"{seed}/latencies")
        #: Requests so far, by verb.
        self.asked: Counter[str] = Counter()

    def _submit(self, strand: Strand, attempt: Effect) -> None:
        seconds = self._seconds(attempt)
        client = strand.client

        def take_effect() -> None:
            self.asked[verb_of(attempt)] += 1
            client.requests += 1
            outcome = self.store.apply(attempt)
            self._at(self.now + seconds / 2, lambda: self._advance(strand, outcome, None))

        self._at(self.now + seconds / 2, take_effect)

    def _seconds(self, attempt: Effect) -> float:
        profile = self._profile
        match attempt:
            case Get():
                least = profile.get
            case Put():
                least = profile.put
            case Stat():
                least = profile.head
            case List():
                least = profile.list
            case DeleteObject():
                least = profile.delete
            case _:
                least = profile.put
        return least * (1.0 + profile.jitter * self._latencies.random())
