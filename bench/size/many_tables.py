"""What a commit costs on a lake of many tables, and how large its HEAD is.

Ten tables are real; HEAD lists the others with an id and a version, as ``register`` would, and
nothing in their directories is ever asked for. After so many commits of two tables each: the size
of HEAD and of its leaves, the requests of a new client that opens a transaction, reads one table
and commits to two, those of one that has just committed there, and of one that tags all tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial

import pyarrow as pa

import lakevilla as lv
from bench.commits.rows import rows_in
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Counts, Measured, closed_loop
from bench.harness.drawing import medians
from bench.harness.parameters import Parameter, Value, numbers
from lakevilla.global_log.head import HEAD_KEY, Head, TableState, successor
from lakevilla.global_log.repo import HeldHead, load_head, load_tables, replace_head
from lakevilla.store.base import Found, Stored
from lakevilla.store.effects import get
from lakevilla.store.runner import Requests

ROWS = pa.table({"id": [1, 2], "n": [0, 0]})
REAL = 10
COMMITS = 140
#: What a step is called in a result.
OPEN, FIRST_READ = "open a transaction", "then read a table, cold"
FIRST_COMMIT, COMMIT = "first commit to 2 tables", "commit to 2 tables"
TAG, BRANCH = "tag the lake", "branch the lake"
ON_BRANCH, MERGE = "commit to 2 tables on a branch", "merge 2 tables"


def location(number: int) -> str:
    """Where table ``number`` is: 2,000 to a directory, names of 29 characters."""
    return f"sales/region_{number // 2000:02}/orders_{number:06}"


def real_tables(count: int) -> list[str]:
    """Ten of them, spread over all names."""
    return [location(n * count // REAL) for n in range(REAL)]


def list_tables(lake: lv.Lake, count: int) -> HeldHead:
    """Make HEAD list ``count`` tables, those that it lists already among them."""
    held = lake._client.runner.run(load_head())
    assert held is not None
    head = held.head
    lake._client.runner.run(load_tables(head))
    tables = {
        location(n): TableState(f"{n:08x}-0000-4000-8000-000000000000", n % 97)
        for n in range(count)
        if location(n) not in head.tables
    }
    nonce, now = lake._client.context.ids.nonce(), lake._client.context.now_ms()
    new = successor(head, nonce=nonce, now_ms=now, tables=tables)
    outcome = lake._client.runner.run(replace_head(held, new))
    assert isinstance(outcome, Stored)
    return HeldHead(new, outcome.token)


def newest(lake: lv.Lake) -> Head:
    held = lake._client.runner.run(load_head())
    assert held is not None
    return held.head


def cost(lake: lv.Lake, work: Callable[[], object]) -> Requests:
    with lake._client.runner.requests.counting() as requests:
        work()
    return requests


def commit_two(lake: lv.Lake, tables: Sequence[str]) -> None:
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
    found = lake._client.runner.run(get(key))
    assert isinstance(found, Found)
    return len(found.body)


def measure(run: Run) -> None:
    """Each number of tables in a lake of its own."""
    for count in numbers(run["tables"]):
        run.advance(f"{count:,} tables: {run['commits']} commits fill HEAD")
        root, options = run.places.root("many"), run.places.options
        with lake_of(count, root, run.number("commits"), options) as lake:
            real = real_tables(count)
            pair = [real[2], real[7]]
            commit_two(lake, pair)
            head = newest(lake)
            sizes = [size(lake, ref.key) / 1024 for ref in head.tables.refs]
            figures = {
                "head_kib": size(lake, HEAD_KEY) / 1024,
                "leaves": len(sizes),
                "largest_leaf_kib": max(sizes, default=0.0),
            }
            for repeat in range(run.number("repeats")):
                run.advance(f"{count:,} tables, commit {repeat + 1}")
                _step(run, count, COMMIT, lake, partial(commit_two, lake, pair), figures)
            for repeat in range(run.number("repeats")):
                run.advance(f"{count:,} tables, new client {repeat + 1}")
                _new_client(run, count, root, real[5], pair)
            lake.tag("first", absorb=[])  # which gives HEAD its format
            for repeat in range(run.number("repeats")):
                run.advance(f"{count:,} tables, tag {repeat + 1}")
                # The logs of most tables are not there: none is looked at.
                _step(run, count, TAG, lake, partial(lake.tag, f"tag-{repeat}", absorb=[]))
            for repeat in range(run.number("repeats")):
                run.advance(f"{count:,} tables, branch {repeat + 1}")
                _branch(run, count, lake, f"branch-{repeat}", pair)
            commits = 2 * (1 + run.number("commits") + 3 * run.number("repeats"))
            rows = sum(rows_in(f"{root}/{table}", options) for table in real)
            run.check(
                "the logs of the real tables have every row that was committed",
                rows == len(ROWS) * (REAL + commits),
            )
        head_kib = run.result.find("LakeVilla", tables=count, step=COMMIT)
        if head_kib is not None:
            run.target(
                f"KiB of HEAD, {count:,} tables", 128, head_kib.of_repeats("head_kib"), head_kib
            )


def _branch(run: Run, count: int, lake: lv.Lake, name: str, pair: Sequence[str]) -> None:
    _step(run, count, BRANCH, lake, partial(lake.branch, name, absorb=[]))
    branch = lake.on(name)
    _step(run, count, ON_BRANCH, branch, partial(commit_two, branch, pair))
    _step(run, count, MERGE, lake, partial(lake.merge, name))


def _new_client(run: Run, count: int, root: str, table: str, pair: list[str]) -> None:
    with lv.connect(root, storage_options=run.places.options) as other:
        txn = other.transaction()
        _step(run, count, OPEN, other, txn._executor.state_of_lake)
        _step(run, count, FIRST_READ, other, lambda: txn.read(table))
        txn.abort()
        _step(run, count, FIRST_COMMIT, other, lambda: commit_two(other, pair))


def _step(
    run: Run,
    count: int,
    step: str,
    lake: lv.Lake,
    work: Callable[[], object],
    figures: dict[str, float] | None = None,
) -> None:
    """Time one step, and count its requests where the client makes them, on every profile."""

    def client(counts: Counts) -> Iterator[str]:
        yield step
        work()

    done: list[Measured] = []
    run.places.reset()
    made = cost(lake, lambda: done.append(closed_loop([client])))
    params: dict[str, Value] = {"tables": count, "step": step}
    run.add("LakeVilla", params, done[0], requests=asdict(made), figures=figures)


BENCHMARK = Benchmark(
    name="many_tables",
    summary="what a commit costs on a lake of many tables, and how large its HEAD is",
    claim="none: the paper's lakes have one table to 128",
    deviations="ten tables are real, and HEAD lists the others, which nobody opens",
    parameters=(
        Parameter("tables", "10,1000,100000", "10,1000", "in a lake"),
        Parameter("commits", COMMITS, 15, "to two tables each, before anything is timed", least=1),
        Parameter("repeats", 9, 2, "of each step", least=1),
    ),
    run=measure,
    plots={
        "steps": lambda result: medians(
            result,
            lambda one: str(one.params["step"]),
            lambda one: f"{int(one.params['tables']):,} tables",
        ),
    },
)
