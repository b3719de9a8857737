"""The systems of the hot rows: each adds one to a counter, by its own best practice.

A system is plain data where its clients may be processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

import deltalake
import duckdb
import pyarrow as pa
from deltalake.exceptions import CommitFailedError

import lakevilla as lv
from bench.harness.attempts import run_counted
from bench.harness.clients import Counts
from bench.ycsb_lh.ducklake import DuckLakeSystem, run_again
from bench.ycsb_lh.systems import RETRIES, Opened

TABLE, UPDATE = "hot", "update"
NOT_COMBINED, DUCKLAKE = "not combined", "DuckLake"
READING, NOT_CHAINED = "reading", "reading not chained"
#: How the parameter ``systems`` names them, and what a result calls them.
SYSTEMS = {
    "LakeVilla": "LakeVilla",
    NOT_COMBINED: f"LakeVilla, {NOT_COMBINED}",
    READING: f"LakeVilla, {READING}",
    NOT_CHAINED: "LakeVilla, reading, not chained",
    "deltalake": "deltalake",
    DUCKLAKE: DUCKLAKE,
}
#: A transaction that lost runs again so often, before its client gives the update up.
_ATTEMPTS = 50
#: What is done to the row.
_SET = "n + 1"

#: Carry out one update, of which the counts tell; False: it has lost too often, and was given up.
Once = Callable[[Counts], bool]


class System(Protocol):
    """A system of the comparison."""

    def create(self, data: pa.Table, *, partitioned: bool) -> None:
        """Make the table; this is not measured."""

    def open(self) -> AbstractContextManager[Any]:
        """What all threads share, or one lake or process has."""

    def client(self, opened: Any, where: str, seed: str) -> Once:
        """Get a client ready, and return what it does again and again to the row of ``where``."""

    def contents(self) -> pa.Table:
        """All rows, for the check afterwards."""

    def close(self) -> None:
        """End what was made for all clients."""


@dataclass(frozen=True, slots=True)
class LakeVilla:
    """LakeVilla by ``lake.run``; ``combine``: as ``Settings`` have it.

    ``reads``: the function reads the counter, and writes what it has computed.
    """

    root: str
    options: Mapping[str, str]
    combine: bool = True
    reads: bool = False

    def create(self, data: pa.Table, *, partitioned: bool) -> None:
        by = ["part"] if partitioned else []
        with lv.connect(self.root, storage_options=self.options) as lake:
            lake.create_table(TABLE, data, partition_by=by)

    @contextmanager
    def open(self) -> Iterator[Opened]:
        opened = Opened(self.root, self.options, lv.Settings(combine=self.combine))
        with opened.lake:
            yield opened

    def client(self, opened: Opened, where: str, seed: str) -> Once:
        with opened.lake.snapshot() as state:
            state.read(TABLE, where=where)

        def body(txn: lv.Transaction[Any]) -> None:
            change: dict[str, Any] = {"n": _SET}
            if self.reads:
                change = {"n": txn.read(TABLE, ["n"], where)["n"][0].as_py() + 1}
            txn.update(TABLE, change, where=where)

        def once(counts: Counts) -> bool:
            opened.is_at(UPDATE, counts)
            try:
                run_counted(opened.lake, counts, body, attempts=_ATTEMPTS)
            except lv.ConflictError:
                counts.aborts += _ATTEMPTS
                return False
            return True

        return once

    def contents(self) -> pa.Table:
        with lv.connect(self.root, storage_options=self.options) as lake, lake.snapshot() as state:
            found: pa.Table = state.read(TABLE)
            return found

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class Deltalake:
    """deltalake with a warm handle a client.

    A commit that loses is tried again by itself where it can, else by the client from the newest
    state.
    """

    root: str
    options: Mapping[str, str]

    @property
    def _uri(self) -> str:
        return f"{self.root}/{TABLE}"

    def create(self, data: pa.Table, *, partitioned: bool) -> None:
        by = ["part"] if partitioned else None
        options = dict(self.options)
        deltalake.write_deltalake(self._uri, data, partition_by=by, storage_options=options)

    def _handle(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self._uri, storage_options=dict(self.options))

    @contextmanager
    def open(self) -> Iterator[None]:
        yield  # a handle is of one client

    def client(self, opened: None, where: str, seed: str) -> Once:
        handle = self._handle()
        retries = deltalake.CommitProperties(max_commit_retries=RETRIES)

        def once(counts: Counts) -> bool:
            for _ in range(RETRIES + 1):
                handle.update_incremental()
                try:
                    handle.update({"n": _SET}, predicate=where, commit_properties=retries)
                    return True
                except CommitFailedError:
                    counts.aborts += 1
            return False

        return once

    def contents(self) -> pa.Table:
        return self._handle().to_pyarrow_table()

    def close(self) -> None:
        """Nothing is held."""


class DuckLake:
    """DuckLake: one connection with a cursor for each client; its catalog is a local file."""

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        self._system = DuckLakeSystem(root, options)

    def create(self, data: pa.Table, *, partitioned: bool) -> None:
        self._system.create([TABLE], data.slice(0, 0))
        with self.open() as connection:
            if partitioned:
                connection.execute(f"ALTER TABLE lake.{TABLE} SET PARTITIONED BY (part)")
            connection.register("all_rows", data)
            connection.execute(f"INSERT INTO lake.{TABLE} FROM all_rows")

    def open(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        return self._system.open()

    def client(self, opened: duckdb.DuckDBPyConnection, where: str, seed: str) -> Once:
        cursor, random = opened.cursor(), Random(seed)

        def perform() -> None:
            cursor.execute(f"UPDATE lake.{TABLE} SET n = {_SET} WHERE {where}")

        def once(counts: Counts) -> bool:
            try:
                run_again(cursor, perform, random, counts)
            except duckdb.TransactionException:
                return False
            return True

        return once

    def contents(self) -> pa.Table:
        return self._system.contents(TABLE)

    def close(self) -> None:
        self._system.close()


def system(name: str, root: str, options: Mapping[str, str]) -> System:
    """A system by the name that ``SYSTEMS`` has; raises ``NotInstalled`` where it is not here."""
    match name:
        case "deltalake":
            return Deltalake(root, options)
        case "DuckLake":
            return DuckLake(root, options)
        case _:
            combine = name not in (NOT_COMBINED, NOT_CHAINED)
            return LakeVilla(root, options, combine, reads=name in (READING, NOT_CHAINED))
