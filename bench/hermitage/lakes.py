"""A lab of LakeVilla: each client is a transaction of a connection of its own.

Steps follow each other in one thread. Locks are unknown here, so no step but the commit ever
waits, and that one no longer than its patience: a transaction that can't go on gets a
``ConflictError`` at its commit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import lakevilla as lv

Format = Literal["delta", "iceberg"]

R = lv.Feature.R
RI = lv.Feature.R | lv.Feature.I
RCT = lv.Feature.R | lv.Feature.CT
RCTI = RCT | lv.Feature.I

#: Whom a commit waits for does not end meanwhile.
_IMPATIENT = lv.Settings(wait_timeout_seconds=0.02, wait_poll_seconds=0.005)


@dataclass(frozen=True)
class Mix:
    """How a transaction is begun."""

    features: lv.Feature = RI
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class LakeLab:
    """Clients of one lake; ``mixes`` take turns, and row 2 may have a table of its own.

    ``properties`` are those of the tables.
    """

    connect: Callable[..., lv.Lake]
    mixes: Sequence[Mix]
    two_tables: bool
    formats: tuple[Format, Format] = ("delta", "delta")
    properties: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first, second = {"id": 1, "value": 10}, {"id": 2, "value": 20}
        tables = {"test": [first, second]}
        if self.two_tables:
            tables = {"test": [first], "test2": [second]}
        with self.connect() as lake, lake.transaction() as txn:
            for (name, rows), kind in zip(tables.items(), self.formats, strict=False):
                txn.create_table(name, rows, format=kind, properties=self.properties)
        self._clients = [self.connect(settings=_IMPATIENT) for _ in range(3)]

    def begin(self) -> Iterator[LakeClient]:
        for client, mix in zip(self._clients, itertools.cycle(self.mixes), strict=False):
            yield LakeClient(self, client.transaction(mix.features, **mix.options))

    @property
    def tables(self) -> list[str]:
        return ["test", "test2"] if self.two_tables else ["test"]

    def table(self, row: int) -> str:
        """Where a row lies, or would."""
        return "test2" if self.two_tables and row % 2 == 0 else "test"

    def now(self) -> dict[int, int]:
        with self.connect() as lake, lake.snapshot() as snapshot:
            rows = [row for table in self.tables for row in snapshot.read(table).to_pylist()]
        assert len(rows) == len({row["id"] for row in rows})
        return {row["id"]: row["value"] for row in rows}

    def close(self) -> None:
        for client in self._clients:
            client.close()


@dataclass
class LakeClient:
    """One transaction of a test case."""

    lab: LakeLab
    txn: lv.Transaction

    def get(self, row: int) -> int:
        (found,) = self.txn.read(self.lab.table(row), where=f"id = {row}")["value"].to_pylist()
        assert isinstance(found, int)
        return found

    def where(self, predicate: str) -> list[int]:
        tables = self.lab.tables
        found = [self.txn.read(table, where=predicate)["id"].to_pylist() for table in tables]
        return sorted(number for ids in found for number in ids)

    def set(self, row: int, value: int | str) -> None:
        self.txn.update(self.lab.table(row), {"value": value}, where=f"id = {row}")

    def insert(self, row: int, value: int) -> None:
        self.txn.append(self.lab.table(row), [{"id": row, "value": value}])

    def delete(self, predicate: str) -> None:
        for table in self.lab.tables:
            self.txn.delete(table, where=predicate)

    def abort(self) -> None:
        self.txn.abort()

    def commit(self) -> bool:
        try:
            self.txn.commit()
        except lv.ConflictError:
            return False
        return True
