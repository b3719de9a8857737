"""How long until a reader that knows the format alone sees a commit.

``python -m bench.visible``: one transaction over k tables, on an S3 server on loopback behind
a proxy with the latency of S3 (or S3 Express, or none), through which all go. deltalake polls
the tables as fast as it can. Times are from the call of ``commit()``, medians.

decided: HEAD holds it, readers with LakeVilla see it. published: the last table's log has it.
seen: deltalake has read the last of the versions. ahead: how long one table was ahead of another.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import deltalake
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table

import lakevilla as lv
from bench.harness import ministack
from bench.latency_proxy import latency_proxy
from lakevilla.store.base import Condition, Failure, GetOutcome, Refused, Store, Stored, Token

ROWS = pa.table({"id": list(range(100)), "n": [0] * 100})
PROFILES = ("local", "zero", "express", "s3")


class TimedStore:
    """Notes when requests on HEAD and on log entries were sent and answered."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.decided = 0.0
        self.validated = 0.0
        self.sent: dict[str, float] = {}
        self.entered: dict[str, float] = {}
        self.refused = 0

    def reset(self) -> None:
        """Forget the last commit's times; ``refused`` goes on counting."""
        self.decided = self.validated = 0.0
        self.sent, self.entered = {}, {}

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        entry = "/_delta_log/" in key and key.endswith(".json")
        if entry:
            self.sent[key.split("/_delta_log/")[0]] = time.perf_counter()
        outcome = self._inner.put(key, body, condition)
        now = time.perf_counter()
        if entry and isinstance(outcome, Stored):
            self.entered[key.split("/_delta_log/")[0]] = now
        elif entry and isinstance(outcome, Refused):
            self.refused += 1
        elif key.endswith("_lakevilla/HEAD.json") and isinstance(outcome, Stored):
            self.decided = now
        return outcome

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        if "/_delta_log/" in key and not self.decided:
            # The last look at a log before the decision: what comes after it is not validated.
            self.validated = time.perf_counter()
        return self._inner.get(key, known, byte_range)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


class Watcher:
    """A deltalake reader that does nothing but look for a table's next version."""

    def __init__(self, uri: str, options: dict[str, str]) -> None:
        self._table = deltalake.DeltaTable(uri, storage_options=options or None)
        self._seen: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.is_set():
            self._table.update_incremental()
            self._seen.setdefault(self._table.version(), time.perf_counter())
            self._stop.wait(0.001)  # lets others have the interpreter

    def saw(self, version: int) -> float:
        """When it had read that version; waits for it."""
        while True:
            found = [at for seen, at in list(self._seen.items()) if seen >= version]
            if found:
                return min(found)
            time.sleep(0.001)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def place(profile: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A root and options that reach it: a directory, or a server behind its latency."""
    if profile == "local":
        with tempfile.TemporaryDirectory(prefix="lakevilla-bench-") as name:
            yield str(Path(name) / "lake"), {}
        return
    with ministack() as endpoint, latency_proxy(endpoint, profile) as proxy:
        yield "s3://lake/ours", proxy.storage_options


def timed(lake: lv.Lake) -> TimedStore:
    """Time the lake's requests from here on."""
    store = TimedStore(lake.runner.store)
    lake.runner.store = store  # type: ignore[assignment]
    return store


def update(txn: lv.Transaction, tables: list[str]) -> None:
    """Change a row in each table."""
    for table in tables:
        txn.update(table, {"n": "n + 1"}, where="id = 1")


def measure(profile: str, count: int, repeats: int) -> dict[str, list[float]]:
    """Milliseconds by what was measured, a list of repeats each."""
    tables = [f"t{number}" for number in range(count)]
    found: dict[str, list[float]] = defaultdict(list)
    with place(profile) as (root, options), lv.connect(root, storage_options=options) as lake:
        with lake.transaction() as txn:
            for table in tables:
                txn.create_table(table, ROWS)
        store = timed(lake)
        watched = dict.fromkeys((tables[0], tables[-1]))
        watchers = {table: Watcher(f"{root}/{table}", options) for table in watched}
        try:
            for turn in range(repeats + 1):
                txn = lake.transaction()
                update(txn, tables)
                store.reset()
                began = time.perf_counter()
                result = txn.commit()
                returned = time.perf_counter()
                assert result.versions is not None
                seen = [watchers[t].saw(result.versions[t] or 0) for t in watchers]
                if turn == 0:
                    continue  # the first one warms
                entered = list(store.entered.values())
                moments: dict[str, float] = {
                    "decided": store.decided - began,
                    "published": max(entered) - began,
                    "returned": returned - began,
                    "seen": max(seen) - began,
                    "ahead": max(entered) - min(entered),
                    "window": max(store.sent.values()) - store.validated,
                    "decided-published": max(entered) - store.decided,
                }
                for name, seconds in moments.items():
                    found[name].append(1000 * seconds)
        finally:
            for watcher in watchers.values():
                watcher.close()
    return found


def peer(profile: str, repeats: int) -> list[float]:
    """The same for an update by deltalake of one table: from call to seen, milliseconds."""
    found = []
    with place(profile) as (root, options):
        uri = f"{root}/t0"
        deltalake.write_deltalake(uri, ROWS, storage_options=options or None)
        table = deltalake.DeltaTable(uri, storage_options=options or None)
        watcher = Watcher(uri, options)
        try:
            for turn in range(repeats + 1):
                began = time.perf_counter()
                table.update(updates={"n": "n + 1"}, predicate="id = 1")
                seen = watcher.saw(table.version())
                if turn:
                    found.append(1000 * (seen - began))
        finally:
            watcher.close()
    return found


def show(rows: list[list[str]], *columns: str) -> None:
    """Print a table."""
    table = Table(*columns, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    Console(width=140).print(table)


def spread(times: list[float]) -> str:
    """Median, and how far it went."""
    return f"{statistics.median(times):.0f} ms ({min(times):.0f} to {max(times):.0f})"


def arguments(describe: str | None, extra: Callable[[argparse.ArgumentParser], None]) -> object:
    """What this script and ``bench.window`` are told."""
    parser = argparse.ArgumentParser(
        description=describe, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profiles", nargs="+", choices=PROFILES, default=list(PROFILES))
    parser.add_argument("--repeats", type=int, default=15)
    extra(parser)
    return parser.parse_args()


def main() -> None:
    """Measure all that was asked for."""
    options = arguments(__doc__, lambda parser: None)
    assert isinstance(options, argparse.Namespace)
    names = ("decided", "published", "returned", "seen", "ahead")
    rows = []
    for profile in options.profiles:
        for count in (1, 2, 8):
            found = measure(profile, count, options.repeats)
            rows.append([profile, str(count), *(spread(found[name]) for name in names)])
        theirs = spread(peer(profile, options.repeats))
        rows.append([profile, "1, by deltalake", "", "", "", theirs, ""])
    show(rows, "profile", "tables", *names)


if __name__ == "__main__":
    main()
