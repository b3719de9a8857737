"""The progress of the running verb: rows, files, bytes, requests.

Code that does work adds to the meter of the running verb, if there is one, as to a log: no count
influences what happens.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tally:
    """The work done up to one time.

    ``rows``, ``files`` and ``bytes`` are those read or written, ``deleted`` counts objects.
    """

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
    """Return the meter of the verb that this thread is in; None if none was requested."""
    return _RUNNING.get()


def note(*, rows: int = 0, files: int = 0, bytes: int = 0) -> None:
    """Add to the meter of the running verb, if it has one."""
    meter = _RUNNING.get()
    if meter is not None:
        meter.add(rows=rows, files=files, bytes=bytes)


@contextmanager
def measured(meter: Meter) -> Iterator[None]:
    """Measure a block; blocks inside add to the same meter."""
    token = _RUNNING.set(meter)
    try:
        yield
    finally:
        _RUNNING.reset(token)
