"""Write streams: up to 100 rows into a random table (80%), or an update of one table (20%).

They arrive as the queries of a CAB stream do, and its 23rd query is among them. What each write
must make of its table is known before it is sent: rows of the start alone are updated, and new
rows have keys of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random

import pyarrow as pa

from bench.cab_lh.arguments import Refresh
from bench.cab_lh.streams import REFRESH, Stream
from bench.harness.tpc import Tpc

MOST_ROWS = 100
INSERTS = 0.8
#: Beyond all keys of TPC-H up to scale factor 100, and within 32 bits.
FIRST_NEW_KEY = 2**30
_SAMPLE_ROWS = 5000


@dataclass(frozen=True, slots=True)
class Target:
    """A table as writes meet it.

    Attributes
    ----------
    key : str
        Chooses the rows of an update; new rows have new values.
    counted : str
        The column that an update adds 1 to. No query of CAB's 23rd kind computes with it.
    block : int
        Keys are updated in blocks of so many: the 23rd query moves orders within 32 keys.
    """

    key: str
    counted: str
    block: int = 1


TARGETS = {
    "customer": Target("c_custkey", "c_acctbal"),
    "lineitem": Target("l_orderkey", "l_extendedprice", 32),
    "nation": Target("n_nationkey", "n_regionkey"),
    "orders": Target("o_orderkey", "o_shippriority", 32),
    "part": Target("p_partkey", "p_size"),
    "partsupp": Target("ps_partkey", "ps_availqty"),
    "region": Target("r_regionkey", "r_regionkey"),
    "supplier": Target("s_suppkey", "s_acctbal"),
}
#: A nation's region, and a region's key, stay as they are: these tables only grow.
_UPDATED = tuple(sorted(set(TARGETS) - {"nation", "region"}))
Amount = int | Decimal


@dataclass(frozen=True, slots=True)
class Write:
    """One write, and what it makes of its table.

    ``keys`` are its first key and the one behind its last; ``eight`` those of each 32 that the
    23rd query deletes. ``more_rows`` and ``more`` are what it adds to the table's rows, and to
    the sum of the counted column.
    """

    kind: str
    table: str
    start_ms: int
    keys: tuple[int, int]
    eight: tuple[int, int] = (0, 0)
    rows: pa.Table | None = None
    more_rows: int = 0
    more: Amount = 0


@dataclass
class State:
    """What a table holds: so many rows, and the sum of the counted column."""

    rows: int
    amount: Amount


@dataclass
class Ledger:
    """What the tables must hold by now, and which keys of orders have been moved by 8."""

    tables: dict[str, State]
    moved: list[tuple[int, int]] = field(default_factory=list)

    def note(self, write: Write) -> None:
        """Take in a write that was acknowledged."""
        table = self.tables[write.table]
        table.rows += write.more_rows
        table.amount += write.more
        if write.kind == "refresh":
            self.moved.append(write.keys)


class Start:
    """What the tables hold before the first write, and the writes that fit it."""

    def __init__(self, tpc: Tpc) -> None:
        self._query = tpc.answer
        self._samples = {
            name: self._query(f'FROM "{name}" LIMIT {_SAMPLE_ROWS}') for name in TARGETS
        }
        self._highest = {
            name: int(self._one(f'SELECT max({target.key}) FROM "{name}"'))
            for name, target in TARGETS.items()
        }
        self._new_keys = itertools.count(FIRST_NEW_KEY)

    def ledger(self) -> Ledger:
        """Before the first write."""
        return Ledger({name: State(*self._state(name)) for name in TARGETS})

    def writes(self, stream: Stream, refresh: Refresh, random: Random) -> Iterator[Write]:
        """The writes of a stream; all streams of a lake share ``refresh``."""
        for query in stream.queries:
            if query.number == REFRESH:
                first, behind, *eight = refresh.following()
                yield Write(
                    "refresh", "orders", query.start_ms, (first, behind), (eight[0], eight[1])
                )
            elif random.random() < INSERTS:
                yield self._insert(random.choice(tuple(TARGETS)), query.start_ms, random)
            else:
                yield self._update(random.choice(_UPDATED), query.start_ms, random)

    def _insert(self, table: str, start_ms: int, random: Random) -> Write:
        sample, target = self._samples[table], TARGETS[table]
        count = random.randint(1, min(MOST_ROWS, sample.num_rows))
        rows = sample.slice(random.randint(0, sample.num_rows - count), count)
        column = rows.schema.get_field_index(target.key)
        keys = list(itertools.islice(self._new_keys, count))
        field = rows.schema.field(column)
        rows = rows.set_column(column, field, pa.array(keys, field.type))
        more = sum(rows[target.counted].to_pylist())
        return Write("insert", table, start_ms, (keys[0], keys[-1] + 1), (0, 0), rows, count, more)

    def _update(self, table: str, start_ms: int, random: Random) -> Write:
        block = TARGETS[table].block
        blocks = 1 + self._highest[table] // block
        many = random.randint(1, min(MOST_ROWS if block == 1 else 12, blocks))
        first = random.randint(0, blocks - many)
        keys = (first * block, (first + many) * block)
        matched = self._state(table, keys)[0]
        return Write("update", table, start_ms, keys, more=matched)

    def _state(self, table: str, keys: tuple[int, int] | None = None) -> tuple[int, Amount]:
        target = TARGETS[table]
        sql = f'SELECT count(*), coalesce(sum({target.counted}), 0) FROM "{table}"'
        if keys:
            sql += f" WHERE {target.key} >= {keys[0]} AND {target.key} < {keys[1]}"
        found = self._query(sql)
        return int(found[0][0].as_py()), found[1][0].as_py()

    def _one(self, sql: str) -> int:
        return int(self._query(sql)[0][0].as_py())


def by_arrival(streams: Sequence[Sequence[Write]]) -> list[Write]:
    """All writes, the first first."""
    return sorted(itertools.chain(*streams), key=lambda one: one.start_ms)
