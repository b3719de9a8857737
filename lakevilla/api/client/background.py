"""A client's work in the background, its state after a fork, and transactions in use."""

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
# Work of a process concurrently with its transactions: checkpoints, and publishing for which no
# caller waits.


_LOG = logging.getLogger("lakevilla")


class Background:
    """One thread that runs programs in turn; it starts with the first program."""

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
        """Queue a program, to be run before ``after``. An error is logged; the next client does the
        work.

        A program replaces a waiting program with the same key, so a thread that is late skips work
        that newer work makes superfluous.
        """
        with self._lock:
            if self._pool is None or self._process != os.getpid():
                if self._process != os.getpid():
                    self._keyed.clear()  # the parent's thread runs these programs
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
        """Wait until all queued programs have run, and stop the thread."""
        with self._lock:
            pool, self._pool = self._pool, None
            owner = self._process
        if pool is not None and owner == os.getpid():
            pool.shutdown(wait=True)


# -------------------- forks
#
# State that a forked child must reset: it has its parent's objects, but not its parent's threads.


_ALL: weakref.WeakSet[Groups] = weakref.WeakSet()


def empty_after_fork(groups: Groups) -> None:
    """Register commit groups to be emptied in forked children.

    Their leader and the threads that wait in them exist only in the parent.
    """
    _ALL.add(groups)


def _empty_all() -> None:
    for groups in list(_ALL):
        groups.empty()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_empty_all)


# -------------------- in use
#
# Transactions that threads of this process hold open; they are never taken for dead.


class Use:
    """The process that began a transaction, and the thread that was the last to use it."""

    def __init__(self, state: TransactionState) -> None:
        self._state = state
        self._thread = 0
        self.process = os.getpid()

    @property
    def is_of_this_process(self) -> bool:
        """True if this process began the transaction, and not its parent before a fork."""
        return self.process == os.getpid()

    def begin(self) -> None:
        """Note that the running thread uses the transaction from now on."""
        self._thread = threading.get_ident()

    def end(self) -> None:
        """Note that the use is over, under the transaction's present id."""
        _IN_USE[self._state.id] = self

    def is_open_in(self, thread: int) -> bool:
        """Return whether the transaction is open, and ``thread`` of this process used it last."""
        if not self.is_of_this_process or self._thread != thread:
            return False
        return self._state.state not in TERMINAL


#: The transactions of this process to which a caller still has a reference, by id.
_IN_USE: WeakValueDictionary[str, Use] = WeakValueDictionary()


def is_callers(txn_id: str) -> bool:
    """Return whether the running thread used a transaction last that is still open."""
    use = _IN_USE.get(txn_id)
    return use is not None and use.is_open_in(threading.get_ident())
