"""What one client does, and what it says of it beside latencies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Counts:
    """What happened to the work of one client beside its latencies.

    Attributes
    ----------
    aborts, redos : int
        Transactions that had to run again, and operations that were redone within one.
    lost : int
        Operations that were measured in transactions that had to run again.
    phase_seconds : dict
        Seconds that operations of a kind have spent in a phase, by ``kind/phase``.
    facts : list
        What a check of the workload needs to know afterwards, such as what was acknowledged.
        Plain data: it comes from other processes. A client that dies has told what it did
        until then.
    """

    aborts: int = 0
    redos: int = 0
    lost: int = 0
    phase_seconds: dict[str, float] = field(default_factory=dict)
    facts: list[object] = field(default_factory=list)

    def spend(self, kind: str, phase: str, seconds: float) -> None:
        """Note that an operation of a kind was in a phase for so long."""
        name = f"{kind}/{phase}"
        self.phase_seconds[name] = self.phase_seconds.get(name, 0.0) + seconds

    def add(self, other: Counts) -> None:
        """Take in what another client, or the same one later, has counted."""
        self.aborts += other.aborts
        self.redos += other.redos
        self.lost += other.lost
        for name, seconds in other.phase_seconds.items():
            self.phase_seconds[name] = self.phase_seconds.get(name, 0.0) + seconds
        self.facts += other.facts


@dataclass(frozen=True, slots=True)
class Client:
    """What one client does with what was opened for it.

    It yields the kind of each operation, and is resumed to carry it out. ``warm_up`` is carried
    out before any client begins, and not measured. As a process it is pickled.

    ``arrives`` has the seconds from the start at which each operation should begin: an open loop
    of its own, whatever rate is asked for.
    """

    work: Callable[[Any, Counts], Iterator[str]]
    warm_up: Callable[[Any, Counts], Iterator[str]] | None = None
    arrives: Sequence[float] | None = None


def shares(operations: int, clients: int) -> list[int]:
    """How many operations each client does, so that all are done."""
    each, more = divmod(operations, clients)
    return [each + (one < more) for one in range(clients)]
