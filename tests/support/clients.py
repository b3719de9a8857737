"""Clients of a benchmark that do nothing, in a module that their processes load quickly."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness.clients import COMMIT, Counts


@dataclass(frozen=True)
class Opens:
    """Record in a directory how often it was opened, and by which process."""

    directory: Path

    @contextmanager
    def __call__(self) -> Iterator[Path]:
        (self.directory / f"{os.getpid()}-{time.perf_counter_ns()}").touch()
        yield self.directory


@dataclass(frozen=True)
class Steps:
    """A client that performs a number of operations, and may end earlier."""

    count: int
    fails_at: int | None = None
    is_killed_at: int | None = None
    lasts: float = 0.0

    def __call__(self, opened: Any, counts: Counts) -> Iterator[str]:
        for number in range(self.count):
            yield "read" if number % 2 else "write"
            if number == self.fails_at:
                raise OSError("the disk is full")
            if number == self.is_killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.lasts:
                time.sleep(self.lasts)
            counts.redos += 1
            counts.facts.append(number)
        yield COMMIT
