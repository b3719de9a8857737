"""What queues cost, and what they buy, on a store as slow as S3.

``python bench/queues.py``: a transaction that updates k tables with and without
Feature.CT, the time from one transaction's end to the commit of the one behind
it, clients that all read, compute and write one row, and a long transaction among short
ones. Requests are counted, not estimated.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

import lakevilla as lv
from lakevilla.api.lake import Lake
from lakevilla.errors import ConflictError
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.runner import Counts
from lakevilla.testing.world.latency import S3, LatencyStore

REPEATS = 15
_NUMBERS = itertools.count()
FEATURES = {
    "R|I": lv.Feature.R | lv.Feature.I,
    "R|CT": lv.Feature.R | lv.Feature.CT,
    "R|CT|I": lv.Feature.R | lv.Feature.CT | lv.Feature.I,
}


def lake_of(tables: int, settings: lv.Settings | None = None) -> Lake:
    """A new lake in memory, behind S3's latency."""
    settings = settings or lv.Settings()
    root = f"memory://bench{next(_NUMBERS)}"
    store = LatencyStore(open_store(root, None, settings=settings), S3)
    lake = Lake(root, store, settings=settings)
    for number in range(tables):
        lake.create_table(f"t{number}", pa.table({"id": range(100), "n": [0] * 100}))
    return lake


def update(lake: Lake, features: lv.Feature, tables: range, row: int = 0) -> None:
    with lake.transaction(features) as txn:
        for number in tables:
            txn.update(f"t{number}", {"n": "n + 1"}, f"id = {row}")


@contextmanager
def timed(times: list[float]) -> Iterator[None]:
    started = time.perf_counter()
    yield
    times.append(time.perf_counter() - started)


def cost(tables: int) -> None:
    """Uncontended: time and requests of each feature mix, taking turns."""
    lake = lake_of(tables)
    times: dict[str, list[float]] = {name: [] for name in FEATURES}
    counts: dict[str, Counts] = {}
    for turn in range(REPEATS + 1):
        for name, features in FEATURES.items():
            took: list[float] = []
            with lake.runner.requests.counting() as made, timed(took):
                update(lake, features, range(tables))
            if turn:  # the first one warms
                times[name] += took
                counts[name] = made
    for name, some in times.items():
        print(
            f"{tables} tables, {name:7}: {1000 * statistics.median(some):6.0f} ms "
            f"({1000 * min(some):.0f} to {1000 * max(some):.0f}), {counts[name]}"
        )


def hand_over() -> None:
    """From the end of one transaction to the commit of the one that waits for it."""
    delays = []
    for _ in range(REPEATS):
        lake = lake_of(1)
        first = lake.transaction(FEATURES["R|CT|I"])
        first.update("t0", {"n": "n + 1"}, "id = 0")
        waits, ended = threading.Event(), []
        other = Lake(lake.root, lake.runner.store, settings=lake.settings)
        other.context.notify = lambda event, waits=waits: (
            waits.set() if event.kind == "waiting" else None
        )

        def behind(other: Lake = other, ended: list[float] = ended) -> None:
            update(other, FEATURES["R|CT|I"], range(1), row=1)
            ended.append(time.perf_counter())

        thread = threading.Thread(target=behind)
        thread.start()
        waits.wait(30)
        first.commit()
        freed = time.perf_counter()
        thread.join()
        delays.append(ended[0] - freed)
    print(
        f"hand-over: {1000 * statistics.median(delays):.0f} ms "
        f"({1000 * min(delays):.0f} to {1000 * max(delays):.0f})"
    )


def same_row(members: list[tuple[lv.Feature, bool]], seconds: float = 20.0) -> None:
    """Clients that read one row, compute and write it: what each kind of them comes to.

    A member is its features, and whether it takes its turn before it reads.
    """
    lake = lake_of(1)
    told: dict[str, Counter[str]] = {}
    end = time.perf_counter() + seconds

    def client(features: lv.Feature, in_turn: bool) -> None:
        mine = Lake(lake.root, lake.runner.store, settings=lake.settings)
        counts = told.setdefault(f"{features}{' in turn' if in_turn else ''}", Counter())
        while time.perf_counter() < end:
            try:
                with mine.transaction(features) as txn:
                    if in_turn:
                        txn.take_turn("t0")
                    seen = txn.read("t0", where="id = 0")["n"][0].as_py()
                    txn.update("t0", {"n": seen + 1}, "id = 0")
                counts["commits"] += 1
            except ConflictError:
                counts["conflicts"] += 1

    threads = [threading.Thread(target=client, args=member) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = Counter(f"{features}{' in turn' if turn else ''}" for features, turn in members)
    for kind, counts in sorted(told.items()):
        print(f"one row, {kinds[kind]} of {len(members)} clients {kind}: {dict(counts)}")


def long_one(features: lv.Feature, short: lv.Feature, seconds: float = 20.0) -> None:
    """A transaction that takes its time on rows that short ones change as well."""
    lake = lake_of(2)
    stop = threading.Event()
    commits = [0]

    def storm() -> None:
        mine = Lake(lake.root, lake.runner.store, settings=lake.settings)
        while not stop.is_set():
            mine.run(lambda txn: txn.update("t0", {"n": "n + 1"}, "id = 0"), features=short)
            commits[0] += 1

    threads = [threading.Thread(target=storm) for _ in range(2)]
    for thread in threads:
        thread.start()
    attempts = [0]

    def work(txn: lv.Transaction) -> None:
        attempts[0] += 1
        seen = txn.read("t0", where="id = 0")["n"][0].as_py()
        time.sleep(1.0)
        txn.update("t1", {"n": seen}, "id = 0")
        txn.update("t0", {"n": seen + 1}, "id = 0")

    started = time.perf_counter()
    try:
        lake.run(work, features=features)
        told = f"committed after {time.perf_counter() - started:.1f} s"
    except ConflictError:
        told = f"gave up after {time.perf_counter() - started:.1f} s"
    stop.set()
    for thread in threads:
        thread.join()
    print(
        f"long {features}, short {short}: {told}, {attempts[0]} attempts; "
        f"{commits[0]} short commits meanwhile"
    )


def main() -> None:
    for tables in (1, 2, 8):
        cost(tables)
    hand_over()
    optimistic, queued = FEATURES["R|I"], FEATURES["R|CT|I"]
    same_row([(optimistic, False)] * 4)
    same_row([(queued, False)] * 4)
    same_row([(queued, True)] * 4)
    same_row([(queued, True)] * 2 + [(optimistic, False)] * 2)
    long_one(FEATURES["R|CT|I"], FEATURES["R|CT|I"])
    long_one(FEATURES["R|I"], FEATURES["R|I"])


if __name__ == "__main__":
    main()
