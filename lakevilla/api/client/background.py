"""What a process does beside its transactions: publishing that nobody waits for, checkpoints."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from lakevilla.forked import lock
from lakevilla.store.effects import Program
from lakevilla.store.runner import Runner

_LOG = logging.getLogger("lakevilla")


class Background:
    """One thread that runs programs, one after the other; it is begun when there is one."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0
        self._lock = lock()

    def soon(self, program: Callable[[], Program[object]], then: Callable[[], None]) -> None:
        """Run a program, and ``then``; what fails is logged and left to the next client."""

        def work() -> None:
            try:
                self._runner.run(program())
                then()
            except Exception:
                _LOG.warning("background work failed; it is left to the next client", exc_info=True)

        with self._lock:
            if self._pool is None or self._process != os.getpid():
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="lakevilla")
                self._process = os.getpid()
            self._pool.submit(work)

    def close(self) -> None:
        """Wait for all that was begun, and stop."""
        with self._lock:
            pool, self._pool = self._pool, None
            owner = self._process
        if pool is not None and owner == os.getpid():
            pool.shutdown(wait=True)
