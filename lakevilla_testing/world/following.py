"""Clients that are led through a given order of steps, a request at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakevilla_testing.world.client import Client
from lakevilla_testing.world.scheduler import Simulation
from lakevilla_testing.world.trace import Line, key_of, verb_of

#: More requests than a step of any client has.
_MOST = 200


class Diverged(AssertionError):
    """A client does something else than the step that it was led to."""


class Leader:
    """Lets one client of a simulation move at a time, and stops it before a request."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        simulation.schedule = self
        self._turn = ""

    def pick(self, ready: Sequence[str]) -> int:
        return ready.index(self._turn)

    def latency_seconds(self) -> float:
        return 0.01

    def next_of(self, client: Client) -> tuple[str, str] | None:
        """Return verb and key of a client's next request; None if it has ended."""
        requests = self.simulation.requests_of(client)
        return (verb_of(requests[0]), key_of(requests[0])) if requests else None

    def until(self, client: Client, is_next: Callable[[str, str], bool]) -> None:
        """Let a client go on up to a request, which it does not make yet, or to its end."""
        for _ in range(_MOST):
            following = self.next_of(client)
            if following is None or is_next(*following):
                return
            self.once(client)
        raise Diverged(f"{client.name} never comes to the step; its last: {self.last(client)}")

    def once(self, client: Client) -> Line:
        """Let a client make one request."""
        if self.next_of(client) is None:
            raise Diverged(f"{client.name} has ended; its last request: {self.last(client)}")
        self._turn = client.name
        return self.simulation.move()

    def last(self, client: Client) -> Line | None:
        return next(
            (one for one in reversed(self.simulation.trace) if one.client == client.name), None
        )
