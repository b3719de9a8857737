"""A lake that grows, in a process of its own, and the cost of steps on it at each size.

Each function returns ``[step, size, figures]`` for each step at each size. Figures are per step:
``cpu_ms`` is processor time with that of the background, ``requests`` are those of the store,
``read_kb`` and ``written_kb`` bodies, ``memory_mb`` what the process holds; ``cpu_ms_each`` is, of
steps that visit each table, the processor time for one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import pyarrow as pa

import lakevilla as lv
from bench.size.child import memory_bytes
from lakevilla.store.base import (
    Condition,
    Failure,
    Found,
    GetOutcome,
    Refused,
    Stored,
    Token,
    WrappedStore,
)

ROWS = pa.table({"id": [1], "n": [0]})
#: So many commits are measured at each size: ten intervals of checkpoints.
BLOCK = 100
#: The most tables of one transaction.
MANY = 500

Step = tuple[str, int, dict[str, float]]


class Scale(WrappedStore):
    """A store that weighs what is read and written."""

    read = written = 0

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        outcome = super().get(key, known, byte_range)
        self.read += len(outcome.body) if isinstance(outcome, Found) else 0
        return outcome

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        self.written += len(body)
        return super().put(key, body, condition)

    def put_file(self, key: str, path: str) -> Stored | Failure:
        self.written += Path(path).stat().st_size
        return super().put_file(key, path)


@contextmanager
def connected(root: str, options: str, settings: lv.Settings | None = None) -> Iterator[lv.Lake]:
    """Open a lake by storage options in JSON."""
    with lv.connect(root, storage_options=json.loads(options) or None, settings=settings) as lake:
        yield lake


def cost(lake: lv.Lake, work: Callable[[], object], times: int = 1) -> dict[str, float]:
    """Return the figures of one call of ``work``, a mean of ``times``, background included."""
    lake.close()  # what earlier work left to the background is done; the lake goes on to work
    runner = lake._client.runner
    scale = runner.store = Scale(runner.store)
    began, began_cpu = time.perf_counter(), time.process_time()
    try:
        with runner.requests.counting() as requests:
            for _ in range(times):
                work()
            seconds = time.perf_counter() - began
            lake.close()
    finally:
        runner.store = scale.inner
    return {
        "ms": 1000 * seconds / times,
        "cpu_ms": 1000 * (time.process_time() - began_cpu) / times,
        "requests": requests.total / times,
        "lists": requests.list / times,
        "gets": requests.get / times,
        "read_kb": scale.read / 1000 / times,
        "written_kb": scale.written / 1000 / times,
        "memory_mb": memory_bytes() / 1e6,
    }


def cost_of_each(tables: int, figures: dict[str, float]) -> dict[str, float]:
    """Return the figures of a step that visits each table, with the processor time for one."""
    return {**figures, "cpu_ms_each": figures["cpu_ms"] / tables}


def cold(root: str, options: str, work: Callable[[lv.Lake], object]) -> dict[str, float]:
    """Return the figures of ``work`` by a client that has read nothing yet."""
    with connected(root, options) as lake:
        return cost(lake, lambda: work(lake))


def best(lake: lv.Lake, work: Callable[[], object]) -> dict[str, float]:
    """Return the figures of the call of ``work``, of five, that took the least processor time.

    Before each of them the process forgets the objects that it has read.
    """
    return min((cost(lake, work) for _ in range(5)), key=lambda figures: figures["cpu_ms"])


def again(lake: lv.Lake, work: Callable[[], object]) -> dict[str, float]:
    """Return the figures of ``work`` right after it, while the process still has what it read."""
    lake.close()
    work()
    began = time.process_time()
    for _ in range(10):
        work()
    return {"cpu_ms": 100 * (time.process_time() - began)}


def appended(lake: lv.Lake, features: lv.Feature | None = None) -> None:
    """Append one row."""
    if features is None:
        lake.run(lambda txn: txn.append("t", ROWS))
    else:
        lake.run(lambda txn: txn.append("t", ROWS), features=features)


def commits(
    root: str, options: str, format: Literal["delta", "iceberg"], sizes: Sequence[int]
) -> list[Step]:
    """Commit to one table; ``sizes`` are its numbers of commits."""
    found: list[Step] = []
    with connected(root, options) as lake:
        lake.create_table("t", ROWS, format=format)
        made = 1
        for size in sizes:
            block = min(BLOCK, size // 2)
            for _ in range(size - block - made):
                appended(lake)
            found.append(("append", size, cost(lake, lambda: appended(lake), block)))
            made = size
            found += [
                ("open the table, cold", size, cold(root, options, _version)),
                ("read an old version, cold", size, cold(root, options, _old_version(size // 2))),
                (
                    "snapshot of an old global version, cold",
                    size,
                    cold(root, options, _old_snapshot(size // 2)),
                ),
                (
                    "open the tables of an old global version, cold",
                    size,
                    cold(root, options, _old_versions(size // 2)),
                ),
                ("history of the table, cold", size, cold(root, options, _history)),
            ]
            # As on a lake whose transactions of the day before were collected.
            with connected(root, options, lv.Settings(max_age_seconds=0)) as collector:
                collector.gc()
            found.append(("gc of old files", size, cold(root, options, lv.Lake.gc)))
    return found


def _version(lake: lv.Lake) -> object:
    return lake.table("t").version


def _history(lake: lv.Lake) -> object:
    return lake.table("t").history(20)


def _old_version(version: int) -> Callable[[lv.Lake], object]:
    return lambda lake: lake.table("t").read(version=version).num_rows


def _old_snapshot(version: int) -> Callable[[lv.Lake], object]:
    return lambda lake: lake.snapshot(version=version).read("t").num_rows


def _old_versions(version: int) -> Callable[[lv.Lake], object]:
    return lambda lake: lake.snapshot(version=version).versions


def log_entries(root: str, options: str, sizes: Sequence[int]) -> list[Step]:
    """Commit to one table by log entry, which does not move HEAD."""
    found: list[Step] = []
    with connected(root, options) as lake:
        lake.create_table("t", ROWS)
        made = 1
        for size in sizes:
            for _ in range(size - made):
                appended(lake, lv.Feature.NONE)
            made = size
            lake.close()
            found.append(("open the table, cold", size, cold(root, options, _version)))
    return found


def tables(root: str, options: str, sizes: Sequence[int]) -> list[Step]:
    """Create tables; ``sizes`` are their numbers."""
    found: list[Step] = []
    made = 0
    with connected(root, options) as lake:
        lake.create_table("t", ROWS)
        for size in sizes:
            block = min(20, size // 2)
            names = iter(range(made, size))

            def create(names: Iterator[int] = names) -> None:
                number = next(names)
                lake.create_table(f"ns{number // 1000}/t{number}", ROWS)

            for _ in range(size - made - block):
                create()
            found.append(("create a table", size, cost(lake, create, block)))
            made = size
            found.append(("append", size, cost(lake, lambda: appended(lake), 20)))
            found.append(("gc", size, cost_of_each(size, cost(lake, lake.gc))))
            _append_to_many(lake, size)
            together = cost_of_each(size, cold(root, options, lv.Lake.gc))
            found.append(("gc after a commit to many tables, cold", size, together))
            lake.maintain()
            # As on a lake whose transactions of the day before were collected: else maintain reads
            # the commits of all the tables that were just created.
            with connected(root, options, lv.Settings(max_age_seconds=0)) as collector:
                collector.gc()
            appended(lake)
            found.append(("maintain after one commit", size, cost(lake, lake.maintain)))
            examined = cold(root, options, lv.Lake.doctor)
            found.append(("doctor, cold", size, cost_of_each(size, examined)))
    return found


def _append_to_many(lake: lv.Lake, size: int) -> None:
    """Append to up to 500 tables in one transaction."""
    with lake.transaction() as txn:
        for number in range(1, min(size, MANY)):
            txn.append(f"ns{number // 1000}/t{number}", ROWS)


def refs(root: str, options: str, sizes: Sequence[int]) -> list[Step]:
    """Make tags and branches, one as many as the other; ``sizes`` are their numbers."""
    found: list[Step] = []
    made = 0
    with connected(root, options) as lake:
        lake.create_table("t", ROWS)
        for size in sizes:
            for number in range(made, size):
                if number % 10 == 0:
                    appended(lake)
                (lake.tag if number % 2 else lake.branch)(f"ref-{number:05}")
            made = size
            lake.branch("work")
            appended(lake.on("work"))
            found += [
                ("vacuum", size, best(lake, lambda: lake.table("t").vacuum())),
                ("vacuum again", size, again(lake, lambda: lake.table("t").vacuum())),
                ("vacuum, cold", size, cold(root, options, lambda one: one.table("t").vacuum())),
                ("doctor", size, best(lake, lake.doctor)),
                ("refs, cold", size, cold(root, options, lv.Lake.refs)),
                ("merge of a branch", size, cost(lake, lambda: lake.merge("work", delete=True))),
            ]
    return found


def statements(root: str, options: str, sizes: Sequence[int]) -> list[Step]:
    """Append and select in one transaction; ``sizes`` are its numbers of such pairs."""
    found: list[Step] = []
    with connected(root, options) as lake:
        lake.create_table("t", ROWS)
        with lake.transaction() as txn:
            made = 0

            def pair() -> None:
                txn.append("t", ROWS)
                txn.sql("SELECT count(*) FROM t")

            for size in sizes:
                block = min(10, size // 2)
                for _ in range(size - made - block):
                    pair()
                began = time.process_time()
                for _ in range(block):
                    pair()
                spent = 1000 * (time.process_time() - began) / block
                found.append(("append and select", size, {"cpu_ms": spent}))
                made = size
    return found


def branch(root: str, options: str, sizes: Sequence[int]) -> list[Step]:
    """Commit to one branch; ``sizes`` are its numbers of commits."""
    found: list[Step] = []
    with connected(root, options) as lake:
        lake.create_table("t", ROWS)
        lake.branch("work")
        work = lake.on("work")
        made = 0
        for size in sizes:
            block = min(BLOCK, size // 2)
            for _ in range(size - block - made):
                appended(work)
            found.append(("append on the branch", size, cost(work, lambda: appended(work), block)))
            made = size
            found.append(("doctor", size, cost(lake, lake.doctor)))
            found.append(("gc", size, cost(lake, lake.gc)))
    return found


def keys(root: str, options: str, sizes: Sequence[int]) -> list[Step]:
    """Commit under idempotency keys; ``sizes`` are their numbers."""
    found: list[Step] = []
    with connected(root, options) as lake:
        lake.create_table("t", ROWS)
        made = 0

        def used(lake: lv.Lake, key: str) -> None:
            lake.run(lambda txn: txn.append("t", ROWS), idempotency_key=key)

        for size in sizes:
            for number in range(made, size):
                used(lake, str(number))
            made = size
            found += [
                (
                    "repeat the first key, cold",
                    size,
                    cold(root, options, lambda one: used(one, "0")),
                ),
                ("gc", size, cost(lake, lake.gc)),
            ]
    return found


def behind(
    root: str, options: str, format: Literal["delta", "iceberg"], sizes: Sequence[int]
) -> list[Step]:
    """Fall behind other clients; ``sizes`` are their numbers of commits meanwhile."""
    found: list[Step] = []
    with connected(root, options) as others, connected(root, options) as lake:
        others.create_table("t", ROWS, format=format)
        for size in sizes:
            for step, work in (
                ("find the newest version", lambda: _version(lake)),
                ("append", lambda: appended(lake)),
            ):
                _version(lake)
                for _ in range(size):
                    appended(others)
                found.append((step, size, cost(lake, work)))
    return found


def queue(root: str, options: str, sizes: Sequence[int]) -> list[Step]:
    """Update one row in as many threads as ``sizes`` say, each in a transaction with a place."""
    found: list[Step] = []
    queued = lv.Feature.R | lv.Feature.CT | lv.Feature.I
    with connected(root, options) as lake:
        lake.create_table("t", ROWS)

        def update() -> None:
            lake.run(lambda txn: txn.update("t", {"n": "n + 1"}, where="id = 1"), features=queued)

        for size in sizes:

            def all_at_once(size: int = size) -> None:
                threads = [Thread(target=update) for _ in range(size)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

            figures = cost(lake, all_at_once)
            each = {name: value / size for name, value in figures.items() if name != "memory_mb"}
            found.append(("update in turn", size, {**each, "memory_mb": figures["memory_mb"]}))
    return found


KINDS: dict[str, Callable[..., list[Step]]] = {
    "behind": behind,
    "branch": branch,
    "keys": keys,
    "queue": queue,
    "commits": commits,
    "log_entries": log_entries,
    "tables": tables,
    "refs": refs,
    "statements": statements,
}


def grow(kind: str, root: str, options: str, sizes: str) -> dict[str, Any]:
    """Grow a lake through ``sizes``, and return its steps; for a process of its own."""
    name, _, format = kind.partition(":")
    numbers = [int(size) for size in sizes.split(",")]
    arguments = [root, options, *([format] if format else []), numbers]
    return {"steps": KINDS[name](*arguments)}
