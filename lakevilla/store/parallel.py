"""Run programs in parallel, on a pool of threads."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import heapq
import os
import queue
import threading
import time  # noqa: TID251 - the wait at exit is real and bounded
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from lakevilla.mailbox import Mailbox
from lakevilla.store.effects import Await, Effect, Parallel, Program, Sleep
from lakevilla.store.readback import Request

# -------------------- parallel
#
# Run the parts of a ``Parallel`` at the same time.
#
# The calling thread advances the parts' generators; their requests run in one
# thread pool. Only requests enter the pool, and none of them submits another, so
# nested ``Parallel`` cannot starve itself of threads. A request that waits for
# nothing (``is_quick``) is carried out in the calling thread: handing it over
# would take longer than the request itself.


#: The interval at which the waiting thread checks whether it was interrupted.
_LOOKS_UP_SECONDS = 0.5

#: Carries out a request in the calling thread, given a function that pauses between attempts.
CarryOut = Callable[[Request, Callable[[float], object]], Any]


#: True if a request waits neither for a server nor for a disk.
IsQuick = Callable[[Request], bool]


def run_parallel(
    effect: Parallel,
    carry_out: CarryOut,
    is_quick: IsQuick,
    check: Callable[[Request], None],
) -> list[Any]:
    """Return the results of the parts in order; raise the first error after all have ended.

    ``check`` is called in this thread before each request; its exception is the request's error.
    """
    return _Group(effect, carry_out, is_quick, check).run()


class _Stop:
    """A flag that makes requests in the pool end at their next pause.

    It is a plain flag: an Event has a lock that Ctrl-C can leave held.
    """

    requested = False


class _Interrupted(Exception):
    """A request in the pool stopped between two attempts because the group was interrupted."""


@dataclass(slots=True, eq=False)
class _Task:
    """One part of a ``Parallel``: a program, or a lone effect (then ``program`` is None).

    ``step`` counts its waits and ``answered`` is the last one that a pool thread
    has answered; an answer to an older wait is stale and ignored.
    """

    program: Program[Any] | None
    parent: _Task | None
    index: int
    state: Literal["ready", "request", "sleep", "gate", "join", "ended"] = "ready"
    step: int = 0
    answered: int = 0
    value: Any = None
    error: BaseException | None = None
    results: list[Any] = field(default_factory=list)
    running: int = 0
    first_error: BaseException | None = None


class _Group:
    """The loop that runs the parts of a ``Parallel``, and of those nested in it."""

    def __init__(
        self,
        effect: Parallel,
        carry_out: CarryOut,
        is_quick: IsQuick,
        check: Callable[[Request], None],
    ) -> None:
        self._carry_out = carry_out
        self._check = check
        self._is_quick = is_quick
        self._ready: deque[_Task] = deque()
        self._timers: list[tuple[float, int, _Task, int]] = []
        self._answers: Mailbox[tuple[_Task, int]] = Mailbox()
        self._live: set[_Task] = set()
        self._stop = _Stop()
        self._cause: BaseException | None = None
        self._effect = effect
        # Represents the program that yielded the effect; ready with the last part.
        self._root = _Task(None, None, 0, state="join")

    def run(self) -> list[Any]:
        turn = self._start
        while self._root.state == "join":
            try:
                turn()
            except BaseException as caught:
                # Ctrl-C, in the loop or in a part's own code. A second one leaves
                # the loop here, and leaves the requests under way to themselves.
                self._interrupt(caught)
            turn = self._turn
        if self._root.error is not None:
            raise self._root.error
        results: list[Any] = self._root.value
        return results

    def _start(self) -> None:
        self._fork(self._root, self._effect)

    def _turn(self) -> None:
        if self._ready:
            self._advance(self._ready.popleft())
            return
        # Ctrl-C just before the wait begins is noticed when the wait ends.
        timeout = _LOOKS_UP_SECONDS
        if self._timers:
            timeout = min(timeout, self._timers[0][0] - time.monotonic())
            if timeout <= 0:
                _, _, task, step = heapq.heappop(self._timers)
                if task.state in ("sleep", "gate") and task.step == step:
                    self._make_ready(task, None, None)
                return
        with contextlib.suppress(queue.Empty):
            task, step = self._answers.get(timeout=timeout)
            self._answered(task, step)

    def _advance(self, task: _Task) -> None:
        if task.program is None or task.state == "ended":
            self._end(task, task.value, task.error)
            return
        value, error = task.value, task.error
        task.value = task.error = None
        try:
            effect = task.program.send(value) if error is None else task.program.throw(error)
        except StopIteration as end:
            self._end(task, end.value, None)
        except BaseException as caught:
            self._end(task, None, caught)
            if not isinstance(caught, Exception) and caught is not self._cause:
                raise
        else:
            self._wait_for(task, effect)

    def _wait_for(self, task: _Task, effect: Effect) -> None:
        task.step += 1
        if isinstance(effect, Parallel):
            self._fork(task, effect)
        elif isinstance(effect, Sleep):
            task.state = "sleep"
            due = time.monotonic() + max(0.0, effect.seconds)
            heapq.heappush(self._timers, (due, id(task), task, task.step))
        elif isinstance(effect, Await):
            step = task.step
            task.state = "gate"
            effect.gate.when_open(lambda: self._answers.put((task, step)))
            if effect.seconds is not None:
                due = time.monotonic() + effect.seconds
                heapq.heappush(self._timers, (due, id(task), task, step))
        elif (refused := self._refused(effect)) is not None:
            self._make_ready(task, None, refused)
        elif self._is_quick(effect):
            self._here(task, effect)
        else:
            step, stop = task.step, self._stop
            submit(lambda: self._in_pool(task, step, effect, stop))
            task.state = "request"

    def _fork(self, parent: _Task, effect: Parallel) -> None:
        parent.state = "join"
        parent.results = [None] * len(effect.parts)
        parent.running = len(effect.parts)
        parent.first_error = None
        if not effect.parts:
            self._joined(parent)
        for index, part in enumerate(effect.parts):
            if isinstance(part, Effect):
                child = _Task(None, parent, index)
                self._live.add(child)
                self._wait_for(child, part)
            else:
                child = _Task(part, parent, index)
                self._live.add(child)
                self._ready.append(child)

    def _end(self, task: _Task, value: Any, error: BaseException | None) -> None:
        parent = task.parent
        assert parent is not None
        parent.results[task.index] = value
        if error is not None and parent.first_error is None:
            parent.first_error = error
        task.state = "ended"
        self._live.discard(task)
        parent.running -= 1
        if parent.running == 0:
            self._joined(parent)

    def _joined(self, parent: _Task) -> None:
        self._make_ready(parent, parent.results, parent.first_error)

    def _make_ready(self, task: _Task, value: Any, error: BaseException | None) -> None:
        task.value, task.error = value, error
        task.state = "ready"
        if task is not self._root:
            self._ready.append(task)

    # ------------------------------------------------------------- requests

    def _refused(self, effect: Request) -> Exception | None:
        try:
            self._check(effect)
        except Exception as error:
            return error
        return None

    def _here(self, task: _Task, effect: Request) -> None:
        """Perform a request in this thread. Ctrl-C leaves it like one that was not begun."""
        value: Any = None
        error: Exception | None = None
        try:
            value = self._carry_out(effect, time.sleep)
        except Exception as caught:
            error = caught
        self._make_ready(task, value, error)

    def _in_pool(self, task: _Task, step: int, effect: Request, stop: _Stop) -> None:
        """Perform a request in a pool thread, which sends the answer to the loop
        through a queue.
        """

        def pause(seconds: float) -> None:
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                if stop.requested:
                    raise _Interrupted
                time.sleep(min(left, 0.05))

        value: Any = None
        error: BaseException | None = None
        try:
            value = self._carry_out(effect, pause)
        except BaseException as caught:
            error = caught
        # Safe without a lock: until the step is answered no other thread uses these two attributes,
        # and the queue orders their writing before the loop's reading.
        task.value, task.error = value, error
        task.answered = step
        self._answers.put((task, step))

    def _answered(self, task: _Task, step: int) -> None:
        if task.state in ("request", "gate") and task.step == step:
            self._make_ready(task, task.value, task.error)

    # ----------------------------------------------------------- interrupts

    def _interrupt(self, cause: BaseException) -> None:
        """Throw ``cause`` into every part; requests under way may end first.

        The interrupt may have hit between any two lines above, so only the set of live parts
        is trusted: an answer from the queue is identified by its task, and the number of parts
        for which each task waits is counted again.
        """
        self._stop.requested = True
        self._cause = cause
        requests = [task for task in self._live if task.state == "request"]
        while any(task.answered != task.step for task in requests):
            with contextlib.suppress(queue.Empty):
                self._answers.get(timeout=0.05)
        self._stop = _Stop()
        self._ready.clear()
        for parent in [self._root, *self._live]:
            if parent.state == "join":
                parent.first_error = parent.first_error or cause
                parent.running = sum(task.parent is parent for task in self._live)
                if parent.running == 0:
                    self._joined(parent)
        for task in self._live:
            if task.state != "join" and task not in self._ready:
                self._make_ready(task, None, cause)


# -------------------- pool
#
# One thread pool for the requests of a process, and one for jobs that run while a request waits.
#
# Not ``ThreadPoolExecutor``: Ctrl-C inside its ``submit`` can leave a lock held,
# and every later request would wait for ever. The shared state here is a queue and
# counters under a C lock, which an interrupt leaves in order.


#: As many threads as the widest ``Parallel`` that is worth having (measured: 128 PUTs
#: of 60 ms end after 77 ms).
POOL_SIZE = 128

#: The time that requests under way have to end at exit.
_EXIT_SECONDS = 5.0


def submit(job: Callable[[], None]) -> None:
    """Have a thread call ``job``, which must not raise."""
    _pool.submit(job)


@contextlib.contextmanager
def beside(job: Callable[[], None]) -> Iterator[None]:
    """Have another thread call ``job`` while this one is in the block; raise its error afterwards.

    A request in the pool may use this block: jobs have threads of their own, so it never waits for
    another request. ``job`` itself must not use it.
    """
    ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def run() -> None:
        error = None
        try:
            job()
        except Exception as caught:
            error = caught
        ended.put(error)

    _beside.submit(run)
    try:
        yield
    finally:
        error = ended.get()
    if error is not None:
        raise error


class _Pool:
    """A pool whose threads are started as they are needed, and stay."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._ended: Mailbox[None] = Mailbox()
        self._lock = threading.Lock()
        self._unfinished = 0
        self._threads = 0

    def submit(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._unfinished += 1
            grow = self._threads < min(POOL_SIZE, self._unfinished)
            self._threads += grow
        if grow:
            _thread.start_new_thread(self._work, ())
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # a thread that waits must not hold what its last job was about
            with self._lock:
                self._unfinished -= 1
        self._ended.put(None)

    def close(self) -> None:
        """Let the threads end.

        A thread that is stopped inside the backend's native code when the interpreter exits
        would crash the process.
        """
        # https://github.com/python/cpython/issues/87135
        deadline = time.monotonic() + _EXIT_SECONDS
        with self._lock:
            # Jobs that are submitted later (by another exit handler) get new threads.
            threads, self._threads = self._threads, 0
        for _ in range(threads):
            self._jobs.put(None)
        with contextlib.suppress(queue.Empty):
            for _ in range(threads):
                self._ended.get(timeout=max(0.0, deadline - time.monotonic()))


_pool, _beside = _Pool(), _Pool()


def _forget_pools() -> None:
    # A forked child has the parent's pools but none of their threads, and maybe a
    # lock that some thread held at the time of the fork.
    global _pool, _beside
    _pool, _beside = _Pool(), _Pool()


def _close_pools() -> None:
    # In this order: a thread of the first pool may wait for the second.
    _pool.close()
    _beside.close()


atexit.register(_close_pools)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)
