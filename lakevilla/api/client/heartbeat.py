"""Renew the records of transactions that last, and the lease of upkeep."""

from __future__ import annotations

import atexit
import math
import os
import statistics
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from lakevilla.clock import Clock
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.global_log.head import HEAD_KEY
from lakevilla.settings import Settings
from lakevilla.store.effects import Program, get
from lakevilla.store.runner import Runner
from lakevilla.sublogs.lease import Renewable

# -------------------- heartbeat
#
# The heartbeat: one thread per lake renews the records of transactions that last long.
#
# It runs concurrently with the transactions and touches neither them nor an event loop. A heartbeat
# that is late, or never runs, is harmless: other clients may then give up the places of a
# transaction, which costs it a wait or a redo (design, section 5).


#: The longest wait for a running renewal, at exit and when a lake is closed.
_END_SECONDS = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """A record to renew; after a failure, not before the time ``not_before``."""

    record: Renewable
    not_before: float


class Heartbeat:
    """The renewal of the record of each added transaction, every third of the lease.

    A transaction that ends before that costs no request, only (once in a while) the
    start of the thread. The thread ends when nothing is left to renew.

    Renewals are made one after the other: each is one small request, and a third of a lease has
    room for many. They do not go through the pool of requests, where they would wait behind the
    uploads of the very transactions that last long.

    Parameters
    ----------
    runner : Runner
        Carries out the renewals.
    clock : Clock
        Measures the intervals.
    lease_seconds : float
        The lease of the lake's transactions.
    log : callable
        Called, with the id of the transaction, for a renewal that failed.
    name : str
        The thread's name.
    """

    def __init__(
        self,
        runner: Runner,
        clock: Clock,
        lease_seconds: float,
        log: Callable[[str, str | None], None],
        name: str = "lakevilla-heartbeat",
    ) -> None:
        self._runner = runner
        self._clock = clock
        self._third_seconds = lease_seconds / 3
        self._log = log
        self._name = name
        self.forget()
        _ALL.add(self)

    def forget(self) -> None:
        """Begin again: a forked child has its parent's entries, but neither thread nor right."""
        self._entries: dict[int, _Entry] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, record: Renewable) -> None:
        """Renew a record from now on, until its transaction ends or is dropped."""
        with self._lock:
            # Add a new entry each time. If the thread is about to remove the transaction, the new
            # entry shows it that the transaction has a record again.
            self._entries[record.key] = _Entry(record, 0.0)
            if self._thread is not None and self._thread.is_alive():
                return
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._work,
                args=(self._stop,),
                name=self._name,
                daemon=True,
            )
            try:
                self._thread.start()
            except RuntimeError as error:
                # There are no more threads, or the interpreter is shutting down. Without a
                # heartbeat the transaction is merely one that may lose its places.
                txn_id = record.txn_id
                self._log(f"transaction {txn_id} is not renewed: {error}", txn_id)

    def drop(self, key: int) -> None:
        """Stop renewing a record: its transaction has ended."""
        if key in self._entries:
            with self._lock:
                self._entries.pop(key, None)

    def close(self) -> None:
        """Stop; a renewal that is under way may end."""
        with self._lock:
            self._entries.clear()
            thread, self._thread = self._thread, None
            self._stop.set()
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(_END_SECONDS)

    # -- the thread --------------------------------------------------------------

    def _work(self, stop: threading.Event) -> None:
        while not stop.is_set():
            for key, entry in list(self._entries.items()):
                if not stop.is_set():
                    self._visit(key, entry)
            with self._lock:
                if stop is not self._stop:
                    return  # stopped, and another thread has begun
                if not self._entries:
                    self._thread = None
                    return
                pause = self._until_next()
            stop.wait(pause)

    def _until_next(self) -> float:
        """Seconds until the next renewal is due.

        Never more than a third of a lease: nothing that is added meanwhile is due earlier.
        """
        now = self._clock.elapsed()
        due = (self._due(entry) for entry in self._entries.values())
        return min(max(min(due) - now, 0.0), self._third_seconds)

    def _due(self, entry: _Entry) -> float:
        held_at = entry.record.held_at
        if held_at is None:
            return entry.not_before  # ended, or dropped: it must be removed
        return max(held_at + self._third_seconds, entry.not_before)

    def _visit(self, key: int, entry: _Entry) -> None:
        """Renew one transaction if it is due, and remove it if it has ended.

        Its own thread may use it at the same time: see ``record``.
        """
        if self._due(entry) > self._clock.elapsed():
            return
        record = entry.record
        try:
            epochs = self._runner.run(record.renew())
        except Exception as error:
            # The store may be back soon. If a record can't be read, its own transaction finds out.
            # The thread serves other transactions as well.
            why = error.message if isinstance(error, LakeVillaError) else repr(error)
            self._log(f"could not renew transaction {record.txn_id} now: {why}", record.txn_id)
            soon = self._clock.elapsed() + self._third_seconds / 4
            self._replace(key, entry, _Entry(record, soon))
            return
        if not epochs:
            self._replace(key, entry, None)

    def _replace(self, key: int, old: _Entry, new: _Entry | None) -> None:
        with self._lock:
            if self._entries.get(key) is not old:
                return
            if new is None:
                del self._entries[key]
            else:
                self._entries[key] = new


_ALL: weakref.WeakSet[Heartbeat] = weakref.WeakSet()


def _close_all() -> None:
    # A thread that is inside the backend's native code when the interpreter ends would crash the
    # process.
    # https://github.com/python/cpython/issues/87135
    for heartbeat in list(_ALL):
        heartbeat.close()


def _forget_all() -> None:
    for heartbeat in list(_ALL):
        heartbeat.forget()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


# -------------------- lease
#
# Check that a store is fast enough for the lease that a user has set.


#: A third of this is 17 ms. Below, a busy interpreter (a thread waits for its turn in
#: steps of 5 ms) and a machine's scheduler would make live transactions look dead.
_LEAST_SECONDS = 0.05
_LOOKS = 5
#: The number of requests for which a third of the lease has room: the heartbeat renews one record
#: after the other, may conflict with the transaction's own write, and may have to request twice.
_REQUESTS_IN_A_THIRD = 10


def check_lease(settings: Settings, clock: Clock) -> Program[None]:
    """Refuse a lease in which a live client could not renew its record in time.

    Too short a lease does no harm to rows, but every transaction would take every other for dead.
    The default is long enough for any store, so it makes no request.

    Raises
    ------
    InvalidOperation
        The lease is below what the store's latency allows.
    """
    lease = settings.lease_seconds
    if lease >= Settings().lease_seconds:
        return
    if lease < _LEAST_SECONDS:
        raise InvalidOperation(
            f"settings: lease_seconds={lease:g} is too short: a busy process could not renew its "
            f"records in time; set it to {_LEAST_SECONDS:g} or more"
        )
    taken = []
    for _ in range(_LOOKS):
        began = clock.elapsed()
        yield from get(HEAD_KEY)
        taken.append(clock.elapsed() - began)
    # The median: the first request opens a connection, and one in five may be slow.
    latency = statistics.median(taken)
    least = 3 * _REQUESTS_IN_A_THIRD * latency
    if lease < least:
        raise InvalidOperation(
            f"settings: lease_seconds={lease:g} is too short for this store, which takes "
            f"{latency:.3g} s a request (median of {_LOOKS}): set it to {_rounded_up(2 * least):g} "
            "or more, or leave it at its default"
        )


def _rounded_up(seconds: float) -> float:
    """Return the seconds rounded up to two digits."""
    digits = 1 - math.floor(math.log10(seconds))
    return math.ceil(seconds * 10.0**digits) / 10.0**digits
