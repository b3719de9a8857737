"""The tables as they are loaded (clause 4.3.3.1), the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from random import Random

import numpy as np
import pyarrow as pa

from bench.tpcc.schema import MONEY, RATE, ROWS_OF_A_FILE, SCHEMAS, Scale
from bench.tpcc.values import (
    OF_LAST,
    Constants,
    a_strings,
    constants_of_load,
    data,
    decimals,
    last_name,
    n_strings,
    nurand,
    zip_code,
)

#: What each customer has paid when the tables are loaded, in cents.
_PAID = 1000
_Columns = dict[str, object]


def population(scale: Scale, seed: int, now: datetime) -> dict[str, pa.Table]:
    """All nine tables."""
    random = np.random.default_rng(seed)
    made = {
        "warehouse": _warehouses(random, scale),
        "district": _districts(random, scale),
        "customer": _customers(random, scale, load_constants(seed), now),
        "history": _history(random, scale, now),
        **_orders(random, scale, now),
        "item": _items(random, scale),
        "stock": _stock(random, scale),
    }
    return {name: _table(name, columns) for name, columns in made.items()}


def load_constants(seed: int) -> Constants:
    """NURand's C of the load."""
    return constants_of_load(Random(f"{seed}-load"))


def files(name: str, rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in pieces, each of which is to be a file of its own (or one in each partition)."""
    size = ROWS_OF_A_FILE.get(name, rows.num_rows)
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


def _table(name: str, columns: _Columns) -> pa.Table:
    schema = SCHEMAS[name]
    prefix = schema.names[0].partition("_")[0]
    arrays = [columns[column.removeprefix(f"{prefix}_")] for column in schema.names]
    cast = [
        pa.array(values, field.type) if isinstance(values, np.ndarray) else values
        for values, field in zip(arrays, schema, strict=True)
    ]
    return pa.table(cast, schema=schema)


def _of_districts(scale: Scale) -> tuple[np.ndarray, np.ndarray]:
    """Warehouse and district of each district."""
    warehouse, district = np.divmod(np.arange(scale.warehouses * scale.districts), scale.districts)
    return warehouse + 1, district + 1


def _address(random: np.random.Generator, count: int) -> _Columns:
    return {
        "street_1": a_strings(random, count, 10, 20),
        "street_2": a_strings(random, count, 10, 20),
        "city": a_strings(random, count, 10, 20),
        "state": a_strings(random, count, 2, 2),
        "zip": zip_code(random, count),
    }


def _rates(random: np.random.Generator, count: int, most: int) -> pa.Array:
    return decimals(random.integers(0, most + 1, count), RATE)


def _money(cents: int, count: int) -> pa.Array:
    return decimals(np.full(count, cents), MONEY)


def _same(value: object, count: int, type_: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, type_), count)


def _time(now: datetime, count: int) -> pa.Array:
    return _same(now, count, pa.timestamp("us", tz="UTC"))


def _warehouses(random: np.random.Generator, scale: Scale) -> _Columns:
    count = scale.warehouses
    return {
        "id": np.arange(1, count + 1),
        "name": a_strings(random, count, 6, 10),
        **_address(random, count),
        "tax": _rates(random, count, 2000),
        "ytd": _money(scale.districts * scale.customers * _PAID, count),
    }


def _districts(random: np.random.Generator, scale: Scale) -> _Columns:
    warehouse, district = _of_districts(scale)
    count = len(district)
    return {
        "id": district,
        "w_id": warehouse,
        "name": a_strings(random, count, 6, 10),
        **_address(random, count),
        "tax": _rates(random, count, 2000),
        "ytd": _money(scale.customers * _PAID, count),
        "next_o_id": np.full(count, scale.customers + 1),
    }


def _customers(random: np.random.Generator, scale: Scale, c: Constants, now: datetime) -> _Columns:
    warehouse, district = (np.repeat(ids, scale.customers) for ids in _of_districts(scale))
    count = len(district)
    number = np.tile(np.arange(1, scale.customers + 1), count // scale.customers)
    of_a, value = random.integers(0, OF_LAST + 1, count), random.integers(0, 1000, count)
    drawn = np.where(number <= 1000, number - 1, nurand(of_a, value, 0, 999, c.last))
    bad = np.zeros(count, bool)
    bad[random.permutation(count)[: (count + 5) // 10]] = True
    return {
        "id": number,
        "d_id": district,
        "w_id": warehouse,
        "first": a_strings(random, count, 8, 16),
        "middle": _same("OE", count, pa.string()),
        "last": pa.array([last_name(n) for n in drawn.tolist()]),
        **_address(random, count),
        "phone": n_strings(random, count, 16, 16),
        "since": _time(now, count),
        "credit": pa.array(np.where(bad, "BC", "GC")),
        "credit_lim": _money(5_000_000, count),
        "discount": _rates(random, count, 5000),
        "balance": _money(-_PAID, count),
        "ytd_payment": _money(_PAID, count),
        "payment_cnt": np.ones(count, np.int32),
        "delivery_cnt": np.zeros(count, np.int32),
        "data": a_strings(random, count, 300, 500),
    }


def _history(random: np.random.Generator, scale: Scale, now: datetime) -> _Columns:
    warehouse, district = (np.repeat(ids, scale.customers) for ids in _of_districts(scale))
    count = len(district)
    return {
        "c_id": np.tile(np.arange(1, scale.customers + 1), count // scale.customers),
        "c_d_id": district,
        "c_w_id": warehouse,
        "d_id": district,
        "w_id": warehouse,
        "date": _time(now, count),
        "amount": _money(_PAID, count),
        "data": a_strings(random, count, 12, 24),
    }


def _orders(random: np.random.Generator, scale: Scale, now: datetime) -> dict[str, _Columns]:
    """Orders by their numbers, then by district, with their lines; the last are new orders."""
    warehouses, districts = _of_districts(scale)
    places, numbers = len(districts), np.arange(1, scale.customers + 1)
    number = np.repeat(numbers, places)
    district, warehouse = (np.tile(ids, scale.customers) for ids in (districts, warehouses))
    count = len(number)
    customers = np.stack([random.permutation(numbers) for _ in range(places)], axis=1).ravel()
    new = number > scale.delivered
    lines = random.integers(5, 16, count)
    orders = {
        "id": number,
        "d_id": district,
        "w_id": warehouse,
        "c_id": customers,
        "entry_d": _time(now, count),
        "carrier_id": pa.array(random.integers(1, 11, count), pa.int32(), mask=new),
        "ol_cnt": lines,
        "all_local": np.ones(count, np.int32),
    }
    of = np.repeat(np.arange(count), lines)
    first = np.repeat(np.cumsum(lines) - lines, lines)
    total = len(of)
    amounts = np.where(new[of], random.integers(1, 1_000_000, total), 0)
    return {
        "new_order": {"o_id": number[new], "d_id": district[new], "w_id": warehouse[new]},
        "orders": orders,
        "order_line": {
            "o_id": number[of],
            "d_id": district[of],
            "w_id": warehouse[of],
            "number": np.arange(total) - first + 1,
            "i_id": random.integers(1, scale.items + 1, total),
            "supply_w_id": warehouse[of],
            "delivery_d": pa.array(
                np.full(total, int(now.timestamp() * 1e6)), pa.timestamp("us", tz="UTC"), new[of]
            ),
            "quantity": np.full(total, 5),
            "amount": decimals(amounts, MONEY),
            "dist_info": a_strings(random, total, 24, 24),
        },
    }


def _items(random: np.random.Generator, scale: Scale) -> _Columns:
    count = scale.items
    return {
        "id": np.arange(1, count + 1),
        "im_id": random.integers(1, 10_001, count),
        "name": a_strings(random, count, 14, 24),
        "price": decimals(random.integers(100, 10_001, count), MONEY),
        "data": data(random, count),
    }


def _stock(random: np.random.Generator, scale: Scale) -> _Columns:
    count = scale.warehouses * scale.items
    warehouse, item = (place + 1 for place in np.divmod(np.arange(count), scale.items))
    return {
        "i_id": item,
        "w_id": warehouse,
        "quantity": random.integers(10, 101, count),
        **{f"dist_{number:02}": a_strings(random, count, 24, 24) for number in range(1, 11)},
        "ytd": np.zeros(count, np.int32),
        "order_cnt": np.zeros(count, np.int32),
        "remote_cnt": np.zeros(count, np.int32),
        "data": data(random, count),
        "part": (warehouse - 1) * scale.parts + (item - 1) * scale.parts // scale.items,
    }
