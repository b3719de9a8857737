"""The phases of a transaction, whose durations are measured if there is a listener.

A block of code names its phase with ``during``. The thread determines the transaction, because a
verb runs inside the block of ``of``. Without a listener there are no ``Phases``, and ``during``
returns a shared object that does nothing, so no clock is read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, TypeVar

from lakevilla.clock import Clock

#: The phases of a transaction, in the order in which most transactions have them (design note 24).
Phase = Literal[
    "version", "metadata", "data", "marker", "wait", "validate", "decide", "publish", "free"
]

Item = TypeVar("Item")

#: The context of a block that is not measured.
UNMEASURED: AbstractContextManager[None] = nullcontext()


@dataclass(slots=True, eq=False)
class Span:
    """One period of one phase; a block that is entered several times is reported as one span.

    ``seconds`` is the time inside the block. ``own_seconds`` is that time without the phases of the
    transaction that began later. Own seconds never overlap: their sum is the time in which the
    transaction was in any phase.
    """

    _phases: Phases
    phase: Phase
    table: str | None
    began: float | None = None
    ended: float = 0.0
    seconds: float = 0.0
    own_seconds: float = 0.0
    _entered: float = 0.0

    def begin(self, now: float) -> None:
        self._entered = now
        self.began = now if self.began is None else self.began

    def end(self, now: float) -> None:
        self.ended = now
        self.seconds += now - self._entered

    def __enter__(self) -> None:
        self._phases.begin(self)

    def __exit__(self, *error: object) -> None:
        self._phases.end(self)
        self._phases.tell(self)


class Phases:
    """The phases of one transaction.

    Threads may share this object: the leader of a commit group validates the transactions of the
    threads that wait for it.

    Parameters
    ----------
    txn_id : str
    clock : Clock
    tell : callable
        Called with each span when it is over.

    Attributes
    ----------
    txn_id : str
        The transaction's id, which may change as long as the transaction has done nothing.
    began : float
        The time when this object was made, by the clock.
    ended : bool
        True if the end of the transaction was reported.
    """

    def __init__(self, txn_id: str, clock: Clock, tell: Callable[[Phases, Span], None]) -> None:
        self.txn_id = txn_id
        self.began = clock.elapsed()
        self.ended = False
        self._clock = clock
        self._tell = tell
        self._lock = threading.Lock()
        self._open: list[Span] = []
        self._since = self.began

    def begin(self, span: Span) -> None:
        with self._lock:
            span.begin(self._charge())
            # Giving back places happens in the same round as the commit's last requests, so
            # ``free`` gets only the time in which no other phase is open.
            self._open.insert(0 if span.phase == "free" else len(self._open), span)

    def end(self, span: Span) -> None:
        with self._lock:
            span.end(self._charge())
            self._open.remove(span)

    def tell(self, span: Span) -> None:
        self._tell(self, span)

    def _charge(self) -> float:
        """Add the time since the last change to the own seconds of the phase that began last;
        return the time.
        """
        now = self._clock.elapsed()
        if self._open:
            self._open[-1].own_seconds += now - self._since
        self._since = now
        return now


_RUNNING: ContextVar[Phases | None] = ContextVar("lakevilla-phases", default=None)


def during(phase: Phase, table: str | None = None) -> AbstractContextManager[None]:
    """Enter a block that is a phase of this thread's transaction, if that is measured."""
    phases = _RUNNING.get()
    return UNMEASURED if phases is None else Span(phases, phase, table)


def of(phases: Phases | None) -> AbstractContextManager[None]:
    """Enter a block in which this thread works for the transaction of these phases."""
    return UNMEASURED if phases is None else _of(phases)


@contextmanager
def _of(phases: Phases) -> Iterator[None]:
    token = _RUNNING.set(phases)
    try:
        yield
    finally:
        _RUNNING.reset(token)


def streamed(
    phases: Phases | None, phase: Phase, table: str | None, items: Iterator[Item]
) -> Iterator[Item]:
    """Yield ``items``; their production is one span, without the time of the consumer."""
    if phases is None:
        yield from items
        return
    span = Span(phases, phase, table)
    try:
        while True:
            phases.begin(span)
            try:
                item = next(items, None)
            finally:
                phases.end(span)
            if item is None:
                return
            yield item
    finally:
        if span.began is not None:
            phases.tell(span)
