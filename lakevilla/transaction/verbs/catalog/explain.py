"""EXPLAIN: how many files of a table a statement would read, and the engine's plan.

EXPLAIN adds no reads to the transaction: what it reports need not be true at the commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.engines.base import EXPLAIN, TableInput
from lakevilla.phases import during
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program
from lakevilla.transaction.queue.places import perform_late
from lakevilla.transaction.state.files import make_promised
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.bind import touch
from lakevilla.transaction.verbs.read_write import own_state


@dataclass(frozen=True, slots=True)
class FilesKept:
    """The number and bytes of a table's files that may match a condition, and of all its files."""

    files: int
    bytes: int
    all_files: int
    all_bytes: int


def files_kept(txn: TransactionState, location: str, where: Expr | None) -> Program[FilesKept]:
    """Return how many files of a table may have rows for a condition, by their statistics."""
    txn.check_open("explain")
    yield from touch(txn, [location], probing=True)
    yield from perform_late(txn, [location])
    yield from make_promised(txn, location)
    snapshot = txn.work.tables[location].snapshot
    with during("metadata", location):
        every = yield from snapshot.files(None)
        kept = every
        if where is not None:
            kept = yield from snapshot.files(bind(where, snapshot.layout.schema))
    return FilesKept(kept.num_rows, _bytes(kept), every.num_rows, _bytes(every))


def _bytes(files: pa.Table) -> int:
    return int(pc.sum(files["size"]).as_py() or 0)


def plan(
    txn: TransactionState,
    sql: str,
    tables: Mapping[str, str],
    views: Mapping[str, pa.RecordBatchReader],
    params: Mapping[str, object],
    pasts: Mapping[str, TableInput],
) -> Program[str]:
    """Return the engine's plan of a query without running it; see ``read_write.query``."""
    rows = yield from answer(txn, EXPLAIN + sql, tables, views, params, pasts)
    return "\n".join(str(text) for text in rows["explain_value"].to_pylist())


def answer(
    txn: TransactionState,
    sql: str,
    tables: Mapping[str, str],
    views: Mapping[str, pa.RecordBatchReader],
    params: Mapping[str, object],
    pasts: Mapping[str, TableInput],
) -> Program[pa.Table]:
    """Run a query that reads no rows, such as EXPLAIN, and return the engine's result."""
    txn.check_open("explain")
    yield from touch(txn, tables.values(), probing=True)
    inputs = dict(pasts)
    for alias, location in tables.items():
        snapshot = yield from own_state(txn, location)
        inputs[alias] = TableInput(snapshot.layout, (yield from snapshot.files(None)))
    with during("data"):
        return (yield from txn.context.engine.query(sql, inputs, views, params))
