"""Injected clocks. They decide only when a client checks something, never what is true."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: wall time for users, and boot time for intervals."""

    def now(self) -> float:
        """Return seconds since the epoch, UTC, by a clock that may jump and may be wrong."""

    def elapsed(self) -> float:
        """Return seconds by a clock that never goes back, and that runs on while the machine is
        suspended.
        """


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.time()

    def elapsed(self) -> float:
        # CLOCK_MONOTONIC stops while a laptop or a virtual machine is suspended: by that clock, a
        # lease would look valid long after its end.
        return time.clock_gettime(_BOOTTIME)


_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
