"""The systems of YCSB-LH, each by its own best practice.

A system is plain data: it is pickled to where its clients are. What it opens there is theirs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, cast

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError

import lakevilla as lv
from bench.harness.attempts import run_counted
from bench.harness.clients import COMMIT, Counts
from bench.harness.features import features as named_features
from bench.harness.parameters import WrongParameter
from bench.harness.peers.deltalake import answer
from bench.ycsb_lh.ducklake import DuckLakeSystem
from bench.ycsb_lh.generators import key_of
from bench.ycsb_lh.journal import Journal
from bench.ycsb_lh.records import KEY, NAMES, modified_in, rows
from bench.ycsb_lh.workload import Operation

#: As Spark+Delta in the paper: a commit that loses is tried so often.
RETRIES = 10
#: A transaction that lost is counted and runs again: never a client that dies of it.
_ATTEMPTS = 50


class System(Protocol):
    """A system of the comparison."""

    def create(self, tables: Sequence[str], data: pa.Table) -> None:
        """Make the tables; this is not measured."""

    def open(self) -> AbstractContextManager[Any]:
        """What all threads share, or one lake or process has."""

    def work(
        self, opened: Any, table: str, todo: Iterable[Operation], journal: Journal
    ) -> Iterator[str]:
        """Carry out operations on one table, as one client; see ``Client``."""

    def contents(self, table: str) -> pa.Table:
        """All rows, for the check afterwards."""

    def close(self) -> None:
        """End what was made for all clients; nothing is measured any more."""


class Opened:
    """A lake, and what each thread is at: redos and phases are counted where they belong."""

    def __init__(
        self, root: str, options: Mapping[str, str], settings: lv.Settings | None = None
    ) -> None:
        self._thread = threading.local()
        self._root, self._options, self._settings = root, options, settings
        self.lake = self.another()

    def another(self) -> lv.Lake[Any]:
        """A lake that knows nothing yet."""
        return lv.connect(
            self._root,
            storage_options=self._options,
            settings=self._settings,
            on_event=self._hear,
        )

    def _hear(self, event: lv.Event) -> None:
        counts: Counts | None = getattr(self._thread, "counts", None)
        if counts is None:
            return
        if event.kind == "redo":
            counts.redos += 1
        if event.kind == "phase":
            own = cast(float, event.detail["own_seconds"])
            counts.spend(self._thread.kind, str(event.detail["phase"]), own)

    def is_at(self, kind: str, counts: Counts) -> None:
        """This thread does an operation of that kind from now on."""
        self._thread.kind, self._thread.counts = kind, counts


@dataclass(frozen=True, slots=True)
class LakeVilla:
    """LakeVilla, one operation a transaction.

    ``bundled``: all operations of a client in one; ``cold``: each by a client that knows nothing.
    """

    root: str
    options: Mapping[str, str]
    bundled: bool = False
    cold: bool = False
    transaction: Mapping[str, Any] = field(default_factory=dict)

    def create(self, tables: Sequence[str], data: pa.Table) -> None:
        with (
            lv.connect(self.root, storage_options=self.options) as lake,
            lake.transaction() as txn,
        ):
            for table in tables:
                txn.create_table(table, data)

    @contextmanager
    def open(self) -> Iterator[Opened]:
        opened = Opened(self.root, self.options)
        with opened.lake:
            yield opened

    def work(
        self, opened: Opened, table: str, todo: Iterable[Operation], journal: Journal
    ) -> Iterator[str]:
        return (self._bundled if self.bundled else self._single)(opened, table, todo, journal)

    def _single(
        self, opened: Opened, table: str, todo: Iterable[Operation], journal: Journal
    ) -> Iterator[str]:
        for operation in todo:
            journal.begin(operation)
            opened.is_at(operation.kind, journal.counts)
            yield operation.kind

            def once(txn: lv.Transaction[Any], operation: Operation = operation) -> None:
                perform(txn, table, operation, journal)

            with opened.another() if self.cold else nullcontext(opened.lake) as lake:
                run_counted(lake, journal.counts, once, attempts=_ATTEMPTS, **self.transaction)
            journal.acknowledge()

    def _bundled(
        self, opened: Opened, table: str, todo: Iterable[Operation], journal: Journal
    ) -> Iterator[str]:
        drawn: list[Operation] = []
        rest = iter(todo)
        while True:
            done = 0
            try:
                journal.begin_transaction()
                txn = opened.lake.transaction(**self.transaction)
                for operation in _again(drawn, rest):
                    journal.begin(operation)
                    opened.is_at(operation.kind, journal.counts)
                    yield operation.kind
                    done += 1  # it is measured from here on, also where it raises
                    perform(txn, table, operation, journal)
                opened.is_at(COMMIT, journal.counts)
                yield COMMIT
                txn.commit()
                journal.acknowledge()
                return
            except lv.ConflictError:
                journal.restart()
                journal.counts.aborts += 1
                journal.counts.lost += done

    def contents(self, table: str) -> pa.Table:
        with lv.connect(self.root, storage_options=self.options) as lake, lake.snapshot() as state:
            found: pa.Table = state.read(table)
            return found

    def close(self) -> None:
        """Nothing is held."""


def _again(drawn: list[Operation], rest: Iterator[Operation]) -> Iterator[Operation]:
    """What was drawn before, then the rest: a transaction that runs again does the same."""
    yield from list(drawn)
    for operation in rest:
        drawn.append(operation)
        yield operation


def perform(txn: lv.Transaction[Any], table: str, operation: Operation, journal: Journal) -> None:
    """Carry out one operation; rows that it reads are here when it is over."""
    key = {"k": key_of(operation.number)}
    one = f"{KEY} = :k"
    match operation.kind:
        case "read":
            journal.found(operation, txn.read(table, where=one, params=key).num_rows)
        case "scan":
            ordered = f"SELECT * FROM {table} WHERE {KEY} >= :k ORDER BY {KEY}"
            txn.sql(f"{ordered} LIMIT {operation.length}", params=key)
        case "insert":
            txn.append(table, rows(operation.number, 1, Random(operation.number)))
        case "update":
            change = {NAMES[operation.field]: ":v"}
            txn.update(table, change, where=one, params={**key, "v": operation.value})
        case "rmw":
            found = txn.read(table, where=one, params=key)
            journal.found(operation, found.num_rows)
            value = modified_in(found, operation)
            change = {NAMES[operation.field]: ":v"}
            txn.update(table, change, where=one, params={**key, "v": value})


@dataclass(frozen=True, slots=True)
class Deltalake:
    """deltalake with a warm handle a client, and its own SQL; one operation a commit.

    It has no transaction over many operations. A commit that loses is tried again, by itself
    where it can, else by the client from the newest state, and given up after so many times.
    """

    root: str
    options: Mapping[str, str]

    def create(self, tables: Sequence[str], data: pa.Table) -> None:
        for table in tables:
            deltalake.write_deltalake(self._uri(table), data, storage_options=dict(self.options))

    def _uri(self, table: str) -> str:
        return f"{self.root}/{table}"

    def _handle(self, table: str) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self._uri(table), storage_options=dict(self.options))

    @contextmanager
    def open(self) -> Iterator[None]:
        yield  # a handle is of one client

    def work(
        self, opened: None, table: str, todo: Iterable[Operation], journal: Journal
    ) -> Iterator[str]:
        handle = self._handle(table)
        for operation in todo:
            journal.begin(operation)
            yield operation.kind
            for _ in range(RETRIES + 1):
                with _spent(journal.counts, operation.kind, "metadata"):
                    handle.update_incremental()
                writes = operation.kind != "read" and operation.kind != "scan"
                try:
                    # From outside its writing of files and of the log entry are one.
                    with _spent(
                        journal.counts, operation.kind, "data and log" if writes else "data"
                    ):
                        self._perform(handle, table, operation, journal)
                    journal.acknowledge()
                    break
                except CommitFailedError:
                    journal.counts.aborts += 1
            else:
                journal.give_up()

    def _perform(
        self, handle: deltalake.DeltaTable, table: str, operation: Operation, journal: Journal
    ) -> None:
        key, value = key_of(operation.number), operation.value
        retries = deltalake.CommitProperties(max_commit_retries=RETRIES)
        if operation.kind in ("read", "rmw"):
            found = answer(handle, table, f"SELECT * FROM {table} WHERE {KEY} = '{key}'")
            journal.found(operation, found.num_rows)
            if operation.kind == "rmw":
                value = modified_in(found, operation)
        if operation.kind == "scan":
            ordered = f"SELECT * FROM {table} WHERE {KEY} >= '{key}' ORDER BY {KEY}"
            answer(handle, table, f"{ordered} LIMIT {operation.length}")
        if operation.kind == "insert":
            new = rows(operation.number, 1, Random(operation.number))
            deltalake.write_deltalake(handle, new, mode="append", commit_properties=retries)
        if operation.kind in ("update", "rmw"):
            quoted = value.replace("'", "''")
            handle.update(
                {NAMES[operation.field]: f"'{quoted}'"},
                predicate=f"{KEY} = '{key}'",
                commit_properties=retries,
            )

    def contents(self, table: str) -> pa.Table:
        return self._handle(table).to_pyarrow_table()

    def close(self) -> None:
        """Nothing is held."""


@contextmanager
def _spent(counts: Counts, kind: str, phase: str) -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        counts.spend(kind, phase, time.perf_counter() - began)


_FEATURES = named_features("NONE", "R", "R|I", "R|CT", "R|CT|I")
DUCKLAKE = "DuckLake"
#: How the parameter ``systems`` names them.
GRAMMAR = (
    f"single:F, bundled:F or cold:F with features F, one of {', '.join(_FEATURES)}, and :snapshot "
    "behind it for that isolation; deltalake; DuckLake (clients are threads)"
)


def system(name: str, root: str, options: Mapping[str, str], slack: int = 0) -> System:
    """A system by name, in a root of its own."""
    return _maker(name, slack)(root, options)


def check_system(name: str, clients_as: str) -> None:
    """Refuse a name that there is not, or clients that it can't have."""
    _maker(name, 0)
    if name == DUCKLAKE and clients_as != "threads":
        raise WrongParameter(
            f"clients_as: DuckLake's catalog is a local file, which one connection has open: its "
            f"clients can't be {clients_as}, only threads"
        )


def _maker(name: str, slack: int) -> Callable[[str, Mapping[str, str]], System]:
    if name == "deltalake":
        return Deltalake
    if name == DUCKLAKE:
        return DuckLakeSystem
    kind, _, rest = name.partition(":")
    features, _, isolation = rest.partition(":")
    if (
        kind not in ("single", "bundled", "cold")
        or features not in _FEATURES
        or isolation not in ("", "snapshot", "serializable")
    ):
        raise WrongParameter(f"systems: {name!r} is none: {GRAMMAR}")
    if kind == "bundled" and features == "NONE":
        raise WrongParameter("systems: NONE is one write a transaction: not bundled")
    transaction: dict[str, Any] = {"features": _FEATURES[features]}
    if isolation:
        transaction["isolation"] = isolation
    if slack:
        transaction["slack"] = slack
    return lambda root, options: LakeVilla(
        root, options, kind == "bundled", kind == "cold", transaction
    )
