"""YCSB-LH run: each workload, for each number of clients, on all systems in turn."""

from __future__ import annotations

from collections.abc import Mapping

from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import CLIENT_PARAMETERS, clients_need
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, Value, WrongParameter, chosen, listed, numbers
from bench.ycsb_lh import plots
from bench.ycsb_lh.load import Load, run_load
from bench.ycsb_lh.peers import PEERS
from bench.ycsb_lh.systems import GRAMMAR, check_system
from bench.ycsb_lh.workload import MIXES


def measure(run: Run) -> None:
    """Repeats of all, the systems taking turns."""
    for repeat in range(run.number("repeats")):
        for workload in listed(run["workloads"]):
            for clients in numbers(run["clients"]):
                # The same work for each system.
                load = _load(run.result.parameters, workload, clients, f"{run.seed}-{repeat}")
                for name in listed(run["systems"]):
                    run.advance(f"{workload}, {clients} clients, {name}, repeat {repeat + 1}")
                    params: dict[str, Value] = {"workload": workload, "clients": clients}
                    run_load(run, name, load, params, slack=run.number("slack"))


def needs(parameters: Mapping[str, Value]) -> Needs:
    """What it takes; and refuses what there is not."""
    workloads = chosen("workloads", parameters["workloads"], MIXES)
    for name in listed(parameters["systems"]):
        if name not in PEERS:
            check_system(name, str(parameters["clients_as"]))
    most = max(numbers(parameters["clients"]))
    loads = [_load(parameters, workload, 1, "") for workload in workloads]
    largest = max((load.needs() for load in loads), key=lambda one: one.data_bytes)
    return largest + clients_need(parameters, most)


def _load(parameters: Mapping[str, Value], workload: str, clients: int, seed: str) -> Load:
    return Load(
        workload,
        clients,
        int(parameters["records"]),
        int(parameters["operations"]),
        int(parameters["warm_up"]),
        f"{seed}-{workload}-{clients}",
        _apart(str(parameters["apart"])),
    )


def _apart(text: str) -> float | None:
    if text == "no":
        return None
    try:
        apart = float(text)
    except ValueError:
        apart = -1.0
    if not 0 <= apart <= 1:
        raise WrongParameter(f"apart: {text!r} is neither 'no' nor a number from 0 to 1")
    return apart


BENCHMARK = Benchmark(
    name="ycsb_lh",
    summary="YCSB on one table of a lake: reads and writes of single records",
    claim=(
        "Figure 8: LakeVilla never aborts and is above Spark+Delta at 8 and 64 clients; all "
        "operations of a client in one transaction win, redos cost in A and F. Figure 9 (8 "
        "clients, bundled, slack 2): markers are better on writes, with outliers, the global "
        "log on reads; R|CT stands for the paper's LV[R], R|I for LV[I]"
    ),
    deviations=(
        "DuckDB on one machine in place of Spark on nine; Spark+Delta and deltalake are the "
        "single-table baselines, on the same machine, and clients of Spark share its session; an "
        "operation of theirs that has lost eleven times is given up, and the client goes on; "
        "a read-modify-write counts in the first nine characters of the field it "
        "writes, so that a lost one is found; with apart=e keys come from an interval for each "
        "client: client t of c draws (t*s + rand(l)) mod N with l = N/(1+(c-1)*e) and s = l*e, "
        "so 0 is full overlap and 1 none (the paper's text has s the other way round); clients "
        "as processes insert every c-th number and read of the inserted records only their own"
    ),
    parameters=(
        Parameter("workloads", "A,B,C,D,F", "A,C", "which of A to F, custom1, custom2"),
        Parameter("clients", "1,8,64", "1,4", "how many at the same time"),
        Parameter(
            "systems",
            "single:R|I,bundled:R|I,deltalake,Spark+Delta",
            "single:R|I,bundled:R|I,deltalake",
            f"{GRAMMAR}, {', '.join(PEERS)}",
        ),
        Parameter("records", 1000, 100, "in the table before", least=1),
        Parameter("operations", 1000, 8, "of all clients together", least=1),
        Parameter("warm_up", 10, 1, "of each client before, not measured", least=0),
        Parameter("apart", "no", "no", "intervals of keys: 0 (same) to 1 (disjoint); no: YCSB's"),
        Parameter("slack", 0, 0, "versions that a read may be behind", least=0),
        *CLIENT_PARAMETERS,
        Parameter("repeats", 5, 1, "of each", least=1),
    ),
    run=measure,
    plots={
        "throughput": plots.throughput,
        "clients": plots.over_clients,
        "latency": plots.latency,
    },
    needs=needs,
)
