"""A lab of a peer whose transactions are single statements on one table.

Its client does what a user without transactions does: each step is a statement, which is
committed when it returns. Nothing is left to commit at the end, and nothing can be taken back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from bench.harness.peers.spark import Statements

_names = itertools.count()


@dataclass
class StatementLab:
    """The rows, in new tables of a peer."""

    peer: Statements
    two_tables: bool
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        number = next(_names)
        self.tables = [f"test{number}"]
        rows = {1: 10, 2: 20}
        if self.two_tables:
            self.tables.append(f"test{number}_2")
        for table in self.tables:
            mine = {row: value for row, value in rows.items() if self.table(row) == table}
            data = pa.table({"id": list(mine), "value": list(mine.values())})
            self.peer.create([table], data, self.properties)

    def table(self, row: int) -> str:
        """Where a row lies, or would."""
        return self.tables[-1] if row % 2 == 0 else self.tables[0]

    def begin(self) -> Iterator[StatementClient]:
        for _ in range(3):
            yield StatementClient(self)

    def now(self) -> dict[int, int]:
        found = pa.concat_tables([self.peer.read(table) for table in self.tables])
        return {row["id"]: row["value"] for row in found.to_pylist()}

    def close(self) -> None:
        """The peer is closed by whoever made it."""


@dataclass
class StatementClient:
    """A user who takes the steps of a test case, one statement each."""

    lab: StatementLab

    def get(self, row: int) -> int:
        found = self.lab.peer.read(self.lab.table(row), f"id = {row}")
        (value,) = found["value"].to_pylist()
        assert isinstance(value, int)
        return value

    def where(self, predicate: str) -> list[int]:
        found = [self.lab.peer.read(table, predicate) for table in self.lab.tables]
        return sorted(number for rows in found for number in rows["id"].to_pylist())

    def set(self, row: int, value: int | str) -> None:
        self.lab.peer.update(self.lab.table(row), {"value": str(value)}, f"id = {row}")

    def insert(self, row: int, value: int) -> None:
        self.lab.peer.append([self.lab.table(row)], pa.table({"id": [row], "value": [value]}))

    def delete(self, predicate: str) -> None:
        for table in self.lab.tables:
            self.lab.peer.delete(table, predicate)

    def abort(self) -> None:
        """What was written stays."""

    def commit(self) -> bool:
        return True
