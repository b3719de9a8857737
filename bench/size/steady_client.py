"""A client of a lake that commits for long: one process of ``bench.size.steady``."""

from __future__ import annotations

import gc
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from random import Random
from typing import Any, Literal

import pyarrow as pa

import lakevilla as lv
from bench.harness.clients.threads import described
from bench.size.child import memory_bytes
from lakevilla.formats.iceberg import table_format
from lakevilla.lake import context

#: The tables, and the formats that they have.
TABLES: dict[str, Literal["delta", "iceberg"]] = {
    "orders": "delta",
    "stock": "delta",
    "visits": "iceberg",
    "carts": "iceberg",
}
SCHEMA = pa.schema([("period", pa.int64()), ("client", pa.int64()), ("n", pa.int64())])
#: Log entries are deleted once they are older than this, and a checkpoint has them.
PROPERTIES: dict[str, dict[str, str | bool | int]] = {
    "delta": {
        "delta.logRetentionDuration": "interval 0 seconds",
        "delta.deletedFileRetentionDuration": "interval 0 seconds",
    },
    "iceberg": {
        "write.metadata.delete-after-commit.enabled": True,
        "write.metadata.previous-versions-max": 10,
    },
}
#: Of a hundred commits so many update rows, and so many append to two tables; the rest append.
UPDATES, OF_TWO_TABLES = 15, 15


@dataclass
class Period:
    """What one client has done in a period.

    Attributes
    ----------
    appended : dict
        The rows that it has appended, by table.
    upkeep : int
        The requests of upkeep; those of commits are ``requests``.
    """

    commits: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    requests: int = 0
    upkeep: int = 0
    memory: int = 0
    appended: dict[str, int] = field(default_factory=dict)
    death: str = ""


def settings(retention_seconds: float) -> lv.Settings:
    """Return settings with which ``gc`` deletes what is older than the retention."""
    return lv.Settings(
        max_age_seconds=retention_seconds,
        outcome_retention_seconds=retention_seconds,
        cache_bytes=4 << 20,
    )


def serve(
    pipe: Connection,
    root: str,
    options: dict[str, str],
    number: int,
    maintain_seconds: float,
    retention_seconds: float,
    seed: int,
) -> None:
    """Commit as the parent says, and tell it after each period what was done."""
    rng = Random(f"{seed}-{number}")
    _use_small_caches()
    try:
        with lv.connect(
            root, storage_options=options or None, settings=settings(retention_seconds)
        ) as lake:
            client = _Client(lake, number, rng, maintain_seconds)
            while (asked := pipe.recv()) is not None:
                pipe.send(client.period(*asked))
    except EOFError:
        pass  # the parent has ended
    except Exception as error:
        pipe.send(Period(death=described(error)))


def _use_small_caches() -> None:
    """Make the caches of this process so small that they are full after the warm-up."""
    context._HELD_BYTES = 1 << 20
    table_format._MANIFEST_BYTES = 4 << 20


class _Client:
    def __init__(self, lake: lv.Lake, number: int, rng: Random, maintain_seconds: float) -> None:
        self._lake, self._number, self._rng = lake, number, rng
        # One process does the upkeep.
        self._maintain_seconds = maintain_seconds if number == 0 else float("inf")
        self._maintained = time.monotonic()

    def period(self, period: int, commits: int) -> Period:
        """Commit so many times, with upkeep in between."""
        done = Period()
        counter = self._lake._client.runner.requests
        appended: Counter[str] = Counter()
        before, began, began_cpu = counter.snapshot(), time.monotonic(), time.process_time()
        for _ in range(commits):
            if time.monotonic() - self._maintained >= self._maintain_seconds:
                with counter.counting() as made:
                    self._lake.maintain()
                done.upkeep += made.total
                self._maintained = time.monotonic()
            appended.update(self._commit(period))
            done.commits += 1
        done.seconds = time.monotonic() - began
        done.cpu_seconds = time.process_time() - began_cpu
        self._lake.close()  # what it has left to the background is done; the lake goes on
        done.requests = counter.snapshot().minus(before).total - done.upkeep
        done.appended = dict(appended)
        gc.collect()
        done.memory = memory_bytes()
        return done

    def _commit(self, period: int) -> list[str]:
        """Return the tables to which a row was appended."""
        draw = self._rng.randrange(100)
        row = pa.table([[period], [self._number], [self._rng.randrange(1000)]], schema=SCHEMA)
        first, second = self._rng.sample(sorted(TABLES), 2)
        if draw < UPDATES:
            where = f"client = {self._number} AND n < 100"
            self._lake.run(lambda txn: txn.update(first, {"n": "n + 1"}, where=where))
            return []
        tables = [first, second] if draw < UPDATES + OF_TWO_TABLES else [first]

        def append(txn: lv.Transaction[Any]) -> None:
            for table in tables:
                txn.append(table, row)

        self._lake.run(append)
        return tables
