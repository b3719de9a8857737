"""Work of a client in the background: threads, forks, and transactions that callers use."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakValueDictionary

from lakevilla.forked import lock
from lakevilla.lake.groups import Groups
from lakevilla.store.effects import Program
from lakevilla.store.runner import Runner
from lakevilla.transaction.state.status import TERMINAL
from lakevilla.transaction.state.transaction import TransactionState

# -------------------- background
#
# Work of a process concurrently with its transactions: publishing that no caller waits for,
# checkpoints.


_LOG = logging.getLogger("lakevilla")


class Background:
    """One thread that runs programs, one after the other; it is begun with the first program."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0
        self._lock = lock()
        self._keyed: dict[object, Callable[[], Program[object]]] = {}

    def soon(
        self,
        program: Callable[[], Program[object]],
        after: Callable[[], None],
        key: object = None,
    ) -> None:
        """Run a program, then ``after``; an error is logged, and the next client does the work.

        Of programs with one key only the last is run, unless the one before it has begun: so a
        thread that is behind does not do what newer work makes superfluous.
        """
        with self._lock:
            if self._pool is None or self._process != os.getpid():
                if self._process != os.getpid():
                    self._keyed.clear()  # the parent's thread does that
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="lakevilla")
                self._process = os.getpid()
            if key is None:
                self._pool.submit(self._work, program, after)
                return
            waits = key in self._keyed
            self._keyed[key] = program
            if not waits:
                self._pool.submit(self._work_of, key, after)

    def _work_of(self, key: object, after: Callable[[], None]) -> None:
        with self._lock:
            program = self._keyed.pop(key)
        self._work(program, after)

    def _work(self, program: Callable[[], Program[object]], after: Callable[[], None]) -> None:
        try:
            self._runner.run(program())
            after()
        except Exception:
            _LOG.warning("background work failed; the next client will do it", exc_info=True)

    def close(self) -> None:
        """Wait for all work that was begun, and stop."""
        with self._lock:
            pool, self._pool = self._pool, None
            owner = self._process
        if pool is not None and owner == os.getpid():
            pool.shutdown(wait=True)


# -------------------- forks
#
# State that a forked child must begin again: it has its parent's objects, and none of its threads.


_ALL: weakref.WeakSet[Groups] = weakref.WeakSet()


def empty_after_fork(groups: Groups) -> None:
    """Empty the commit groups in a forked child: leaders and waiting threads stay behind."""
    _ALL.add(groups)


def _empty_all() -> None:
    for groups in list(_ALL):
        groups.empty()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_empty_all)


# -------------------- in use
#
# Transactions of this process that its threads hold open: they are never taken for dead.


class Use:
    """The process that began a transaction, and the thread that was the last to use it."""

    def __init__(self, state: TransactionState) -> None:
        self._state = state
        self._thread = 0
        self.process = os.getpid()

    @property
    def is_of_this_process(self) -> bool:
        """True if it was begun here, and not in the parent of this forked process."""
        return self.process == os.getpid()

    def begin(self) -> None:
        """Note that the running thread uses it from now on."""
        self._thread = threading.get_ident()

    def end(self) -> None:
        """Note that the use is over, by the id that the transaction has now."""
        _IN_USE[self._state.id] = self

    def is_open_in(self, thread: int) -> bool:
        """Return whether it is open, and ``thread`` of this process was the last to use it."""
        if not self.is_of_this_process or self._thread != thread:
            return False
        return self._state.state not in TERMINAL


#: The transactions of this process that a caller still holds, by id.
_IN_USE: WeakValueDictionary[str, Use] = WeakValueDictionary()


def is_callers(txn_id: str) -> bool:
    """Return whether the running thread was the last to use a transaction that is still open."""
    use = _IN_USE.get(txn_id)
    return use is not None and use.is_open_in(threading.get_ident())
