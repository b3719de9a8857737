"""What must hold: right answers before the first write, after the last no row too many or few."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import lakevilla as lv
from bench.cab_lh.queries import PRICE, Texts
from bench.cab_lh.writes import FIRST_NEW_KEY, TARGETS, Ledger, State
from bench.harness.answers import same_rows
from bench.harness.tpc import Tpc

_AT_ONCE = 8


def answers_are_right(lake: lv.Lake, made: Tpc, texts: Texts, scale: float) -> bool:
    """Whether each query answers from the lake what DuckDB does from the generator's rows."""

    def is_right(text: str) -> bool:
        with lake.transaction() as txn:
            return same_rows(txn.sql(text), made.answer(text))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return all(pool.map(is_right, texts.as_validated(scale)))


def tables_hold(lake: lv.Lake, ledger: Ledger) -> bool:
    """Whether each table has the rows, and the sum of its counted column, of the ledger."""
    found = lake.sql(
        " UNION ALL ".join(
            f"SELECT '{name}' AS name, count(*) AS rows, "
            f"CAST(sum({TARGETS[name].counted}) AS DECIMAL(38, 2)) AS amount FROM {name}"
            for name in ledger.tables
        )
    )
    held = {row["name"]: State(row["rows"], row["amount"]) for row in found.to_pylist()}
    return held == ledger.tables


def orders_are_whole(lake: lv.Lake, made: Tpc, ledger: Ledger) -> bool:
    """Whether each order of the start is there once, and those that were moved with their price.

    Lines stay where they are, and no write changes what a price is computed from.
    """
    ranges = [f"o_orderkey >= {first} AND o_orderkey < {behind}" for first, behind in ledger.moved]
    is_moved = " OR ".join(f"({one})" for one in ranges) or "false"
    due = (
        f"SELECT o_orderkey + 8 AS key, {PRICE} AS price FROM orders WHERE {is_moved} UNION ALL "
        f"SELECT o_orderkey AS key, o_totalprice AS price FROM orders WHERE NOT ({is_moved})"
    )
    with lake.snapshot() as state:
        found = state.sql(
            "SELECT o_orderkey AS key, o_totalprice AS price FROM orders "
            f"WHERE o_orderkey < {FIRST_NEW_KEY}"
        )
    with made.connection.cursor() as cursor:
        cursor.register("found", found)
        differ = cursor.execute(
            f"WITH due AS ({due}) SELECT count(*) FROM "
            "((FROM due EXCEPT ALL FROM found) UNION ALL (FROM found EXCEPT ALL FROM due))"
        ).fetchone()
    return differ == (0,)
