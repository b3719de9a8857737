"""Spark with its Delta connector, as a client without LakeVilla."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Row, SparkSession

import lakevilla as lv
from tests.support.places import Place
from tests.support.stores import interrupted, is_entry
from tests.support.tables import bag


@dataclass(frozen=True)
class Beside:
    """A lake in a directory, and Spark as another client of its tables."""

    spark: SparkSession
    place: Place

    def connect(self, **options: Any) -> lv.Lake:
        return self.place.connect(**options)

    def path(self, table: str) -> str:
        return self.place.uri(table)

    def name(self, table: str) -> str:
        """Return the name of a table of the lake in Spark SQL."""
        return f"delta.`{self.path(table)}`"

    def sql(self, statement: str, table: str = "bank", **tables: str) -> list[Row]:
        """Run a statement, where ``{t}`` is the table; return Spark's result."""
        names = {"t": self.name(table)} | {k: self.name(v) for k, v in tables.items()}
        for key, name in names.items():
            statement = statement.replace("{" + key + "}", name)
        return self.spark.sql(statement).collect()

    def make(self, columns: str, table: str = "bank", **properties: str) -> None:
        """Make a table by Spark, with ``columns``, clauses behind them, and properties."""
        given = ", ".join(f"'delta.{name}' = '{value}'" for name, value in properties.items())
        tail = f" TBLPROPERTIES ({given})" if given else ""
        head, _, rest = columns.partition("|")
        self.sql(f"CREATE TABLE {{t}} ({head}) USING delta {rest}{tail}", table)

    def arrow(self, table: str = "bank", version: int | None = None) -> pa.Table:
        """Return the table's rows as Spark's own reader reads them."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.path(table)).toArrow()

    def both(self, table: str = "bank") -> Counter[tuple[Any, ...]]:
        """Return the rows, after a check that Spark and a new client of the lake read the same
        ones.
        """
        theirs = bag(self.arrow(table))
        with self.connect() as lake, lake.snapshot() as state:
            ours = bag(state.read(table))
        assert ours == theirs
        return ours

    def balances(self, table: str = "bank") -> dict[int, int]:
        """Return the balance of each id, which both clients see once."""
        rows = self.both(table)
        assert set(rows.values()) <= {1}, "a row is there twice"
        found = {row[0]: row[1] for row in rows}
        assert len(found) == len(rows), "an id is there twice"
        return found

    def log(self, table: str = "bank") -> Path:
        return Path(self.path(table), "_delta_log")

    def entry(self, version: int, table: str = "bank") -> list[dict[str, Any]]:
        """Return the actions of one log entry."""
        text = (self.log(table) / f"{version:020}.json").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def actions(self, kind: str, table: str = "bank") -> list[dict[str, Any]]:
        """Return all actions of a kind in the log, oldest first."""
        return [
            action[kind]
            for path in sorted(self.log(table).glob("*[0-9].json"))
            for action in map(json.loads, path.read_text().splitlines())
            if kind in action
        ]

    def slip_in(
        self,
        lake: lv.Lake,
        foreign: Callable[[], object],
        work: Callable[[lv.Transaction], object],
        table: str = "bank",
    ) -> lv.Transaction:
        """Run ``work`` in a transaction, and ``foreign`` once it is decided and not yet
        published.
        """
        txn = lake.transaction()
        work(txn)
        with interrupted(lake, is_entry(table), foreign):
            txn.commit()
        return txn


def look_and_add(txn: lv.Transaction, row: int, amount: int) -> None:
    """Read a balance and write a value computed from it: such a transaction can't be redone."""
    (found,) = txn.read("bank", where=f"id = {row}").to_pylist()
    txn.update("bank", {"balance": found["balance"] + amount}, where=f"id = {row}")
