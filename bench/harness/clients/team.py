"""All clients of a measurement, from their warm-up to the end of the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from bench.harness.clients.client import Client, Counts
from bench.harness.clients.measured import Measured
from bench.harness.clients.processes import run_processes
from bench.harness.clients.threads import run_threads
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, Value, check_known

#: What a client does that has opened nothing; see ``Client``.
Work = Callable[[Counts], Iterator[str]]

THREADS, LAKES, PROCESSES = "threads", "lakes", "processes"
_AS = (THREADS, LAKES, PROCESSES)
#: What a Python with the library, DuckDB and pyarrow takes.
_PROCESS_BYTES = 200 * 2**20

#: The parameters of every workload with clients.
CLIENT_PARAMETERS = (
    Parameter(
        "clients_as",
        THREADS,
        THREADS,
        "threads of one lake, lakes (one a thread of one process), or processes",
    ),
    Parameter(
        "rate",
        0.0,
        0.0,
        "operations a second of all clients together, however long they take (an open loop); "
        "0: a client begins one when its last is over (a closed loop)",
        least=0,
    ),
)


@dataclass(frozen=True, slots=True)
class Manner:
    """How clients run: ``as_`` threads, lakes or processes; ``rate`` 0 is a closed loop."""

    as_: str = THREADS
    rate: float = 0.0
    seed: str = ""


def manner(parameters: Mapping[str, Value], seed: str) -> Manner:
    """What ``CLIENT_PARAMETERS`` say."""
    as_ = str(parameters["clients_as"])
    check_known("clients_as", as_, _AS)
    return Manner(as_, float(parameters["rate"]), seed)


def clients_need(parameters: Mapping[str, Value], most: int) -> Needs:
    """What ``most`` clients at a time take."""
    if manner(parameters, "").as_ != PROCESSES:
        return Needs()
    return Needs(memory_bytes=most * _PROCESS_BYTES, why=f"{most} client processes")


def run_clients(
    opens: Callable[[], AbstractContextManager[Any]],
    clients: Sequence[Client],
    how: Manner,
    *,
    on_start: Callable[[], None] = lambda: None,
) -> Measured:
    """Run clients at the same time.

    Parameters
    ----------
    opens : callable
        Opens what clients work with, such as a lake: once for all threads, or once for each
        of the lakes or processes.
    on_start : callable
        Called when all are warm, before the first begins.

    A client that raises, or whose process ends, is dead: the others go on, and it is named in
    ``deaths``. After Ctrl-C what was measured is returned, marked as interrupted.
    """
    rate = how.rate / len(clients) if how.rate else None
    if how.as_ == PROCESSES:
        return run_processes(opens, clients, rate, how.seed, on_start)
    return run_threads(opens, clients, rate, how.seed, on_start, shared=how.as_ == THREADS)


def closed_loop(work: Sequence[Work]) -> Measured:
    """Run clients as threads, each beginning an operation when its last one is over."""

    def client(one: Work) -> Client:
        return Client(lambda opened, counts: one(counts))

    return run_clients(nullcontext, [client(one) for one in work], Manner())
