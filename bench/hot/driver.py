"""Hot rows: clients that add one to a counter, all in one row, one file or one partition."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, cast

import pyarrow as pa

from bench.harness.benchmark import Benchmark, NotInstalled, Run
from bench.harness.clients import (
    CLIENT_PARAMETERS,
    Client,
    Counts,
    Measured,
    clients_need,
    manner,
    run_clients,
)
from bench.harness.clients.team import PROCESSES, THREADS
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, Value, WrongParameter, chosen, listed, numbers
from bench.hot import plots
from bench.hot.systems import DUCKLAKE, SYSTEMS, UPDATE, Once, System, system
from bench.ycsb_lh.workload import text

#: The same row for all; a row of its own for each in one file; the same in one partition of many.
WORK = ("row", "file", "partition")
#: Of a record beside its counter: so many texts of 100 bytes.
_TEXTS, _RECORD_BYTES = 10, 1100
#: The checks.
ONCE = "each update that was acknowledged is in its row, once, and none that was given up"
REST = "each record is there once, and nothing but the counters has changed"

#: What a client tells: an update of a row was begun, done or given up.
_Fact = tuple[str, int]
_PROCESSOR = "processor"


@dataclass(frozen=True, slots=True)
class Hot:
    """What is done, by how many clients, on how many records (of each partition)."""

    work: str
    clients: int
    records: int
    seconds: float
    partitions: int = 1

    def row_of(self, client: int) -> int:
        return 0 if self.work == "row" else client

    def rows(self, seed: str) -> pa.Table:
        """All records before the run."""
        random = Random(seed)
        count = self.records * self.partitions
        return pa.table(
            {
                "id": pa.array(range(count), pa.int64()),
                "part": pa.array([one // self.records for one in range(count)], pa.int32()),
                "n": pa.array([0] * count, pa.int64()),
                "rest": ["".join(text(random) for _ in range(_TEXTS)) for _ in range(count)],
            }
        )

    def where(self, client: int) -> str:
        partition = "part = 0 AND " if self.work == "partition" else ""
        return f"{partition}id = {self.row_of(client)}"


def measure(run: Run) -> None:
    """Each kind of work, for each number of clients, on all systems in turn."""
    for repeat in range(run.number("repeats")):
        for work in listed(run["work"]):
            for clients in numbers(run["clients"]):
                hot = _hot(run.result.parameters, work, clients)
                for name in listed(run["systems"]):
                    run.advance(f"{work}, {clients} clients, {name}, repeat {repeat + 1}")
                    _once(run, name, hot, f"{run.seed}-{repeat}-{work}-{clients}")


def _hot(parameters: Mapping[str, Value], work: str, clients: int) -> Hot:
    partitions = int(parameters["partitions"]) if work == "partition" else 1
    records, seconds = int(parameters["records"]), float(parameters["seconds"])
    return Hot(work, clients, records, seconds, partitions)


def needs(parameters: Mapping[str, Value]) -> Needs:
    """What it takes; and refuses what there is not."""
    chosen("systems", parameters["systems"], SYSTEMS)
    chosen("work", parameters["work"], WORK)
    clients, records = max(numbers(parameters["clients"])), int(parameters["records"])
    if clients > records:
        raise WrongParameter(f"records: {clients} clients can't have a row each of {records}")
    # Each file that was written stays until the run has ended: 20 a second of one table.
    files = 20 * int(float(parameters["seconds"]) + 1) + clients + int(parameters["partitions"])
    written = Needs(files * records * _RECORD_BYTES, why=f"{files} versions of {records} records")
    return written + clients_need(parameters, clients)


def _once(run: Run, name: str, hot: Hot, seed: str) -> None:
    how = manner(run.result.parameters, seed)
    if how.as_ != THREADS and name == DUCKLAKE:
        run.note(f"{name} was left out: its clients are threads of one connection, not {how.as_}")
        return
    root = run.places.root(name)
    try:
        made = system(name, root, run.places.options)
    except NotInstalled as error:
        run.note(f"{name} was left out: {error}")
        return
    started = 0.0

    def on_start() -> None:
        nonlocal started
        run.places.reset()
        started = time.process_time()

    try:
        start = hot.rows(seed)
        made.create(start, partitioned=hot.work == "partition")
        in_processes = how.as_ == PROCESSES
        clients = [
            Client(
                partial(_client, hot, number, in_processes),
                partial(_get_ready, made, hot, number, f"{seed}-{number}"),
            )
            for number in range(hot.clients)
        ]
        measured = run_clients(partial(_open, made), clients, how, on_start=on_start)
        here = time.process_time() - started
        requests = run.places.count()
        busy = _told(measured, _PROCESSOR) / 1e6 if in_processes else here
        params: dict[str, Value] = {"work": hot.work, "clients": hot.clients}
        figures = _figures(run, measured, requests, busy)
        run.add(SYSTEMS[name], params, measured, requests=requests, figures=figures)
        _check(run, measured, hot, start, made.contents())
    finally:
        made.close()
        run.places.discard(root)


@dataclass(frozen=True, slots=True)
class _Opened:
    """What a system has opened, and what each client that is ready does with it, by its number."""

    by_system: Any
    clients: dict[int, Once]


@contextmanager
def _open(made: System) -> Iterator[_Opened]:
    with made.open() as by_system:
        yield _Opened(by_system, {})


def _get_ready(
    made: System, hot: Hot, number: int, seed: str, opened: _Opened, counts: Counts
) -> Iterator[str]:
    opened.clients[number] = made.client(opened.by_system, hot.where(number), seed)
    yield from ()


def _client(
    hot: Hot, number: int, in_processes: bool, opened: _Opened, counts: Counts
) -> Iterator[str]:
    """Update one row again and again, until the time is over."""
    row, once = hot.row_of(number), opened.clients[number]
    until = time.perf_counter() + hot.seconds
    while True:
        began = time.process_time()
        counts.facts.append(("begun", row))
        yield UPDATE
        if once(counts):
            counts.facts.append(("done", row))
        else:
            counts.facts.append(("given up", row))
            counts.lost += 1
        if in_processes:  # threads share their process: its time is taken once, for all of them
            counts.facts.append((_PROCESSOR, round((time.process_time() - began) * 1e6)))
        if time.perf_counter() >= until:
            return


def _told(measured: Measured, what: str) -> int:
    facts = cast(list[_Fact], measured.counts.facts)
    return sum(value for kind, value in facts if kind == what)


def _figures(
    run: Run, measured: Measured, requests: Mapping[str, int], busy_seconds: float
) -> dict[str, float]:
    done = max(measured.n, 1)
    given_up = sum(kind == "given up" for kind, _ in cast(list[_Fact], measured.counts.facts))
    figures = {"processor_ms": 1000 * busy_seconds / done, "given_up": float(given_up)}
    if requests:
        moved = run.places.moved()
        figures["requests_each"] = sum(requests.values()) / done
        figures["put_kb_each"] = moved.get("written", 0) / 1000 / done
        figures["get_kb_each"] = moved.get("read", 0) / 1000 / done
    return figures


def _check(run: Run, measured: Measured, hot: Hot, start: pa.Table, found: pa.Table) -> None:
    """A client that died may have done what it had begun."""
    facts = Counter(cast(list[_Fact], measured.counts.facts))
    after: dict[int, int] = dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))

    def is_right(row: int) -> bool:
        most = facts["begun", row] - facts["given up", row]
        return facts["done", row] <= after.get(row, -1) <= most

    run.check(ONCE, all(is_right(row) for row in range(start.num_rows)))
    run.check(REST, _rest(start) == _rest(found))


def _rest(rows: pa.Table) -> list[tuple[object, ...]]:
    columns = [rows[name].to_pylist() for name in ("id", "part", "rest")]
    return sorted(zip(*columns, strict=True))


BENCHMARK = Benchmark(
    name="hot",
    summary="clients that all change one row, one small file or one partition",
    claim="none: the paper says that lakehouses are not made for work of this kind",
    deviations=(
        "each client begins an update when its last one has ended, for so many seconds, and ends "
        "the one it is at; DuckLake's catalog is a local file, which costs it no latency; an "
        "update that has lost too often (LakeVilla 50 times, deltalake 11, DuckLake 200) is given "
        "up, and counts as no operation; processor time is of all threads of the clients' processes"
    ),
    parameters=(
        Parameter("work", ",".join(WORK), "file", f"of {', '.join(WORK)}"),
        Parameter("clients", "1,8,32,128", "1,8", "how many at the same time"),
        Parameter(
            "systems",
            ",".join(SYSTEMS),
            "LakeVilla,not combined,deltalake",
            f"of {', '.join(SYSTEMS)}",
        ),
        Parameter("seconds", 10.0, 2.0, "in which a client begins updates", least=0),
        Parameter("partitions", 4, 4, "of the table, if clients share one of them", least=1),
        Parameter("records", 1000, 100, "of about 1 KB, in the file or in each partition", least=1),
        *CLIENT_PARAMETERS,
        Parameter("repeats", 5, 1, "of each", least=1),
    ),
    run=measure,
    plots={"clients": plots.over_clients},
    needs=needs,
    transactions=True,
)
