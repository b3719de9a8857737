"""What a statement may cost at most: rows and bytes of what a query finds, and time.

They hold for all that an engine does within a block of the thread that runs the statement, so
that no verb between has to hand them on. Time is told by the engine's machine, and only ends a
statement: nothing of the protocol depends on it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from lakevilla.errors import InvalidOperation

__all__ = ["LIMITS", "StatementLimits", "limited", "running"]

#: A query that has begun only now does not hear an interrupt that came before.
_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class StatementLimits:
    """The most rows and bytes that a query may find, and seconds of a statement; None: any."""

    max_rows: int | None = None
    max_bytes: int | None = None
    timeout_seconds: float | None = None

    def __bool__(self) -> bool:
        return self != _NONE


#: Their names, as settings and arguments.
LIMITS = ("max_rows", "max_bytes", "timeout_seconds")
_NONE = StatementLimits()


class _Interruptible(Protocol):
    def interrupt(self) -> None: ...


class Running:
    """A statement that runs within its limits."""

    def __init__(self, limits: StatementLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._expired = False
        self._connections: list[_Interruptible] = []

    def watch(self, connection: _Interruptible) -> None:
        """Interrupt what this connection does when the time is over."""
        with self._lock:
            self._connections.append(connection)

    def leave(self, connection: _Interruptible) -> None:
        """Let it be: from here on others may use it."""
        with self._lock:
            self._connections = [one for one in self._connections if one is not connection]

    def check(self, rows: int = 0, size: int = 0) -> None:
        """Raise ``InvalidOperation`` if a query has found more than it may, or the time is over."""
        limits = self._limits
        if limits.max_rows is not None and rows > limits.max_rows:
            raise _beyond("max_rows", limits.max_rows, "the query finds more rows than that")
        if limits.max_bytes is not None and size > limits.max_bytes:
            raise _beyond("max_bytes", limits.max_bytes, "the rows of the query take more bytes")
        if (error := self.expiry()) is not None:
            raise error

    def expiry(self) -> InvalidOperation | None:
        """What tells that the time is over; None if it is not."""
        if not self._expired:
            return None
        seconds = self._limits.timeout_seconds
        return InvalidOperation(
            f"the statement has taken longer than timeout_seconds = {seconds:g} and was stopped; "
            "ask for less, or raise the limit",
            reason="limit",
        )

    def wait(self) -> None:
        """Interrupt everything when the time is over, until the statement has ended."""
        self._ended.wait(self._limits.timeout_seconds)
        while not self._ended.is_set():
            with self._lock:
                self._expired = True
                for connection in self._connections:
                    with suppress(Exception):  # one that its owner has closed
                        connection.interrupt()
            self._ended.wait(_AGAIN_SECONDS)

    def end(self) -> None:
        """Nothing is interrupted any more when this returns."""
        self._ended.set()
        with self._lock:
            self._connections = []


def _beyond(name: str, limit: int, what: str) -> InvalidOperation:
    return InvalidOperation(
        f"{name} = {limit}: {what}; narrow it by WHERE or LIMIT, or raise the limit",
        reason="limit",
    )


_running: ContextVar[Running | None] = ContextVar("lakevilla_running", default=None)


def running() -> Running | None:
    """The statement of this thread that has limits; None if there is none."""
    return _running.get()


@contextmanager
def limited(limits: StatementLimits) -> Iterator[None]:
    """A block in which a statement runs within its limits.

    Raises
    ------
    InvalidOperation
        It has gone beyond one (``reason`` is ``limit``).
    """
    if not limits:
        yield
        return
    one = Running(limits)
    token = _running.set(one)
    if limits.timeout_seconds is not None:
        threading.Thread(target=one.wait, name="lakevilla-timeout", daemon=True).start()
    try:
        yield
    finally:
        one.end()
        _running.reset(token)
