"""Report progress: events of verbs and of phases."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from lakevilla.clock import Clock
from lakevilla.display import size_text
from lakevilla.errors import LakeVillaError
from lakevilla.lake.context import Event
from lakevilla.meter import Meter, Tally, measured, running
from lakevilla.phases import Phases, Span
from lakevilla.transaction.state.life import Life
from lakevilla.transaction.state.transaction import TransactionState

# -------------------- progress
#
# Progress: verbs that take long tell what they have done, as events.
#
# One thread a lake looks at the verbs that are under way, and only where somebody listens. It
# reads counts, touches no transaction and asks the store nothing.


#: A verb tells nothing before.
AFTER_SECONDS = 2.0
#: How often it tells from then on.
EACH_SECONDS = 0.5
#: The thread ends after so long without a verb.
_IDLE_SECONDS = 10.0

_numbers = itertools.count(1)


@dataclass(slots=True, eq=False)
class _Verb:
    """One verb that is under way."""

    name: str
    table: str | None
    txn_id: str | None
    began: float
    number: int = field(default_factory=lambda: next(_numbers))
    meter: Meter = field(default_factory=Meter)
    #: Held while it is told of, so that nothing is told after its end.
    lock: threading.Lock = field(default_factory=threading.Lock)
    was_shown: bool = False
    ended: bool = False


class Progress:
    """Tells ``notify`` of verbs that take longer than ``AFTER_SECONDS``."""

    def __init__(self, clock: Clock, notify: Callable[[Event], None]) -> None:
        self._clock = clock
        self._notify = notify
        self._forget()

    def _forget(self) -> None:
        """Begin anew: a forked child has its parent's verbs and locks, and no thread."""
        self._process = os.getpid()
        self._verbs: set[_Verb] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def of(self, name: str, table: object = None, txn_id: str | None = None) -> Iterator[None]:
        """A block that is one verb; within another it is part of that."""
        if running() is not None:
            yield
            return
        table = table if isinstance(table, str) else None
        verb = _Verb(name, table, txn_id, self._clock.elapsed())
        self._watch(verb)
        try:
            with measured(verb.meter):
                yield
        except BaseException:
            self._end(verb, "failed")
            raise
        self._end(verb, "done")

    def _watch(self, verb: _Verb) -> None:
        if self._process != os.getpid():
            self._forget()
        with self._lock:
            self._verbs.add(verb)
            if self._thread is not None and self._thread.is_alive():
                return  # it looks again soon enough: most verbs have ended by then
            self._thread = threading.Thread(
                target=self._look, name="lakevilla-progress", daemon=True
            )
            try:
                self._thread.start()
            except RuntimeError:  # no more threads: then it is told at the end alone
                self._thread = None

    def _end(self, verb: _Verb, how: str) -> None:
        with self._lock:
            self._verbs.discard(verb)
        with verb.lock:
            verb.ended = True
            if verb.was_shown or self._clock.elapsed() - verb.began >= AFTER_SECONDS:
                self._tell(verb, how)

    # -- the thread --------------------------------------------------------------

    def _look(self) -> None:
        pause, idle = threading.Event(), 0.0
        while True:
            pause.wait(EACH_SECONDS)
            with self._lock:
                verbs = list(self._verbs)
                idle = 0.0 if verbs else idle + EACH_SECONDS
                if idle >= _IDLE_SECONDS:
                    self._thread = None
                    return
            now = self._clock.elapsed()
            for verb in verbs:
                if now - verb.began >= AFTER_SECONDS:
                    with verb.lock:
                        if not verb.ended:
                            self._tell(verb, "running")

    def _tell(self, verb: _Verb, state: str) -> None:
        verb.was_shown = True
        seconds = self._clock.elapsed() - verb.began
        done = verb.meter.done
        about = f"{verb.name} {verb.table}" if verb.table else verb.name
        text = f"{about}: {words(done) or 'nothing yet'} in {seconds:.0f} s"
        detail = {
            "number": verb.number,
            "verb": verb.name,
            "table": verb.table,
            "state": state,
            "seconds": seconds,
            **asdict(done),
        }
        self._notify(Event("progress", verb.txn_id, text, detail))


def words(done: Tally) -> str:
    """What was done, as people read it."""
    parts = [
        f"{count:,} {name if count != 1 else name.removesuffix('s')}"
        for name, count in (("rows", done.rows), ("files", done.files))
        if count
    ]
    parts += [size_text(done.bytes)] if done.bytes else []
    parts += [f"{done.deleted:,} deleted"] if done.deleted else []
    if done.requests and not parts:
        parts = [f"{done.requests:,} request{'' if done.requests == 1 else 's'}"]
    return ", ".join(parts)


# -------------------- phase events
#
# What listeners are told of a transaction's phases, and of its end.


def phase_event(phases: Phases, span: Span) -> Event:
    """One stretch of one phase, told when it is over."""
    about = span.phase if span.table is None else f"{span.phase} {span.table}"
    detail = {
        "phase": span.phase,
        "table": span.table,
        "began": span.began,
        "ended": span.ended,
        "seconds": span.seconds,
        "own_seconds": span.own_seconds,
        "transaction_began": phases.began,
    }
    return Event("phase", phases.txn_id, f"{about}: {span.seconds * 1000:.1f} ms", detail)


def transaction_event(
    state: TransactionState, error: LakeVillaError | None, began: float, ended: float
) -> Event:
    """The end of a transaction, with what it took."""
    outcome = _outcome(state, error)
    detail = {
        "outcome": outcome,
        "error": error.kind if outcome == "failed" and error is not None else None,
        "features": state.options.features.name or "",
        "tables": sorted(state.work.tables),
        "operations": len(state.work.done),
        "retries": state.ending.retries,
        "redos": state.work.redos,
        "began": began,
        "ended": ended,
        "seconds": ended - began,
    }
    message = f"transaction {state.id} {_WORDS[outcome]} after {ended - began:.3f} s"
    return Event("transaction", state.id, message, detail)


_WORDS = {
    "committed": "was committed",
    "read": "has read",
    "aborted": "was aborted",
    "failed": "has failed",
    "unknown": "may have been committed",
}


def _outcome(state: TransactionState, error: LakeVillaError | None) -> str:
    if state.state is Life.COMMITTED:
        return "committed" if state.work.done else "read"
    if state.ending.is_in_doubt:
        return "unknown"
    if error is not None:
        return "failed"
    return "read" if state.options.read_only else "aborted"
