"""The systems of the scale benchmark, and how each is grown before it is measured.

A system is plain data: it is pickled to where its clients are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError

import lakevilla as lv
from bench.harness.attempts import run_counted
from bench.harness.clients import Counts
from bench.harness.features import features
from bench.harness.parameters import check_known

TABLE = "t0"
#: Rows that are read; those that are measured go to another partition.
READ, APPENDED = "part = 0", 1
_ATTEMPTS = 100
_TABLES_AT_A_TIME = 200
FEATURES = features("NONE", "R", "R|I", "R|CT", "R|CT|I")


def in_parts(parts: Sequence[int]) -> pa.Table:
    """One row in each partition, so one file each."""
    return pa.table({"part": pa.array(parts, pa.int32()), "id": pa.array(parts, pa.int64())})


class System(Protocol):
    """A system of the comparison."""

    @property
    def grows(self) -> Sequence[str]:
        """What it can be grown by."""

    def fill(self, grows: str, size: int, options: Mapping[str, str]) -> None:
        """Make the table, and what it lies among: so many files, tables or commits."""

    def open(self) -> AbstractContextManager[Any]:
        """A client that knows nothing yet."""

    def append(self, opened: Any, counts: Counts) -> None:
        """One row, in a transaction of its own."""

    def read(self, opened: Any, counts: Counts) -> None:
        """The newest state of one partition, which is one file."""

    def appended(self) -> int:
        """How many appended rows are there."""


@dataclass(frozen=True, slots=True)
class LakeVilla:
    """A lake, warm from one operation to the next."""

    root: str
    options: Mapping[str, str]
    features: lv.Feature
    grows: Sequence[str] = ("files", "tables", "commits", "clients")

    def fill(self, grows: str, size: int, options: Mapping[str, str]) -> None:
        parts = range(size) if grows == "files" else range(1)
        with lv.connect(self.root, storage_options=options) as lake:
            lake.create_table(TABLE, in_parts(parts), partition_by="part")
            names = [f"t{number}" for number in range(1, size)] if grows == "tables" else []
            for first in range(0, len(names), _TABLES_AT_A_TIME):
                with lake.transaction() as txn:
                    for name in names[first : first + _TABLES_AT_A_TIME]:
                        txn.create_table(name, in_parts(range(1)))
            for _ in range(size if grows == "commits" else 0):
                with lake.transaction(self.features) as txn:
                    txn.overwrite(TABLE, in_parts(range(1)))

    @contextmanager
    def open(self) -> Iterator[lv.Lake[Any]]:
        with lv.connect(self.root, storage_options=self.options) as lake:
            yield lake

    def append(self, opened: lv.Lake[Any], counts: Counts) -> None:
        def once(txn: lv.Transaction[Any]) -> None:
            txn.append(TABLE, in_parts([APPENDED]))

        run_counted(opened, counts, once, features=self.features, attempts=_ATTEMPTS)

    def read(self, opened: lv.Lake[Any], counts: Counts) -> None:
        with opened.transaction(self.features) as txn:
            _one_row(txn.read(TABLE, where=READ))

    def appended(self) -> int:
        with self.open() as lake, lake.snapshot() as state:
            return int(state.read(TABLE, where=f"part = {APPENDED}").num_rows)


@dataclass(frozen=True, slots=True)
class Deltalake:
    """deltalake with a warm handle; it has no lake of tables."""

    root: str
    options: Mapping[str, str]
    grows: Sequence[str] = ("files", "commits", "clients")

    @property
    def _uri(self) -> str:
        return f"{self.root}/{TABLE}"

    def fill(self, grows: str, size: int, options: Mapping[str, str]) -> None:
        parts = range(size) if grows == "files" else range(1)
        again = size if grows == "commits" else 0
        for _ in range(1 + again):
            deltalake.write_deltalake(
                self._uri,
                in_parts(parts),
                mode="overwrite",
                partition_by=["part"],
                storage_options=dict(options),
            )

    @contextmanager
    def open(self) -> Iterator[deltalake.DeltaTable]:
        yield deltalake.DeltaTable(self._uri, storage_options=dict(self.options))

    def append(self, opened: deltalake.DeltaTable, counts: Counts) -> None:
        retries = deltalake.CommitProperties(max_commit_retries=_ATTEMPTS)
        for attempt in range(_ATTEMPTS):
            try:
                deltalake.write_deltalake(
                    opened, in_parts([APPENDED]), mode="append", commit_properties=retries
                )
                return
            except CommitFailedError:
                counts.aborts += 1
                if attempt + 1 == _ATTEMPTS:
                    raise
                opened.update_incremental()

    def read(self, opened: deltalake.DeltaTable, counts: Counts) -> None:
        opened.update_incremental()
        _one_row(_part(opened, 0))

    def appended(self) -> int:
        with self.open() as table:
            return int(_part(table, APPENDED).num_rows)


def _part(table: deltalake.DeltaTable, part: int) -> pa.Table:
    where = f"part = {part}"
    return table.to_pyarrow_dataset(file_pruning_predicate=where).to_table(
        filter=pc.field("part") == part
    )


def _one_row(found: pa.Table) -> None:
    if found.num_rows != 1:
        raise RuntimeError(f"{found.num_rows} rows were read where 1 is")


def maker(name: str) -> Callable[[str, Mapping[str, str]], System]:
    """What makes a system at a root."""
    if name == "deltalake":
        return Deltalake
    check_known("systems", name, [*FEATURES, "deltalake"])
    return lambda root, options: LakeVilla(root, options, FEATURES[name])
