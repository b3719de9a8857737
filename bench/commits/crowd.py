"""A crowd: processes that write at once, more of them than a machine has cores.

The clients run LakeVilla's own protocol, request by request, on a simulated store whose requests
take the time of S3, in virtual seconds. Their CPU costs nothing: so it is what the protocol allows,
and the same numbers come out everywhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import cast

import pyarrow as pa
from matplotlib.figure import Figure

from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients.measured import Measured
from bench.harness.drawing import figure, legend, lines
from bench.harness.parameters import Parameter, Value, chosen, numbers
from bench.harness.results import Result
from lakevilla.errors import ConflictError
from lakevilla.formats.base import FormatName
from lakevilla.lake.context import Context
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.store.effects import Program, sleep
from lakevilla.sublogs.operations import Update
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.commit.together.combine import defer_if_hot
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.read_write import append, execute
from lakevilla_testing.histories.attempts import COLUMNS, SCHEMA, context_of
from lakevilla_testing.tables import delta_writer, iceberg_writer
from lakevilla_testing.tables.reader import table_rows
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.latency import PROFILES
from lakevilla_testing.world.scheduler import Simulation
from lakevilla_testing.world.timed import TimedSimulation

SYSTEM = "LakeVilla"
#: Clients start within this time of each other.
_SPREAD_SECONDS = 0.5
FORMATS = ("delta", "iceberg")
#: What each client does: it appends rows, or changes one row, its own or that of all.
WORK = ("append", "update", "contend")
HELD = "each row is in its table, once, as it was last written"
#: Requests of a simulated store, as a proxy counts them.
_VERBS = {"get": "get", "head": "head", "list": "list", "delete": "delete"}


@dataclass(slots=True)
class Crowd:
    """Clients in a simulation, and what they have done since ``warm_up`` virtual seconds."""

    format: FormatName
    tables: int
    warm_up: float
    until: float
    work: str = "append"
    measured: Measured = field(default_factory=Measured)
    rows: Counter[tuple[str, int]] = field(default_factory=Counter)
    balances: Counter[tuple[str, int]] = field(default_factory=Counter)
    races: int = 0
    is_right: bool = False
    _before: Counter[str] | None = None

    def simulate(self, clients: int, seed: int, profile: str) -> Counter[str]:
        """Run them, and return the requests that were made since the warm-up, by verb."""
        simulation = TimedSimulation(seed, profile=PROFILES[profile])
        maker = Simulation(seed)
        maker.store = simulation.store
        maker.add("maker", self._create)
        maker.run()
        for number in range(clients):
            works = partial(self._works, simulation, number)
            simulation.add(f"client {number}", works)
        simulation.run()
        self.measured.seconds = self.until - self.warm_up
        found: Counter[tuple[str, int]] = Counter()
        balances: Counter[tuple[str, int]] = Counter()
        for name in self._names:
            for row in table_rows(simulation.store, name):
                found[name, int(row["id"])] += 1
                balances[name, int(row["id"])] += int(row["balance"])
        self.is_right = found == self.rows and +balances == self.balances
        return _by_verb(simulation.asked - (self._before or Counter()))

    @property
    def _names(self) -> list[str]:
        return [f"t{number}" for number in range(self.tables)]

    def _create(self, client: Client) -> Program[None]:
        makers = delta_writer if self.format == "delta" else iceberg_writer
        for name in self._names:
            yield from makers.create(client, name, COLUMNS, [])
            if self.work == "contend":
                yield from self._append(context_of(client), client, name, 0)

    def _works(self, simulation: TimedSimulation, number: int, client: Client) -> Program[None]:
        """One process: it writes a row a transaction, as fast as it can."""
        context, table = context_of(client), self._names[number % self.tables]
        row = 0 if self.work == "contend" else number
        if self.work == "update":
            yield from self._append(context, client, table, row)
        yield from sleep(_SPREAD_SECONDS * client.random.random())
        while simulation.now < self.until:
            began = simulation.now
            if self.work == "append":
                txn = yield from self._append(context, client, table, len(self.rows))
            else:
                txn = yield from self._update(context, client, table, row)
            self._note(simulation, began, txn.ending.retries)

    def _append(
        self, context: Context, client: Client, table: str, id_: int
    ) -> Program[TransactionState]:
        self.rows[table, id_] += 1
        txn = _begin(context, client)
        rows = pa.table({"id": [id_], "balance": [0], "items": [""]}, schema=SCHEMA)
        yield from append(txn, table, rows.to_reader())
        yield from commit(txn)
        return txn

    def _update(
        self, context: Context, client: Client, table: str, id_: int
    ) -> Program[TransactionState]:
        """Change a row, until no other has changed it first."""
        change = {"balance": parse_expression("balance + 1")}
        update = Update(table, change, parse_predicate(f"id = {id_}"))
        while True:
            txn = _begin(context, client)
            defer_if_hot(txn)  # as ``lake.run`` and a statement by itself do
            yield from execute(txn, update, "update")
            try:
                yield from commit(txn)
            except ConflictError:
                continue
            self.balances[table, id_] += 1
            return txn

    def _note(self, simulation: TimedSimulation, began: float, races: int) -> None:
        """Count a commit if it ended in the time that is measured, however long it took."""
        if self.warm_up <= simulation.now < self.until:
            if self._before is None:
                self._before = Counter(simulation.asked)
            self.measured.record("commit of a row", simulation.now - began)
            self.races += races


def _begin(context: Context, client: Client) -> TransactionState:
    options = Options(Feature.R | Feature.I)
    txn: TransactionState = begin(TransactionState(context, client.ids.txn_id(), options))
    txn.through_head = True
    return txn


def _by_verb(asked: Counter[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for verb, count in asked.items():
        found[_VERBS.get(verb, "put")] += count
    return found


def measure(run: Run) -> None:
    """Each work and number of clients, on one table and on one each, in both formats."""
    shapes = chosen("tables", run["tables"], ("one", "own"))
    works = chosen("work", run["work"], WORK)
    formats = cast(list[FormatName], chosen("formats", run["formats"], FORMATS))
    every = product(range(run.number("repeats")), works, formats, shapes, numbers(run["clients"]))
    for repeat, work, format_, tables, clients in every:
        run.advance(f"{work}, {format_}, {tables} table, {clients}, repeat {repeat + 1}")
        _once(run, work, format_, tables, clients, repeat)


def _once(run: Run, work: str, format_: FormatName, tables: str, clients: int, repeat: int) -> None:
    warm_up = float(run["warm_up"])
    until = warm_up + float(run["seconds"])
    crowd = Crowd(format_, clients if tables == "own" else 1, warm_up, until, work)
    requests = crowd.simulate(clients, run.seed + repeat, str(run["latency"]))
    commits = max(crowd.measured.n, 1)
    figures = {
        "requests_a_commit": sum(requests.values()) / commits,
        "races_a_commit": crowd.races / commits,
    }
    run.check(HELD, crowd.is_right)
    params: dict[str, Value] = {"format": format_, "tables": tables, "clients": clients}
    if work != "append":
        params["work"] = work
    run.add(SYSTEM, params, crowd.measured, requests=requests, figures=figures)


def throughput(result: Result) -> Figure:
    """Commits a second, by the number of clients."""
    made, (axes,) = figure(1, "processes that write at once, simulated")
    counts = sorted({int(one.params["clients"]) for one in result.series})
    heights: dict[str, list[float]] = {}
    for one in result.series:
        work = one.params.get("work", "append")
        kind = f"{work}, {one.params['format']}, {one.params['tables']} table"
        rates = heights.setdefault(kind, [float("nan")] * len(counts))
        rates[counts.index(int(one.params["clients"]))] = one.throughput_per_s
    lines(axes, counts, heights, "commits a second")
    axes.set_xlabel("processes")
    legend(made, axes)
    return made


BENCHMARK = Benchmark(
    name="crowd",
    summary="processes that write at once, more than a machine has cores, on a simulated store",
    claim="none: the project's own",
    deviations=(
        "LakeVilla's own protocol in virtual time; the CPU of clients and stores costs nothing"
    ),
    parameters=(
        Parameter("clients", "1,8,32", "1,4", "processes that write at the same time"),
        Parameter("work", "append", "append,update", f"of each: {', '.join(WORK)}"),
        Parameter("tables", "one,own", "one", "that they share, or of each its own"),
        Parameter("formats", "delta,iceberg", "delta", "of the tables"),
        Parameter("latency", "s3", "s3", f"of the simulated store: {', '.join(PROFILES)}"),
        Parameter("warm_up", 8.0, 1.0, "virtual seconds before that are not counted", least=0.0),
        Parameter("seconds", 20.0, 2.0, "virtual seconds that are", least=0.1),
        Parameter("repeats", 3, 1, "of each, with another seed", least=1),
    ),
    run=measure,
    plots={"throughput": throughput},
    profile="local",
    transactions=False,
)
