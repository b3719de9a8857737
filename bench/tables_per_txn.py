"""Tables per transaction: one row in each of k tables, in one transaction (Figure 10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from matplotlib.figure import Figure

import lakevilla as lv
from bench.harness.benchmark import Benchmark, NotInstalled, Run
from bench.harness.clients import Counts, closed_loop
from bench.harness.drawing import figure, legend, lines
from bench.harness.features import features
from bench.harness.parameters import Parameter, check_known, listed, numbers
from bench.harness.peers import PEERS, peer
from bench.harness.results import Result

#: TPC-H's customer.
ROW = pa.table(
    {
        "c_custkey": pa.array([1], pa.int64()),
        "c_name": ["Customer#000000001"],
        "c_address": ["j5JsirBM9PsCy0O1m"],
        "c_nationkey": pa.array([15], pa.int32()),
        "c_phone": ["25-989-741-2988"],
        "c_acctbal": pa.array([711.56], pa.float64()),
        "c_mktsegment": ["BUILDING"],
        "c_comment": ["regular, regular platelets are fluffily according to the even attainments"],
    }
)
FEATURES = features("R|I", "R|CT", "R|CT|I")
#: Put after features: ``defer=True``.
DEFERRED = "+defer"
SYSTEMS = [*FEATURES, *(name + DEFERRED for name in FEATURES)]
#: What one transaction does to each table.
VERBS: dict[str, Callable[[lv.Transaction, str], object]] = {
    "append": lambda txn, table: txn.append(table, ROW),
    "update": lambda txn, table: txn.update(
        table, {"c_acctbal": "c_acctbal + 1"}, where="c_custkey = 1"
    ),
    "read": lambda txn, table: txn.read(table),
}
#: They commit to one table after the other: how long that takes is seen with few tables.
SERIAL = ("pyiceberg", "Spark+Delta", "Spark+Iceberg")
#: So many tables may take so many times what one takes.
FLAT = {32: 1.5, 128: 3.0}
#: What a queue with nobody in it may cost: times the same without one.
QUEUED = 1.05
READ_QUEUED = 1.1
Work = Callable[[Sequence[str]], None]


def measure(run: Run) -> None:
    """Each system works on its first k tables, for each k, in turn."""
    counts = numbers(run["tables"])
    most = {system: run.number("serial") for system in SERIAL}
    works: dict[str, Work] = {}
    counted: dict[str, Callable[[], list[int]]] = {}
    close: list[Callable[[], None]] = []
    try:
        for system in listed(run["systems"]):
            names = _names(min(max(counts), most.get(system, max(counts))))
            run.advance(f"{system}: {len(names)} tables are made")
            try:
                work, counted[system] = _made(run, system, names, close)
            except NotInstalled as error:
                run.note(f"{system} was left out: {error}")
                continue
            work(names)  # all tables are warm
            works[system] = work
        for repeat in range(run.number("repeats")):
            for k in counts:
                for system, work in works.items():
                    if k > most.get(system, k):
                        continue
                    run.advance(f"{system}, {k} tables, repeat {repeat + 1}")

                    def once(counts: Counts, work: Work = work, k: int = k) -> Iterator[str]:
                        yield str(run["verb"])
                        work(_names(k))

                    run.places.reset()
                    measured = closed_loop([once])
                    run.add(system, {"tables": k}, measured, requests=run.places.count())
        died = {one.system for one in run.result.series if one.deaths}
        for system in works.keys() - died:  # what one that died did last is not known
            run.advance(f"{system}: the rows are counted")
            most_here = most.get(system, max(counts))
            widths = [k for k in counts if k <= most_here]
            times = run.number("repeats")
            due = [
                (1 + times * sum(k > number for k in widths)) * (run["verb"] != "read")
                for number in range(min(max(counts), most_here))
            ]
            run.check("each table has each write once", counted[system]() == due)
    finally:
        for end in close:
            end()
    one = run.result.find("R|I", tables=1)
    if run["verb"] == "append":
        for k, at_most in FLAT.items():
            run.ratio(
                f"R|I: {k} tables, times one table", at_most, run.result.find("R|I", tables=k), one
            )
        for k in counts:
            alone, queued = (run.result.find(name, tables=k) for name in ("R|I", "R|CT|I"))
            run.ratio(f"R|CT|I: {k} tables, times R|I", QUEUED, queued, alone)
    if run["verb"] == "read":
        queued = run.result.find("R|CT", tables=1)
        run.ratio("R|CT: one table, times R|I", READ_QUEUED, queued, one)


def _names(count: int) -> list[str]:
    return [f"customer{number}" for number in range(count)]


def _made(
    run: Run, system: str, names: Sequence[str], close: list[Callable[[], None]]
) -> tuple[Work, Callable[[], list[int]]]:
    """What works on some of the tables, and what counts the writes that each has seen."""
    if system in PEERS:
        if run["verb"] != "append":
            raise NotInstalled("other systems are measured by what they append")
        other = peer(system, run.places)
        close.append(other.close)
        other.create(names, ROW)
        return (
            lambda tables: other.append(tables, ROW),
            lambda: [other.read(name).num_rows - 1 for name in names],
        )
    check_known("systems", system, [*SYSTEMS, *PEERS])
    check_known("verb", str(run["verb"]), list(VERBS))
    root, options = run.places.root(system), run.places.options
    lake = lv.connect(root, storage_options=options)
    close.append(lake.close)
    with lake.transaction() as txn:
        for name in names:
            txn.create_table(name, ROW)

    verb = VERBS[str(run["verb"])]
    chosen, defer = FEATURES[system.removesuffix(DEFERRED)], system.endswith(DEFERRED)

    def work(tables: Sequence[str]) -> None:
        with lake.transaction(chosen, defer=defer) as txn:
            for table in tables:
                verb(txn, table)

    def count() -> list[int]:
        with lv.connect(root, storage_options=options) as another, another.snapshot() as state:
            found = [state.read(table) for table in names]
        first = ROW["c_acctbal"][0].as_py()
        added = [max(rows["c_acctbal"].to_pylist()) - first for rows in found]
        return [rows.num_rows - 1 + round(more) for rows, more in zip(found, added, strict=True)]

    return work, count


def latency(result: Result) -> Figure:
    """Milliseconds until every reader sees the commit, by the number of tables."""
    counts = sorted({int(one.params["tables"]) for one in result.series})
    systems = list(dict.fromkeys(one.system for one in result.series))
    found = {(one.system, one.params["tables"]): one.p50_ms for one in result.series}
    made, (axes,) = figure(1, f"one row in each of k tables, profile {result.profile}")
    heights = {s: [found.get((s, k), float("nan")) for k in counts] for s in systems}
    lines(axes, counts, heights, "median, ms")
    axes.set_xlabel("tables in the transaction")
    legend(made, axes)
    return made


BENCHMARK = Benchmark(
    name="tables_per_txn",
    summary="one row in each of k tables, in one transaction",
    claim="Figure 10: LV[CT] and LV[I] are flat up to 32 tables",
    deviations=(
        "deltalake, pyiceberg and Spark have no transaction over tables: they commit to one after "
        "the other, not atomically; DuckLake's catalog is a local file, which costs it no latency"
    ),
    parameters=(
        Parameter("tables", "1,2,4,8,16,32,64,128", "1,4", "in a transaction"),
        Parameter(
            "systems",
            "R|I,R|CT,DuckLake,deltalake,pyiceberg,Spark+Delta",
            "R|I,R|CT,DuckLake,deltalake,pyiceberg",
            f"of {', '.join([*SYSTEMS, *PEERS])}",
        ),
        Parameter("verb", "append", "append", f"one of {', '.join(VERBS)}"),
        Parameter("serial", 16, 4, f"tables at most of {', '.join(SERIAL)}", least=1),
        Parameter("repeats", 5, 2, "of each", least=1),
    ),
    run=measure,
    plots={"latency": latency},
    transactions=True,
)
