"""Banking: transfers and deposits by clients at the same time, and the total that must come out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, cast

import pyarrow as pa
from matplotlib.figure import Figure

import lakevilla as lv
from bench.harness.attempts import run_counted
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import (
    CLIENT_PARAMETERS,
    Client,
    Counts,
    clients_need,
    manner,
    run_clients,
    shares,
)
from bench.harness.drawing import bars, figure, legend
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, Value, chosen, listed, numbers
from bench.harness.results import Result
from bench.harness.words import plural
from bench.ycsb_lh.generators import Zipfian

BALANCE = 1000
#: Of an account: in a file, and as objects of Python while its bank is made.
_STORED_BYTES, _HERE_BYTES = 8, 100
LEVELS: Mapping[str, Mapping[str, Any]] = {
    "serializable": {},
    "snapshot": {"isolation": "snapshot"},
    "queued": {"features": lv.Feature.R | lv.Feature.CT | lv.Feature.I},
}


def measure(run: Run) -> None:
    """Each level, on one table and on two, for each number of clients."""
    for repeat in range(run.number("repeats")):
        for tables in numbers(run["tables"]):
            for clients in numbers(run["clients"]):
                for level in listed(run["levels"]):
                    run.advance(f"{level}, {tables} tables, {clients} clients, {repeat + 1}")
                    _once(run, level, tables, clients, repeat)


def needs(parameters: Mapping[str, Value]) -> Needs:
    """What it takes; and refuses what there is not."""
    chosen("levels", parameters["levels"], LEVELS)
    accounts, operations = int(parameters["accounts"]), int(parameters["operations"])
    rows = accounts * max(numbers(parameters["tables"]))
    bank = Needs(
        # Each write makes its table's file anew, and the store keeps both.
        data_bytes=2 * operations * accounts * _STORED_BYTES + rows * _STORED_BYTES,
        memory_bytes=rows * _HERE_BYTES,
        why=f"{operations} operations on {accounts} accounts",
    )
    return bank + clients_need(parameters, max(numbers(parameters["clients"])))


@dataclass(frozen=True, slots=True)
class Bank:
    """Accounts in some tables of a lake; plain data, for clients that are processes."""

    root: str
    options: Mapping[str, str]
    level: str
    tables: int
    accounts: int

    @property
    def names(self) -> list[str]:
        return [f"bank{number}" for number in range(self.tables)]

    @contextmanager
    def open(self) -> Iterator[lv.Lake[Any]]:
        with lv.connect(self.root, storage_options=self.options) as lake:
            yield lake

    def client(self, seed: str, share: int, lake: lv.Lake[Any], counts: Counts) -> Iterator[str]:
        """Transfers and deposits between accounts that a few are chosen of often."""
        random, choose = Random(seed), Zipfian(self.accounts)
        for _ in range(share):
            one, other = choose.at(random.random()), choose.at(random.random())
            if one == other:
                other = (one + 1) % self.accounts
            amount, is_transfer = random.randint(1, 10), random.random() < 0.5
            if not is_transfer:
                counts.facts.append(("begun", amount))
            yield "transfer" if is_transfer else "deposit"

            def once(
                txn: lv.Transaction[Any],
                one: int = one,
                other: int = other,
                amount: int = amount,
                is_transfer: bool = is_transfer,
            ) -> None:
                if is_transfer:
                    _add(txn, self.names[0], one, -amount)
                _add(txn, self.names[-1], other, amount)

            run_counted(lake, counts, once, attempts=50, **LEVELS[self.level])
            if not is_transfer:
                counts.facts.append(("done", amount))

    def total(self) -> int:
        """The sum of all accounts, in one state."""
        with self.open() as lake, lake.snapshot() as state:
            return sum(sum(state.read(name)["balance"].to_pylist()) for name in self.names)


def _once(run: Run, level: str, tables: int, clients: int, repeat: int) -> None:
    accounts = run.number("accounts")
    bank = Bank(run.places.root("banking"), run.places.options, level, tables, accounts)
    rows = pa.table({"id": range(accounts), "balance": [BALANCE] * accounts})
    with bank.open() as lake:
        for name in bank.names:
            lake.create_table(name, rows)
    seed = f"{run.seed}-{repeat}-{tables}-{clients}"
    work = [
        Client(partial(bank.client, f"{seed}-{one}", share))
        for one, share in enumerate(shares(run.number("operations"), clients))
    ]
    how = manner(run.result.parameters, seed)
    measured = run_clients(bank.open, work, how, on_start=run.places.reset)
    params = {"tables": tables, "clients": clients}
    run.add(level, params, measured, requests=run.places.count())
    sums = {"begun": 0, "done": 0}
    for what, amount in cast(list[tuple[str, int]], measured.counts.facts):
        sums[what] += amount
    # The last deposit of a client that died may have happened or not.
    came = bank.total() - BALANCE * accounts * tables
    run.check(
        "the total is what was there and what was deposited", sums["done"] <= came <= sums["begun"]
    )
    run.places.discard(bank.root)


def _add(txn: lv.Transaction[Any], table: str, account: int, amount: int) -> None:
    txn.update(
        table, {"balance": "balance + :a"}, where="id = :id", params={"a": amount, "id": account}
    )


def throughput(result: Result) -> Figure:
    """Operations a second by level, one panel for one table and one for two."""
    tables = sorted({int(one.params["tables"]) for one in result.series})
    clients = sorted({int(one.params["clients"]) for one in result.series})
    levels = list(dict.fromkeys(one.system for one in result.series))
    made, axes = figure(len(tables), f"banking, profile {result.profile}")
    found = {(o.system, o.params["tables"], o.params["clients"]): o for o in result.series}
    for panel, count in zip(axes, tables, strict=True):
        heights = {
            level: [
                found[level, count, c].throughput_per_s
                if (level, count, c) in found
                else float("nan")
                for c in clients
            ]
            for level in levels
        }
        bars(panel, [plural(c, "client") for c in clients], heights)
        panel.set_title(plural(count, "table"), fontsize=9)
    axes[0].set_ylabel("operations a second")
    legend(made, axes[0])
    return made


BENCHMARK = Benchmark(
    name="banking",
    summary="half transfers, half deposits; the total must come out",
    claim="the artifact's banking workload: the total balance stays constant at each level",
    deviations="deposits are counted by the clients, so the total is checked exactly",
    parameters=(
        Parameter("operations", 200, 8, "of all clients together", least=1),
        Parameter("clients", "1,8", "1,4", "how many at the same time"),
        Parameter("tables", "1,2", "1,2", "transfers within one table, or from one to another"),
        Parameter(
            "levels",
            "serializable,snapshot,queued",
            "serializable,queued",
            f"of {', '.join(LEVELS)}",
        ),
        Parameter("accounts", 100, 50, "in each table", least=2),
        *CLIENT_PARAMETERS,
        Parameter("repeats", 5, 1, "of each", least=1),
    ),
    run=measure,
    plots={"throughput": throughput},
    needs=needs,
)
