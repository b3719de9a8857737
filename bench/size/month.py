"""What a month costs: a lake of many tables with hourly appends, upkeep, monitoring and readers.

Each kind of work is done a few times on the lake, and its requests are counted by the server's
proxy. A month is so many of each, at public prices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

import lakevilla as lv
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Counts, Measured, closed_loop
from bench.harness.drawing import medians
from bench.harness.parameters import Parameter, WrongParameter
from bench.report.costs import stores

ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "value": [1.5] * 100})
HOURS, MINUTES = 24 * 30, 24 * 30 * 60
#: Upkeep is called so often, as `docs/operating.md` advises.
EVERY_MINUTES = 10
#: What a step is called in a result.
APPEND, READ = "append to a table", "read a table, new client"
DAILY, UPKEEP, IDLE = "upkeep of all tables", "upkeep after ten minutes", "upkeep, nothing due"
SCRAPE = "metrics, new client"


def location(number: int) -> str:
    return f"region_{number % 20:02}/table_{number:05}"


def measure(run: Run) -> None:
    """One lake, on which each kind of work is done in turn."""
    if run.places.proxy is None:
        raise WrongParameter("requests are counted by a server's proxy: --profile zero, or s3")
    tables, root = run.number("tables"), run.places.root("month")
    names = [location(number) for number in range(tables)]
    run.advance(f"{tables} tables are made")
    with _client(run, root) as lake:
        for first in range(0, tables, 50):
            with lake.transaction() as txn:
                for name in names[first : first + 50]:
                    txn.create_table(name, ROWS)
    written = names[: run.number("written")]
    per_operation = {
        APPEND: _step(run, root, APPEND, run.number("commits") * len(written), _appends(written)),
        DAILY: _step(run, root, DAILY, 1, _once(lambda lake: lake.maintain())),
    }
    in_ten_minutes = max(1, tables * EVERY_MINUTES // 60)
    for repeat in range(run.number("repeats")):
        with _client(run, root) as lake:
            for name in names[:in_ten_minutes]:
                _append(lake, name)
        found = _step(run, root, UPKEEP, 1, _once(lambda lake: lake.maintain()))
        per_operation[UPKEEP] = found if repeat == 0 else _larger(per_operation[UPKEEP], found)
    per_operation[IDLE] = _step(run, root, IDLE, 1, _once(lambda lake: lake.maintain()))
    scraped: list[lv.LakeMetrics] = []
    scrape = _once(lambda lake: scraped.append(lake.metrics()))
    per_operation[SCRAPE] = _step(run, root, SCRAPE, 1, scrape)
    run.check(
        "a scrape takes as many requests as it says",
        scraped[0].values["lakevilla_scrape_requests"] == sum(per_operation[SCRAPE].values()),
    )
    per_operation[READ] = _step(run, root, READ, 1, _once(lambda lake: lake.read(written[-1])))
    _tell_bill(run, per_operation, _times(run))


def _times(run: Run) -> dict[str, int]:
    """Return how often a month has each step; the daily upkeep is one of the day's."""
    return {
        APPEND: run.number("tables") * HOURS,
        DAILY: HOURS // 24,
        UPKEEP: MINUTES // EVERY_MINUTES - HOURS // 24,
        SCRAPE: MINUTES,
        READ: run.number("tables") * HOURS,
    }


def _tell_bill(
    run: Run, per_operation: Mapping[str, Mapping[str, float]], times: Mapping[str, int]
) -> None:
    prices, _ = stores()
    for store in prices:
        bill = {
            step: store.dollars({v: n * count for v, n in per_operation[step].items()}, {})
            for step, count in times.items()
        }
        parts = ", ".join(f"{times[step]:,} x {step} ${cost:,.2f}" for step, cost in bill.items())
        run.note(f"a month on {store.name}, requests alone: ${sum(bill.values()):,.2f}: {parts}")


@contextmanager
def _client(run: Run, root: str) -> Iterator[lv.Lake]:
    with lv.connect(root, storage_options=run.places.options) as lake:
        yield lake


def _append(lake: lv.Lake, table: str) -> None:
    with lake.transaction() as txn:
        txn.append(table, ROWS)


def _appends(tables: list[str]) -> Callable[[lv.Lake, int], object]:
    return lambda lake, number: _append(lake, tables[number % len(tables)])


def _once(work: Callable[[lv.Lake], object]) -> Callable[[lv.Lake, int], object]:
    return lambda lake, number: work(lake)


def _step(
    run: Run, root: str, step: str, times: int, work: Callable[[lv.Lake, int], object]
) -> dict[str, float]:
    """Do a step so often by one new client; return its requests for each time, with those of its
    background."""
    run.advance(f"{step}, {times} times")

    def client(lake: lv.Lake, counts: Counts) -> Iterator[str]:
        for number in range(times):
            yield step
            work(lake, number)

    run.places.reset()
    with _client(run, root) as lake:
        measured: Measured = closed_loop([partial(client, lake)])
    requests = run.places.count()
    run.add("LakeVilla", {"step": step}, measured, requests=requests)
    return {verb: count / times for verb, count in requests.items()}


def _larger(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {verb: max(one.get(verb, 0), other.get(verb, 0)) for verb in {*one, *other}}


BENCHMARK = Benchmark(
    name="month",
    summary="what a month costs in requests: hourly appends, upkeep, monitoring and readers",
    claim="none: the paper has no prices",
    deviations="each kind of work is done a few times, and multiplied",
    parameters=(
        Parameter("tables", 500, 12, "in the lake, each appended to and read once an hour"),
        Parameter("written", 50, 3, "of them, by whose appends an append is counted", least=1),
        Parameter("commits", 10, 2, "to each of these: the tenth has a checkpoint", least=1),
        Parameter("repeats", 3, 1, "of upkeep after ten minutes", least=1),
    ),
    run=measure,
    plots={
        "steps": lambda result: medians(
            result, lambda one: str(one.params["step"]), lambda one: one.system
        )
    },
    profile="zero",
    transactions=True,
)
