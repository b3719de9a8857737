"""One verb at a time in each transaction, and the end of transactions that are idle."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from lakevilla.api.client.client import LOOK_AT_IDLE_SECONDS, LakeClient
from lakevilla.errors import InvalidOperation, LakeVillaError, TransactionAborted
from lakevilla.store.effects import Program
from lakevilla.transaction.queue.places import place_reads
from lakevilla.transaction.state.late_reads import (
    is_due_between_verbs,
    is_due_for_places,
    unplaced_reads,
)
from lakevilla.transaction.state.life import Life
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.abort import delete_its_files
from lakevilla.transaction.verbs.save import forget, save

# -------------------- turns
#
# Whose turn it is with a transaction: a thread's verb, or a thread's that serves it between two.
#
# A verb that finds another thread's verb is refused: a transaction belongs to one thread at a
# time. One that finds it being saved waits, for its caller has done nothing wrong.


#: A verb that lasts longer has not ended when it is waited for: the next interval is soon enough.
#: So long may a verb of another thread be held up before it is refused.
_WAITS_SECONDS = 0.25


class Turns:
    """A lock that verbs never wait for and a saver does.

    A Python lock is not fair: the thread of verbs that follow each other closely takes it again
    before a waiting one wakes. So the saver holds the way in while it waits, which every verb
    passes: at most one verb's rest goes before it.
    """

    def __init__(self, txn_id: str) -> None:
        self._txn_id = txn_id
        self._way_in = threading.Lock()
        self._lock = threading.Lock()
        #: The thread whose turn it is.
        self._holder: int | None = None

    @contextmanager
    def verb(self) -> Generator[None]:
        """One verb. It waits for nothing but a save.

        Raises
        ------
        InvalidOperation
            A verb is under way, in this thread or another.
        """
        if self._holder == threading.get_ident():
            # Before the way in: whoever waits there may wait for the very verb that asks.
            raise InvalidOperation(
                f"transaction {self._txn_id} is in the middle of another verb, whose data asks it "
                "for more: read first, and pass the result",
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
        """A moment between two verbs, or False where a verb goes on for long."""
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
    """A transaction that is saved if it lasts: its executor."""

    @property
    def client(self) -> LakeClient: ...
    @property
    def state(self) -> TransactionState: ...
    @property
    def turns(self) -> Turns: ...


class LazySave:
    """Saves a transaction once it has lasted (``sublogs.lease.Renewable``, of another heartbeat).

    Weak: what its caller dropped is saved no more.
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
        """Save it, if it has changed and is between two verbs. False once it has ended."""
        executor = self._executor()
        if executor is None or _is_over(executor.state):
            return False
        client, state = executor.client, executor.state
        with executor.turns.between_verbs() as may:
            if may and is_due_between_verbs(state):
                try:
                    yield from save(state)
                except LakeVillaError as error:
                    # What can't go on is told by its next verb, as it has noted itself.
                    client.log(f"could not save transaction {state.id} now: {error}", state.id)
        saved = state.standing.saved
        now = client.context.clock.elapsed()
        # Saved by a verb meanwhile, it is due that much later.
        fresh = saved is not None and now - saved.at < self._seconds
        self._looked = saved.at if saved is not None and fresh else now
        return not _is_over(state)


class LatePlaces:
    """Takes the places of what a transaction has read, once it has lasted (``Renewable``).

    Between two verbs, so what it does is as a verb's: nothing of the transaction moves
    meanwhile, and a commit or an abort that comes next gives back what was taken.
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
        """Take them, if it is between two verbs. False once it has all that it needs."""
        executor = self._executor()
        if executor is None or not _needs_places(executor.state):
            return False
        client, state = executor.client, executor.state
        with executor.turns.between_verbs() as may:
            if may and is_due_for_places(state):
                try:
                    client.ensure_safe_store()
                    yield from place_reads(state)
                except LakeVillaError as error:
                    # Without a place it may lose to others once more, and no row.
                    client.log(f"could not place transaction {state.id} now: {error}", state.id)
        self._looked = client.context.clock.elapsed()
        return _needs_places(state)


def _needs_places(state: TransactionState) -> bool:
    return not _is_over(state) and bool(unplaced_reads(state))


def _is_over(state: TransactionState) -> bool:
    return state.state is not Life.OPEN


# -------------------- idle
#
# Transactions that nobody goes on with, undone once they have been idle for long.


class IdleEnd:
    """Undoes a transaction whose verbs are too far apart (``sublogs.lease.Renewable``).

    Weak: what its caller dropped is nobody's to end.

    Parameters
    ----------
    executor : Lasting
    seconds : float
        For so long it may be idle; infinite if for ever.
    """

    def __init__(self, executor: Lasting, seconds: float) -> None:
        self._executor = weakref.ref(executor)
        self._seconds = seconds
        self._is_watched = False
        self._used_at = self._looked = 0.0
        self.key = id(executor.state)
        self.txn_id = executor.state.id

    def note_use(self) -> None:
        """Begin the time anew: a verb has just ended, or rows of one were taken."""
        executor = self._executor()
        if self._seconds == math.inf or executor is None:
            return
        self._used_at = executor.client.context.clock.elapsed()
        if not self._is_watched and executor.state.state is Life.OPEN:
            self._is_watched = True
            executor.client.idlers.add(self)

    @property
    def held_at(self) -> float | None:
        executor = self._executor()
        if executor is None or _is_beyond(executor.state):
            return None
        # Due when the time is over; then once more and again while a verb goes on.
        return max(self._used_at + self._seconds - LOOK_AT_IDLE_SECONDS, self._looked)

    def renew(self) -> Program[bool]:
        """Undo it if it is still idle. False once there is nothing to look after."""
        executor = self._executor()
        if executor is None or _is_beyond(executor.state):
            return False
        client, state = executor.client, executor.state
        with executor.turns.between_verbs() as may:
            # A verb that came between has moved the moment, or has ended the transaction.
            self._looked = client.context.clock.elapsed()
            if not may or _is_beyond(state) or self._looked - self._used_at < self._seconds:
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
    """Whether it has ended, or may have committed: then only its caller may end it."""
    return state.state is not Life.OPEN or state.ending.tried or state.ending.is_in_doubt
