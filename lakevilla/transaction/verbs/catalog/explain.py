"""The files that a statement would read and those left out, and the engine's plan.

Nothing of it is part of the transaction: what is only reported may change.
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
from lakevilla.transaction.queue.late import perform_late
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.bind import touch
from lakevilla.transaction.verbs.read_write import own_state


@dataclass(frozen=True, slots=True)
class FilesKept:
    """The number of a table's files that a condition leaves, their bytes, and both totals."""

    files: int
    bytes: int
    all_files: int
    all_bytes: int


def files_kept(txn: TransactionState, location: str, where: Expr | None) -> Program[FilesKept]:
    """Return what the statistics of a table's log say of a condition on its rows."""
    txn.check_open("explain")
    yield from touch(txn, [location], probing=True)
    yield from perform_late(txn, [location])
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
    """Return the plan of a query, which is not run; as ``query`` otherwise."""
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
    """Return the engine's answer to a query that is not run for its rows."""
    txn.check_open("explain")
    yield from touch(txn, tables.values(), probing=True)
    inputs = dict(pasts)
    for alias, location in tables.items():
        snapshot = yield from own_state(txn, location)
        inputs[alias] = TableInput(snapshot.layout, (yield from snapshot.files(None)))
    with during("data"):
        return (yield from txn.context.engine.query(sql, inputs, views, params))
