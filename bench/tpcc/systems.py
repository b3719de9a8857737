"""The systems: all statements of a transaction as one, or each by itself.

A system and the work of a terminal are plain data: they are pickled to where clients are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa

import lakevilla as lv
from bench.harness.clients import Counts
from bench.harness.features import features
from bench.tpcc.inputs import Input
from bench.tpcc.population import files
from bench.tpcc.schema import PARTITIONS, SCHEMAS, Scale
from bench.tpcc.transactions import WRITES, RolledBack, Transactions

SINGLE = "single operations"
FEATURES = {
    SINGLE: lv.Feature.R,
    **features("R|CT", "R|I", "R|CT|I"),
}
#: With queues, every transaction that writes waits for its turn here before anything else.
_GATE = "district"


class Opened:
    """A lake, and what becomes of the transaction that each thread is in."""

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        self._thread = threading.local()
        self.lake = lv.connect(root, storage_options=dict(options), on_event=self._hear)

    def _hear(self, event: lv.Event) -> None:
        tally = getattr(self._thread, "tally", None)
        if event.kind == "redo" and tally is not None:
            tally["redos"] += 1

    def count_redos_in(self, tally: dict[str, int]) -> None:
        """Note the redos of this thread there, from here on."""
        self._thread.tally = tally


@dataclass(frozen=True, slots=True)
class System:
    """One system on one lake."""

    name: str
    root: str
    options: Mapping[str, str]

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        """Create the tables with their rows, in one transaction."""
        with self.open() as opened, opened.lake.transaction() as txn:
            for name, rows in tables.items():
                txn.create_table(name, SCHEMAS[name], partition_by=PARTITIONS.get(name, ()))
                for piece in files(name, rows):
                    txn.append(name, piece)

    @contextmanager
    def open(self) -> Iterator[Opened]:
        """What threads share, or one lake or process has."""
        opened = Opened(self.root, self.options)
        with opened.lake:
            yield opened


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one transaction; ``acknowledged``: it did not roll back."""

    kind: str
    acknowledged: bool
    aborts: int
    redos: int


@dataclass(frozen=True, slots=True)
class Work:
    """What one terminal does, one transaction after the other; it tells ``Done`` of each."""

    system: str
    scale: Scale
    todo: Sequence[tuple[str, Input]] = field(repr=False)

    def __call__(self, opened: Opened, counts: Counts) -> Iterator[str]:
        transactions = Transactions(self.scale)
        for kind, given in self.todo:
            yield kind
            tally = {"attempts": 0, "operations": 0, "redos": 0}
            opened.count_redos_in(tally)
            acknowledged = True
            try:
                self._once(opened.lake, transactions, kind, given, tally)
            except RolledBack:
                acknowledged = False
            finally:
                aborts = tally["attempts"] - tally["operations"]
                counts.aborts += aborts
                counts.redos += tally["redos"]
            counts.facts.append(Done(kind, acknowledged, aborts, tally["redos"]))

    def _once(
        self,
        lake: lv.Lake,
        transactions: Transactions,
        kind: str,
        given: Input,
        tally: dict[str, int],
    ) -> None:
        now = datetime.now(UTC)
        if self.system == SINGLE:
            transactions.perform(Single(lake, tally), given, now)
            return
        writes, chosen = WRITES[kind], FEATURES[self.system]

        def whole(txn: lv.Transaction) -> None:
            tally["attempts"] += 1
            if writes and lv.Feature.CT in chosen:
                # Before it reads what it is going to write. All take the same table first, so that
                # no two wait for each other.
                txn.take_turn(_GATE)
                txn.take_turn(*writes)
            transactions.perform(txn, given, now)

        tally["operations"] += 1
        lake.run(whole, features=chosen, read_only=not writes)


class Single:
    """Statements that commit one by one: with Feature.R they are atomic on one table each."""

    def __init__(self, lake: lv.Lake, tally: dict[str, int]) -> None:
        self._lake, self._tally = lake, tally

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> pa.Table:
        return self._lake.read(table, columns, where, params=params)

    def update(
        self,
        table: str,
        assignments: Mapping[str, object],
        where: str | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> None:
        self._alone(lambda txn: txn.update(table, assignments, where, params=params))

    def delete(
        self, table: str, where: str | None = None, *, params: Mapping[str, object] | None = None
    ) -> None:
        self._alone(lambda txn: txn.delete(table, where, params=params))

    def append(self, table: str, data: object) -> None:
        self._alone(lambda txn: txn.append(table, data))

    def _alone(self, operation: Callable[[lv.Transaction], object]) -> None:
        def once(txn: lv.Transaction) -> None:
            self._tally["attempts"] += 1
            operation(txn)

        self._tally["operations"] += 1
        self._lake.run(once, features=lv.Feature.R)
