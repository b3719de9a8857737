"""When a client begins its operations: after its last one, or at times that nobody can delay."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from threading import Event

from bench.harness.clients.client import Client

#: The end of a transaction of many operations: it has a latency, and is no operation.
COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class Step:
    """One operation that is over.

    ``seconds`` is from when it should have begun, ``busy_seconds`` from when it did; ``ended`` is
    on the monotonic clock, which all processes of a machine share.
    """

    kind: str
    seconds: float
    busy_seconds: float
    ended: float


def arrivals(per_second: float, random: Random) -> Iterator[float]:
    """Seconds from the start at which operations arrive: a Poisson process."""
    at = 0.0
    while True:
        at += random.expovariate(per_second)
        yield at


def due_times(client: Client, rate: float | None, random: Random) -> Iterator[float] | None:
    """When a client's operations should begin: at its own times, at a rate, or in a closed loop."""
    if client.arrives is not None:
        return iter(client.arrives)
    return None if rate is None else arrivals(rate, random)


def carried_out(
    work: Iterator[str], stop: Event, due: Iterator[float] | None, start: float
) -> Iterator[Step]:
    """Carry out work that yields the kind of each operation, and does it when it is resumed.

    With ``due`` each operation should begin so many seconds after ``start``. One that has to wait
    for the one before it has waited in a queue, and that counts: else a slow moment would
    delay the operations that would have shown it (coordinated omission).
    """
    kind = next(work, None)
    while kind is not None and not stop.is_set():
        should = began = time.perf_counter()
        if due is not None and kind != COMMIT:
            should = start + next(due)
            if stop.wait(max(0.0, should - began)):
                break
            began = time.perf_counter()
        following = next(work, None)
        ended = time.perf_counter()
        yield Step(kind, ended - should, ended - began, ended)
        kind = following
