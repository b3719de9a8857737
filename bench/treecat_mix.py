"""TreeCat's mix: how many transactions abort if conflicts are found by rows, or by whole tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Literal, cast, get_args

import pyarrow as pa
from matplotlib.figure import Figure

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
from bench.harness.clients.team import PROCESSES
from bench.harness.doubts import counted
from bench.harness.drawing import bars, figure, legend
from bench.harness.parameters import Parameter, Value, chosen, numbers
from bench.harness.results import Result
from bench.harness.words import plural

#: Of so many transactions each kind has its share.
WEIGHTS = {"optimize": 2, "insertFact": 288, "insertDim": 24, "delete": 1, "read": 1260}
#: The tables of TPC-DS that data maintenance writes, and what their rows refer to.
FACTS = {
    "store_sales": ("item", "customer", "store", "promotion"),
    "store_returns": ("item", "customer", "store"),
    "catalog_sales": ("item", "customer", "call_center", "catalog_page", "warehouse"),
    "catalog_returns": ("item", "customer", "call_center", "warehouse"),
    "web_sales": ("item", "customer", "web_site", "web_page", "warehouse"),
    "web_returns": ("item", "customer", "web_page"),
    "inventory": ("item", "warehouse"),
}
DIMENSIONS = tuple(dict.fromkeys(table for dims in FACTS.values() for table in dims))
#: Five years, as the generator sells.
DAYS = 1826
_READ_DAYS, _DELETED_DAYS = 30, 3
#: Rows of a table before the run, in so many files: metadata alone is what counts.
_ROWS, _FILES = 60, 3
#: Ids of rows that the run inserts begin here.
_INSERTED = 1_000_000

Validation = Literal["precise", "rules"]


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of rows: in the order in which they come, or in none; ``rows`` come at a time."""

    random: bool
    rows: int

    def of(self, id: int) -> int:
        return id * 0x9E3779B1 % (1 << 40) if self.random else id


@dataclass(frozen=True, slots=True)
class Done:
    """One transaction, as its client knows it: its insert, or the days that it read or deleted."""

    kind: str
    table: str
    id: int
    low: int
    high: int
    aborted: bool


def measure(run: Run) -> None:
    """Each way to validate, for each number of clients, in turn."""
    chosen("keys", run["keys"], ("sorted", "random"))
    validations = cast(
        list[Validation], chosen("validations", run["validations"], get_args(Validation))
    )
    for repeat in range(run.number("repeats")):
        for clients in numbers(run["clients"]):
            for validation in validations:
                run.advance(f"{validation}, {clients} clients, repeat {repeat + 1}")
                _once(run, validation, clients, repeat)
    for clients in numbers(run["clients"]):
        precise, rules = (
            run.result.find(name, clients=clients, operation="all") for name in get_args(Validation)
        )
        if rules is not None and rules.aborts:
            run.ratio(
                f"{clients} clients: aborts of precise validation, times those of rules",
                0.1,
                precise,
                rules,
                "aborted_percent",
            )


def _once(run: Run, validation: Validation, clients: int, repeat: int) -> None:
    root, options = run.places.root(validation), run.places.options
    keys = Keys(run["keys"] == "random", run.number("rows"))
    with lv.connect(root, storage_options=options) as lake:
        _seed(lake, keys)
    seed = f"{run.seed}-{clients}-{repeat}"  # the same work for both
    kinds = deck(run.number("operations"), Random(seed))
    with counted() as doubts:
        measured = run_clients(
            partial(lv.connect, root, storage_options=options),
            [
                Client(
                    partial(
                        _client, kinds[number::clients], number, clients, seed, validation, keys
                    )
                )
                for number in range(clients)
            ],
            manner(run.result.parameters, seed),
            on_start=run.places.reset,
        )
    requests = run.places.count()
    done = cast(list[Done], measured.counts.facts)
    figures = {"aborted_percent": 100 * measured.counts.aborts / max(measured.n, 1)}
    commits = sum(one.kind != "read" and not one.aborted for one in done)
    if run["clients_as"] != PROCESSES:  # what others do is not counted here
        figures["overtaken"] = len(doubts.overtaken)
        figures["doubtful"] = len(doubts.doubtful)
        figures["doubtful_percent"] = 100 * len(doubts.doubtful) / max(commits, 1)
    params: dict[str, Value] = {"clients": clients, "operation": "all"}
    run.add(validation, params, measured, requests=requests, figures=figures)
    for kind, histogram in measured.histograms.items():
        aborts = sum(one.kind == kind and one.aborted for one in done)
        part = Measured({kind: histogram}, measured.seconds, Counts(aborts))
        run.add(validation, {"clients": clients, "operation": kind}, part)
    if not measured.deaths and not measured.interrupted:
        with lv.connect(root, storage_options=options) as lake:
            lost, torn, kept = _compared(lake, done, keys)
        run.check("no insert that was acknowledged is lost", not lost)
        run.check("no insert that was aborted is there", not torn)
        run.check(
            "of the rows from before, those that were deleted are gone, and no others", not kept
        )
    run.places.discard(root)


def _client(
    kinds: Sequence[str],
    number: int,
    clients: int,
    seed: str,
    validation: Validation,
    keys: Keys,
    lake: lv.Lake,
    counts: Counts,
) -> Iterator[str]:
    """One client: its share of the transactions, each tried once."""
    random = Random(f"{seed}-{number}")
    for step, kind in enumerate(kinds):
        yield kind
        id = _INSERTED + (step * clients + number) * keys.rows
        fact = random.choice(list(FACTS))
        table = random.choice(DIMENSIONS) if kind == "insertDim" else fact
        rows = _rows(table, range(id, id + keys.rows), random, keys)
        low = random.randrange(DAYS - _READ_DAYS)
        high = low + (_DELETED_DAYS if kind == "delete" else _READ_DAYS) - 1
        aborted = False
        try:
            if kind == "optimize":
                lake.table(fact).optimize()  # its own transaction; it takes no validation
            else:
                with lake.transaction(validation=validation) as txn:
                    _carry_out(txn, kind, table, rows, low, high)
        except lv.ConflictError:
            aborted = True
            counts.aborts += 1
        if kind in ("insertFact", "insertDim"):
            low = high = rows["day"][0].as_py() if kind == "insertFact" else -1
        counts.facts.append(Done(kind, table, id, low, high, aborted))


def deck(count: int, random: Random) -> list[str]:
    """Kinds of transactions by their weights, shuffled; at least one of each."""
    whole = sum(WEIGHTS.values())
    kinds = [
        kind
        for kind, weight in WEIGHTS.items()
        for _ in range(max(1, round(count * weight / whole)))
    ]
    random.shuffle(kinds)
    return kinds


def _rows(table: str, ids: Sequence[int], random: Random, keys: Keys) -> pa.Table:
    """Rows of one day, with the keys of these ids."""
    columns: dict[str, object] = {"id": pa.array([keys.of(id) for id in ids], pa.int64())}
    if table in FACTS:
        columns["day"] = pa.array([random.randrange(DAYS)] * len(ids), pa.int32())
        for dimension in FACTS[table]:
            of = [keys.of(random.randrange(_ROWS)) for _ in ids]
            columns[dimension] = pa.array(of, pa.int64())
    columns["value"] = pa.array([random.randrange(100) for _ in ids], pa.int32())
    return pa.table(columns)


def _seed(lake: lv.Lake, keys: Keys) -> None:
    """Tables of few rows in some files; the rows of a fact table's file are of some time."""
    random = Random(1)
    share = _ROWS // _FILES
    for part in range(_FILES):
        with lake.transaction() as txn:
            for table in (*FACTS, *DIMENSIONS):
                ids = range(part * share, (part + 1) * share)
                rows = _rows(table, ids, random, keys)
                if table in FACTS:
                    days = [_day(id) for id in ids]
                    rows = rows.set_column(1, "day", pa.array(days, pa.int32()))
                if part == 0:
                    txn.create_table(table, rows)
                else:
                    txn.append(table, rows)


def _carry_out(
    txn: lv.Transaction, kind: str, table: str, rows: pa.Table, low: int, high: int
) -> None:
    """What one transaction does; ``rows`` is the one that it inserts, or looks up for."""
    days = f"day BETWEEN {low} AND {high}"
    match kind:
        case "read":
            txn.read(table, ["id", "value"], days)
            _look_up(txn, rows, FACTS[table][:1])
        case "insertFact":
            _look_up(txn, rows, FACTS[table])
            txn.append(table, rows)
        case "insertDim":
            txn.append(table, rows)
        case "delete":
            txn.delete(table, days)


def _look_up(txn: lv.Transaction, rows: pa.Table, dimensions: Sequence[str]) -> None:
    """Read the rows of dimensions that a row of a fact table refers to."""
    for dimension in dimensions:
        txn.read(dimension, ["id"], f"id = {rows[dimension][0].as_py()}")


def _compared(
    lake: lv.Lake, done: Sequence[Done], keys: Keys
) -> tuple[list[object], list[object], list[object]]:
    """Rows that must be there and are not, once each; aborted inserts that are; rows from before
    that were deleted and are there, or were not and are not.
    """
    inserts = [one for one in done if one.kind in ("insertFact", "insertDim")]
    deletes = [one for one in done if one.kind == "delete" and not one.aborted]
    with lake.snapshot() as state:
        there = {
            table: Counter(state.read(table, ["id"])["id"].to_pylist())
            for table in (*FACTS, *DIMENSIONS)
        }
    due = [(table, keys.of(id)) for table in DIMENSIONS for id in range(_ROWS)]
    due += [
        (one.table, keys.of(one.id + place))
        for one in inserts
        for place in range(keys.rows)
        if not one.aborted
        and not any(d.table == one.table and d.low <= one.low <= d.high for d in deletes)
    ]
    lost: list[object] = [(table, id) for table, id in due if there[table][id] != 1]
    torn: list[object] = [
        one for one in inserts if one.aborted and there[one.table][keys.of(one.id)]
    ]
    wrong: list[object] = []
    for table in FACTS:
        for id in range(_ROWS):
            gone = any(d.table == table and d.low <= _day(id) <= d.high for d in deletes)
            if there[table][keys.of(id)] != (0 if gone else 1):
                wrong.append((table, id))
    return lost, torn, wrong


def _day(id: int) -> int:
    """Of a fact table's row from before the run."""
    return id * DAYS // _ROWS


def aborts(result: Result) -> Figure:
    """Of a hundred transactions of each kind, how many abort."""
    clients = sorted({int(one.params["clients"]) for one in result.series})
    systems = list(dict.fromkeys(one.system for one in result.series))
    kinds = ["all", *(kind for kind in WEIGHTS if kind != "all")]
    found = {(o.system, o.params["clients"], o.params["operation"]): o for o in result.series}
    made, axes = figure(
        len(clients), f"TreeCat's mix: transactions that abort, profile {result.profile}"
    )
    made.set_size_inches(max(6.0, 4.6 * len(clients)), 3.6)
    for panel, count in zip(axes, clients, strict=True):
        heights = {
            system: [
                100 * one.aborts / one.n
                if (one := found.get((system, count, kind))) is not None and one.n
                else float("nan")
                for kind in kinds
            ]
            for system in systems
        }
        bars(panel, kinds, heights)
        panel.set_title(plural(count, "client"), fontsize=9)
    axes[0].set_ylabel("aborts, % of transactions")
    legend(made, axes[0])
    return made


BENCHMARK = Benchmark(
    name="treecat_mix",
    summary="TreeCat's mix over the tables of TPC-DS: aborts of precise validation and of rules",
    claim=(
        "not in LakeVilla's paper: TreeCat's evaluation counts aborts of this mix with locks on "
        "ranges of files' statistics and on whole tables; the paper validates whole tables"
    ),
    deviations=(
        "tables have a few rows of a few columns, so that metadata alone counts; an insert into "
        "a fact table looks up the rows that it refers to, as LST-Bench's scripts do; OPTIMIZE "
        "is the library's own transaction, and always precise"
    ),
    parameters=(
        Parameter("operations", 3150, 150, "of all clients together", least=1),
        Parameter("clients", "8,32", "8", "how many at the same time"),
        Parameter("validations", "precise,rules", "precise,rules", "how commits are checked"),
        Parameter("keys", "sorted", "sorted", "of the rows inserted: sorted, or random"),
        Parameter("rows", 1, 1, "that an insert has", least=1),
        Parameter("repeats", 5, 1, "of each", least=1),
        *CLIENT_PARAMETERS,
    ),
    run=measure,
    needs=lambda given: clients_need(given, max(numbers(given["clients"]))),
    plots={"aborts": aborts},
)
