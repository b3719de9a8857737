"""The lake of one history, and the attempts of its clients."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa

from lakevilla.formats.base import FormatName
from lakevilla.formats.delta import DeltaFormat
from lakevilla.formats.iceberg.table_format import IcebergFormat
from lakevilla.formats.registry import Formats
from lakevilla.global_log.refs import RefEntry
from lakevilla.lake.context import Context, Event
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program, sleep
from lakevilla.sublogs.operations import (
    Alter,
    Delete,
    Guard,
    Merge,
    Update,
)
from lakevilla.transaction.queue.places import perform_late
from lakevilla.transaction.state.late_reads import is_due
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs import save
from lakevilla.transaction.verbs.read_write import append, execute, scan
from lakevilla_testing.checks.feed import Copy
from lakevilla_testing.checks.history import Key, Recorded, Txn, Value
from lakevilla_testing.histories.plan import TABLES, Plan
from lakevilla_testing.tables.iceberg_reader import uri_of
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.engine import RowEngine
from lakevilla_testing.world.scheduler import Simulation
from lakevilla_testing.world.store import ROOT

COLUMNS = {"id": "long", "balance": "long", "items": "string"}


#: Properties by which events that are rare among commits happen every few commits.
FREQUENT: dict[FormatName, dict[str, str]] = {
    "delta": {"delta.checkpointInterval": "3"},
    "iceberg": {"commit.manifest.min-count-to-merge": "3"},
}


SCHEMA = pa.schema([("id", pa.int64()), ("balance", pa.int64()), ("items", pa.string())])


#: Tables that ``contended`` transactions share.
CONTENDED = TABLES[:2]


#: The first balance of each account.
BALANCE = 100


@dataclass(eq=False)
class Try:
    """One run of a transaction in one process: its actions, its reads and its results.

    A transaction that is rerun after a conflict keeps its id, so several attempts share one id.
    """

    core: TransactionState
    kind: str
    record: Txn
    tables: set[str] = field(default_factory=set)
    added: list[tuple[str, int]] = field(default_factory=list)
    taken: list[tuple[str, int]] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    #: Columns that the attempt has added, with the one row that has a value there.
    filled: list[tuple[str, str, int, int]] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)
    counts: list[tuple[Done, tuple[int, ...]]] = field(default_factory=list)
    status: Status = "unknown"
    foreign: bool = False
    #: The attempt lost, and its transaction is rerun under its id: no effect of it may ever be
    #: seen.
    lost: bool = False
    key: tuple[str, int | None] | None = None

    @property
    def id(self) -> str:
        return self.core.id


@dataclass
class World:
    """The data that the clients of one history share besides the store."""

    simulation: Simulation
    plan: Plan
    attempts: list[Try] = field(default_factory=list)
    saved: list[Try] = field(default_factory=list)
    verdicts: list[tuple[str, str]] = field(default_factory=list)
    #: Columns that a client may have dropped.
    dropped: set[tuple[str, str]] = field(default_factory=set)
    foreign_rows: list[tuple[str, int]] = field(default_factory=list)
    #: The requests of each Iceberg client, in order (``givers``).
    asked: defaultdict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    #: Tables on which a client without LakeVilla worked, with the begin and the end.
    foreign_acts: list[tuple[str, float, float]] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    numbers: int = 0
    #: The acknowledged refs, and the names of refs that a client has tried to delete.
    made_refs: list[tuple[str, RefEntry]] = field(default_factory=list)
    deleted_refs: set[str] = field(default_factory=set)
    #: The copies of the followers of the change feed.
    copies: list[Copy] = field(default_factory=list)
    #: The history of the lists, once it was checked.
    recorded: Recorded | None = None

    def value(self) -> Value:
        """Return a number that is used once in the history."""
        self.numbers += 1
        return self.numbers

    def begin(self, context: Context, client: Client, kind: str, txn: TransactionState) -> Try:
        record = Txn(f"T{len(self.attempts)}", client.name, self.simulation.now)
        attempt = Try(txn, kind, record)
        self.attempts.append(attempt)
        return attempt

    def notice(self, event: Event) -> None:
        """Count an event of the protocol."""
        gave_up = event.kind == "waiting" and not event.detail
        self.events["timed out" if gave_up else event.kind] += 1

    def end(self, attempt: Try, status: Status) -> None:
        attempt.status = attempt.record.status = status
        if status != "unknown":
            attempt.record.completed = self.simulation.now


def set_wrong(world: World, client: Client) -> None:
    """Set the clocks of half of the cleaners wrong by days: no clean-up may go by them."""
    source = random.Random(f"{world.simulation.seed}/{client.name}/clock")
    client.clock.offset_seconds = source.choice((0.0, 0.0, 10.0, -10.0)) * 24 * 3600


def context_of(client: Client) -> Context:
    """Return a lake as a fresh process sees it."""

    def replaces() -> Program[bool]:
        yield from ()
        return client.simulation.store.replaces

    return Context(
        ROOT,
        client.clock,
        client.ids,
        client.simulation.settings,
        Formats(DeltaFormat(), IcebergFormat(uri_of)),
        # Clients of every fourth history hold files in memory, as beside a remote store.
        RowEngine(client.clock, reads_by_parts=client.simulation.seed % 4 == 1),
        replaces=replaces,
    )


class Hand:
    """The verbs of one attempt; each notes its actions and reads."""

    def __init__(self, world: World, attempt: Try) -> None:
        self.world = world
        self.attempt = attempt
        self.core = attempt.core

    def read(self, table: str, key: int, *, by: str = "id") -> Program[None]:
        rows = yield from self.look(table, f"{by} = {key}")
        if len(rows) != 1:
            assert self.world.plan.harsh, f"{self.attempt.id} found {rows} in {table}"
            return
        values = tuple(int(text) for text in rows[0]["items"].split(",") if text)
        self.attempt.record.read(f"{table}{key}", values)

    def look(self, table: str, where: str) -> Program[list[dict[str, Any]]]:
        with self._used():
            reader = yield from scan(self.core, table, None, _predicate(where))
        rows: list[dict[str, Any]] = reader.read_all().to_pylist()
        yield from self._rest()
        return rows

    def _used(self) -> AbstractContextManager[None]:
        """Return the block of one verb."""
        return nullcontext() if self.core.turn is None else self.core.turn.used()

    def _rest(self) -> Program[None]:
        """Do nothing for some time, while other threads wait for the turn of this one."""
        chance = self.core.context.ids.jitter
        if self.core.turn is not None and chance() < 0.1:
            yield from sleep(20 * chance())

    def push(self, table: str, key: int, *, by: str = "id") -> Program[None]:
        value = self.world.value()
        operation = Update(
            table, {"items": _expression(f"items || ',{value}'")}, _predicate(f"{by} = {key}")
        )
        yield from self._execute(operation)
        # Noted before the save: if that fails without an answer, a client that resumes the
        # transaction finds this attempt.
        self.attempt.record.append(key_of(table, key), value)
        yield from self.save_if_due()

    def update(self, table: str, column: str, value: str, where: str) -> Program[Done]:
        operation = Update(table, {column: _expression(value)}, _predicate(where))
        return (yield from self.do(operation))

    def do(self, operation: Update | Delete | Alter | Merge | Guard) -> Program[Done]:
        done = yield from self._execute(operation)
        yield from self.save_if_due()
        return done

    def _execute(self, operation: Update | Delete | Alter | Merge | Guard) -> Program[Done]:
        self.attempt.tables.add(operation.table)
        with self._used():
            done = yield from execute(self.core, operation, type(operation).__name__.lower())
        yield from self._rest()
        return done

    def add(self, table: str, *, mark: str | None = None) -> Program[None]:
        number = 100 + self.world.value()
        rows = pa.table({"id": [number], "balance": [0], "items": [""]}, schema=SCHEMA)
        if mark is not None:
            rows = rows.append_column(mark, rows["id"])
        self.attempt.tables.add(table)
        with self._used():
            yield from append(self.core, table, rows.to_reader())
        self.attempt.added.append((table, number))
        yield from self.save_if_due()

    def count(self, done: Done) -> Program[int]:
        """Return the number of changed rows: reading it makes it part of the transaction."""
        if done.deferred:
            yield from perform_late(self.core)
        done.observed = True
        self.attempt.counts.append((done, done.counts.rows))
        return sum(done.counts.rows[1:])

    def save_if_due(self) -> Program[None]:
        if is_due(self.core):
            yield from save.save(self.core)


@lru_cache(4096)
def _predicate(text: str) -> Expr:
    """Parse a predicate once for all histories: trees do not change."""
    return parse_predicate(text)


@lru_cache(4096)
def _expression(text: str) -> Expr:
    return parse_expression(text)


def key_of(table: str, key: int) -> Key:
    return f"{table}{key}"


Status = Literal["committed", "aborted", "unknown"]
