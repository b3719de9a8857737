"""Clients that do their work at the same time: how they run, when they begin, what is measured.

A client is a generator; the same one runs as a thread or as a process, in a closed or an open
loop. It may import no benchmark.
"""

from bench.harness.clients.client import Client, Counts, shares
from bench.harness.clients.measured import Measured
from bench.harness.clients.pace import COMMIT
from bench.harness.clients.team import (
    CLIENT_PARAMETERS,
    Manner,
    Work,
    clients_need,
    closed_loop,
    manner,
    run_clients,
)

__all__ = [
    "CLIENT_PARAMETERS",
    "COMMIT",
    "Client",
    "Counts",
    "Manner",
    "Measured",
    "Work",
    "clients_need",
    "closed_loop",
    "manner",
    "run_clients",
    "shares",
]
