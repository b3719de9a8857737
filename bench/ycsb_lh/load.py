"""What is done to a system by clients, once, and whether its tables have what they must after."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa

from bench.harness.benchmark import NotInstalled, Run
from bench.harness.clients import Client, Counts, manner, run_clients, shares
from bench.harness.needs import Needs
from bench.harness.parameters import Value
from bench.ycsb_lh.generators import key_of
from bench.ycsb_lh.journal import LOST_RMW, Begun, Journal, broken
from bench.ycsb_lh.peers import PEERS, of_peer
from bench.ycsb_lh.records import KEY, NAMES, rows
from bench.ycsb_lh.systems import System, system
from bench.ycsb_lh.workload import MIXES, Inserted, Stream

#: A record in a file.
_RECORD_BYTES = 1200


@dataclass(frozen=True, slots=True)
class Load:
    """Operations of one workload, by clients that share some tables; each has one of them.

    Attributes
    ----------
    records : int
        In each table before.
    operations, warm_up : int
        Of all clients together; and of each one before it is measured.
    apart : float or None
        With one, keys come from an interval for each client of a table: see ``Interval``.
    """

    workload: str
    clients: int
    records: int
    operations: int
    warm_up: int
    seed: str
    apart: float | None = None
    tables: tuple[str, ...] = ("usertable",)

    def needs(self) -> Needs:
        """What its tables take: each write makes their file anew, and the store keeps both."""
        mix = MIXES[self.workload]
        writes = int(self.operations * (mix.update + mix.rmw)) + len(self.tables)
        data = writes * self.records * _RECORD_BYTES
        return Needs(data_bytes=data, why=f"{writes} versions of {self.records} records")


def run_load(
    run: Run, name: str, load: Load, params: Mapping[str, Value], *, slack: int = 0
) -> None:
    """Do it to a system that is made for it; put it into the run, and check what is left."""
    how = manner(run.result.parameters, load.seed)
    root = run.places.root(name)
    made: System
    if name in PEERS and how.as_ == "processes":
        run.note(f"{name} was left out: its clients are threads, not processes")
        return
    try:
        if name in PEERS:
            made = of_peer(name, run.places)
        else:
            made = system(name, root, run.places.options, slack)
    except NotInstalled as error:
        run.note(f"{name} was left out: {error}")
        return
    try:
        start = rows(0, load.records, Random(load.seed))
        made.create(load.tables, start)
        clients = _clients(made, load, in_processes=how.as_ == "processes")
        measured = run_clients(made.open, clients, how, on_start=run.places.reset)
        run.add(name, params, measured, requests=run.places.count())
        for table in load.tables:
            facts = measured.counts.facts
            before, after = (
                _by_number(contents, load.records, facts)
                for contents in (start, made.contents(table))
            )
            found = broken(facts, table, after, before)
            if slack:
                found.pop(LOST_RMW)  # under slack a read may be of an older version
            if name in PEERS and found.pop(LOST_RMW, False):
                run.note(f"{name} has lost a read-modify-write: it is two transactions there")
            for what, is_broken in found.items():
                run.check(what, not is_broken)
    finally:
        made.close()
        run.places.discard(root)


def _clients(made: System, load: Load, *, in_processes: bool) -> list[Client]:
    per_table = -(-load.clients // len(load.tables))
    shared = {table: Inserted(load.records) for table in load.tables}
    found = []
    for client, share in enumerate(shares(load.operations, load.clients)):
        table, place = load.tables[client % len(load.tables)], client // len(load.tables)
        inserted = Inserted(load.records, place, per_table) if in_processes else shared[table]
        mix = MIXES[load.workload]

        def stream(count: int, what: str) -> Stream:
            seed = f"{load.seed}-{client}-{what}"  # noqa: B023 - called before the next turn
            who = (place, per_table, load.apart)  # noqa: B023
            return Stream(table, mix, count, load.operations, seed, *who)  # noqa: B023

        work = partial(_work, made, stream(share, "work"), inserted, client)
        warm = partial(_work, made, stream(load.warm_up, "warm-up"), inserted, -1 - client)
        found.append(Client(work, warm if load.warm_up else None))
    return found


def _work(
    made: System, stream: Stream, inserted: Inserted, client: int, opened: Any, counts: Counts
) -> Iterator[str]:
    journal = Journal(stream.table, client, counts, inserted)
    return made.work(opened, stream.table, stream.operations(inserted), journal)


def _by_number(contents: pa.Table, records: int, facts: list[object]) -> dict[int, list[list[str]]]:
    """The fields of all rows, by the number of their record."""
    numbers = {key_of(number): number for number in range(records)}
    for one in facts:
        if isinstance(one, Begun) and one.operation.kind == "insert":
            numbers[key_of(one.operation.number)] = one.operation.number
    found: dict[int, list[list[str]]] = defaultdict(list)
    columns = [contents[name].to_pylist() for name in (KEY, *NAMES)]
    for key, *fields in zip(*columns, strict=True):
        found[numbers.get(key, -1)].append(fields)
    return found
