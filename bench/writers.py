"""Eight writers at once, on one table and on eight: LakeVilla beside deltalake.

``python -m bench.writers``: each system runs for some seconds, by turns, against one
S3 server on loopback behind a proxy with the latency of S3. Every writer appends 100
rows a transaction, as fast as it can, or updates a row of its own. Told are commits
a second, requests a commit, and what went wrong on the way: aborts that reached the
caller, redos and lost races.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from pathlib import Path

import deltalake
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table

import lakevilla as lv
from bench.harness import ministack
from bench.latency_proxy import LatencyProxy, latency_proxy

WRITERS = 8
ROWS = pa.table({"id": range(100), "n": [0] * 100})

#: One commit to a table; counts what it met.
Write = Callable[[int, Counter[str]], None]


@dataclass
class Measured:
    """One system on one shape, over all its runs."""

    system: str
    tables: int
    work: str
    commits_per_second: list[float] = field(default_factory=list)
    requests_per_commit: list[float] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)


def ours(lake: lv.Lake, tables: int, work: str) -> Write:
    def write(number: int, met: Counter[str]) -> None:
        table = f"t{number % tables}"
        try:
            with lake.transaction() as txn:
                if work == "append":
                    txn.append(table, ROWS)
                else:
                    txn.update(table, {"n": "n + 1"}, f"id = {number}")
        except lv.ConflictError:
            met["aborts"] += 1
            return
        met["commits"] += 1
        assert txn.result is not None
        met["retries"] += txn.result.retries

    return write


def theirs(root: str, options: dict[str, str], tables: int, work: str) -> Write:
    handles: dict[str, deltalake.DeltaTable] = {}

    def write(number: int, met: Counter[str]) -> None:
        table = f"t{number % tables}"
        if table not in handles:
            handles[table] = deltalake.DeltaTable(f"{root}/{table}", storage_options=options)
        handle = handles[table]
        try:
            if work == "append":
                deltalake.write_deltalake(handle, ROWS, mode="append")
            else:
                handle.update_incremental()
                handle.update(updates={"n": "n + 1"}, predicate=f"id = {number}")
        except deltalake.exceptions.CommitFailedError:
            met["aborts"] += 1
            return
        met["commits"] += 1

    return write


def run_threads(make: Callable[[], Write], seconds: float, shared: bool) -> Counter[str]:
    """Writers that are threads; with ``shared`` they share what they write with."""
    common = make() if shared else None
    barrier = threading.Barrier(WRITERS)
    counts: list[Counter[str]] = [Counter() for _ in range(WRITERS)]

    def work(number: int) -> None:
        write = common or make()
        write(number, Counter())  # warm
        barrier.wait()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            write(number, counts[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts, Counter())


def _process(
    number: int,
    system: str,
    root: str,
    options: dict[str, str],
    tables: int,
    work: str,
    seconds: float,
    go: multiprocessing.synchronize.Barrier,
    told: Queue[Counter[str]],
) -> None:
    write = writer(system, root, options, tables, work)
    write(number, Counter())
    go.wait()
    met: Counter[str] = Counter()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        write(number, met)
    told.put(met)


def writer(system: str, root: str, options: dict[str, str], tables: int, work: str) -> Write:
    if system == "deltalake":
        return theirs(root, options, tables, work)
    return ours(lv.connect(root, storage_options=options), tables, work)


def run_processes(
    system: str,
    root: str,
    options: dict[str, str],
    tables: int,
    work: str,
    seconds: float,
    proxy: LatencyProxy,
) -> tuple[Counter[str], int]:
    """Writers that are processes, as users of a lake usually are; and their requests."""
    context = multiprocessing.get_context("spawn")
    go, told = context.Barrier(WRITERS + 1), context.Queue()
    members = [
        context.Process(
            target=_process,
            args=(number, system, root, options, tables, work, seconds, go, told),
        )
        for number in range(WRITERS)
    ]
    for member in members:
        member.start()
    go.wait()
    proxy.reset()
    counts = sum((told.get() for _ in members), Counter())
    requests = sum(proxy.requests.values())
    for member in members:
        member.join()
    return counts, requests


def create(root: str, options: dict[str, str], tables: int, *, in_lake: bool) -> None:
    if in_lake:
        with lv.connect(root, storage_options=options) as lake, lake.transaction() as txn:
            for number in range(tables):
                txn.create_table(f"t{number}", ROWS)
        return
    for number in range(tables):
        deltalake.write_deltalake(f"{root}/t{number}", ROWS, storage_options=options)


def measure(
    system: str, place: str, proxy: LatencyProxy, tables: int, work: str, seconds: float
) -> tuple[Counter[str], int]:
    options = proxy.storage_options
    root = f"s3://lake/{place}"
    create(root, options, tables, in_lake=system != "deltalake")
    if system == "LakeVilla, threads":
        lake = lv.connect(root, storage_options=options)
        write = ours(lake, tables, work)
        run_threads(lambda: write, 0.5, shared=True)
        proxy.reset()
        counts = run_threads(lambda: write, seconds, shared=True)
        requests = sum(proxy.requests.values())
        lake.close()
        return counts, requests
    return run_processes(system, root, options, tables, work, seconds, proxy)


def main() -> None:
    """Run, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("bench/results/writers.json"))
    arguments = parser.parse_args()
    systems = ("LakeVilla, threads", "LakeVilla, processes", "deltalake")
    shapes = [(1, "append"), (8, "append"), (1, "update")]
    results = [Measured(system, *shape) for shape in shapes for system in systems]
    with ministack() as endpoint:
        for repeat in range(arguments.repeats):
            for number, one in enumerate(results):
                with latency_proxy(endpoint, "s3") as proxy:
                    met, requests = measure(
                        one.system,
                        f"r{repeat}-{number}",
                        proxy,
                        one.tables,
                        one.work,
                        arguments.seconds,
                    )
                one.met += met
                one.commits_per_second.append(met["commits"] / arguments.seconds)
                one.requests_per_commit.append(requests / max(met["commits"], 1))
    shown = Table("work", "tables", "system", "commits/s", "requests/commit", "met", box=box.SIMPLE)
    for one in results:
        low, high = min(one.commits_per_second), max(one.commits_per_second)
        shown.add_row(
            one.work,
            str(one.tables),
            one.system,
            f"{statistics.median(one.commits_per_second):.1f} ({low:.1f} to {high:.1f})",
            f"{statistics.median(one.requests_per_commit):.1f}",
            " ".join(f"{name} {count}" for name, count in sorted(one.met.items())),
        )
    Console().print(shown)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(
        json.dumps({"seconds": arguments.seconds, "results": [vars(one) for one in results]})
    )


if __name__ == "__main__":
    main()
