"""Which transactions of this process its threads hold open: they are never taken for dead."""

from __future__ import annotations

import os
import threading
from weakref import WeakValueDictionary

from lakevilla.transaction.state.life import TERMINAL
from lakevilla.transaction.state.transaction import TransactionState


class Use:
    """The process that began a transaction, and the thread that was the last to use it."""

    def __init__(self, state: TransactionState) -> None:
        self._state = state
        self._thread = 0
        self.process = os.getpid()

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was begun here, and not in the parent of this forked process."""
        return self.process == os.getpid()

    def begin(self) -> None:
        """The running thread uses it from now on."""
        self._thread = threading.get_ident()

    def end(self) -> None:
        """The use is over; it is known by the id that the transaction has now."""
        _IN_USE[self._state.id] = self

    def is_open_in(self, thread: int) -> bool:
        """Whether it has not ended, and ``thread`` of this process was the last to use it."""
        if not self.is_of_this_process or self._thread != thread:
            return False
        return self._state.state not in TERMINAL


#: The transactions of this process that somebody still holds, by id.
_IN_USE: WeakValueDictionary[str, Use] = WeakValueDictionary()


def is_callers(txn_id: str) -> bool:
    """Whether the running thread was the last to use a transaction that is still open."""
    use = _IN_USE.get(txn_id)
    return use is not None and use.is_open_in(threading.get_ident())
