"""Query by conditions that compare NULL as a value: they find its rows, whatever DuckDB's
statistics say.

Files and row groups have one value of a column, this value and NULL, or NULL alone; the results are
compared with a DuckDB that optimizes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakevilla as lv

#: By name: a type, its values, and constants as SQL writes them.
_COLUMNS: dict[str, tuple[pa.DataType, list[Any], list[str]]] = {
    "x": (pa.int64(), [1, 5, 7], ["1", "5", "7", "9", "-1"]),
    "y": (pa.int32(), [1, 5, 7], ["1", "5", "7", "5.0"]),
    "b": (pa.bool_(), [True, False], ["true", "false"]),
    "s": (pa.string(), ["a", "b", ""], ["'a'", "'b'", "''", "'z'"]),
    "d": (pa.float64(), [1.0, 5.0, float("nan")], ["1.0", "5", "'NaN'::DOUBLE"]),
    "m": (pa.decimal128(10, 2), [Decimal("1.00"), Decimal("5.50")], ["1", "5.5", "7.25"]),
    "t": (pa.date32(), [date(2024, 2, 29), date(1970, 1, 1)], ["DATE '2024-02-29'"]),
    "n": (pa.timestamp("us"), [datetime(2024, 2, 29)], ["TIMESTAMP '2024-02-29'"]),
    "z": (
        pa.timestamp("us", "UTC"),
        [datetime(2024, 2, 29, tzinfo=UTC)],
        ["TIMESTAMPTZ '2024-02-29 00:00:00+00'"],
    ),
    "r": (pa.binary(), [b"a", b"\xff"], ["'a'::BLOB"]),
    "p": (pa.string(), ["one", "two"], ["'one'", "'two'", "'three'"]),
    "g": (pa.struct([("q", pa.int64())]), [{"q": 1}, {"q": None}], ["{'q': 1::BIGINT}"]),
}
_NULL_AS_A_VALUE = ("IS DISTINCT FROM", "IS NOT DISTINCT FROM")
_OTHERS = ("=", "<>", "<", ">=")


def _rows(random: Random) -> pa.Table:
    """Return few rows, mostly equal in a column."""
    size = random.choice((1, 4))
    columns = {}
    for name, (type_, values, _) in _COLUMNS.items():
        one = random.choice(values)
        kind = random.choice(([None], [one], [one, None], [*values, None]))
        columns[name] = pa.array([random.choice(kind) for _ in range(size)], type_)
    return pa.table(columns)


def _lake(random: Random, name: str, format: str) -> tuple[lv.Lake, pa.Table]:
    lake = lv.connect(f"memory://null/{name}")
    parts = [_rows(random) for _ in range(random.choice((1, 2, 6)))]
    partitions = random.choice(([], [], ["p"], ["p", "b"]))
    lake.create_table("t", parts[0].schema, partition_by=partitions, format=format)
    with lake.transaction() as txn:
        for part in parts:
            txn.append("t", part)
    return lake, pa.concat_tables(parts)


def _condition(random: Random, depth: int) -> str:
    if depth == 0:
        return _comparison(random, random.choice(list(_COLUMNS)))
    if random.random() < 0.5:  # conditions on one column, for which DuckDB uses statistics
        name = random.choice(list(_COLUMNS))
        terms = [_comparison(random, name) for _ in range(random.choice((2, 2, 3)))]
    else:
        terms = [_condition(random, depth - 1) for _ in range(2)]
    joined = random.choice((" OR ", " OR ", " AND ")).join(terms)
    return random.choice((f"({joined})", f"({joined})", f"NOT ({joined})"))


def _comparison(random: Random, name: str) -> str:
    constants = _COLUMNS[name][2]
    one, maybe_not = random.choice(constants), random.choice(("", "NOT "))
    if random.random() < 0.1:
        one = random.choice(("NULL", "(SELECT min(w) FROM u)", "x") if name in "xy" else ("NULL",))
    if name in ("b", "s") and random.random() < 0.3:
        tested = "b" if name == "b" else f"({name} = {one})"
        return f"{tested} IS {maybe_not}{random.choice(('TRUE', 'FALSE', 'NULL'))}"
    kind = random.random()
    if kind < 0.55:
        text = f"{name} {random.choice(_NULL_AS_A_VALUE)} {one}"
    elif kind < 0.8:
        text = f"{name} {random.choice(_OTHERS)} {one}"
    elif kind < 0.9:
        text = f"{name} {maybe_not}IN ({random.choice(constants)}, {one})"
    else:
        text = f"{name} IS {maybe_not}NULL"
    return random.choice((text, text, text, f"NOT ({text})", f"NOT {text}"))


#: The places of a condition: over the table, joined, grouped, in subqueries.
_QUERIES = (
    "SELECT count(*) FROM t WHERE {}",
    "SELECT count(*), min(x) FROM t WHERE {} AND ({})",
    "WITH q AS (SELECT * FROM t) SELECT count(*) FROM q WHERE {}",
    "SELECT count(*) FROM (SELECT * FROM t UNION ALL SELECT * FROM t) WHERE {}",
    "SELECT count(*) FROM u JOIN t ON {}",
    "SELECT count(*) FROM u LEFT JOIN t ON {}",
    "SELECT count(*) FROM t SEMI JOIN u ON w = 1 AND {}",
    "SELECT count(*) FROM u WHERE EXISTS (FROM t WHERE {})",
    "SELECT x, y, b, s, d, m, t, n, z, r, p, g FROM t GROUP BY ALL HAVING {}",
    "SELECT count(*) FILTER (WHERE {}) FROM t",
    "SELECT count(CASE WHEN {} THEN 1 END) FROM t",
    "SELECT x, count(*) OVER () AS i FROM t QUALIFY {}",
)


def _asked(random: Random, count: int) -> Iterator[str]:
    for _ in range(count):
        text = random.choice(_QUERIES)
        yield (
            text.replace("{}", "\0")
            .replace("\0", _condition(random, 2), 1)
            .replace("\0", _condition(random, 1))
        )


def _answer(found: Any) -> list[str]:
    return sorted(map(repr, found))


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("seed", range(60))
def test_queries_of_a_table_and_of_a_view_return_the_same_as_in_duckdb(
    seed: int, format: str
) -> None:
    random = Random(seed)
    lake, rows = _lake(random, f"{format}/{seed}", format)
    one = pa.table({"w": [1]})
    oracle = duckdb.connect()
    oracle.execute("SET TimeZone = 'UTC'; PRAGMA disable_optimizer")
    oracle.execute("CREATE TABLE t AS FROM rows")
    oracle.execute("CREATE TABLE u AS FROM one")
    lake.create_table("u", one.schema)
    with lake.transaction() as txn:
        txn.append("u", one)
    done = 0
    for text in _asked(random, 60):
        try:
            wanted = _answer(oracle.execute(text).fetchall())
        except duckdb.Error:
            continue
        done += 1
        for views in ({}, {"t": rows}):
            with lake.transaction() as txn:
                found = txn.sql(text, views=views) if views else txn.sql(text)
                txn.abort()
            assert _answer(tuple(row.values()) for row in found.to_pylist()) == wanted, text
    assert done > 40
