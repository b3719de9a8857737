"""A lake in memory: its processes' programs run one by one, on a store whose answers a test can
replace.

The tables are real Delta (or Iceberg) tables and HEAD is a real HEAD; the simulator's engine
handles rows. Only the test moves anything, including the clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pyarrow as pa

from lakevilla.formats.layout import Layout
from lakevilla.global_log.head import Head
from lakevilla.lake.context import Event
from lakevilla.maintenance.recovery import recover
from lakevilla.results import Report
from lakevilla.settings import Settings
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.store.base import Found, Refused
from lakevilla.store.effects import Effect, List, Parallel, Program, Put, Sleep
from lakevilla.sublogs.operations import Delete, Update
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.commit.together.group import Candidate
from lakevilla.transaction.commit.upload import Sealed, seal_commit, upload
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs import read_write
from lakevilla_testing.histories.attempts import SCHEMA, context_of
from lakevilla_testing.tables.reader import read_table, run_now, table_rows
from lakevilla_testing.world.programs import as_program
from lakevilla_testing.world.scheduler import Simulation
from lakevilla_testing.world.store import SimulatedStore
from tests.support.simulated import commits

T = TypeVar("T")

#: Features of a transaction that commits by its log entry, and through HEAD.
BY_ENTRY, THROUGH_HEAD = Feature.R, Feature.R | Feature.I


class MemoryLake:
    """Tables ``a`` and ``b`` with ids 0 and 1 in one file each, and a balance of 100.

    ``warm``: a transaction has written them already, so they are in HEAD.
    """

    def __init__(
        self,
        *tables: str,
        warm: bool = True,
        iceberg: Collection[str] = (),
        **settings: Any,
    ) -> None:
        self.tables = tables or commits.TABLES
        furnished = None if iceberg else _FURNISHED.get((self.tables, warm))
        if furnished is None:
            self.world = commits.lake(
                tables=self.tables, warm=warm, iceberg=iceberg, settings=Settings(**settings)
            )
        else:
            self.world = Simulation(settings=Settings(**settings))
            self.store.objects.update(furnished.objects)
            self.store.journal.extend(furnished.journal)
        self._peers = 0

    @property
    def store(self) -> SimulatedStore:
        store: SimulatedStore = self.world.store
        return store

    def peer(self) -> Peer:
        """Return one more process, which has read nothing of the lake yet."""
        self._peers += 1
        return Peer(self, f"peer{self._peers}")

    def pass_by(self, seconds: float) -> None:
        """Let time pass, for all processes."""
        self.world.now += seconds + 0.001

    @property
    def head(self) -> Head:
        """Return HEAD as a new client reads it."""
        held = self.peer().run_head()
        assert held is not None
        return held

    def ids(self, table: str) -> Sequence[int]:
        """Return the ids in a table, sorted, with duplicates."""
        return sorted(row["id"] for row in table_rows(self.store, table))

    def rows(self, table: str) -> dict[int, int]:
        """Return the balances by id, as a client without LakeVilla reads the table."""
        found = table_rows(self.store, table)
        balances = {row["id"]: row["balance"] for row in found}
        assert len(balances) == len(found), f"rows are there twice: {found}"
        return balances

    def version(self, table: str) -> int:
        """Return the newest version of a table's log."""
        found = run_now(self.store, read_table(table))
        assert found is not None
        return found.version

    def keys(self, prefix: str) -> list[str]:
        """Return the keys with this prefix."""
        return sorted(key for key in self.store.objects if key.startswith(prefix))

    def recover(self) -> Report:
        """Let a new client complete what other clients have left."""
        peer = self.peer()
        return peer.run(recover(peer.context))

    def replacements(self) -> int:
        """Return the number of times that a HEAD was stored."""
        return sum(change.key == "_lakevilla/HEAD.json" for change in self.store.journal)


#: The initial state of most lakes, made before any test has replaced a part of the library.
_FURNISHED: dict[tuple[tuple[str, ...], bool], SimulatedStore] = {
    (commits.TABLES, warm): commits.lake(warm=warm).store for warm in (True, False)
}


@dataclass
class _Instead:
    """An answer that a process gets instead of the store's."""

    verb: type[Effect]
    word: str
    answer: object
    times: int
    landed: bool


class Peer:
    """One process at a lake, with its own caches, clock and ids.

    Attributes
    ----------
    asked : list of Effect
        Its requests to the store, in order.
    events : list of Event
        The events of its programs.
    """

    def __init__(self, lake: MemoryLake, name: str) -> None:
        self.lake = lake
        self.client = commits.simulation_client(lake.world, name)
        self.context = context_of(self.client)
        self.events: list[Event] = []
        self.context.notify = self.events.append
        self.asked: list[Effect] = []
        self._instead: list[_Instead] = []

    # -- the store as the process sees it ----------------------------------------

    def instead(
        self,
        word: str,
        answer: object,
        *,
        verb: type[Any] = Put,
        times: int = 1,
        landed: bool = False,
    ) -> None:
        """Answer the next requests whose key contains ``word`` with ``answer``; an error is raised.

        ``landed``: the store performs them, and its own answer is lost.
        """
        self._instead.append(_Instead(verb, word, answer, times, landed))

    def apply(self, effect: Effect) -> object:
        """Perform one request."""
        self.asked.append(effect)
        for one in self._instead:
            if one.times and isinstance(effect, one.verb) and one.word in _key(effect):
                one.times -= 1
                if one.landed:
                    self.lake.store.apply(effect)
                if isinstance(one.answer, Exception):
                    raise one.answer
                return one.answer() if callable(one.answer) else one.answer
        answer = self.lake.store.apply(effect)
        if isinstance(answer, Refused) and isinstance(effect, Put):
            # as the runner does, which reads the object after a refusal
            found = self.lake.store.get(effect.key)
            return Refused(found if isinstance(found, Found) else None)
        return answer

    def asked_for(self, verb: type[Any], word: str = "") -> Sequence[str]:
        """Return the keys of the process's requests that contain ``word``."""
        keys = [_key(effect) for effect in self.asked if isinstance(effect, verb)]
        return [key for key in keys if word in key]

    # -- the process's programs --------------------------------------------------

    def run(self, program: Program[T]) -> T:
        """Run a program to its end; no other client acts meanwhile."""
        answer: Any = None
        failure: Exception | None = None
        while True:
            try:
                effect = program.send(answer) if failure is None else program.throw(failure)
            except StopIteration as stop:
                return cast(T, stop.value)
            answer, failure = None, None
            try:
                answer = self._answer(effect)
            except Exception as error:
                failure = error

    def _answer(self, effect: Effect) -> object:
        match effect:
            case Parallel(parts=parts):
                return self._answers(parts)
            case Sleep(seconds=seconds):
                self.lake.pass_by(seconds)
                return None
            case List():
                return sorted(self.apply(effect), key=lambda info: info.key)  # type: ignore[call-overload]
            case _:
                return self.apply(effect)

    def _answers(self, parts: Sequence[Effect | Program[Any]]) -> Sequence[object]:
        """Answer parts that run at the same time; raise the first error when all have ended."""
        answers, failures = [], []
        for part in parts:
            try:
                answers.append(self.run(as_program(part)))
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return answers

    def steps(self, program: Program[Any]) -> Any:
        """Return a process that runs the program request by request; see ``Process``."""
        return commits.Process(self.lake.world, lambda client: program, self.client.name)

    def run_head(self) -> Head | None:
        held = self.run(self.context.head())
        return None if held is None else held.head

    def begin(self, features: Feature = THROUGH_HEAD, **options: Any) -> TransactionState:
        """Begin a transaction of this process."""
        txn: TransactionState = commits.begin(self.client, features, self.context, **options)
        return txn

    def appending(
        self, table: str, *ids: int, features: Feature = THROUGH_HEAD
    ) -> TransactionState:
        """Return a transaction that has appended a row with a balance of 0 for each id."""
        txn = self.begin(features)
        self.append(txn, table, *ids)
        return txn

    def append(self, txn: TransactionState, table: str, *ids: int) -> Done:
        return self.run(read_write.append(txn, table, rows_of(*ids).to_reader()))

    def add(self, txn: TransactionState, table: str, amount: int, number: int = 0) -> Done:
        """Update one account."""
        assignment = {"balance": parse_expression(f"balance + {amount}")}
        operation = Update(table, assignment, parse_predicate(f"id = {number}"))
        return self.run(read_write.execute(txn, operation, "update"))

    def read(self, txn: TransactionState, table: str, where: str = "id >= 0") -> dict[int, int]:
        """Return the balances as the transaction's caller reads them."""
        program = read_write.scan(txn, table, None, parse_predicate(where))
        return {row["id"]: row["balance"] for row in self.run(program).read_all().to_pylist()}

    def delete(self, txn: TransactionState, table: str, number: int) -> Done:
        """Delete one account."""
        operation = Delete(table, parse_predicate(f"id = {number}"))
        return self.run(read_write.execute(txn, operation, "delete"))

    def run_layout(self, table: str) -> Layout:
        """Return the layout of a table's rows."""
        snapshot = self.run(self.begin().lookup(table))
        return snapshot.layout

    def uploaded(self, txn: TransactionState) -> Sealed:
        """Run steps 2 and 3 of a commit."""
        sealed = self.run(seal_commit(txn))
        self.run(upload(txn, sealed))
        return sealed

    def candidate(self, txn: TransactionState) -> Candidate:
        """Return a transaction's candidate, which is ready for the commit point."""
        sealed = self.uploaded(txn)
        self.context.keep_commit(sealed.digest, sealed.commit)
        assert txn.bound.held is not None
        return Candidate(txn, sealed.commit, sealed.digest, txn.bound.held, body=sealed.body)

    def commit(self, txn: TransactionState, *, publish: bool = True) -> Any:
        return self.run(commit(txn, publish=publish))

    def decide(self, table: str, *ids: int) -> TransactionState:
        """Append rows by a commit that is decided, and not in its table's log yet."""
        txn = self.appending(table, *ids)
        self.commit(txn, publish=False)
        return txn


def rows_of(*ids: int) -> pa.Table:
    """Return rows with a balance of 0."""
    columns = {"id": list(ids), "balance": [0] * len(ids), "items": [""] * len(ids)}
    return pa.table(columns, schema=SCHEMA)


def _key(effect: Any) -> str:
    return str(getattr(effect, "key", getattr(effect, "prefix", "")))
