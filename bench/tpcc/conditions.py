"""The consistency conditions (clause 3.3.2), each a query for what breaks it.

C11 holds when the tables have been loaded, and no more after a delivery; the others hold
always, whatever ran and wherever it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa

#: The columns that they look at.
COLUMNS = {
    "warehouse": ["w_id", "w_ytd"],
    "district": ["d_w_id", "d_id", "d_ytd", "d_next_o_id"],
    "customer": ["c_w_id", "c_d_id", "c_id", "c_balance", "c_ytd_payment"],
    "history": ["h_c_w_id", "h_c_d_id", "h_c_id", "h_w_id", "h_d_id", "h_amount"],
    "new_order": ["no_w_id", "no_d_id", "no_o_id"],
    "orders": ["o_w_id", "o_d_id", "o_id", "o_c_id", "o_carrier_id", "o_ol_cnt"],
    "order_line": ["ol_w_id", "ol_d_id", "ol_o_id", "ol_delivery_d", "ol_amount"],
}
AFTER_LOAD = "C11"

_DELIVERED = """
    SELECT o_w_id AS w, o_d_id AS d, o_c_id AS c, sum(ol_amount) AS bought
    FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
    WHERE ol_delivery_d IS NOT NULL GROUP BY ALL
"""

#: Each gives the rows of which it is not true.
CONDITIONS = {
    # A warehouse has taken what its districts have.
    "C1": """
        FROM warehouse LEFT JOIN (SELECT d_w_id, sum(d_ytd) AS taken FROM district GROUP BY ALL)
        ON d_w_id = w_id WHERE w_ytd IS DISTINCT FROM taken
    """,
    # The next number follows the highest of an order, and of a new order if there is one.
    "C2": """
        FROM district
        LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS last FROM orders GROUP BY ALL)
        ON o_w_id = d_w_id AND o_d_id = d_id
        LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS last_new FROM new_order GROUP BY ALL)
        ON no_w_id = d_w_id AND no_d_id = d_id
        WHERE d_next_o_id - 1 IS DISTINCT FROM last OR last_new <> last
    """,
    # The numbers of new orders have no gap.
    "C3": """
        FROM (SELECT no_w_id, no_d_id, max(no_o_id) - min(no_o_id) + 1 AS due, count(*) AS there
              FROM new_order GROUP BY ALL)
        WHERE due IS DISTINCT FROM there
    """,
    # A district has as many lines as its orders say.
    "C4": """
        FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS due FROM orders GROUP BY ALL)
        FULL JOIN (SELECT ol_w_id, ol_d_id, count(*) AS there FROM order_line GROUP BY ALL)
        ON ol_w_id = o_w_id AND ol_d_id = o_d_id WHERE due IS DISTINCT FROM there
    """,
    # An order has no carrier if and only if it is a new order.
    "C5": """
        FROM orders LEFT JOIN (SELECT DISTINCT no_w_id, no_d_id, no_o_id FROM new_order)
        ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
        WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)
    """,
    # An order has as many lines as it says.
    "C6": """
        FROM orders LEFT JOIN (
            SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS there FROM order_line GROUP BY ALL)
        ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
        WHERE o_ol_cnt IS DISTINCT FROM coalesce(there, 0)
    """,
    # A line is delivered if and only if its order has a carrier.
    "C7": """
        FROM order_line JOIN orders ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
        WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)
    """,
    # A warehouse has taken what was paid there.
    "C8": """
        FROM warehouse LEFT JOIN (SELECT h_w_id, sum(h_amount) AS paid FROM history GROUP BY ALL)
        ON h_w_id = w_id WHERE w_ytd IS DISTINCT FROM paid
    """,
    # So has a district.
    "C9": """
        FROM district
        LEFT JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history GROUP BY ALL)
        ON h_w_id = d_w_id AND h_d_id = d_id WHERE d_ytd IS DISTINCT FROM paid
    """,
    # A customer owes what was delivered and has not been paid.
    "C10": f"""
        FROM customer
        LEFT JOIN ({_DELIVERED}) ON w = c_w_id AND d = c_d_id AND c = c_id
        LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid
                   FROM history GROUP BY ALL)
        ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
        WHERE c_balance IS DISTINCT FROM coalesce(bought, 0) - coalesce(paid, 0)
    """,
    # All but 30% of a district's orders were delivered when the tables were loaded.
    "C11": """
        FROM (SELECT o_w_id, o_d_id, count(*) AS there, count(*) * 7 // 10 AS due
              FROM orders GROUP BY ALL)
        LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS new FROM new_order GROUP BY ALL)
        ON no_w_id = o_w_id AND no_d_id = o_d_id WHERE there - coalesce(new, 0) <> due
    """,
    # What a customer owes and has paid is what was delivered.
    "C12": f"""
        FROM customer LEFT JOIN ({_DELIVERED}) ON w = c_w_id AND d = c_d_id AND c = c_id
        WHERE c_balance + c_ytd_payment IS DISTINCT FROM coalesce(bought, 0)
    """,
}


def violations(tables: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """How many rows break each condition, of the tables that a connection has."""
    found = {}
    for name, rows in CONDITIONS.items():
        ((found[name],),) = tables.execute(f"SELECT count(*) {rows}").fetchall()
    return found


def violations_of(tables: Mapping[str, pa.Table]) -> dict[str, int]:
    """How many rows break each condition, of tables with at least ``COLUMNS``."""
    with duckdb.connect() as connection:
        for name, rows in tables.items():
            connection.register(name, rows)
        return violations(connection)
