"""The thirteen faults, their rates, and the number of times that they took effect."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol

from lakevilla.store.base import AnyVersion
from lakevilla.store.effects import CopyObject, DeleteObject, Effect, List, Put


class Fault(StrEnum):
    """The faults. Two of them are programs of their own (``testing.tables``)."""

    APPLIED_503 = "applied but answered 503"
    APPLIED_CUT = "applied but connection cut"
    REFUSED_503 = "503 before"
    THROTTLED_429 = "429"
    CONFLICT_409 = "409"
    DELAYED_WRITE = "delayed write"
    CRASH = "client crash"
    PAUSE = "pause beyond the lease"
    CLOCK_SKEW = "clock skew"
    STALE_LIST = "stale list"
    CLEAN_UP = "clean-up in between"
    FOREIGN_COMMIT = "foreign commit in between"
    NETWORK_LOST = "network lost for a while"


#: The outcome of the request that a client was sending when it crashed.
Landing = Literal["never", "now", "later"]


class Strike(NamedTuple):
    """One fault at one request."""

    fault: Fault
    landing: Landing = "now"


class Faults(Protocol):
    """The choice of the fault that strikes a request, and of the fault's severity."""

    def strike(self, client: str, number: int, attempt: Effect) -> Strike | None:
        """Return the fault at the client's request of that number (from 1), if any."""

    def delay_seconds(self) -> float:
        """Return the delay of a delayed write."""

    def restart_seconds(self) -> float:
        """Return the time after a crash until another process replaces the client."""

    def pause_seconds(self) -> float:
        """Return the time for which a paused client stops."""

    def outage_seconds(self) -> float:
        """Return the time for which a client that has lost the network can reach nothing."""

    def offset_seconds(self) -> float:
        """Return the error of a skewed clock."""

    def stale_seconds(self) -> float:
        """Return the age of a stale list."""


class NoFaults:
    """A store and clients that work, with middling severities for scripted faults."""

    def strike(self, client: str, number: int, attempt: Effect) -> Strike | None:
        return None

    def delay_seconds(self) -> float:
        return 5.0

    def restart_seconds(self) -> float:
        return 1.0

    def pause_seconds(self) -> float:
        return 100.0

    def outage_seconds(self) -> float:
        return 30.0

    def offset_seconds(self) -> float:
        return -3600.0

    def stale_seconds(self) -> float:
        return 10.0


class ScriptedFaults(NoFaults):
    """Faults at given requests: ``{("alice", 7): Strike(Fault.CRASH, "never")}``."""

    def __init__(
        self, strikes: Mapping[tuple[str, int], Strike], delay_seconds: float = 5.0
    ) -> None:
        self._strikes = strikes
        self._delay_seconds = delay_seconds

    def strike(self, client: str, number: int, attempt: Effect) -> Strike | None:
        return self._strikes.get((client, number))

    def delay_seconds(self) -> float:
        return self._delay_seconds


class RandomFaults:
    """Faults by seeded chance.

    Parameters
    ----------
    rates : Mapping[Fault, float]
        Chance of each fault at a request that it can strike.
    source : random.Random
        Its own, so that another fault rate does not change the schedule's draws.
    lease_seconds : float
        Pauses are longer than this.
    """

    def __init__(
        self, rates: Mapping[Fault, float], source: random.Random, lease_seconds: float = 30.0
    ) -> None:
        self._rates = [(fault, rate) for fault, rate in rates.items() if rate > 0]
        self._random = source
        self._lease_seconds = lease_seconds

    def strike(self, client: str, number: int, attempt: Effect) -> Strike | None:
        draw = self._random.random()
        for fault, rate in self._rates:
            if not _can_strike(fault, attempt):
                continue
            if draw < rate:
                return Strike(fault, self._random.choice(("never", "now", "later")))
            draw -= rate
        return None

    def delay_seconds(self) -> float:
        # A short delay ends before the client tries again, a long one after it has continued with
        # other work.
        return self._log_uniform(0.01, self._random.choice((1.0, 60.0, 6000.0)))

    def restart_seconds(self) -> float:
        return self._log_uniform(0.05, 120)

    def pause_seconds(self) -> float:
        # Most pauses are just longer than the lease; some are longer than the hour for which a tip
        # is trusted, or than the day after which gc may fence a transaction.
        longest = self._random.choice((4 * self._lease_seconds, 2 * 3600.0, 30 * 3600.0))
        return self._log_uniform(self._lease_seconds * 1.05, longest)

    def outage_seconds(self) -> float:
        return self._log_uniform(0.1, 300)

    def offset_seconds(self) -> float:
        return self._log_uniform(0.01, 2 * 3600) * self._random.choice((-1, 1))

    def stale_seconds(self) -> float:
        return self._log_uniform(0.2, 300)

    def _log_uniform(self, low: float, high: float) -> float:
        return math.exp(self._random.uniform(math.log(low), math.log(high)))


def swarm(source: random.Random, intensity: float = 1.0) -> dict[Fault, float]:
    """Return the fault rates of one history: some faults off, some rare, some frequent.

    A mix in which everything fails a little never shows bugs that need one fault many times and no
    other (swarm testing).
    """
    return {
        fault: min(0.3, intensity * math.exp(source.uniform(math.log(low), math.log(high))))
        for fault, (low, high) in _USUAL_RATES.items()
        if source.random() < 0.6
    }


def outages(source: random.Random, intensity: float = 1.0) -> dict[Fault, float]:
    """Return the rate of lost networks in one history: none in most."""
    if source.random() < 0.7:
        return {}
    return {Fault.NETWORK_LOST: min(0.05, intensity * math.exp(source.uniform(-6.5, -4.0)))}


_USUAL_RATES: dict[Fault, tuple[float, float]] = {
    Fault.APPLIED_503: (0.005, 0.2),
    Fault.APPLIED_CUT: (0.005, 0.2),
    Fault.REFUSED_503: (0.005, 0.2),
    Fault.THROTTLED_429: (0.005, 0.2),
    Fault.CONFLICT_409: (0.005, 0.2),
    Fault.DELAYED_WRITE: (0.005, 0.1),
    Fault.CRASH: (0.002, 0.03),
    Fault.PAUSE: (0.002, 0.03),
    Fault.CLOCK_SKEW: (0.002, 0.05),
    Fault.STALE_LIST: (0.1, 0.3),
}


def _can_strike(fault: Fault, attempt: Effect) -> bool:
    match fault:
        case Fault.APPLIED_503 | Fault.APPLIED_CUT | Fault.DELAYED_WRITE:
            return isinstance(attempt, Put | CopyObject | DeleteObject)
        case Fault.CONFLICT_409:
            return isinstance(attempt, Put) and not isinstance(attempt.condition, AnyVersion)
        case Fault.STALE_LIST:
            return isinstance(attempt, List)
        case _:
            return True
