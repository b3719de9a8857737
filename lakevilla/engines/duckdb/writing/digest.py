"""A digest of a multiset of rows: equal digests mean equal rows, in any order.

Each row is written without ambiguity, hashed to 128 bits and summed, in halves.
A sum, unlike an exclusive or, tells two equal rows from none.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.failures import translated
from lakevilla.engines.duckdb.reading.relation import Files
from lakevilla.engines.duckdb.sqltext import quote_name
from lakevilla.engines.duckdb.writing.rewrite import expression_sql
from lakevilla.sql.expressions.tree import Expr


@dataclass(frozen=True, slots=True)
class Digest:
    """Of some rows: how many, and the sums of both halves. Those of two parts add up."""

    count: int = 0
    low: int = 0
    high: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.count + other.count, self.low + other.low, self.high + other.high)

    def __str__(self) -> str:
        return f"{self.count}-{self.low:x}-{self.high:x}"


def digest(cursor: duckdb.DuckDBPyConnection, files: Files, where: Expr) -> Digest:
    """The digest of the rows of ``files`` for which ``where`` is true."""
    layout = files.layout
    parts = ", ".join(_unambiguous(f"t.{quote_name(f.name)}", f.type) for f in layout.schema)
    sql = (
        "SELECT count(*), sum(md5_number_lower(line)), sum(md5_number_upper(line)) FROM ("
        f"SELECT concat({parts}) AS line FROM ({files.bind(cursor, where=where)}) AS t "
        f"WHERE {expression_sql(where, layout.schema, 't')})"
    )
    with translated(layout.table):
        # All rows are fetched, though there is one: a result that is not read to its
        # end is dropped with the interpreter's lock held, while DuckDB's threads may
        # still wait for that lock to read a file of a remote store.
        ((count, low, high),) = cursor.execute(sql).fetchall()
    return Digest(count, int(low or 0), int(high or 0))


def _unambiguous(value: str, kind: pa.DataType) -> str:
    """Text of a value such that no two rows join up to the same line."""
    text = f"CAST({value} AS VARCHAR)"
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        text = f"hex({value})"
    if pa.types.is_floating(kind):
        # Equal to SQL, and so to every predicate: one text for both zeros.
        text = f"CAST({value} + 0.0 AS VARCHAR)"
    # The length in front marks where a text ends, "-" alone a NULL.
    return f"coalesce(strlen({text}) || ':' || {text}, '-')"
