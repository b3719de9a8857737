"""CAB-LH run: read and write streams on one lake, and the features switched from phase to phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from random import Random

from bench.cab_lh import checks, plots
from bench.cab_lh.arguments import Refresh
from bench.cab_lh.patterns import SLOTS
from bench.cab_lh.queries import Texts
from bench.cab_lh.streams import Plan, average_time, streams
from bench.cab_lh.work import Again, client, read, warm_up, write
from bench.cab_lh.writes import Start, Write
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
from bench.harness.features import FEATURES
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, Value, WrongParameter, chosen, listed
from bench.harness.tpc import KINDS, Tpc

MODES = ("serial", "concurrent")
#: Of the tables: what the writes of one phase rewrite is kept until the phase is over.
_COPIES = 4


def measure(run: Run) -> None:
    """Each phase, in each repeat; every repeat begins with another one."""
    phases, modes = listed(run["features"]), listed(run["modes"])
    run.advance("TPC-H's tables are made")
    with closing(Tpc("tpch", float(run["scale"]), run.places.file("tpch.duckdb"))) as made:
        start, texts = Start(made), Texts(made)
        for repeat in range(run.number("repeats")):
            turn = repeat % len(phases)
            for name in [*phases[turn:], *phases[:turn]]:
                _phase(run, _Phase(run, made, start, texts, name), modes, repeat)


def needs(parameters: Mapping[str, Value]) -> Needs:
    """What it takes; and refuses what there is not."""
    for name, known in (("features", FEATURES), ("modes", MODES)):
        chosen(name, parameters[name], known)
    if SLOTS % int(parameters["slots"]):
        raise WrongParameter(f"slots={parameters['slots']} does not divide {SLOTS}")
    most = int(parameters["readers"]) + int(parameters["writers"])
    data = KINDS["tpch"].needs(float(parameters["scale"]), _COPIES)
    return data + clients_need(_with_times(parameters), most)


def _with_times(parameters: Mapping[str, Value]) -> Mapping[str, Value]:
    """Streams have their own times: no rate is asked for."""
    return {**parameters, "rate": 0.0}


def _phase(run: Run, phase: _Phase, modes: Sequence[str], repeat: int) -> None:
    try:
        run.advance(f"{phase.name}: the tables are loaded, repeat {repeat + 1}")
        phase.load()
        if not run.result.checks:
            run.advance("the queries are checked")
            phase.check_answers()
        for mode in modes:
            run.advance(f"{phase.name}, {mode}, repeat {repeat + 1}")
            phase.serial() if mode == "serial" else phase.concurrent()
        phase.check_tables()
    finally:
        run.places.discard(phase.root)


class _Phase:
    """One set of features, on a lake of its own: no phase pays for the files that others wrote."""

    def __init__(self, run: Run, made: Tpc, start: Start, texts: Texts, name: str) -> None:
        self._run, self._made, self._start, self._texts = run, made, start, texts
        self.name, self.root = name, run.places.root("cab")
        self._opens = partial(client, self.root, run.places.options)
        self._scale = float(run["scale"])
        self._ledger, self._refresh = start.ledger(), Refresh(self._scale)
        self._planned: list[Write] = []
        self._has_deaths = False

    def load(self) -> None:
        with self._opens() as opened, opened.lake.transaction() as txn:
            for table in self._made.tables:
                txn.create_table(table, self._made.rows(table))

    def check_answers(self) -> None:
        with self._opens() as opened:
            holds = checks.answers_are_right(opened.lake, self._made, self._texts, self._scale)
            self._run.check("each query answers as DuckDB does from the same rows", holds)

    def serial(self) -> None:
        """One read stream, and then one write stream."""
        for kind, clients in (("read", self._readers(1)), ("write", self._writers(1))):
            measured = self._measured(clients)
            self._add("serial", kind, measured, self._run.places.count())
            if measured.interrupted:
                raise KeyboardInterrupt

    def concurrent(self) -> None:
        """All streams at the same time; whose requests are whose is not known."""
        readers = self._readers(self._run.number("readers"))
        writers = self._writers(self._run.number("writers"))
        measured = self._measured([*readers, *writers])
        for kind, clients in (("read", readers), ("write", writers)):
            if clients:
                self._add("concurrent", kind, measured, {})
        if measured.interrupted:
            raise KeyboardInterrupt

    def check_tables(self) -> None:
        """What the tables hold must be what was acknowledged."""
        if self._has_deaths:
            return  # what a dead client did last is not known
        self._run.advance(f"{self.name}: the tables are checked")
        with self._opens() as opened:
            holds = checks.tables_hold(opened.lake, self._ledger)
            self._run.check("each table holds what the acknowledged writes make of it", holds)
            holds = checks.orders_are_whole(opened.lake, self._made, self._ledger)
            self._run.check("query 23 moves each order once, at the price of its lines", holds)
        if not self._ledger.moved:
            self._run.note("query 23 was not among the writes: writes=N with a larger N draws it")

    def _measured(self, clients: Sequence[Client]) -> Measured:
        how = manner(_with_times(self._run.result.parameters), "")
        measured = run_clients(self._opens, clients, how, on_start=self._run.places.reset)
        for number in measured.counts.facts:
            if isinstance(number, int):  # of a write that was acknowledged
                self._ledger.note(self._planned[number])
        self._has_deaths |= bool(measured.deaths)
        return measured

    def _add(self, mode: str, kind: str, measured: Measured, requests: Mapping[str, int]) -> None:
        self._run.add(
            self.name,
            {"streams": mode, "kind": kind},
            _only(measured, kind),
            requests=requests,
        )

    def _readers(self, count: int) -> list[Client]:
        features = FEATURES[self.name]
        return [
            Client(
                partial(read, [self._texts.text(query) for query in one.queries], features),
                warm_up,
                arrives=[query.start_ms / 1000 for query in one.queries],
            )
            for one in streams(count, self._plan("reads"))
        ]

    def _writers(self, count: int) -> list[Client]:
        clients = []
        for i, one in enumerate(streams(count, self._plan("writes"))):
            random = Random(f"{self._run.seed}-{i}")
            first = len(self._planned)
            self._planned += self._start.writes(one, self._refresh, random)
            numbered = list(enumerate(self._planned))[first:]
            arrives = [planned.start_ms / 1000 for _, planned in numbered]
            work = partial(write, numbered, FEATURES[self.name])
            clients.append(Client(work, warm_up, arrives))
        return clients

    def _plan(self, budget: str) -> Plan:
        return Plan(
            self._scale,
            budget=int(float(self._run[budget]) * average_time(self._scale)),
            duration_ms=int(float(self._run["seconds"]) * 1000),
            read_only=budget == "reads",
            slots=self._run.number("slots"),
            shift=self._run.seed - 1,
        )


def _only(measured: Measured, kind: str) -> Measured:
    """The operations of one kind, and what is counted of them."""
    spent = measured.counts.phase_seconds
    again = [one for one in measured.counts.facts if isinstance(one, Again) and one.kind == kind]
    counts = Counts(
        aborts=sum(one.aborts for one in again),
        redos=sum(one.redos for one in again),
        phase_seconds={name: spent[name] for name in spent if name.startswith(f"{kind}/")},
    )
    found = {name: one for name, one in measured.histograms.items() if name == kind}
    return Measured(found, measured.seconds, counts, measured.deaths)


BENCHMARK = Benchmark(
    name="cab_lh",
    summary="the Cloud Analytics Benchmark: TPC-H query streams beside write streams, by features",
    claim=(
        "Figure 11: serially LV[DL] and LV[I] are fastest and all features slowest; concurrently "
        "LV[I] has the lowest latencies of metadata, and LV[CT] outliers in writes"
    ),
    deviations=(
        "scale factor 1 in place of 10, seconds in place of 20 minutes a phase, and the 100 slots "
        "of a stream put together to fewer; each phase has the same streams, whose budgets are a "
        "parameter, on a new lake; latencies are of whole transactions, from their arrival on; "
        "the write streams share one state of query 23, as they share one lake; with Feature.NONE, "
        "one write a transaction, the two statements of query 23 are two transactions"
    ),
    parameters=(
        Parameter("scale", 1.0, 0.01, "TPC-H's scale factor", least=0.001),
        Parameter("features", ",".join(FEATURES), "NONE,R|I,R|CT|I", "the phases"),
        Parameter("modes", ",".join(MODES), ",".join(MODES), "one stream at a time, or all"),
        Parameter("readers", 8, 2, "concurrent read streams", least=0),
        Parameter("writers", 4, 2, "concurrent write streams", least=0),
        Parameter("seconds", 60.0, 2.0, "of one phase in one mode", least=0.1),
        Parameter("slots", 5, 2, "of a stream; CAB has 100", least=1),
        Parameter("reads", 2.0, 2.0, "average queries that a read stream's budget pays", least=1),
        Parameter("writes", 12.0, 2.0, "the same for a write stream", least=1),
        Parameter("repeats", 5, 1, "of all phases", least=1),
        CLIENT_PARAMETERS[0],
    ),
    run=measure,
    plots={"latency": plots.latency, "metadata": plots.metadata},
    needs=needs,
)
