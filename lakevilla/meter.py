"""Counts of the running verb's work: rows, files, bytes, requests.

Code that does work adds to the running verb's meter, if there is one. As with a log, no count
influences what the code does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tally:
    """The work that a verb has done up to a time."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    deleted: int = 0
    requests: int = 0


class Meter:
    """The counts of one verb; threads may share them."""

    __slots__ = ("_done", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = Tally()

    @property
    def done(self) -> Tally:
        return self._done

    def add(
        self, *, rows: int = 0, files: int = 0, bytes: int = 0, deleted: int = 0, requests: int = 0
    ) -> None:
        with self._lock:
            was = self._done
            self._done = Tally(
                was.rows + rows,
                was.files + files,
                was.bytes + bytes,
                was.deleted + deleted,
                was.requests + requests,
            )


_RUNNING: ContextVar[Meter | None] = ContextVar("lakevilla-meter", default=None)


def running() -> Meter | None:
    """Return the meter of the verb that runs in this thread; None if nobody measures it."""
    return _RUNNING.get()


def note(*, rows: int = 0, files: int = 0, bytes: int = 0) -> None:
    """Add counts to the running verb's meter, if there is one."""
    meter = _RUNNING.get()
    if meter is not None:
        meter.add(rows=rows, files=files, bytes=bytes)


@contextmanager
def measured(meter: Meter) -> Iterator[None]:
    """Enter a block whose work is added to ``meter``, also in blocks inside."""
    token = _RUNNING.set(meter)
    try:
        yield
    finally:
        _RUNNING.reset(token)
