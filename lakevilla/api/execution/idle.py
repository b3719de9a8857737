"""Transactions that nobody goes on with, undone once they have been idle for long."""

from __future__ import annotations

import math
import weakref

from lakevilla.api.client.client import LOOK_AT_IDLE_SECONDS
from lakevilla.api.execution.turns import Lasting
from lakevilla.errors import LakeVillaError, TransactionAborted
from lakevilla.store.effects import Program
from lakevilla.transaction.state.life import Life
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.abort import delete_its_files
from lakevilla.transaction.verbs.save import forget


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
