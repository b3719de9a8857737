"""Threads of one process that append and commit on a store as slow as S3.

``python -m bench.group_commit``: commits a second, requests a commit, and commits in
each replacement of HEAD, for 1, 4 and 8 threads over one lake object.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from typing import Literal

import pyarrow as pa

import lakevilla as lv
from lakevilla.api.lake import Lake
from lakevilla.store.backends.object_store import open_store
from lakevilla.testing.world.latency import S3, LatencyStore

SECONDS = 10.0
_NUMBERS = itertools.count()


def lake_of(tables: int) -> Lake:
    """A new lake in memory, behind S3's latency."""
    settings = lv.Settings()
    root = f"memory://group{next(_NUMBERS)}"
    store = LatencyStore(open_store(root, None, settings=settings), S3)
    lake = Lake(root, store, settings=settings)
    for number in range(tables):
        lake.create_table(f"t{number}", pa.table({"id": range(100), "n": [0] * 100}))
    return lake


def measure(threads: int, tables: int, wait: Literal["published", "decided"] = "published") -> None:
    """Each thread appends 100 rows a transaction, to the table that is its own by turns."""
    lake = lake_of(tables)
    rows = pa.table({"id": range(100), "n": [0] * 100})
    latencies: list[float] = []
    retries: list[int] = []

    def append(number: int) -> None:
        started = time.perf_counter()
        with lake.transaction(wait=wait) as txn:
            txn.append(f"t{number % tables}", rows)
        latencies.append(time.perf_counter() - started)
        assert txn.result is not None
        retries.append(txn.result.retries)

    append(0)
    before = lake.context.held
    assert before is not None
    latencies.clear()
    until = time.perf_counter() + SECONDS

    def work(number: int) -> None:
        while time.perf_counter() < until:
            append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    started = time.perf_counter()
    with lake.runner.requests.counting() as made:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        lake.close()
    took = time.perf_counter() - started
    after = lake.context.held
    assert after is not None
    commits = len(latencies)
    replaced = after.head.replacement - before.head.replacement
    print(
        f"{threads} threads, {tables} tables, {wait}: {commits / took:5.1f} commits/s, "
        f"{1000 * statistics.median(latencies):4.0f} ms, {made.total / commits:4.1f} requests "
        f"a commit, {commits / replaced:4.2f} commits a replacement, {sum(retries)} lost races"
    )


if __name__ == "__main__":
    for count in (1, 4, 8):
        measure(count, 1)
    measure(8, 8)
    measure(8, 1, "decided")
