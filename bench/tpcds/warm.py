"""What a SELECT that comes again takes of the CPU, beside DuckDB on the same files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pyarrow as pa

import lakevilla as lv
from bench.harness.answers import same_rows
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Counts, closed_loop
from bench.harness.drawing import medians
from bench.harness.parameters import Parameter, numbers
from bench.harness.store.places import LOCAL
from bench.harness.tpc import KINDS, Tpc
from bench.tpcds.systems import Data, LakeVilla, PlainDuckDB

COUNT = "count"
_COUNTED = "SELECT count(*) FROM store_sales"
_CPU = "cpu_ms"
#: At most so many times what DuckDB takes, on data of less than scale factor 1: a query that
#: takes ten milliseconds shows what a statement costs.
_MOST, _MOST_OF_FEW = 1.025, {"Q90": 1.5}
#: What a statement may take beyond DuckDB.
_BEYOND_MS = 2.0

Ask = Callable[[str], pa.Table]


def measure(run: Run) -> None:
    """Each query on each system in turns, on sessions that have answered it before."""
    run.advance("the rows are generated")
    made = Tpc("tpcds", float(run["scale"]), run.places.file("tpcds.db"))
    try:
        queries = {f"Q{number}": made.query(number) for number in numbers(run["queries"])}
        queries[COUNT] = _COUNTED
        tables = sorted({table for sql in queries.values() for table in made.used(sql)})
        data = Data(run.places, made, tables, run.advance)
        duckdb = PlainDuckDB(data)
        answers = {name: made.answer(sql) for name, sql in queries.items()}
    finally:
        made.close()
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(closing(one.open(tables)))
            for one in (duckdb, LakeVilla(lv.Feature.R | lv.Feature.I, data))
        ]
        lake = stack.enter_context(lv.connect(data.lake, storage_options=run.places.options))
        systems: dict[str, Ask] = {
            "DuckDB": sessions[0].answer,
            "R|I": sessions[1].answer,
            "snapshot": lake.snapshot().sql,
        }
        for turn in range(-1, run.number("repeats")):
            for query, sql in queries.items():
                for name, ask in systems.items():
                    run.advance(f"{query}, {name}, turn {turn + 1}")
                    _once(run, name, ask, query, sql, answers[query], counts=turn >= 0)
    _aim(run, list(queries))


def _once(
    run: Run, name: str, ask: Ask, query: str, sql: str, right: pa.Table, *, counts: bool
) -> None:
    found: list[pa.Table] = []

    def client(_: Counts) -> Iterator[str]:
        yield query
        began = time.process_time()
        found.append(ask(sql))
        spent.append((time.process_time() - began) * 1000)

    spent: list[float] = []
    run.places.reset()
    measured = closed_loop([client])
    if counts and spent:
        requests = run.places.count()
        run.add(name, {"query": query}, measured, requests=requests, figures={_CPU: spent[0]})
    run.check(
        "each system answers as DuckDB does from the generator's rows",
        all(same_rows(one, right) for one in found),
    )


def _aim(run: Run, queries: list[str]) -> None:
    for query in queries:
        plain, ours = (run.result.find(name, query=query) for name in ("DuckDB", "snapshot"))
        if query == COUNT:
            if plain and ours:
                pairs = zip(ours.of_repeats(_CPU), plain.of_repeats(_CPU), strict=False)
                beyond = [one - other for one, other in pairs]
                run.target("count(*), CPU beyond DuckDB's, ms", _BEYOND_MS, beyond, plain, ours)
            continue
        most = _MOST if float(run["scale"]) >= 1 else _MOST_OF_FEW.get(query, 1.1)
        run.ratio(f"{query}, CPU: a snapshot, times DuckDB", most, ours, plain, _CPU)
        run.ratio(f"{query}, time: a snapshot, times DuckDB", most, ours, plain)


BENCHMARK = Benchmark(
    name="tpcds_warm",
    summary="queries of TPC-DS that come again, and a count(*): CPU and time beside DuckDB",
    claim="none: these are the project's own targets",
    deviations="DuckDB and LakeVilla are in one process, and take turns at each query",
    parameters=(
        Parameter("scale", 1.0, 0.01, "the scale factor", least=0.01),
        Parameter("queries", "67,68,90", "67,68,90", "of TPC-DS"),
        Parameter("repeats", 20, 2, "of each", least=1),
    ),
    run=measure,
    plots={
        "cpu": lambda result: medians(
            result, lambda one: str(one.params["query"]), figure=_CPU, unit="ms of CPU"
        ),
    },
    profile=LOCAL,
    needs=lambda given: KINDS["tpcds"].needs(float(given["scale"])),
)
