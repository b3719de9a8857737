"""Contention: YCSB A by 32 clients that meet on the same keys or never, on one table or on many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import CLIENT_PARAMETERS, clients_need
from bench.harness.drawing import bars, figure, legend
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, Value, WrongParameter, chosen, listed, numbers
from bench.harness.results import Result, Series
from bench.ycsb_lh.load import Load, run_load
from bench.ycsb_lh.systems import GRAMMAR, check_system

#: How far the intervals of two clients' keys lie apart, see ``Interval``.
OVERLAPS = {"full": 0.0, "half": 0.5, "none": 1.0}


def measure(run: Run) -> None:
    """Each overlap on one table, then so many tables with fewer clients on each."""
    for repeat in range(run.number("repeats")):
        for overlap, tables in _shapes(run.result.parameters):
            load = _load(run.result.parameters, overlap, tables, f"{run.seed}-{repeat}")
            for system in listed(run["systems"]):
                where = f"{tables} tables, overlap {overlap}"
                run.advance(f"{where}, {system}, repeat {repeat + 1}")
                run_load(run, system, load, {"tables": tables, "overlap": overlap})


def _shapes(parameters: Mapping[str, Value]) -> list[tuple[str, int]]:
    on_one = [(overlap, 1) for overlap in listed(parameters["overlap"])]
    shapes = [*on_one, *(("full", tables) for tables in numbers(parameters["tables"]))]
    return list(dict.fromkeys(shapes))


def _load(parameters: Mapping[str, Value], overlap: str, tables: int, seed: str) -> Load:
    clients, operations = int(parameters["clients"]), int(parameters["operations"])
    names = tuple(f"usertable{number}" for number in range(tables))
    apart = OVERLAPS[overlap]
    seed = f"{seed}-{overlap}-{tables}"
    records, warm_up = int(parameters["records"]), int(parameters["warm_up"])
    return Load("A", clients, records, operations, warm_up, seed, apart, names)


def needs(parameters: Mapping[str, Value]) -> Needs:
    """What it takes; and refuses what there is not."""
    chosen("overlap", parameters["overlap"], OVERLAPS)
    for system in listed(parameters["systems"]):
        check_system(system, str(parameters["clients_as"]))
    clients = int(parameters["clients"])
    for tables in numbers(parameters["tables"]):
        if clients % tables:
            raise WrongParameter(f"tables: {clients} clients can't be spread evenly over {tables}")
    loads = [_load(parameters, *shape, "").needs() for shape in _shapes(parameters)]
    return max(loads, key=lambda one: one.data_bytes) + clients_need(parameters, clients)


def throughput(result: Result) -> Figure:
    """Operations a second, by overlap on one table and by number of tables."""
    return _drawn(result, "operations a second", lambda one: one.throughput_per_s)


def repeated(result: Result) -> Figure:
    """What was done more than once: transactions that ran again, operations that were redone."""
    title = "aborts and redos an operation"
    return _drawn(result, title, lambda one: (one.aborts + one.redos) / max(one.n, 1))


def _drawn(result: Result, unit: str, of: Callable[[Series], float]) -> Figure:
    clients = int(result.parameters["clients"])
    made, axes = figure(2, f"YCSB A, {clients} clients, profile {result.profile}")
    on_one = [one for one in result.series if one.params["tables"] == 1]
    overlaps = list(dict.fromkeys(str(one.params["overlap"]) for one in on_one))
    _panel(axes[0], result, overlaps, [(overlap, 1) for overlap in overlaps], of)
    axes[0].set_xlabel("overlap of clients' keys, one table")
    tables = sorted({int(one.params["tables"]) for one in result.series})
    spread = [f"{count} x {clients // count}" for count in tables]
    _panel(axes[1], result, spread, [("full", count) for count in tables], of)
    axes[1].set_xlabel("tables x clients of each, full overlap")
    axes[0].set_ylabel(unit)
    legend(made, axes[0])
    return made


def _panel(
    axes: Axes,
    result: Result,
    groups: Sequence[str],
    shapes: Sequence[tuple[str, int]],
    of: Callable[[Series], float],
) -> None:
    found = {
        (one.system, str(one.params["overlap"]), int(one.params["tables"])): of(one)
        for one in result.series
    }
    systems = dict.fromkeys(one.system for one in result.series)
    nothing = float("nan")
    bars(
        axes,
        groups,
        {name: [found.get((name, *shape), nothing) for shape in shapes] for name in systems},
    )


BENCHMARK = Benchmark(
    name="contention",
    summary="YCSB A by clients whose keys overlap fully, half or not, on one table or on many",
    claim="the artifact's contention experiment (E14); the paper prints no figure for it",
    deviations=(
        "DuckLake's catalog is a local file, which costs it no latency; a transaction that lost is "
        "run again by each system's own way (lake.run; for DuckLake the client), and counted; "
        "clients draw from intervals of keys, uniformly"
    ),
    parameters=(
        Parameter("overlap", "full,half,none", "full,none", f"of {', '.join(OVERLAPS)}"),
        Parameter("tables", "1,4,32", "1,4", "the clients are spread over, at full overlap"),
        Parameter("clients", 32, 4, "all together", least=1),
        Parameter("systems", "single:R|I,DuckLake", "single:R|I,DuckLake", GRAMMAR),
        Parameter("records", 1000, 100, "in each table before", least=1),
        Parameter("operations", 1024, 16, "of all clients together", least=1),
        Parameter("warm_up", 4, 1, "of each client before, not measured", least=0),
        *CLIENT_PARAMETERS,
        Parameter("repeats", 5, 1, "of each", least=1),
    ),
    run=measure,
    plots={"throughput": throughput, "repeated": repeated},
    needs=needs,
    transactions=True,
)
