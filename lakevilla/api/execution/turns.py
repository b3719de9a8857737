"""One verb at a time in each transaction, and the end of transactions that are idle."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from lakevilla.api.client.client import LOOK_AT_IDLE_SECONDS, LakeClient
from lakevilla.api.execution.names import shown_id
from lakevilla.errors import InvalidOperation, LakeVillaError, StoreError, TransactionAborted
from lakevilla.store.effects import Program
from lakevilla.transaction.queue.places import place_reads
from lakevilla.transaction.state.late_reads import (
    is_due_between_verbs,
    is_due_for_places,
    is_due_in_verb,
    unplaced_reads,
)
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.abort import delete_its_files
from lakevilla.transaction.verbs.save import forget, save

# -------------------- turns
#
# Turns with a transaction: of a thread's verb, or of a thread that serves it between two verbs.
#
# A verb is refused if another thread's verb is running: a transaction belongs to one thread at a
# time. A verb waits if the transaction is being saved, for its caller has done nothing wrong.


#: The longest wait for the end of a verb. If a verb lasts longer, the next interval is soon enough.
#: A verb of another thread may be held up for as long before it is refused.
_WAITS_SECONDS = 0.25


class Turns:
    """A lock for which verbs never wait and a saver does.

    A Python lock is not fair: a thread whose verbs follow each other closely takes it again before
    a waiting thread wakes. So the saver holds the way in while it waits. Every verb passes the way
    in: at most the rest of one verb goes before the saver.
    """

    def __init__(self, txn_id: str) -> None:
        self._txn_id = txn_id
        self._way_in = threading.Lock()
        self._lock = threading.Lock()
        #: The thread whose turn it is.
        self._holder: int | None = None

    @contextmanager
    def verb(self) -> Generator[None]:
        """Enter one verb. It waits for nothing but a save.

        Raises
        ------
        InvalidOperation
            A verb is running, in this thread or another.
        """
        if self._holder == threading.get_ident():
            # Check before taking ``_way_in``: a saver that holds it may wait for this very verb.
            raise InvalidOperation(
                f"transaction {self._txn_id} is running another operation, whose data source "
                "calls it: read first, and pass the result",
                txn_id=self._txn_id,
            )
        with self._way_in:
            is_free = self._lock.acquire(blocking=False)
        if not is_free:
            raise InvalidOperation(
                f"transaction {self._txn_id} is in use by another thread: give each thread its own",
                txn_id=self._txn_id,
            )
        try:
            self._holder = threading.get_ident()
            yield
        finally:
            self._holder = None
            self._lock.release()

    @contextmanager
    def between_verbs(self) -> Generator[bool]:
        """Enter the time between two verbs; yield False if a verb goes on for long."""
        with self._way_in:
            if not self._lock.acquire(timeout=_WAITS_SECONDS):
                yield False
                return
            try:
                self._holder = threading.get_ident()
                yield True
            finally:
                self._holder = None
                self._lock.release()


class Lasting(Protocol):
    """The executor of a transaction that is saved if it lasts."""

    @property
    def client(self) -> LakeClient: ...
    @property
    def state(self) -> TransactionState: ...
    @property
    def turns(self) -> Turns: ...
    @property
    def watched(self) -> Watched: ...
    @property
    def is_midway(self) -> bool: ...


@dataclass(slots=True)
class Watched:
    """The heartbeats that watch a transaction: one that saves it, one that places its reads."""

    saver: bool = False
    placer: bool = False


def save_if_due(executor: Lasting, *, every_verb: bool) -> None:
    """Save after a verb, if each verb must be saved or this one must; else watch it.

    A transaction that is watched is saved once it lasts. A verb that raises has had no effect.
    So a failed save is not the verb's failure, unless saving each operation was requested: then
    nothing can commit.
    """
    client, state = executor.client, executor.state
    if not (every_verb or is_due_in_verb(state)):
        _watch(executor)
        return
    try:
        client.run(save(state))
    except StoreError as error:
        if every_verb:
            raise state.fail(error) from error
        txn_id = shown_id(state)
        client.log(f"could not save transaction {txn_id} now: {error}", txn_id)


def _watch(executor: Lasting) -> None:
    """Have the transaction saved once it has lasted; most end before, and are never saved."""
    interval = executor.client.settings.save_interval_seconds
    has_record = Feature.R in executor.state.options.features
    if not executor.watched.saver and interval and has_record:
        executor.watched.saver = True
        executor.client.saver.add(LazySave(executor))


def watch_reads(executor: Lasting) -> None:
    """Have the places of its reads taken once it lasts; most transactions end before that."""
    state = executor.state
    if not state.queues or state.claims.queue is not None or not state.work.reads:
        return
    if executor.watched.placer or state.state is not Status.OPEN or state.ending.tried:
        return
    executor.watched.placer = True
    executor.client.placer.add(LatePlaces(executor))


class LazySave:
    """The save of a transaction once it has lasted.

    It is a ``sublogs.lease.Renewable``, of another heartbeat. The reference is weak: a transaction
    that its caller dropped is not saved any more.
    """

    def __init__(self, executor: Lasting) -> None:
        self._executor = weakref.ref(executor)
        self._seconds = executor.client.settings.save_interval_seconds
        self._looked = executor.client.context.clock.elapsed()
        self.key = id(executor.state)
        self.txn_id = executor.state.id

    @property
    def held_at(self) -> float | None:
        executor = self._executor()
        return None if executor is None or _is_over(executor.state) else self._looked

    def renew(self) -> Program[bool]:
        """Save it, if it has changed and is between two verbs. Return False once it has ended."""
        executor = self._executor()
        if executor is None or _is_over(executor.state):
            return False
        client, state = executor.client, executor.state
        with executor.turns.between_verbs() as is_allowed:
            if is_allowed and not executor.is_midway and is_due_between_verbs(state):
                try:
                    yield from save(state)
                except LakeVillaError as error:
                    # If the transaction can't continue, its next verb raises: the state has noted
                    # it.
                    client.log(f"could not save transaction {state.id} now: {error}", state.id)
        saved = state.claims.saved
        now = client.context.clock.elapsed()
        # If a verb has saved it meanwhile, the next save is due that much later.
        fresh = saved is not None and now - saved.at < self._seconds
        self._looked = saved.at if saved is not None and fresh else now
        return not _is_over(state)


class LatePlaces:
    """The places of a transaction's reads, taken once it has lasted (``Renewable``).

    They are taken between two verbs, so this acts as a verb does: nothing else changes the
    transaction meanwhile, and a commit or an abort that follows gives back the taken places.
    """

    def __init__(self, executor: Lasting) -> None:
        self._executor = weakref.ref(executor)
        self._looked = executor.client.context.clock.elapsed()
        self.key = id(executor.state)
        self.txn_id = executor.state.id

    @property
    def held_at(self) -> float | None:
        executor = self._executor()
        return None if executor is None or not _needs_places(executor.state) else self._looked

    def renew(self) -> Program[bool]:
        """Take them, if it is between two verbs. Return False once it has all that it needs."""
        executor = self._executor()
        if executor is None or not _needs_places(executor.state):
            return False
        client, state = executor.client, executor.state
        with executor.turns.between_verbs() as is_allowed:
            if is_allowed and is_due_for_places(state):
                try:
                    client.ensure_safe_store()
                    yield from place_reads(state)
                except LakeVillaError as error:
                    # Without a place it may lose to other transactions once more, but no row is
                    # lost.
                    client.log(f"could not place transaction {state.id} now: {error}", state.id)
        self._looked = client.context.clock.elapsed()
        return _needs_places(state)


def _needs_places(state: TransactionState) -> bool:
    return not _is_over(state) and bool(unplaced_reads(state))


def _is_over(state: TransactionState) -> bool:
    return state.state is not Status.OPEN


# -------------------- idle
#
# Transactions that are not continued: they are undone once they have been idle for long.


class IdleEnd:
    """The end of a transaction whose verbs are too far apart (``sublogs.lease.Renewable``).

    The reference is weak: a transaction that its caller dropped is not ended here.

    Parameters
    ----------
    executor : Lasting
    seconds : float
        The longest idle time; infinite for no limit.
    """

    def __init__(self, executor: Lasting, seconds: float) -> None:
        self._executor = weakref.ref(executor)
        self._seconds = seconds
        self._is_watched = False
        self._used_at = self._looked = 0.0
        self.key = id(executor.state)
        self.txn_id = executor.state.id

    def note_use(self) -> None:
        """Restart the idle time: a verb has just ended, or rows of one were taken."""
        executor = self._executor()
        if self._seconds == math.inf or executor is None:
            return
        self._used_at = executor.client.context.clock.elapsed()
        if not self._is_watched and executor.state.state is Status.OPEN:
            self._is_watched = True
            executor.client.idlers.add(self)

    @property
    def held_at(self) -> float | None:
        executor = self._executor()
        if executor is None or _is_beyond(executor.state):
            return None
        # Due when the time is over; then again and again while a verb goes on.
        return max(self._used_at + self._seconds - LOOK_AT_IDLE_SECONDS, self._looked)

    def renew(self) -> Program[bool]:
        """Undo it if it is still idle. Return False once there is nothing left to watch."""
        executor = self._executor()
        if executor is None or _is_beyond(executor.state):
            return False
        client, state = executor.client, executor.state
        with executor.turns.between_verbs() as is_allowed:
            # A verb in between has moved the end of the idle time, or has ended the transaction.
            self._looked = client.context.clock.elapsed()
            if not is_allowed or _is_beyond(state) or self._looked - self._used_at < self._seconds:
                return not _is_beyond(state)
            state.fail(
                TransactionAborted(
                    f"transaction {state.id} did nothing for {self._seconds:g} seconds "
                    "(idle_timeout_seconds), and was undone: run it again from its beginning",
                    txn_id=state.id,
                )
            )
            try:
                yield from forget(state)
                yield from delete_its_files(state)
            except LakeVillaError as error:
                client.log(f"could not clean up after transaction {state.id}: {error}", state.id)
            client.tell_end(state)
        return False


def _is_beyond(state: TransactionState) -> bool:
    """Return whether it has ended, or may have committed: then only its caller may end it."""
    return state.state is not Status.OPEN or state.ending.tried or state.ending.is_in_doubt
