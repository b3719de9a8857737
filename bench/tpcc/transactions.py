"""The five transactions (clauses 2.4 to 2.8), over one transaction of a lake.

Each reads what it needs by predicates, then writes: what a transaction reads by a predicate
conflicts only with changes of such rows, while a SELECT of ``sql`` reads whole tables.
Amounts that only grow or shrink (``w_ytd + :amount``) are left to the statement, which
LakeVilla can do again on a newer state; the district's next number is read, so two orders that
drew the same one conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from bench.tpcc.inputs import Delivery, Input, NewOrder, OrderStatus, Payment, StockLevel
from bench.tpcc.schema import SCHEMAS, Scale

Row = dict[str, Any]
#: Orders of each district that a delivery looks at for the oldest one, from the one before it on.
_WINDOW = 10


class RolledBack(Exception):
    """An order has an item that there is not: the transaction ends without effect."""


class Statements(Protocol):
    """What the transactions are written in: a transaction of a lake, or something less."""

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> pa.Table: ...

    def update(
        self,
        table: str,
        assignments: Mapping[str, object],
        where: str | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> object: ...

    def delete(
        self, table: str, where: str | None = None, *, params: Mapping[str, object] | None = None
    ) -> object: ...

    def append(self, table: str, data: object) -> object: ...


#: The tables that each kind writes.
WRITES = {
    "new_order": ("district", "stock", "orders", "new_order", "order_line"),
    "payment": ("warehouse", "district", "customer", "history"),
    "delivery": ("new_order", "orders", "order_line", "customer"),
    "order_status": (),
    "stock_level": (),
}


class Transactions:
    """The transactions of one terminal.

    It keeps one thing from one to the next: below which number the oldest order of a district
    that is not delivered was found, so that the next delivery reads a few rows and not the
    whole queue. Nothing depends on it but how many rows are asked for first.
    """

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self._below: dict[tuple[int, int], int] = {}

    def perform(self, txn: Statements, given: Input, now: datetime) -> object:
        """Carry out what was entered; what the terminal would show.

        Raises
        ------
        RolledBack
            An item does not exist.
        """
        match given:
            case NewOrder():
                return self._new_order(txn, given, now)
            case Payment():
                return _payment(txn, given, now)
            case OrderStatus():
                return _order_status(txn, given)
            case Delivery():
                return self._delivery(txn, given, now)
            case StockLevel():
                return _stock_level(txn, given)

    def _new_order(self, txn: Statements, given: NewOrder, now: datetime) -> Decimal:
        here = {"w": given.w_id, "d": given.d_id}
        warehouse = _one(txn.read("warehouse", ["w_tax"], "w_id = :w", params={"w": given.w_id}))
        its_district = "d_w_id = :w AND d_id = :d"
        district = _one(txn.read("district", ["d_tax", "d_next_o_id"], its_district, params=here))
        customer = _one(
            txn.read(
                "customer",
                ["c_discount", "c_last", "c_credit"],
                "c_w_id = :w AND c_d_id = :d AND c_id = :c",
                params={**here, "c": given.c_id},
            )
        )
        wanted = {"ids": sorted({line.i_id for line in given.lines})}
        found = txn.read(
            "item", ["i_id", "i_price", "i_name", "i_data"], "i_id IN :ids", params=wanted
        )
        items = {row["i_id"]: row for row in found.to_pylist()}
        stock = self._stock(txn, given)

        o_id = district["d_next_o_id"]
        txn.update("district", {"d_next_o_id": "d_next_o_id + 1"}, its_district, params=here)
        key = {"id": o_id, "d_id": given.d_id, "w_id": given.w_id}
        local = int(all(line.supply_w_id == given.w_id for line in given.lines))
        order = {"c_id": given.c_id, "entry_d": now, "ol_cnt": len(given.lines), "all_local": local}
        txn.append("orders", _rows("orders", [{**key, **order}]))
        txn.append("new_order", _rows("new_order", [{**key, "o_id": o_id}]))
        lines: list[Row] = []
        for number, line in enumerate(given.lines, 1):
            if line.i_id not in items:
                raise RolledBack(f"item {line.i_id}")
            one = stock[line.supply_w_id, line.i_id]
            _take(one, line.quantity, remote=line.supply_w_id != given.w_id)
            lines.append(
                {
                    **key,
                    "o_id": o_id,
                    "number": number,
                    "i_id": line.i_id,
                    "supply_w_id": line.supply_w_id,
                    "delivery_d": None,
                    "quantity": line.quantity,
                    "amount": items[line.i_id]["i_price"] * line.quantity,
                    "dist_info": one[f"s_dist_{given.d_id:02}"],
                }
            )
        for w_id in {w_id for w_id, _ in stock}:
            changed = {i_id: row for (place, i_id), row in stock.items() if place == w_id}
            _set_stock(txn, w_id, changed)
        txn.append("order_line", _rows("order_line", lines))
        rate = (1 - customer["c_discount"]) * (1 + warehouse["w_tax"] + district["d_tax"])
        total: Decimal = sum((line["amount"] for line in lines), Decimal()) * rate
        return total

    def _stock(self, txn: Statements, given: NewOrder) -> dict[tuple[int, int], Row]:
        """The rows of stock of an order's items, by warehouse and item."""
        found = {}
        columns = ["s_i_id", *_COUNTED, "s_data", f"s_dist_{given.d_id:02}"]
        for w_id in {line.supply_w_id for line in given.lines}:
            ids = {line.i_id for line in given.lines if line.supply_w_id == w_id}
            params = {"w": w_id, "ids": sorted(ids)}
            rows = txn.read("stock", columns, "s_w_id = :w AND s_i_id IN :ids", params=params)
            found.update({(w_id, row["s_i_id"]): row for row in rows.to_pylist()})
        return found

    def _delivery(self, txn: Statements, given: Delivery, now: datetime) -> int:
        oldest = self._oldest(txn, given.w_id)
        if not oldest:
            return 0
        where = {prefix: _any_of(f"{prefix}_d_id", key, oldest) for prefix, key in _ORDER_KEYS}
        w = {"w": given.w_id}
        orders = txn.read("orders", ["o_d_id", "o_c_id"], f"o_w_id = :w AND {where['o']}", params=w)
        lines = txn.read(
            "order_line", ["ol_d_id", "ol_amount"], f"ol_w_id = :w AND {where['ol']}", params=w
        )
        sums = lines.group_by("ol_d_id").aggregate([("ol_amount", "sum")]).to_pylist()
        amounts = {row["ol_d_id"]: row["ol_amount_sum"] for row in sums}
        customers = {row["o_d_id"]: row["o_c_id"] for row in orders.to_pylist()}
        txn.delete("new_order", f"no_w_id = :w AND {where['no']}", params=w)
        carrier = {**w, "carrier": given.carrier_id}
        txn.update(
            "orders", {"o_carrier_id": ":carrier"}, f"o_w_id = :w AND {where['o']}", params=carrier
        )
        at = {**w, "now": now}
        txn.update(
            "order_line", {"ol_delivery_d": ":now"}, f"ol_w_id = :w AND {where['ol']}", params=at
        )
        owed = " ".join(f"WHEN {d} THEN {amounts[d]}" for d in customers)
        txn.update(
            "customer",
            {
                "c_balance": f"c_balance + CASE c_d_id {owed} END",
                "c_delivery_cnt": "c_delivery_cnt + 1",
            },
            f"c_w_id = :w AND {_any_of('c_d_id', 'c_id', customers)}",
            params=w,
        )
        return len(oldest)

    def _oldest(self, txn: Statements, w_id: int) -> dict[int, int]:
        """The oldest order of each district that is not delivered; none where all are."""
        districts = range(1, self._scale.districts + 1)
        known = {d: self._below[w_id, d] for d in districts if (w_id, d) in self._below}
        found: dict[int, int] = {}
        if known:
            few = " OR ".join(
                f"(no_d_id = {d} AND no_o_id < {below})" for d, below in known.items()
            )
            found = _least(txn, f"no_w_id = :w AND ({few})", {"w": w_id})
        missing = [d for d in districts if d not in found]
        if missing:
            params = {"w": w_id, "missing": missing}
            found |= _least(txn, "no_w_id = :w AND no_d_id IN :missing", params)
        for d, o_id in found.items():
            self._below[w_id, d] = o_id + _WINDOW
        return found


def _payment(txn: Statements, given: Payment, now: datetime) -> Row:
    paid = {"w": given.w_id, "amount": given.amount}
    warehouse = _one(txn.read("warehouse", _place("w"), "w_id = :w", params={"w": given.w_id}))
    here = {"w": given.w_id, "d": given.d_id}
    its_district = "d_w_id = :w AND d_id = :d"
    district = _one(txn.read("district", _place("d"), its_district, params=here))
    customer = _customer(txn, given.c_w_id, given.c_d_id, given.customer, None)
    txn.update("warehouse", {"w_ytd": "w_ytd + :amount"}, "w_id = :w", params=paid)
    txn.update(
        "district", {"d_ytd": "d_ytd + :amount"}, its_district, params={**paid, "d": given.d_id}
    )
    c_id = customer["c_id"]
    change: dict[str, object] = {
        "c_balance": "c_balance - :amount",
        "c_ytd_payment": "c_ytd_payment + :amount",
        "c_payment_cnt": "c_payment_cnt + 1",
    }
    params: dict[str, object] = {"amount": given.amount}
    if customer["c_credit"] == "BC":
        ids = (c_id, given.c_d_id, given.c_w_id, given.d_id, given.w_id, given.amount)
        params["data"] = (" ".join(map(str, ids)) + customer["c_data"])[:500]
        change["c_data"] = ":data"
    its_row = "c_w_id = :w AND c_d_id = :d AND c_id = :c"
    params |= {"w": given.c_w_id, "d": given.c_d_id, "c": c_id}
    txn.update("customer", change, its_row, params=params)
    paid_for = {
        "c_id": c_id,
        "c_d_id": given.c_d_id,
        "c_w_id": given.c_w_id,
        "d_id": given.d_id,
        "w_id": given.w_id,
        "date": now,
        "amount": given.amount,
        "data": f"{warehouse['w_name']}    {district['d_name']}",
    }
    txn.append("history", _rows("history", [paid_for]))
    return customer


def _order_status(txn: Statements, given: OrderStatus) -> list[Row]:
    columns = ["c_id", "c_first", "c_middle", "c_last", "c_balance"]
    customer = _customer(txn, given.w_id, given.d_id, given.customer, columns)
    here = {"w": given.w_id, "d": given.d_id}
    orders = txn.read(
        "orders",
        ["o_id", "o_entry_d", "o_carrier_id"],
        "o_w_id = :w AND o_d_id = :d AND o_c_id = :c",
        params={**here, "c": customer["c_id"]},
    )
    last = pc.max(orders["o_id"]).as_py()
    lines: list[Row] = txn.read(
        "order_line",
        ["ol_i_id", "ol_supply_w_id", "ol_quantity", "ol_amount", "ol_delivery_d"],
        "ol_w_id = :w AND ol_d_id = :d AND ol_o_id = :o",
        params={**here, "o": last},
    ).to_pylist()
    return lines


def _stock_level(txn: Statements, given: StockLevel) -> int:
    here = {"w": given.w_id, "d": given.d_id}
    district = txn.read("district", ["d_next_o_id"], "d_w_id = :w AND d_id = :d", params=here)
    following = _one(district)["d_next_o_id"]
    lines = txn.read(
        "order_line",
        ["ol_i_id"],
        "ol_w_id = :w AND ol_d_id = :d AND ol_o_id >= :first AND ol_o_id < :following",
        params={**here, "first": following - 20, "following": following},
    )
    low = txn.read(
        "stock",
        ["s_i_id"],
        "s_w_id = :w AND s_quantity < :threshold AND s_i_id IN :ids",
        params={
            "w": given.w_id,
            "threshold": given.threshold,
            "ids": pc.unique(lines["ol_i_id"]).to_pylist(),
        },
    )
    return int(low.num_rows)


_COUNTED = ["s_quantity", "s_ytd", "s_order_cnt", "s_remote_cnt"]
_ORDER_KEYS = (("no", "no_o_id"), ("o", "o_id"), ("ol", "ol_o_id"))


def _place(prefix: str) -> list[str]:
    return [f"{prefix}_{name}" for name in ("name", "street_1", "street_2", "city", "state", "zip")]


def _customer(
    txn: Statements, w_id: int, d_id: int, who: int | str, columns: Sequence[str] | None
) -> Row:
    """A customer by number, or the middle one of a last name by first names."""
    where = "c_w_id = :w AND c_d_id = :d AND " + ("c_id" if isinstance(who, int) else "c_last")
    found = txn.read(
        "customer", columns, f"{where} = :who", params={"w": w_id, "d": d_id, "who": who}
    )
    rows: list[Row] = found.sort_by("c_first").to_pylist()
    return rows[(len(rows) + 1) // 2 - 1]


def _take(row: Row, quantity: int, *, remote: bool) -> None:
    """Take a line's items from a row of stock, as clause 2.4.2.2 has it."""
    enough = row["s_quantity"] - quantity >= 10
    row["s_quantity"] += -quantity if enough else 91 - quantity
    row["s_ytd"] += quantity
    row["s_order_cnt"] += 1
    row["s_remote_cnt"] += remote


def _set_stock(txn: Statements, w_id: int, rows: Mapping[int, Row]) -> None:
    """Change all the rows of an order by one statement."""

    def of_each(column: str) -> str:
        return (
            "CASE s_i_id "
            + " ".join(f"WHEN {i} THEN {r[column]}" for i, r in rows.items())
            + " END"
        )

    txn.update(
        "stock",
        {column: of_each(column) for column in _COUNTED},
        "s_w_id = :w AND s_i_id IN :ids",
        params={"w": w_id, "ids": sorted(rows)},
    )


def _least(txn: Statements, where: str, params: Mapping[str, object]) -> dict[int, int]:
    """The smallest number of a new order in each district."""
    rows = txn.read("new_order", ["no_d_id", "no_o_id"], where, params=params)
    least = rows.group_by("no_d_id").aggregate([("no_o_id", "min")])
    return dict(zip(least["no_d_id"].to_pylist(), least["no_o_id_min"].to_pylist(), strict=True))


def _any_of(district: str, key: str, wanted: Mapping[int, int]) -> str:
    """One row of each district."""
    return "(" + " OR ".join(f"({district} = {d} AND {key} = {n})" for d, n in wanted.items()) + ")"


def _one(rows: pa.Table) -> Row:
    (row,) = rows.to_pylist()
    return dict(row)


def _rows(table: str, rows: Iterable[Row]) -> pa.Table:
    """Rows of a table, whose columns are named without its prefix."""
    schema = SCHEMAS[table]
    prefix = schema.names[0].partition("_")[0]
    found = [{f"{prefix}_{name}": value for name, value in row.items()} for row in rows]
    return pa.Table.from_pylist(found, schema)
