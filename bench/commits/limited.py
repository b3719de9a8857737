"""Processes that write to one table of a store that takes one write of an object a second.

Google Cloud Storage does so. The store is a server on loopback with this limit and with the XML API
of Google's, so that the clients use the library's own backend for it; it adds no latency.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product

from matplotlib.figure import Figure

import lakevilla as lv
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import CLIENT_PARAMETERS, Client, Counts, manner, run_clients
from bench.harness.clients.team import PROCESSES
from bench.harness.drawing import figure, legend, lines
from bench.harness.parameters import Parameter, Value, chosen, numbers
from bench.harness.results import Result

SYSTEM, TABLE, COMMITTED, FAILED = "LakeVilla", "rows", "committed", "failed"
WORK = ("append", "update")
HELD = "the table has each commit that was acknowledged, once"
NO_ERROR = "no transaction ends with an error"


@contextmanager
def serving(seconds_between_writes: float) -> Iterator[str]:
    """Run the server while the block lasts, and yield its endpoint."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "lakevilla_testing.gcs", str(port)]
    command += ["--seconds-between-writes", str(seconds_between_writes)]
    server = subprocess.Popen(command, start_new_session=True)
    endpoint = f"http://127.0.0.1:{port}"
    try:
        while not _answers(endpoint):
            if server.poll() is not None:
                raise RuntimeError(f"the server ended with status {server.returncode}: {command}")
            time.sleep(0.05)
        yield endpoint
    finally:
        server.terminate()
        server.wait()


def _answers(endpoint: str) -> bool:
    try:
        urllib.request.urlopen(f"{endpoint}/lake", timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Opens:
    """A lake on the server, opened in each process."""

    root: str
    endpoint: str

    def connect(self) -> lv.Lake:
        account = {
            "gcs_base_url": self.endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        options = {"google_service_account_key": json.dumps(account)}
        return lv.connect(self.root, storage_options=options)

    @contextmanager
    def __call__(self) -> Iterator[lv.Lake]:
        with self.connect() as lake:
            lake.read(TABLE)
            yield lake


@dataclass(frozen=True, slots=True)
class Writer:
    """One process: a transaction of one row after the other, for some seconds."""

    work: str
    number: int
    seconds: float

    def __call__(self, lake: lv.Lake, counts: Counts) -> Iterator[str]:
        until = time.perf_counter() + self.seconds
        while time.perf_counter() < until:
            yield COMMITTED
            try:
                lake.run(self._commits)
            except lv.LakeVillaError:
                counts.facts.append(FAILED)
            else:
                counts.facts.append(COMMITTED)

    def _commits(self, txn: lv.Transaction) -> None:
        if self.work == "append":
            txn.append(TABLE, [{"id": self.number, "n": 1}])
        else:
            txn.update(TABLE, {"n": "n + 1"}, where=f"id = {self.number}")


def measure(run: Run) -> None:
    """Each work, for each number of processes."""
    works = chosen("work", run["work"], WORK)
    every = product(range(run.number("repeats")), works, numbers(run["clients"]))
    with serving(float(run["seconds_between_writes"])) as endpoint:
        for repeat, work, clients in every:
            run.advance(f"{work}, {clients} processes, repeat {repeat + 1}")
            _once(run, Opens(f"gs://lake/{repeat}-{work}-{clients}", endpoint), work, clients)


def _once(run: Run, opens: Opens, work: str, clients: int) -> None:
    with opens.connect() as lake:
        lake.create_table(TABLE, [{"id": number, "n": 0} for number in range(clients)])
    crew = [Client(Writer(work, number, float(run["seconds"]))) for number in range(clients)]
    measured = run_clients(opens, crew, manner(run.result.parameters, f"{run.seed}"))
    facts = Counter(measured.counts.facts)
    with opens.connect() as lake:
        stored = sum(lake.read(TABLE)["n"].to_pylist())
    run.check(HELD, stored == facts[COMMITTED])
    run.check(NO_ERROR, not facts[FAILED])
    params: dict[str, Value] = {"work": work, "clients": clients}
    run.add(SYSTEM, params, measured, requests={}, figures={"errors": float(facts[FAILED])})


def throughput(result: Result) -> Figure:
    """Commits a second, by the number of processes."""
    made, (axes,) = figure(1, "processes on a store with one write of an object a second")
    counts = sorted({int(one.params["clients"]) for one in result.series})
    heights: dict[str, list[float]] = {}
    for one in result.series:
        rates = heights.setdefault(str(one.params["work"]), [float("nan")] * len(counts))
        rates[counts.index(int(one.params["clients"]))] = one.throughput_per_s
    lines(axes, counts, heights, "commits a second")
    axes.set_xlabel("processes")
    legend(made, axes)
    return made


BENCHMARK = Benchmark(
    name="limited",
    summary="processes that write to one table, on a store with one write of an object a second",
    claim="none: the project's own",
    deviations="a server on loopback with the XML API of Google Cloud Storage, and no latency",
    parameters=(
        Parameter("clients", "1,8", "1,2", "processes that write at the same time"),
        Parameter("work", "append,update", "append", f"of each: {', '.join(WORK)}"),
        Parameter("seconds_between_writes", 1.0, 1.0, "that the store takes", least=0.0),
        Parameter("seconds", 40.0, 2.0, "in which a process begins transactions", least=0.0),
        *(
            replace(one, whole=PROCESSES) if one.name == "clients_as" else one
            for one in CLIENT_PARAMETERS
        ),
        Parameter("repeats", 1, 1, "of each", least=1),
    ),
    run=measure,
    plots={"throughput": throughput},
    profile="local",
    transactions=True,
)
