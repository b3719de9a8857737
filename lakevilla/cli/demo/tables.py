"""The demo's tables, made by deltalake, as by an owner without LakeVilla."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa

from lakevilla.errors import InvalidOperation

BANKS = ("bank_north", "bank_south")
ACCOUNTS = 50
OPENING_BALANCE = Decimal("1000.00")

_ORDERS_PER_BATCH = 10


@dataclass(frozen=True, slots=True)
class Batch:
    """Ten orders, their lines, and the payment of each of their customers."""

    orders: pa.Table
    lines: pa.Table
    payments: pa.Table


class Held:
    """The generated orders: those in the tables at the start, and those to be ingested later."""

    def __init__(self, directory: Path, batches: int) -> None:
        self._connection = duckdb.connect()
        for table in ("orders", "lineitem", "customer"):
            path = str(directory / f"{table}.parquet").replace("'", "''")
            self._connection.sql(f"CREATE VIEW {table} AS FROM '{path}'")
        self._connection.sql(
            "CREATE TABLE held AS SELECT o_orderkey AS key,"
            f" (row_number() OVER (ORDER BY o_orderkey DESC) - 1) // {_ORDERS_PER_BATCH} AS batch"
            " FROM orders"
            f" ORDER BY o_orderkey DESC LIMIT {batches * _ORDERS_PER_BATCH}"
        )

    def initial(self, table: str) -> pa.RecordBatchReader:
        """Return the rows of a table at the start."""
        key = {"orders": "o_orderkey", "lineitem": "l_orderkey"}.get(table)
        unheld = "" if key is None else f" WHERE {key} NOT IN (SELECT key FROM held)"
        return self._connection.sql(f"FROM {table}{unheld}").to_arrow_reader()

    def batches(self) -> Iterator[Batch]:
        """Yield the batches to ingest."""
        (count,) = self._one("SELECT coalesce(max(batch) + 1, 0) FROM held")
        for number in range(count):
            held = f"(SELECT key FROM held WHERE batch = {number})"
            yield Batch(
                self._table(f"FROM orders WHERE o_orderkey IN {held}"),
                self._table(f"FROM lineitem WHERE l_orderkey IN {held}"),
                self._table(
                    "SELECT o_custkey AS customer, sum(o_totalprice)::DECIMAL(15, 2) AS amount"
                    f" FROM orders WHERE o_orderkey IN {held} GROUP BY ALL"
                ),
            )

    def expected(self) -> dict[str, object]:
        """Return the expected values after all batches are ingested, from the generated files."""
        orders, lines = self._one(
            "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM lineitem)"
        )
        before, paid = self._one(
            "SELECT (SELECT sum(c_acctbal) FROM customer),"
            " (SELECT coalesce(sum(o_totalprice), 0) FROM orders"
            "  WHERE o_orderkey IN (SELECT key FROM held))"
        )
        return {"orders": orders, "lines": lines, "balances": before - paid}

    def _table(self, query: str) -> pa.Table:
        return self._connection.sql(query).to_arrow_table()

    def _one(self, query: str) -> tuple[Any, ...]:
        row = self._connection.sql(query).fetchone()
        assert row is not None
        return row


def create_orders(
    root: str, directory: Path, *, scale: float, batches: int, options: Mapping[str, str]
) -> Held:
    """Generate TPC-H data and write orders, lineitem and customer as Delta tables."""
    generator = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent))
    generator = generator or shutil.which("tpchgen-cli")
    if generator is None:
        raise InvalidOperation(
            "the demo needs tpchgen-cli: install LakeVilla with its extra bench, "
            "`pip install 'lakevilla[bench]'`"
        )
    arguments = ["--scale-factor", str(scale), "--output-dir", str(directory)]
    subprocess.run(
        [generator, "parquet", "--tables", "orders,lineitem,customer", *arguments],
        check=True,
        capture_output=True,
    )
    held = Held(directory, batches)
    for table in ("orders", "lineitem", "customer"):
        deltalake.write_deltalake(
            f"{root}/{table}", held.initial(table), storage_options=dict(options)
        )
    return held


def create_bank(root: str, options: Mapping[str, str]) -> None:
    """Create two banks of fifty accounts, as two Delta tables."""
    for bank in BANKS:
        accounts = pa.table(
            {
                "id": pa.array(range(ACCOUNTS), pa.int64()),
                "balance": pa.array([OPENING_BALANCE] * ACCOUNTS, pa.decimal128(12, 2)),
            }
        )
        deltalake.write_deltalake(f"{root}/{bank}", accounts, storage_options=dict(options))
