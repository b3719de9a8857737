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
# The heartbeat: one thread a lake renews the records of transactions that live long.
#
# It runs beside the transactions and touches neither them nor an event loop. A
# heartbeat that comes late, or never, is harmless: others may then give up the
# places of a transaction, which costs it a wait or a redo (design, section 5).


#: At exit, and when a lake is closed, a renewal under way may end, for so long.
_END_SECONDS = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """A record to renew; ``not_before`` a moment at which to try again."""

    record: Renewable
    not_before: float


class Heartbeat:
    """Renews the record of each transaction that it was told of, every third of the lease.

    A transaction that ends before that costs no request, only (once in a while) the
    start of the thread. The thread ends when nothing is left to renew.

    Renewals are made one after the other: each is one small request, and a third of a
    lease has room for many. They do not go through the pool of requests, where
    they would stand behind the uploads of the very transactions that last long.

    Parameters
    ----------
    runner : Runner
        Carries out the renewals.
    clock : Clock
        Measures the intervals.
    lease_seconds : float
        The lease of the lake's transactions.
    log : callable
        Told, with the id of the transaction, of a renewal that failed.
    name : str
        The thread's.
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
        """Begin anew: a forked child has its parent's entries, but neither thread nor right."""
        self._entries: dict[int, _Entry] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, record: Renewable) -> None:
        """Renew a record from now on, until its transaction ends or is dropped."""
        with self._lock:
            # A new entry each time: it tells the thread, should that be about to
            # take the transaction out, that it has a record again.
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
                # No more threads, or the interpreter is on its way out. Without a
                # heartbeat the transaction is merely one that may lose its places.
                txn_id = record.txn_id
                self._log(f"transaction {txn_id} is not renewed: {error}", txn_id)

    def drop(self, key: int) -> None:
        """Renew it no more: its transaction has ended."""
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
            return entry.not_before  # ended, or dropped: to be taken out
        return max(held_at + self._third_seconds, entry.not_before)

    def _visit(self, key: int, entry: _Entry) -> None:
        """Renew one transaction if it is due, and take it out if it has ended.

        It may be in use in its own thread at this moment: see ``record``.
        """
        if self._due(entry) > self._clock.elapsed():
            return
        record = entry.record
        try:
            lives = self._runner.run(record.renew())
        except Exception as error:
            # The store may be back soon; a record that can't be read, its
            # own transaction finds out. The thread serves others as well.
            why = error.message if isinstance(error, LakeVillaError) else repr(error)
            self._log(f"could not renew transaction {record.txn_id} now: {why}", record.txn_id)
            soon = self._clock.elapsed() + self._third_seconds / 4
            self._replace(key, entry, _Entry(record, soon))
            return
        if not lives:
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
    # A thread that is inside the backend's native code when the interpreter
    # goes away would take the process down with a crash.
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
# Whether a store is fast enough for the lease that a user has set.


#: A third of this is 17 ms. Below, a busy interpreter (a thread waits for its turn in
#: steps of 5 ms) and a machine's scheduler would make live transactions look dead.
_LEAST_SECONDS = 0.05
_LOOKS = 5
#: A third of the lease has room for so many requests: the heartbeat renews one record after
#: the other, may meet the transaction's own write, and may have to ask twice.
_REQUESTS_IN_A_THIRD = 10


def check_lease(settings: Settings, clock: Clock) -> Program[None]:
    """Refuse a lease in which a live client could not renew its record in time.

    Too short a lease does no harm to rows, but every transaction would take every other
    for dead. The default is long enough for any store, so it asks nothing.

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
    """To two digits."""
    digits = 1 - math.floor(math.log10(seconds))
    return math.ceil(seconds * 10.0**digits) / 10.0**digits
