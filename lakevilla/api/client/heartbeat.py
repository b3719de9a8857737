"""Renew the records of transactions that last long, and check the lease against the store."""

from __future__ import annotations

import math
import os
import statistics
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from lakevilla.api.client.background import Duty
from lakevilla.clock import Clock
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.global_log.head import HEAD_KEY
from lakevilla.settings import Settings
from lakevilla.store.effects import Program, get
from lakevilla.store.runner import Runner
from lakevilla.sublogs.lease import Renewable

# -------------------- heartbeat
#
# The heartbeat: the records of transactions that last long are renewed by a thread of the process.
#
# The thread runs concurrently with the transactions and touches neither them nor an event loop. A
# heartbeat that is late, or never runs, does no harm to data: other clients may then give up the
# places of a transaction, which costs this transaction a wait or a redo (design, section 5).


#: The longest wait for a running renewal when a lake is closed.
_END_SECONDS = 5.0

#: How long renewals wait for those of other lakes: a part of their interval, and at most so long.
_LATE_PART = 8
_LATE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """A record to renew; after a failed renewal, not before the time ``not_before``."""

    record: Renewable
    not_before: float


class Heartbeat:
    """The renewal of the record of each added transaction, every third of the lease.

    A transaction that ends within a third of a lease costs no request.

    Renewals are made one after the other: each is one small request, and a third of a lease has
    room for many. They wait for those of other lakes only shortly, and for no other work. They do
    not go through the pool of requests, where they would wait behind the uploads of the very
    transactions that last long.

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
        The name of the thread meanwhile. Heartbeats of other names never wait for each other.
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
        """Reset in a forked child, which has its parent's entries, but neither the thread nor the
        right to renew.
        """
        self._entries: dict[int, _Entry] = {}
        self._lock = threading.Lock()
        late = min(self._third_seconds / _LATE_PART, _LATE_SECONDS)
        self._duty = Duty(self._renew_due, self._name, late)

    @property
    def is_at_work(self) -> bool:
        """Return whether a record is being renewed, or will be."""
        return self._duty.is_left

    def add(self, record: Renewable) -> None:
        """Renew a record from now on, until its transaction ends or ``drop`` is called."""
        # Add a new entry each time. If the thread is about to remove the transaction, the new entry
        # shows it that the transaction has a record again.
        entry = _Entry(record, 0.0)
        with self._lock:
            self._entries[record.key] = entry
        try:
            self._duty.due_in(max(0.0, self._due(entry) - self._clock.elapsed()))
        except RuntimeError as error:
            # The system has no more threads, or the interpreter is shutting down. Without a
            # heartbeat, the transaction can lose its places to other clients, and nothing else.
            txn_id = record.txn_id
            self._log(f"transaction {txn_id} is not renewed: {error}", txn_id)

    def drop(self, key: int) -> None:
        """Stop renewing a record, whose transaction has ended."""
        if key in self._entries:
            with self._lock:
                self._entries.pop(key, None)

    def close(self) -> None:
        """Renew nothing any more; a running renewal may finish."""
        with self._lock:
            self._entries.clear()
        self._duty.cancel()
        self._duty.wait(_END_SECONDS)

    # -- the thread --------------------------------------------------------------

    def _renew_due(self) -> float | None:
        for key, entry in list(self._entries.items()):
            if self._entries.get(key) is entry:
                self._visit(key, entry)
        with self._lock:
            return self._until_next() if self._entries else None

    def _until_next(self) -> float:
        """Return the seconds until the next renewal is due.

        The pause is at most a third of a lease: no record that is added meanwhile is due earlier.
        """
        now = self._clock.elapsed()
        due = (self._due(entry) for entry in self._entries.values())
        return min(max(min(due) - now, 0.0), self._third_seconds)

    def _due(self, entry: _Entry) -> float:
        held_at = entry.record.held_at
        if held_at is None:
            # the transaction has ended or was dropped: visit the entry now, to remove it
            return entry.not_before
        return max(held_at + self._third_seconds, entry.not_before)

    def _visit(self, key: int, entry: _Entry) -> None:
        """Renew one transaction's record if it is due; remove it if the transaction has ended.

        The transaction's own thread may use the record at the same time: see ``record``.
        """
        if self._due(entry) > self._clock.elapsed():
            return
        record = entry.record
        try:
            epochs = self._runner.run(record.renew())
        except Exception as error:
            # The store may be back soon. If a record can't be read, the transaction itself finds
            # that out. This thread goes on, because it serves other transactions as well.
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


def _forget_all() -> None:
    for heartbeat in list(_ALL):
        heartbeat.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


# -------------------- lease
#
# Check that a store is fast enough for the lease that a user has set.


#: A third of this is 17 ms. With a shorter lease, a busy interpreter (threads take turns of 5 ms)
#: and the machine's scheduler would make live transactions look dead.
_LEAST_SECONDS = 0.05
_LOOKS = 5
#: The number of requests that must fit into a third of the lease: the heartbeat renews one record
#: after the other, may conflict with the transaction's own write, and may have to send a request
#: twice.
_REQUESTS_IN_A_THIRD = 10


def check_lease(settings: Settings, clock: Clock) -> Program[None]:
    """Refuse a lease that is too short for a live client to renew its record in time.

    Too short a lease does no harm to rows, but transactions would take each other for dead. For the
    default lease no request is made: it is long enough for any store.

    Raises
    ------
    InvalidOperation
        The lease is too short for the store's latency.
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
    # Take the median: the first request also opens a connection, and one in five may be slow.
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
