"""Systems that take turns at one operation: a busy moment of the machine hurts all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from bench.harness.benchmark import Run
from bench.harness.clients import Counts, closed_loop
from bench.harness.parameters import Value


def take_turns(
    run: Run,
    params: Mapping[str, Value],
    systems: Mapping[str, Callable[[], object]],
    *,
    repeats: int,
    warm_up: int = 1,
    settle: Callable[[], None] = lambda: None,
    counted: bool = True,
) -> None:
    """Carry out each system's operation once a turn, and add it to the run.

    ``settle`` waits for what an operation has left to the background: its requests are the
    operation's, its time is not. ``cpu_ms`` is what all threads of the process took of the
    processor, which says less of what else the machine did meanwhile. Where nothing is
    ``counted``, the systems do not work on the store of the run.
    """
    described = ", ".join(str(value) for value in params.values())
    for turn in range(-warm_up, repeats):
        for system, once in systems.items():
            run.advance(f"{described}: {system}, turn {turn + 1}")

            def client(counts: Counts, once: Callable[[], object] = once) -> Iterator[str]:
                yield described
                once()

            run.places.reset()
            before = time.process_time()
            measured = closed_loop([client])
            spent_ms = 1000 * (time.process_time() - before)
            settle()
            if turn >= 0 or measured.deaths:
                requests = run.places.count() if counted else None
                figures = {"cpu_ms": spent_ms}
                run.add(system, params, measured, requests=requests, figures=figures)
