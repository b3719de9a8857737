"""One thread pool for the requests of a process, and one for what they wait for at once.

Not ``ThreadPoolExecutor``: Ctrl-C inside its ``submit`` can leave a lock held,
and every later request would wait for ever. What is shared here is a queue and
counters under a C lock, which an interrupt leaves in order.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import queue
import threading
import time  # noqa: TID251 - the wait at exit is real and bounded
from collections.abc import Callable, Iterator

#: As many as the widest ``Parallel`` that is worth having (measured: 128 PUTs
#: of 60 ms end after 77 ms).
POOL_SIZE = 128

#: At exit requests under way may end, for so long.
_EXIT_SECONDS = 5.0


def submit(job: Callable[[], None]) -> None:
    """Have a thread call ``job``, which must not raise."""
    _pool.submit(job)


@contextlib.contextmanager
def beside(job: Callable[[], None]) -> Iterator[None]:
    """Have another thread call ``job`` while this one is in the block; its error is raised after.

    A request may do so in the pool: the threads are others, so it can't wait for one of its kind.
    ``job`` must not do so.
    """
    ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def run() -> None:
        error = None
        try:
            job()
        except Exception as caught:
            error = caught
        ended.put(error)

    _beside.submit(run)
    try:
        yield
    finally:
        error = ended.get()
    if error is not None:
        raise error


class _Pool:
    """Threads are started as they are needed and stay."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unfinished = 0
        self._threads = 0

    def submit(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._unfinished += 1
            grow = self._threads < min(POOL_SIZE, self._unfinished)
            self._threads += grow
        if grow:
            _thread.start_new_thread(self._work, ())
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            with self._lock:
                self._unfinished -= 1
        self._ended.put(None)

    def close(self) -> None:
        """Let the threads end: one that is stopped inside the backend's native code
        when the interpreter goes away would take the process down with a crash.
        """
        deadline = time.monotonic() + _EXIT_SECONDS
        with self._lock:
            # What is asked for later still (by another exit handler) gets new threads.
            threads, self._threads = self._threads, 0
        for _ in range(threads):
            self._jobs.put(None)
        with contextlib.suppress(queue.Empty):
            for _ in range(threads):
                self._ended.get(timeout=max(0.0, deadline - time.monotonic()))


_pool, _beside = _Pool(), _Pool()


def _forget_pools() -> None:
    # A forked child has the parent's pools but none of their threads, and maybe a
    # lock that some thread held at the moment of the fork.
    global _pool, _beside
    _pool, _beside = _Pool(), _Pool()


def _close_pools() -> None:
    # In this order: who waits in the first waits for the second.
    _pool.close()
    _beside.close()


atexit.register(_close_pools)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)
