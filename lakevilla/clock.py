"""Injected time. Clocks are hints: they decide when a client checks, never what is true."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings: wall time to show people, boot time to measure intervals."""

    def now(self) -> float:
        """Return seconds since the epoch, UTC. They may jump, and may be wrong."""

    def elapsed(self) -> float:
        """Return seconds on a clock that never goes back and counts through suspend."""


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.time()

    def elapsed(self) -> float:
        # CLOCK_MONOTONIC stops while a laptop or a virtual machine sleeps; a lease judged by it
        # would look alive long after it has ended.
        return time.clock_gettime(_BOOTTIME)


_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
