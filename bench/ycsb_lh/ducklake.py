"""DuckLake as a system of YCSB-LH: one connection with a cursor for each client."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa

from bench.harness.benchmark import NotInstalled
from bench.harness.clients import Counts
from bench.harness.peers.ducklake import DuckLake
from bench.ycsb_lh.generators import key_of
from bench.ycsb_lh.journal import Journal
from bench.ycsb_lh.records import KEY, NAMES, modified_in, rows
from bench.ycsb_lh.workload import Operation

#: It tries appends again by itself; whoever loses a race for the same file begins anew.
_ATTEMPTS = 200
_LONGEST_PAUSE_SECONDS = 0.05


class DuckLakeSystem:
    """One operation a transaction; its catalog is a local file, which one process can have open.

    Clients are threads for that reason, each with a cursor, which has transactions of its own.
    """

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="lakevilla-ducklake-"))
        try:
            self._duck = DuckLake(self._directory / "catalog.db", root, options)
        except NotInstalled:
            shutil.rmtree(self._directory)
            raise

    def create(self, tables: Sequence[str], data: pa.Table) -> None:
        self._duck.create(tables, data)

    @contextmanager
    def open(self) -> Iterator[duckdb.DuckDBPyConnection]:
        yield self._duck.connection

    def work(
        self,
        opened: duckdb.DuckDBPyConnection,
        table: str,
        todo: Iterable[Operation],
        journal: Journal,
    ) -> Iterator[str]:
        random = Random(f"{table}-{journal.client}")
        with opened.cursor() as cursor:
            for operation in todo:
                journal.begin(operation)
                yield operation.kind
                perform = partial(_perform, cursor, f'lake."{table}"', operation, journal)
                run_again(cursor, perform, random, journal.counts)
                journal.acknowledge()

    def contents(self, table: str) -> pa.Table:
        with self._duck.connection.cursor() as cursor:
            return cursor.execute(f'FROM lake."{table}"').to_arrow_table()

    def close(self) -> None:
        self._duck.close()
        shutil.rmtree(self._directory)


def run_again(
    cursor: duckdb.DuckDBPyConnection,
    perform: Callable[[], object],
    random: Random,
    counts: Counts,
) -> None:
    """Carry out a transaction again until it is committed, so often as ``_ATTEMPTS`` says.

    Raises
    ------
    duckdb.TransactionException
        It has lost each time.
    """
    for attempt in range(_ATTEMPTS):
        cursor.execute("BEGIN")
        try:
            perform()
            cursor.execute("COMMIT")
            return
        except duckdb.TransactionException:
            _roll_back(cursor)
            counts.aborts += 1
            if attempt + 1 == _ATTEMPTS:
                raise
            time.sleep(random.random() * _LONGEST_PAUSE_SECONDS)


def _perform(
    cursor: duckdb.DuckDBPyConnection, table: str, operation: Operation, journal: Journal
) -> None:
    key, value = key_of(operation.number), operation.value
    if operation.kind in ("read", "rmw"):
        found = cursor.execute(f"FROM {table} WHERE {KEY} = ?", [key]).to_arrow_table()
        journal.found(operation, found.num_rows)
        if operation.kind == "rmw":
            value = modified_in(found, operation)
    if operation.kind == "scan":
        ordered = f"FROM {table} WHERE {KEY} >= ? ORDER BY {KEY} LIMIT {operation.length}"
        cursor.execute(ordered, [key]).to_arrow_table()
    if operation.kind == "insert":
        cursor.register("new_rows", rows(operation.number, 1, Random(operation.number)))
        cursor.execute(f"INSERT INTO {table} FROM new_rows")
    if operation.kind in ("update", "rmw"):
        change = f"UPDATE {table} SET {NAMES[operation.field]} = ? WHERE {KEY} = ?"
        cursor.execute(change, [value, key])


def _roll_back(cursor: duckdb.DuckDBPyConnection) -> None:
    with suppress(duckdb.TransactionException):  # a commit that failed has ended it
        cursor.execute("ROLLBACK")
