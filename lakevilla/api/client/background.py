"""A client's work in the background, its state after a fork, and transactions in use."""

from __future__ import annotations

import atexit
import contextlib
import heapq
import itertools
import logging
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable
from weakref import WeakValueDictionary

from lakevilla.clock import SystemClock
from lakevilla.forked import lock
from lakevilla.lake.groups import Groups
from lakevilla.mailbox import Mailbox
from lakevilla.store.effects import Program
from lakevilla.store.runner import Runner
from lakevilla.transaction.state.status import TERMINAL
from lakevilla.transaction.state.transaction import TransactionState

_LOG = logging.getLogger("lakevilla")

# -------------------- crew
#
# The threads of a process that work for its open lakes: docs/design/0062-threads-of-a-process.md.
#
# One thread looks at the clock and does nothing else, so no work delays it; it gives what is due to
# other threads. Callers only note what is due, and wake it. So Ctrl-C, which only the main thread
# receives, leaves all of this in order. For the same reason locks are plain ones, and waits are for
# queues.


#: The number of duties of one kind that are done at the same time, unless one has lost patience.
_EACH_KIND = 2

#: The number of threads that wait for work, and the time after which each ends.
_IDLE_THREADS = 2
_IDLE_SECONDS = 10.0

#: The time after which the clock's thread tries again to start a thread.
_AGAIN_SECONDS = 0.5

#: The longest time for which work in the background waits for that of other lakes.
_PATIENCE_SECONDS = 1.0

#: The longest wait for running duties at the interpreter's end.
_END_SECONDS = 5.0

_elapsed = SystemClock().elapsed


class Duty:
    """Work for one lake that may become due again and again; one thread at a time does it.

    Parameters
    ----------
    do : callable
        Does what is due, and returns the seconds until more is due; None if nothing is left.
    kind : str
        The kind of work, and the name of the thread while it does it.
    patience_seconds : float
        The longest wait for duties of the same kind. It never waits for another kind.
    is_finished_at_exit : bool, optional
        Whether the interpreter's end waits until nothing is left.
    """

    def __init__(
        self,
        do: Callable[[], float | None],
        kind: str,
        patience_seconds: float,
        *,
        is_finished_at_exit: bool = False,
    ) -> None:
        self.do = do
        self.kind = kind
        self.patience_seconds = patience_seconds
        self.is_finished_at_exit = is_finished_at_exit
        # The crew's lock guards what follows.
        self.due: float | None = None
        self.is_running = False
        self.is_cancelled = False
        self.thread = 0
        self.waiting: list[Mailbox[None]] = []

    @property
    def is_left(self) -> bool:
        """Return whether it is being done, or will be."""
        return self.is_running or self.due is not None

    def due_in(self, seconds: float) -> None:
        """Have it done after so many seconds; earlier if it is due earlier.

        Raises
        ------
        RuntimeError
            The system has no more threads, or the interpreter is at its end.
        """
        _crew.schedule(self, _elapsed() + seconds)

    def cancel(self) -> None:
        """Have it not done again. A thread that does it goes on: see ``wait``."""
        _crew.cancel(self)

    def wait(self, limit_seconds: float | None = None) -> None:
        """Wait until nothing is left; the thread that does it does not wait for itself."""
        _crew.wait(self, limit_seconds)


class _Crew:
    """The threads, and what is due."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clock: threading.Thread | None = None
        self._woken: Mailbox[None] = Mailbox()
        self._wakes_at = 0.0
        # What is due later, by time. An entry is void if its time is not that of the duty any more.
        self._later: list[tuple[float, int, Duty]] = []
        self._numbers = itertools.count()
        # What is due, and waits for others of its kind.
        self._ready: list[Duty] = []
        self._running: list[Duty] = []
        # Each thread that waits has a queue, through which it is given a duty, or None to end.
        self._idle: list[Mailbox[Duty | None]] = []
        self._threads = 0
        self._ended: Mailbox[None] = Mailbox()

    def schedule(self, duty: Duty, at: float) -> None:
        with self._lock:
            if duty.due is not None and duty.due <= at:
                return
            duty.due = at
            if not duty.is_running and duty not in self._ready:
                self._put_later(duty, at)

    def cancel(self, duty: Duty) -> None:
        with self._lock:
            duty.due = None
            duty.is_cancelled = duty.is_running
            if duty in self._ready:
                self._ready.remove(duty)
            # What is over must not be kept until then: it refers to its lake.
            self._later = [entry for entry in self._later if entry[2] is not duty]
            heapq.heapify(self._later)
            if not duty.is_running:
                self._tell(duty)
            if not self._later and not self._ready and not self._running:
                self._dismiss()

    def wait(self, duty: Duty, limit_seconds: float | None) -> None:
        over: Mailbox[None] = Mailbox()
        with self._lock:
            if not duty.is_left or duty.thread == threading.get_ident():
                return
            duty.waiting.append(over)
        with contextlib.suppress(queue.Empty):
            over.get(timeout=limit_seconds)

    def _put_later(self, duty: Duty, at: float) -> None:
        heapq.heappush(self._later, (at, next(self._numbers), duty))
        if self._clock is None or not self._clock.is_alive():
            self._clock = threading.Thread(target=self._look, name="lakevilla-clock", daemon=True)
            self._clock.start()
        elif at < self._wakes_at:
            self._woken.put(None)

    def _tell(self, duty: Duty) -> None:
        waiting, duty.waiting = duty.waiting, []
        for over in waiting:
            over.put(None)

    def _dismiss(self) -> None:
        """Let the threads end that wait."""
        self._woken.put(None)
        while self._idle:
            self._idle.pop().put(None)

    # -- the clock's thread --------------------------------------------------------

    def _look(self) -> None:
        while True:
            with self._lock:
                if self._clock is not threading.current_thread():
                    return
                now = _elapsed()
                self._take_due(now)
                self._begin_ready(now)
                times = [duty.due + duty.patience_seconds for duty in self._ready if duty.due]
                times += [at for at, _, _ in self._later[:1]]
                if not times:
                    self._clock = None
                    return
                # Not without a pause: a duty may be due again at once, each time.
                self._wakes_at = max(min(times), now + 0.001)
            with contextlib.suppress(queue.Empty):
                self._woken.get(timeout=self._wakes_at - now)

    def _take_due(self, now: float) -> None:
        while self._later:
            at, _, duty = self._later[0]
            is_void = duty.due != at or duty.is_running or duty in self._ready
            if at > now and not is_void:
                return
            heapq.heappop(self._later)
            if not is_void:
                self._ready.append(duty)

    def _begin_ready(self, now: float) -> None:
        while (duty := self._next(now)) is not None:
            if not self._idle and not self._has_another():
                self._ready.remove(duty)
                duty.due = now + _AGAIN_SECONDS
                heapq.heappush(self._later, (duty.due, next(self._numbers), duty))
                continue
            self._begin(duty)
            self._idle.pop().put(duty)

    def _has_another(self) -> bool:
        """Start a thread, which waits for a duty; return False if there can be none."""
        given: Mailbox[Duty | None] = Mailbox()
        thread = threading.Thread(
            target=self._work, args=(given,), name="lakevilla-crew", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            # The system has no more threads, or the interpreter is at its end.
            _LOG.info(f"work in the background waits: {error}")
            return False
        self._threads += 1
        self._idle.append(given)
        return True

    def _next(self, now: float) -> Duty | None:
        """Return what may begin: of each kind only some run, unless one has lost patience."""
        for duty in self._ready:
            others = sum(one.kind == duty.kind for one in self._running)
            assert duty.due is not None
            if others < _EACH_KIND or now >= duty.due + duty.patience_seconds:
                return duty
        return None

    def _begin(self, duty: Duty) -> None:
        self._ready.remove(duty)
        self._running.append(duty)
        duty.due, duty.is_running, duty.is_cancelled = None, True, False

    # -- the threads that work -----------------------------------------------------

    def _work(self, given: Mailbox[Duty | None]) -> None:
        thread = threading.current_thread()
        duty = given.get()
        while duty is not None:
            thread.name, duty.thread = duty.kind, threading.get_ident()
            seconds = None
            try:
                seconds = duty.do()
            except BaseException:
                _LOG.exception(f"{duty.kind}: a thread's work has failed")
            thread.name = "lakevilla-crew"
            with self._lock:
                self._end(duty, seconds)
                # A thread that waits must not hold what its last duty was about.
                duty = self._next(_elapsed())
                if duty is not None:
                    self._begin(duty)
                    continue
                if len(self._idle) >= _IDLE_THREADS:
                    break
                self._idle.append(given)
            duty = self._waited(given)
        with self._lock:
            self._threads -= 1
            self._ended.put(None)

    def _waited(self, given: Mailbox[Duty | None]) -> Duty | None:
        with contextlib.suppress(queue.Empty):
            return given.get(timeout=_IDLE_SECONDS)
        with self._lock:
            if given in self._idle:
                self._idle.remove(given)
                return None
        return given.get()  # it was given one just now

    def _end(self, duty: Duty, seconds: float | None) -> None:
        self._running.remove(duty)
        duty.is_running, duty.thread = False, 0
        if seconds is not None and not duty.is_cancelled:
            at = _elapsed() + seconds
            duty.due = at if duty.due is None else min(at, duty.due)
        if duty.due is None:
            self._tell(duty)
            return
        try:
            self._put_later(duty, duty.due)
        except RuntimeError as error:
            _LOG.info(f"{duty.kind} waits for the next work of its kind: {error}")
            duty.due = None
            self._tell(duty)

    # -- the interpreter's end -----------------------------------------------------

    def left(self, *, is_finished_at_exit: bool) -> list[Duty]:
        """Return the duties that are being done or will be."""
        with self._lock:
            later = [duty for at, _, duty in self._later if duty.due == at]
            left = dict.fromkeys([*later, *self._ready, *self._running])
        return [duty for duty in left if duty.is_finished_at_exit == is_finished_at_exit]

    def close(self) -> None:
        """Finish what must be finished, and let the threads end.

        A thread that is stopped inside the backend's native code when the interpreter exits would
        crash the process.
        """
        # https://github.com/python/cpython/issues/87135
        for duty in self.left(is_finished_at_exit=True):
            # Here and now: at this point some versions of Python start no thread any more.
            duty.cancel()
            duty.wait()
            while duty.do() is not None:
                pass
        deadline = _elapsed() + _END_SECONDS
        others = self.left(is_finished_at_exit=False)
        for duty in others:
            duty.cancel()
        for duty in others:
            duty.wait(max(0.0, deadline - _elapsed()))
        with self._lock:
            self._clock = None
            self._dismiss()
        with contextlib.suppress(queue.Empty):
            while self._threads:
                self._ended.get(timeout=max(0.0, deadline - _elapsed()))


_crew = _Crew()


def _forget_crew() -> None:
    # A forked child has the parent's duties but none of their threads, and maybe a held lock.
    global _crew
    _crew = _Crew()


def _finish() -> None:
    """Let what must be finished end by the threads, while new ones can be started."""
    for duty in _crew.left(is_finished_at_exit=True):
        duty.wait()


# When the main thread has ended, and before other threads are waited for; ``atexit`` is later.
getattr(threading, "_register_atexit", atexit.register)(_finish)
atexit.register(lambda: _crew.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_crew)


# -------------------- background
#
# Work of a process concurrently with its transactions: checkpoints, and publishing for which no
# caller waits.


class Background:
    """Programs that are run in turn, by a thread of the process."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._lock = lock()
        self._forget()

    def _forget(self) -> None:
        """Reset in a forked child: the parent runs these programs."""
        self._process = os.getpid()
        self._queued: deque[tuple[Callable[[], Program[object]], Callable[[], None], object]]
        self._queued = deque()
        self._keyed: dict[object, Callable[[], Program[object]]] = {}
        self._duty = Duty(
            self._run_queued, "lakevilla-background", _PATIENCE_SECONDS, is_finished_at_exit=True
        )

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
            if self._process != os.getpid():
                self._forget()
            waits = key is not None and key in self._keyed
            if key is not None:
                self._keyed[key] = program
            if not waits:
                self._queued.append((program, after, key))
        try:
            self._duty.due_in(0.0)
        except RuntimeError as error:
            _LOG.warning(f"work in the background waits for more of it, or for the close: {error}")

    def _run_queued(self) -> None:
        while True:
            with self._lock:
                if not self._queued:
                    return
                program, after, key = self._queued.popleft()
                if key is not None:
                    program = self._keyed.pop(key)
            self._work(program, after)

    def _work(self, program: Callable[[], Program[object]], after: Callable[[], None]) -> None:
        try:
            self._runner.run(program())
            after()
        except Exception:
            _LOG.warning("background work failed; the next client will do it", exc_info=True)

    def close(self) -> None:
        """Wait until all queued programs have run."""
        if self._process != os.getpid():
            return
        self._duty.wait()
        if not self._duty.is_left:
            self._run_queued()  # no thread could be started


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
