"""Clients as threads of this process."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from random import Random
from typing import Any

from bench.harness.clients.client import Client, Counts
from bench.harness.clients.measured import Measured
from bench.harness.clients.pace import carried_out, due_times

#: How long after Ctrl-C operations that are under way may take.
_GRACE_SECONDS = 20.0


class _Crew:
    """What the threads of one measurement share."""

    def __init__(self, clients: int) -> None:
        self.ready = threading.Semaphore(0)
        self.go, self.stop = threading.Event(), threading.Event()
        self.results = [Measured() for _ in range(clients)]
        self.start = 0.0
        self.ends = [0.0] * clients


def run_threads(
    opens: Callable[[], AbstractContextManager[Any]],
    clients: Sequence[Client],
    rate: float | None,
    seed: str,
    on_start: Callable[[], None],
    *,
    shared: bool,
) -> Measured:
    """Run each client in a thread; ``shared``: all with one thing that was opened."""
    crew = _Crew(len(clients))
    interrupted = False
    with ExitStack() as stack:
        mine = opens
        if shared:
            opened = stack.enter_context(opens())
            mine = lambda: nullcontext(opened)  # noqa: E731
        threads = [
            threading.Thread(
                target=_run, args=(crew, number, mine, client, rate, seed), daemon=True
            )
            for number, client in enumerate(clients)
        ]
        try:
            for thread in threads:
                thread.start()
            for _ in threads:
                crew.ready.acquire()
            on_start()
            crew.start = time.perf_counter()
            crew.go.set()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)  # so that Ctrl-C is heard
        except KeyboardInterrupt:
            interrupted = True
            crew.stop.set()
            crew.go.set()
            until = time.perf_counter() + _GRACE_SECONDS
            for thread in threads:
                thread.join(max(0.0, until - time.perf_counter()))
    # One that did not stop in time has no end.
    together = Measured(seconds=max(crew.start, *crew.ends) - crew.start, interrupted=interrupted)
    for one in crew.results:
        together.add(one)
    return together


def _run(
    crew: _Crew,
    number: int,
    opens: Callable[[], AbstractContextManager[Any]],
    client: Client,
    rate: float | None,
    seed: str,
) -> None:
    mine = crew.results[number]
    is_ready = False
    try:
        with opens() as opened:
            if client.warm_up is not None:
                warmed = Counts()
                for _ in client.warm_up(opened, warmed):
                    if crew.stop.is_set():
                        return
                mine.counts.facts += warmed.facts
            is_ready = True
            crew.ready.release()
            crew.go.wait()
            due = due_times(client, rate, Random(f"{seed}-{number}"))
            work = client.work(opened, mine.counts)
            for step in carried_out(work, crew.stop, due, crew.start):
                mine.take(step)
                crew.ends[number] = step.ended
    except Exception as error:
        mine.deaths.append(f"client {number}, after {mine.n} operations: {described(error)}")
    finally:
        if not is_ready:
            crew.ready.release()
        crew.ends[number] = max(crew.ends[number], crew.start)


def described(error: BaseException) -> str:
    """An error, and where it was raised."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
