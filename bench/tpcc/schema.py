"""The nine tables (clause 1.3), how large they are (clause 1.2), and how their files lie."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

#: Signed, two places; and rates of four places.
MONEY = pa.decimal128(12, 2)
RATE = pa.decimal128(4, 4)
_ID = pa.int32()
_TEXT = pa.string()
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the tables are; the defaults are one warehouse of the specification.

    Attributes
    ----------
    districts : int
        Of each warehouse.
    customers : int
        Of each district, and as many orders; the last 30% of these are not delivered.
    items : int
        And as many rows of stock in each warehouse.
    parts : int
        Partitions of each warehouse's stock.
    """

    warehouses: int = 1
    districts: int = 10
    customers: int = 3000
    items: int = 100_000
    parts: int = 100

    @property
    def delivered(self) -> int:
        """Orders of each district that are delivered when the tables are loaded."""
        return self.customers * 7 // 10

    @property
    def names(self) -> int:
        """Last names that there are: a thousand, but no more than customers."""
        return min(1000, self.customers)

    def part(self, warehouse: int, item: int) -> int:
        """The partition of a row of stock."""
        return (warehouse - 1) * self.parts + (item - 1) * self.parts // self.items


def _columns(prefix: str, **types: pa.DataType) -> pa.Schema:
    return pa.schema([(f"{prefix}_{name}", type_) for name, type_ in types.items()])


_ADDRESS = dict.fromkeys(("street_1", "street_2", "city", "state", "zip"), _TEXT)
SCHEMAS = {
    "warehouse": _columns("w", id=_ID, name=_TEXT, **_ADDRESS, tax=RATE, ytd=MONEY),
    "district": _columns(
        "d", id=_ID, w_id=_ID, name=_TEXT, **_ADDRESS, tax=RATE, ytd=MONEY, next_o_id=_ID
    ),
    "customer": _columns(
        "c",
        id=_ID,
        d_id=_ID,
        w_id=_ID,
        first=_TEXT,
        middle=_TEXT,
        last=_TEXT,
        **_ADDRESS,
        phone=_TEXT,
        since=_TIME,
        credit=_TEXT,
        credit_lim=MONEY,
        discount=RATE,
        balance=MONEY,
        ytd_payment=MONEY,
        payment_cnt=_ID,
        delivery_cnt=_ID,
        data=_TEXT,
    ),
    "history": _columns(
        "h",
        c_id=_ID,
        c_d_id=_ID,
        c_w_id=_ID,
        d_id=_ID,
        w_id=_ID,
        date=_TIME,
        amount=MONEY,
        data=_TEXT,
    ),
    "new_order": _columns("no", o_id=_ID, d_id=_ID, w_id=_ID),
    "orders": _columns(
        "o",
        id=_ID,
        d_id=_ID,
        w_id=_ID,
        c_id=_ID,
        entry_d=_TIME,
        carrier_id=_ID,
        ol_cnt=_ID,
        all_local=_ID,
    ),
    "order_line": _columns(
        "ol",
        o_id=_ID,
        d_id=_ID,
        w_id=_ID,
        number=_ID,
        i_id=_ID,
        supply_w_id=_ID,
        delivery_d=_TIME,
        quantity=_ID,
        amount=MONEY,
        dist_info=_TEXT,
    ),
    "item": _columns("i", id=_ID, im_id=_ID, name=_TEXT, price=MONEY, data=_TEXT),
    "stock": _columns(
        "s",
        i_id=_ID,
        w_id=_ID,
        quantity=_ID,
        **{f"dist_{number:02}": _TEXT for number in range(1, 11)},
        ytd=_ID,
        order_cnt=_ID,
        remote_cnt=_ID,
        data=_TEXT,
        part=_ID,
    ),
}

#: A change rewrites the file that it falls in. So a file is a district's customers, and a hundredth
#: of the stock: an order's lines rewrite ten small files and not the whole of it. A Delta table
#: is partitioned by values of a column, so the stock has one that the specification has not.
PARTITIONS = {"customer": ("c_w_id", "c_d_id"), "stock": ("s_part",)}
#: Rows of an append, which is a file. Order lines lie in the order of the orders' numbers, which
#: is that in which they are delivered: a delivery falls in one or two files.
ROWS_OF_A_FILE = {"order_line": 10_000}
