"""Tables per transaction: one row into each of k tables, in one transaction (Figure 10)."""

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
#: They commit to one table after the other: how long that takes is seen with few tables.
SERIAL = ("pyiceberg", "Spark+Delta", "Spark+Iceberg")
#: So many tables may take so many times what one takes.
FLAT = {32: 1.5, 128: 3.0}
Append = Callable[[Sequence[str]], None]


def measure(run: Run) -> None:
    """Each system appends to its first k tables, for each k, in turn."""
    counts = numbers(run["tables"])
    most = {system: run.number("serial") for system in SERIAL}
    appends: dict[str, Append] = {}
    counted: dict[str, Callable[[], list[int]]] = {}
    close: list[Callable[[], None]] = []
    try:
        for system in listed(run["systems"]):
            names = _names(min(max(counts), most.get(system, max(counts))))
            run.advance(f"{system}: {len(names)} tables are made")
            try:
                append, counted[system] = _made(run, system, names, close)
            except NotInstalled as error:
                run.note(f"{system} was left out: {error}")
                continue
            append(names)  # all tables are warm
            appends[system] = append
        for repeat in range(run.number("repeats")):
            for k in counts:
                for system, append in appends.items():
                    if k > most.get(system, k):
                        continue
                    run.advance(f"{system}, {k} tables, repeat {repeat + 1}")

                    def once(counts: Counts, append: Append = append, k: int = k) -> Iterator[str]:
                        yield "append"
                        append(_names(k))

                    run.places.reset()
                    measured = closed_loop([once])
                    run.add(system, {"tables": k}, measured, requests=run.places.count())
        died = {one.system for one in run.result.series if one.deaths}
        for system in appends.keys() - died:  # what one that died did last is not known
            run.advance(f"{system}: the rows are counted")
            most_here = most.get(system, max(counts))
            widths = [k for k in counts if k <= most_here]
            times = run.number("repeats")
            due = [
                2 + times * sum(k > number for k in widths)
                for number in range(min(max(counts), most_here))
            ]
            run.check("each table has each row that was appended, once", counted[system]() == due)
    finally:
        for end in close:
            end()
    one = run.result.find("R|I", tables=1)
    for k, at_most in FLAT.items():
        run.ratio(
            f"R|I: {k} tables, times one table", at_most, run.result.find("R|I", tables=k), one
        )


def _names(count: int) -> list[str]:
    return [f"customer{number}" for number in range(count)]


def _made(
    run: Run, system: str, names: Sequence[str], close: list[Callable[[], None]]
) -> tuple[Append, Callable[[], list[int]]]:
    """What appends to some of the tables, and what counts the rows of each."""
    if system in PEERS:
        other = peer(system, run.places)
        close.append(other.close)
        other.create(names, ROW)
        return (
            lambda tables: other.append(tables, ROW),
            lambda: [other.read(name).num_rows for name in names],
        )
    check_known("systems", system, [*FEATURES, *PEERS])
    root, options = run.places.root(system), run.places.options
    lake = lv.connect(root, storage_options=options)
    close.append(lake.close)
    with lake.transaction() as txn:
        for name in names:
            txn.create_table(name, ROW)

    def append(tables: Sequence[str]) -> None:
        with lake.transaction(FEATURES[system]) as txn:
            txn.take_turn(*tables)  # all places in one round; nothing where there are no queues
            for table in tables:
                txn.append(table, ROW)

    def count() -> list[int]:
        with lv.connect(root, storage_options=options) as another, another.snapshot() as state:
            return [state.read(name).num_rows for name in names]

    return append, count


def latency(result: Result) -> Figure:
    """Milliseconds until every reader sees the commit, by the number of tables."""
    counts = sorted({int(one.params["tables"]) for one in result.series})
    systems = list(dict.fromkeys(one.system for one in result.series))
    found = {(one.system, one.params["tables"]): one.p50_ms for one in result.series}
    made, (axes,) = figure(1, f"one row into each of k tables, profile {result.profile}")
    heights = {s: [found.get((s, k), float("nan")) for k in counts] for s in systems}
    lines(axes, counts, heights, "median, ms")
    axes.set_xlabel("tables in the transaction")
    legend(made, axes)
    return made


BENCHMARK = Benchmark(
    name="tables_per_txn",
    summary="one row into each of k tables, in one transaction",
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
            f"of {', '.join([*FEATURES, *PEERS])}",
        ),
        Parameter("serial", 16, 4, f"tables at most of {', '.join(SERIAL)}", least=1),
        Parameter("repeats", 5, 2, "of each", least=1),
    ),
    run=measure,
    plots={"latency": latency},
    transactions=True,
)
