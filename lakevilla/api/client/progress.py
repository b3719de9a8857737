"""Report the progress of verbs, and the phases of transactions, as events."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from lakevilla.api.client.background import Duty
from lakevilla.clock import Clock
from lakevilla.display import size_text
from lakevilla.errors import LakeVillaError
from lakevilla.lake.context import Event
from lakevilla.meter import Meter, Tally, measured, running
from lakevilla.phases import Phases, Span
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState

# -------------------- progress
#
# Progress: events that report what a long verb has done so far.
#
# A thread of the process checks the running verbs, and only if there is a listener. It reads
# counts, touches no transaction and makes no request to the store.


#: The time after which a running verb is first reported.
AFTER_SECONDS = 2.0
#: The interval of further reports of a verb.
EACH_SECONDS = 0.5
#: The time without a running verb after which verbs are not checked any more.
_IDLE_SECONDS = 10.0

_numbers = itertools.count(1)


@dataclass(slots=True, eq=False)
class _Verb:
    """One running verb."""

    name: str
    table: str | None
    txn_id: str | None
    began: float
    number: int = field(default_factory=lambda: next(_numbers))
    meter: Meter = field(default_factory=Meter)
    #: The lock held during a report, so that nothing is reported after the verb's end.
    lock: threading.Lock = field(default_factory=threading.Lock)
    was_shown: bool = False
    ended: bool = False


class Progress:
    """Reports to ``notify`` of verbs that take longer than ``AFTER_SECONDS``."""

    def __init__(self, clock: Clock, notify: Callable[[Event], None]) -> None:
        self._clock = clock
        self._notify = notify
        self._forget()

    def _forget(self) -> None:
        """Reset in a forked child, which has its parent's verbs and locks, but no thread."""
        self._process = os.getpid()
        self._verbs: set[_Verb] = set()
        self._lock = threading.Lock()
        self._is_watched = False
        self._idle_seconds = 0.0
        self._duty = Duty(self._look, "lakevilla-progress", EACH_SECONDS)

    @contextmanager
    def of(self, name: str, table: object = None, txn_id: str | None = None) -> Iterator[None]:
        """Enter a block that is one verb; inside another verb's block it counts as part of that
        verb.
        """
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
            if self._is_watched:
                return  # the next check is soon enough: most verbs have ended before it
            self._is_watched = True
        try:
            self._duty.due_in(EACH_SECONDS)
        except RuntimeError:  # no more threads: only the verb's end is reported then
            self._is_watched = False

    def _end(self, verb: _Verb, outcome: str) -> None:
        with self._lock:
            self._verbs.discard(verb)
        with verb.lock:
            verb.ended = True
            if verb.was_shown or self._clock.elapsed() - verb.began >= AFTER_SECONDS:
                self._tell(verb, outcome)

    # -- the thread --------------------------------------------------------------

    def _look(self) -> float | None:
        with self._lock:
            verbs = list(self._verbs)
            self._idle_seconds = 0.0 if verbs else self._idle_seconds + EACH_SECONDS
            if self._idle_seconds >= _IDLE_SECONDS:
                self._idle_seconds, self._is_watched = 0.0, False
                return None
        now = self._clock.elapsed()
        for verb in verbs:
            if now - verb.began >= AFTER_SECONDS:
                with verb.lock:
                    if not verb.ended:
                        self._tell(verb, "running")
        return EACH_SECONDS

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
    """Return a verb's counts in words, for users."""
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
# Events for listeners: a transaction's phases, and its end.


def phase_event(phases: Phases, span: Span) -> Event:
    """Return the event for one period of one phase, reported when the period is over."""
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
    """Return the event of the end of a transaction, with its times and counts."""
    outcome, decided = _outcome(state, error), state.ending.decided
    detail = {
        "outcome": outcome,
        "error": error.kind if outcome == "failed" and error is not None else None,
        "features": state.options.features.name or "",
        "tables": sorted(state.work.tables),
        "operations": len(state.work.done),
        "retries": state.ending.retries,
        "redos": state.work.redos,
        "members": 0 if decided is None else len(decided.summary.members),
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
    if state.state is Status.COMMITTED:
        return "committed" if state.work.commits else "read"
    if state.ending.is_in_doubt:
        return "unknown"
    if error is not None:
        return "failed"
    return "read" if state.options.read_only else "aborted"
