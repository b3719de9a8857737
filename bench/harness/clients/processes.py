"""Clients as processes, as those of a lake usually are.

They are spawned, not forked: DuckDB and the library have threads, which a fork leaves behind.
Each tells over a pipe of every operation that is over, so that of one that is killed is known
what it had done.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from random import Random
from typing import Any

from bench.harness.clients.client import Client, Counts
from bench.harness.clients.measured import Measured
from bench.harness.clients.pace import Step, carried_out, due_times
from bench.harness.clients.threads import described

#: How long a process may take to end by itself, and after SIGTERM.
_GRACE_SECONDS = 10.0


@dataclass(slots=True)
class _Message:
    """What a client tells: a step, or what came with none; ``ready`` and ``over`` once each."""

    counts: Counts
    step: Step | None = None
    ready: bool = False
    over: bool = False
    death: str = ""


@dataclass(slots=True)
class _Member:
    """A client's process, as its parent knows it."""

    number: int
    process: SpawnProcess
    pipe: Connection
    measured: Measured = field(default_factory=Measured)
    ended: float = 0.0
    ready: bool = False
    over: bool = False


def run_processes(
    opens: Callable[[], AbstractContextManager[Any]],
    clients: Sequence[Client],
    rate: float | None,
    seed: str,
    on_start: Callable[[], None],
) -> Measured:
    """Run each client in a process of its own; none is left when this returns."""
    context = multiprocessing.get_context("spawn")
    crew: list[_Member] = []
    start = time.perf_counter()
    interrupted = False
    try:
        with _deaf():
            for number, client in enumerate(clients):
                pipe, theirs = context.Pipe()
                arguments = (theirs, opens, client, rate, f"{seed}-{number}")
                process = context.Process(target=_client, args=arguments, daemon=True)
                process.start()
                theirs.close()  # so that its end is the end of the pipe
                crew.append(_Member(number, process, pipe))
        while any(not one.ready for one in crew):
            _hear(crew)
        on_start()
        start = time.perf_counter()
        for one in crew:
            if not one.over:
                _tell(one, start)
        while any(not one.over for one in crew):
            _hear(crew)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        _end(crew)
    ends = [start, *(one.ended for one in crew)]
    together = Measured(seconds=max(ends) - start, interrupted=interrupted)
    for one in crew:
        together.add(one.measured)
    return together


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started here never hear Ctrl-C: it is the parent's."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _hear(crew: Sequence[_Member]) -> None:
    """Take in what clients tell, or that they are dead."""
    by_pipe = {one.pipe: one for one in crew if not one.over}
    for pipe in wait(list(by_pipe), timeout=1.0):
        assert isinstance(pipe, Connection)
        one = by_pipe[pipe]
        try:
            message: _Message = pipe.recv()
        except (EOFError, OSError):
            one.process.join(_GRACE_SECONDS)
            message = _Message(Counts(), death=_status(one.process.exitcode))
        one.measured.counts.add(message.counts)
        if message.step is not None:
            one.measured.take(message.step)
            one.ended = message.step.ended
        if message.death:
            who = f"client {one.number}, process {one.process.pid}"
            one.measured.deaths.append(f"{who}, after {one.measured.n} operations: {message.death}")
        one.over = message.over or bool(message.death)
        one.ready = one.ready or message.ready or one.over


def _status(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def _tell(one: _Member, start: float) -> None:
    with suppress(OSError):  # it is dead, and its pipe says so
        one.pipe.send(start)


def _end(crew: Sequence[_Member]) -> None:
    """Leave no process."""
    for one in crew:
        if not one.over:
            one.process.terminate()
    for one in crew:
        one.process.join(_GRACE_SECONDS)
        if one.process.is_alive():
            one.process.kill()
            one.process.join()
        one.pipe.close()


def _client(
    pipe: Connection,
    opens: Callable[[], AbstractContextManager[Any]],
    client: Client,
    rate: float | None,
    seed: str,
) -> None:
    """What a process does."""
    counts = Counts()

    def tell(**what: Any) -> None:
        pipe.send(_Message(counts, **what))
        counts.aborts = counts.redos = counts.lost = 0
        counts.facts, counts.phase_seconds = [], {}

    try:
        with opens() as opened:
            if client.warm_up is not None:
                warmed = Counts()
                for _ in client.warm_up(opened, warmed):
                    pass
                counts.facts += warmed.facts
            tell(ready=True)
            start = pipe.recv()
            due = due_times(client, rate, Random(seed))
            work = client.work(opened, counts)
            for step in carried_out(work, threading.Event(), due, start):
                tell(step=step)
            tell(over=True)
    except (BrokenPipeError, EOFError):
        pass  # nobody listens any more
    except Exception as error:
        tell(death=described(error))
