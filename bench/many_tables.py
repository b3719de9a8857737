"""What a commit costs on a lake of many tables, and how large its HEAD is.

``python -m bench.many_tables``: ten tables are real; HEAD lists the others with an id and a
version, as ``register`` would, and nothing in their directories is ever asked for. After 140
commits of two tables each: the size of HEAD and of its leaves, the requests of a
new client that opens a transaction, reads one table and commits to two, and of
one that has just committed there, with the median of nine such commits.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table

import lakevilla as lv
from bench.visible import PROFILES, place
from lakevilla.global_log.head import HEAD_KEY, Head, TableState, successor
from lakevilla.global_log.repo import HeldHead, load_head, load_tables, replace_head
from lakevilla.store.base import Found, Stored
from lakevilla.store.effects import get
from lakevilla.store.runner import Counts

ROWS = pa.table({"id": [1, 2], "n": [0, 0]})
REAL = 10
COMMITS = 140


@dataclass(frozen=True)
class Measured:
    """One lake."""

    tables: int
    head_bytes: int
    leaves: int
    largest_leaf: int
    opened: Counts
    first_read: Counts
    first_commit: Counts
    commit: Counts
    seconds: float


def location(number: int) -> str:
    """Where table ``number`` is: 2,000 to a directory, names of 29 characters."""
    return f"sales/region_{number // 2000:02}/orders_{number:06}"


def real_tables(count: int) -> list[str]:
    """Ten of them, spread over all names."""
    return [location(n * count // REAL) for n in range(REAL)]


def list_tables(lake: lv.Lake, count: int) -> HeldHead:
    """Make HEAD list ``count`` tables, those that it lists already among them."""
    held = lake.runner.run(load_head())
    assert held is not None
    head = held.head
    lake.runner.run(load_tables(head))
    tables = {
        location(n): TableState(f"{n:08x}-0000-4000-8000-000000000000", n % 97)
        for n in range(count)
        if location(n) not in head.tables
    }
    nonce, now = lake.context.ids.nonce(), lake.context.now_ms()
    new = successor(head, nonce=nonce, now_ms=now, tables=tables)
    outcome = lake.runner.run(replace_head(held, new))
    assert isinstance(outcome, Stored)
    return HeldHead(new, outcome.token)


def newest(lake: lv.Lake) -> Head:
    held = lake.runner.run(load_head())
    assert held is not None
    return held.head


def cost(lake: lv.Lake, work: Callable[[], object]) -> Counts:
    with lake.runner.requests.counting() as requests:
        work()
    return requests


def commit_two(lake: lv.Lake, tables: list[str]) -> None:
    with lake.transaction() as txn:
        for table in tables:
            txn.append(table, ROWS)


@contextmanager
def lake_of(
    count: int,
    root: str,
    commits: int = COMMITS,
    storage_options: dict[str, str] | None = None,
) -> Iterator[lv.Lake]:
    """A lake of that many tables, with a full HEAD."""
    with lv.connect(root, storage_options=storage_options) as lake:
        real = real_tables(count)
        for table in real:
            lake.create_table(table, ROWS)
        list_tables(lake, count)
        for number in range(commits):
            commit_two(lake, [real[number % REAL], real[(number + 3) % REAL]])
        yield lake


def size(lake: lv.Lake, key: str) -> int:
    found = lake.runner.run(get(key))
    assert isinstance(found, Found)
    return len(found.body)


def measure(count: int, profile: str, commits: int) -> Measured:
    with (
        place(profile) as (root, options),
        lake_of(count, root, commits, options) as lake,
    ):
        real = real_tables(count)
        pair = [real[2], real[7]]
        commit_two(lake, pair)
        warm = cost(lake, lambda: commit_two(lake, pair))
        seconds = []
        for _ in range(9):
            begun = time.perf_counter()
            commit_two(lake, pair)
            seconds.append(time.perf_counter() - begun)
        head = newest(lake)
        sizes = [size(lake, ref.key) for ref in head.tables.refs]
        with lv.connect(root, storage_options=options) as other:
            txn = other.transaction()
            opened = cost(other, txn.state_of_lake)
            first_read = cost(other, lambda: txn.read(real[5]))
            txn.abort()
            first_commit = cost(other, lambda: commit_two(other, pair))
        return Measured(
            count,
            size(lake, HEAD_KEY),
            len(sizes),
            max(sizes, default=0),
            opened,
            first_read,
            first_commit,
            warm,
            statistics.median(seconds),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, nargs="+", default=[10, 1000, 100_000])
    parser.add_argument("--profile", choices=PROFILES, default="local")
    parser.add_argument("--commits", type=int, default=COMMITS)
    chosen = parser.parse_args()
    table = Table(
        "tables", "HEAD", "leaves", "largest", "open", "first read", "first commit", "commit",
        "time", box=box.SIMPLE,
    )  # fmt: skip
    for count in chosen.tables:
        one = measure(count, chosen.profile, chosen.commits)
        table.add_row(
            f"{one.tables:,}",
            f"{one.head_bytes / 1024:.0f} KiB",
            str(one.leaves),
            f"{one.largest_leaf / 1024:.0f} KiB",
            *(
                f"{c.get} GET {c.put} PUT {c.list} LIST"
                for c in (one.opened, one.first_read, one.first_commit, one.commit)
            ),
            f"{one.seconds * 1000:.0f} ms",
        )
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
