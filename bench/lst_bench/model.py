"""What data maintenance must leave behind: the same done by DuckDB to the generator's rows."""

from __future__ import annotations

import pyarrow as pa

from bench.harness.tpc import Tpc
from bench.lst_bench.workload import CHANNELS, FACTS, INVENTORY, INVENTORY_DATE, Refresh

#: Of a table: how many rows there are, and the sum of their hashes, which no order changes.
Print = tuple[int, int]


def print_sql(table: str) -> str:
    """The query for a table's print, to DuckDB as to a lake."""
    return f"SELECT count(*) AS n, coalesce(sum(hash(t)), 0)::VARCHAR AS h FROM {table} AS t"


def print_of(rows: pa.Table) -> Print:
    (row,) = rows.to_pylist()
    return int(row["n"]), int(row["h"])


class Model:
    """Tables of the generator's, changed within a transaction that is rolled back at the end."""

    def __init__(self, made: Tpc) -> None:
        self._connection = made.connection
        self._apart: dict[str, int] = {}
        for channel in CHANNELS:
            (highest,) = self._row(f"SELECT max({channel.order}) FROM {channel.sales}")
            self._apart[channel.order] = int(highest) + 1
        self._connection.execute("BEGIN")

    def apply(self, refresh: Refresh) -> dict[str, pa.Table]:
        """Delete what a refresh deletes and insert it with other keys; what it inserts.

        The rows of each table go back as they were but for the number of their order, which no
        other row has; those of the inventory go to a day on which nothing was counted.
        """
        inserted: dict[str, list[pa.Table]] = {table: [] for table in FACTS}
        for first, last in refresh.ranges:
            for one in CHANNELS:
                shift = self._apart[one.order] * refresh.number
                sold = f"{one.date} BETWEEN {first} AND {last}"
                orders = f"SELECT {one.order} FROM {one.sales} WHERE {sold}"
                returned = f"{one.returned} IN ({orders})"
                take = self._take
                inserted[one.returns].append(take(one.returns, returned, one.returned, shift))
                inserted[one.sales].append(take(one.sales, sold, one.order, shift))
            counted = f"{INVENTORY_DATE} BETWEEN {first} AND {last}"
            shift = 1 + refresh.number % 6  # it is counted once a week
            inserted[INVENTORY].append(self._take(INVENTORY, counted, INVENTORY_DATE, shift))
        whole = {table: pa.concat_tables(parts) for table, parts in inserted.items()}
        for table, rows in whole.items():
            self._connection.register("inserted_rows", rows)
            self._connection.execute(f"INSERT INTO {table} FROM inserted_rows")
            self._connection.unregister("inserted_rows")
        return whole

    def _take(self, table: str, where: str, key: str, shift: int) -> pa.Table:
        """Delete rows; as they are to be inserted."""
        replaced = f"{key} + {shift} AS {key}"
        rows = self._connection.execute(
            f"SELECT * REPLACE ({replaced}) FROM {table} WHERE {where}"
        ).to_arrow_table()
        self._connection.execute(f"DELETE FROM {table} WHERE {where}")
        return rows

    def prints(self) -> dict[str, Print]:
        return {
            table: print_of(self._connection.execute(print_sql(table)).to_arrow_table())
            for table in FACTS
        }

    def close(self) -> None:
        """The generator's rows are as they were."""
        self._connection.execute("ROLLBACK")

    def _row(self, sql: str) -> tuple[int, ...]:
        found = self._connection.execute(sql).fetchone()
        assert found is not None
        return found
