"""A queue for one thread that waits no longer than it says."""

from __future__ import annotations

import queue
import threading
import time  # noqa: TID251 - the limit of a real wait
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Items that any thread, or a signal handler, puts in, and one thread takes out.

    Neither queue of the standard library does for a wait with a limit. ``queue.SimpleQueue`` waits
    for ever if its time is over before its wait begins, as it may be on a busy machine, or when a
    signal's handler ends: it then passes on the time that is left, which is negative, and a
    negative time stands for no limit (``Modules/_queuemodule.c`` of Python 3.11). ``queue.Queue``
    has a lock, which the thread that a signal's handler interrupts may hold.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        # Held until an item is put. It may be free without an item, but never held beside one that
        # was put after the last wait.
        self._bell = threading.Lock()
        self._bell.acquire()

    def put(self, item: T) -> None:
        """Put an item in."""
        self._items.append(item)
        with suppress(RuntimeError):  # it is free: an item that was put before is not taken yet
            self._bell.release()

    def get(self, timeout: float | None = None) -> T:
        """Take the first item out; wait for one, ``timeout`` seconds or without a limit.

        Raises
        ------
        queue.Empty
            There is none after that time.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._items:
                return self._items.popleft()
            # Unlike the queue, the lock itself never waits on if its time is over.
            left = -1.0 if end is None else min(max(end - time.monotonic(), 0.0), _LONGEST)
            if not self._bell.acquire(timeout=left):
                raise queue.Empty

    def empty(self) -> bool:
        """Return whether there is no item now."""
        return not self._items


_LONGEST = threading.TIMEOUT_MAX
