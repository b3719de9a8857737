"""Run one verb at a time in each transaction, and end transactions that are idle."""

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
# Turns in using a transaction: of a verb, or of a background thread between two verbs.
#
# A verb is refused if another thread's verb is running: a transaction belongs to one thread at a
# time. A verb waits while a background thread saves the transaction, because its caller has done
# nothing wrong.


#: The longest wait of a background thread for the end of a verb; after it, the thread tries again
#: an interval later. A verb that another thread calls meanwhile waits as long before it is refused.
_WAITS_SECONDS = 0.25


class Turns:
    """A lock for which a background thread (the saver) waits, while a verb is refused at once.

    A Python lock is not fair: a thread that calls verbs in quick succession takes the lock again
    before a waiting thread wakes. So there is a second lock, ``_way_in``, which every verb passes
    first, and which the saver holds while it waits. The saver waits only for the end of the running
    verb.
    """

    def __init__(self, txn_id: str) -> None:
        self._txn_id = txn_id
        self._way_in = threading.Lock()
        self._lock = threading.Lock()
        #: The thread that holds the lock.
        self._holder: int | None = None

    @contextmanager
    def verb(self) -> Generator[None]:
        """Enter one verb, which waits only while a background thread uses the transaction.

        Raises
        ------
        InvalidOperation
            A verb is running, in this thread or another.
        """
        if self._holder == threading.get_ident():
            # Check before taking ``_way_in``: a saver that holds it may wait for this very verb.
            raise InvalidOperation(
                f"transaction {self._txn_id} is running another operation, whose data source "
                "calls this transaction: read first, and pass the result",
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
        """Enter the time between two verbs; yield False if the running verb does not end soon."""
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
    """The executor of a transaction that is saved if it lasts long."""

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
    """Flags for the heartbeats that watch a transaction: to save it, and to place its reads."""

    saver: bool = False
    placer: bool = False


def save_if_due(executor: Lasting, *, every_verb: bool) -> None:
    """Save the transaction after a verb if that is due; otherwise have a heartbeat watch it.

    A watched transaction is saved once it has lasted long. If the save fails, the verb does not
    raise, because a verb that raises must have had no effect. With ``durability="every_op"`` it
    does raise, and the transaction fails.
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
    """Have the transaction saved once it lasts long; most end earlier and are never saved."""
    interval = executor.client.settings.save_interval_seconds
    has_record = Feature.R in executor.state.options.features
    if not executor.watched.saver and interval and has_record:
        executor.watched.saver = True
        executor.client.saver.add(LazySave(executor))


def watch_reads(executor: Lasting) -> None:
    """Have places taken for the transaction's reads once it lasts long; most end earlier."""
    state = executor.state
    if not state.queues or state.claims.queue is not None or not state.work.reads:
        return
    if executor.watched.placer or state.state is not Status.OPEN or state.ending.tried:
        return
    executor.watched.placer = True
    executor.client.placer.add(LatePlaces(executor))


class LazySave:
    """The save of a transaction that lasts long.

    The client's heartbeat for saves calls ``renew`` (``sublogs.lease.Renewable``). The reference to
    the executor is weak: a transaction that its caller dropped is not saved any more.
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
        """Save the transaction if it has changed and no verb runs.

        Return False once it has ended.
        """
        executor = self._executor()
        if executor is None or _is_over(executor.state):
            return False
        client, state = executor.client, executor.state
        with executor.turns.between_verbs() as is_allowed:
            if is_allowed and not executor.is_midway and is_due_between_verbs(state):
                try:
                    yield from save(state)
                except LakeVillaError as error:
                    # If the transaction can't continue, its state has noted that, and its next verb
                    # raises.
                    client.log(f"could not save transaction {state.id} now: {error}", state.id)
        saved = state.claims.saved
        now = client.context.clock.elapsed()
        # If a verb has saved the transaction meanwhile, the next save is due an interval after
        # that.
        fresh = saved is not None and now - saved.at < self._seconds
        self._looked = saved.at if saved is not None and fresh else now
        return not _is_over(state)


class LatePlaces:
    """The taking of places for the reads of a transaction that lasts long (``Renewable``).

    Places are taken between two verbs, so nothing else changes the transaction meanwhile, and a
    later commit or abort gives these places back like those of a verb.
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
        """Take the places if no verb runs.

        Return False once the transaction needs no more places.
        """
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
                    # Without a place the transaction may lose to others once more, but loses no
                    # row.
                    client.log(f"could not place transaction {state.id} now: {error}", state.id)
        self._looked = client.context.clock.elapsed()
        return _needs_places(state)


def _needs_places(state: TransactionState) -> bool:
    return not _is_over(state) and bool(unplaced_reads(state))


def _is_over(state: TransactionState) -> bool:
    return state.state is not Status.OPEN


# -------------------- idle
#
# Transactions that their callers don't continue: each is undone after its idle time-out.


class IdleEnd:
    """The end of a transaction after its idle time-out (``sublogs.lease.Renewable``).

    The reference to the executor is weak: a transaction that its caller dropped is not ended here.

    Parameters
    ----------
    executor : Lasting
    seconds : float
        The longest idle time; infinite for no limit.
    """

    def __init__(self, executor: Lasting, seconds: float) -> None:
        self._executor = weakref.ref(executor)
        self.seconds = seconds
        self._is_watched = False
        self._used_at = self._looked = 0.0
        self.key = id(executor.state)
        self.txn_id = executor.state.id

    def note_use(self) -> None:
        """Restart the idle time: a verb has just ended, or the caller has taken rows of a scan."""
        executor = self._executor()
        if self.seconds == math.inf or executor is None:
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
        # Due one interval before the idle time is over; then at each interval while a verb runs.
        return max(self._used_at + self.seconds - LOOK_AT_IDLE_SECONDS, self._looked)

    def renew(self) -> Program[bool]:
        """Undo the transaction if it is still idle. Return False once nothing is left to watch."""
        executor = self._executor()
        if executor is None or _is_beyond(executor.state):
            return False
        client, state = executor.client, executor.state
        with executor.turns.between_verbs() as is_allowed:
            # A verb may have restarted the idle time meanwhile, or ended the transaction.
            self._looked = client.context.clock.elapsed()
            if not is_allowed or _is_beyond(state) or self._looked - self._used_at < self.seconds:
                return not _is_beyond(state)
            state.fail(
                TransactionAborted(
                    f"transaction {state.id} did nothing for {self.seconds:g} seconds "
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
    """Return whether it has ended or may have committed: then only its caller may end it."""
    return state.state is not Status.OPEN or state.ending.tried or state.ending.is_in_doubt
