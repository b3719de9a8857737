"""TPC-C run: the systems of the paper's Table 4, and whether the tables stay consistent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from random import Random

import pyarrow as pa

import lakevilla as lv
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import (
    CLIENT_PARAMETERS,
    Client,
    Counts,
    Measured,
    clients_need,
    manner,
    run_clients,
)
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, Value, WrongParameter, chosen, listed, numbers
from bench.harness.words import plural
from bench.tpcc import plots
from bench.tpcc.conditions import AFTER_LOAD, COLUMNS, violations_of
from bench.tpcc.inputs import Input, Terminal, deck
from bench.tpcc.population import load_constants, population
from bench.tpcc.schema import Scale
from bench.tpcc.systems import FEATURES, SINGLE, Done, System, Work
from bench.tpcc.values import constants_of_run

#: Of 10 districts with 3000 customers each and 100,000 items: rows here, in the store, and what a
#: transaction writes anew.
_HERE_BYTES, _STORED_BYTES, _TRANSACTION_BYTES = 150 * 2**20, 100 * 2**20, 6 * 2**20
#: The transactions of one terminal, with their kinds.
Entered = Sequence[tuple[str, Input]]


def measure(run: Run) -> None:
    """Each system for each number of clients, on tables of its own."""
    scale = _scale(run.result.parameters)
    run.advance("the tables are drawn")
    tables = population(scale, run.seed, datetime.now(UTC))
    for repeat in range(run.number("repeats")):
        for clients in numbers(run["clients"]):
            for name in listed(run["systems"]):
                label = f"{name}, {clients} clients, repeat {repeat + 1}"
                run.advance(f"{label}: loading")
                system = System(name, run.places.root("tpcc"), run.places.options)
                try:
                    system.load(tables)
                    if not run.result.checks:  # all are loaded alike
                        _look(run, system, clients, loaded=True)
                    run.advance(label)
                    done = _once(run, system, scale, clients, repeat)
                    run.advance(f"{label}: the conditions")
                    _look(run, system, clients, loaded=False)
                    if name != SINGLE:  # there one that is rolled back has left its order
                        _check_acknowledged(run, system, done, tables)
                finally:
                    run.places.discard(system.root)


def needs(parameters: Mapping[str, Value]) -> Needs:
    """What it takes; and refuses what there is not."""
    chosen("systems", parameters["systems"], FEATURES)
    scale = _scale(parameters)
    if scale.parts > scale.items:
        raise WrongParameter(f"parts={scale.parts}: there are only {scale.items} items")
    share = max(scale.districts * scale.customers / 30_000, scale.items / 100_000)
    written = int(parameters["operations"]) * _TRANSACTION_BYTES
    tables = Needs(
        data_bytes=int(share * (scale.warehouses * _STORED_BYTES + written)),
        memory_bytes=int(share * scale.warehouses * _HERE_BYTES),
        why=f"TPC-C with {plural(scale.warehouses, 'warehouse')}",
    )
    return tables + clients_need(parameters, max(numbers(parameters["clients"])))


def _scale(parameters: Mapping[str, Value]) -> Scale:
    sizes = ("warehouses", "districts", "customers", "items", "parts")
    return Scale(*(int(parameters[name]) for name in sizes))


def _once(run: Run, system: System, scale: Scale, clients: int, repeat: int) -> list[Done]:
    entered = _entered(run, scale, clients, repeat)
    team = [
        Client(Work(system.name, scale, todo), Work(system.name, scale, warm_up))
        for warm_up, todo in entered
    ]
    how = manner(run.result.parameters, f"{run.seed}-{repeat}")
    measured = run_clients(system.open, team, how, on_start=run.places.reset)
    requests = run.places.count()
    if system.name != SINGLE:
        run.check("no conflict reached a caller of lake.run", not measured.deaths)
    done = [fact for fact in measured.counts.facts if isinstance(fact, Done)]
    params: dict[str, Value] = {"clients": clients, "transaction": "all"}
    run.add(system.name, params, measured, requests=requests)
    for kind, histogram in sorted(measured.histograms.items()):
        counts = Counts(
            sum(one.aborts for one in done if one.kind == kind),
            sum(one.redos for one in done if one.kind == kind),
        )
        alone = Measured({kind: histogram}, measured.seconds, counts)
        run.add(system.name, {**params, "transaction": kind}, alone)
    return done


def _entered(run: Run, scale: Scale, clients: int, repeat: int) -> list[tuple[Entered, Entered]]:
    """What each terminal enters, to warm up and then: the same for all systems."""
    seed = f"{run.seed}-{repeat}-{clients}"
    constants = constants_of_run(Random(seed), load_constants(run.seed))
    cards = deck(run.number("operations"), Random(seed))
    found: list[tuple[Entered, Entered]] = []
    for number in range(clients):
        random = Random(f"{seed}-{number}")
        terminal = Terminal(number, scale, constants, random, run.number("rollback_percent"))
        warm_up = [(kind, terminal.enter(kind)) for kind in ("order_status", "stock_level")]
        found.append((warm_up, [(kind, terminal.enter(kind)) for kind in cards[number::clients]]))
    return found


def _look(run: Run, system: System, clients: int, *, loaded: bool) -> None:
    """Look at the conditions; single operations need not keep them, which is told."""
    with lv.connect(system.root, storage_options=dict(system.options)) as lake:
        state = lake.snapshot()
        found = violations_of({name: state.read(name, list(of)) for name, of in COLUMNS.items()})
    if loaded:
        run.check("C1 to C12 hold after the load", not any(found.values()))
        return
    del found[AFTER_LOAD]
    where = f"{system.name}, {plural(clients, 'client')}"
    for name, count in found.items():
        run.observe(f"{where}: {name}", not count)
    broken = [f"{name} ({plural(count, 'row')})" for name, count in found.items() if count]
    if broken:
        why = " (as was to be expected: no transaction holds them together)"
        run.note(f"{where}: broken are {', '.join(broken)}{why if system.name == SINGLE else ''}")
    if system.name != SINGLE:
        run.check(f"{where}: C1 to C10 and C12 hold after the run", not broken)


def _check_acknowledged(
    run: Run, system: System, done: Sequence[Done], before: Mapping[str, pa.Table]
) -> None:
    """Whether there are as many orders and payments more as were acknowledged."""
    came = {}
    with lv.connect(system.root, storage_options=dict(system.options)) as lake:
        state = lake.snapshot()
        for kind, table, key in (("new_order", "orders", "o_id"), ("payment", "history", "h_c_id")):
            came[kind] = state.read(table, [key]).num_rows - before[table].num_rows
    acknowledged = {
        kind: sum(one.acknowledged for one in done if one.kind == kind) for kind in came
    }
    run.check(
        "orders and payments are there if and only if they were acknowledged", acknowledged == came
    )


BENCHMARK = Benchmark(
    name="tpcc",
    summary="TPC-C: five transactions on nine tables, and the consistency conditions after them",
    claim=(
        "Table 4: one after the other all configurations are consistent; with 16 clients LV[DL] "
        "and LV[R] are not, LV[CT] and LV[I] are, by aborts; throughput is low"
    ),
    deviations=(
        "the paper's prototype inserts one sample row where ours writes full rows by SQL; its "
        "LV[DL] and LV[R] are the single operations here, its LV[CT] is R|CT, its LV[I] is R|I; "
        "no keying and think times; new orders that roll back count; a delivery is one "
        "transaction of ten districts, not put off; stock has a column that partitions it"
    ),
    parameters=(
        Parameter("clients", "1,16", "4", "how many terminals at the same time"),
        Parameter(
            "systems", f"{SINGLE},R|CT,R|I", f"{SINGLE},R|CT,R|I", f"of {', '.join(FEATURES)}"
        ),
        Parameter("operations", 100, 12, "transactions of all terminals together", least=1),
        Parameter("warehouses", 1, 1, "one has the most conflicts", least=1),
        Parameter("districts", 10, 3, "of a warehouse", least=1),
        Parameter("customers", 3000, 30, "of a district, and as many orders", least=5),
        Parameter("items", 100_000, 500, "and as many rows of a warehouse's stock", least=20),
        Parameter("parts", 100, 2, "partitions of a warehouse's stock", least=1),
        Parameter("rollback_percent", 1, 10, "of the new orders, by an item that is not", least=0),
        *CLIENT_PARAMETERS,
        Parameter("repeats", 5, 1, "of each", least=1),
    ),
    run=measure,
    plots={
        "consistency": plots.consistency,
        "throughput": plots.throughput,
        "latency": plots.latency,
        "aborts": plots.aborts,
    },
    needs=needs,
)
