"""The rows of one catalog table, as far as a query asks for them; what is seen is observed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.sizes import NOTHING, UNKNOWN, growth_of
from lakevilla.global_log.head import TableState
from lakevilla.lake.frozen.mounts import mounted
from lakevilla.sql.catalog import SCHEMAS, CatalogRead
from lakevilla.store.effects import Program
from lakevilla.store.location import is_external
from lakevilla.sublogs.operations import Create
from lakevilla.transaction.queue.late import perform_late
from lakevilla.transaction.state.features import Feature
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.catalog.commits import commit_rows
from lakevilla.transaction.verbs.catalog.looking import bind_if_made
from lakevilla.transaction.verbs.catalog.names import tables_named
from lakevilla.transaction.verbs.catalog.opened import column_rows, file_rows, statistics_rows

Row = dict[str, Any]
_AT_ONCE = 10_000


def catalog_rows(txn: TransactionState, read: CatalogRead) -> Program[pa.Table]:
    """The rows that ``read`` asks for, and maybe others; they count as seen from here on.

    Raises
    ------
    InvalidOperation
        The transaction sees no one state of the lake.
    """
    txn.check_open("sql")
    if Feature.I not in txn.options.features:
        raise InvalidOperation(
            f"lakevilla_{read.kind} shows one state of the lake, which Feature.I gives: begin the "
            "transaction with it, or read in `lake.snapshot()`",
            txn_id=txn.id,
        )
    yield from bind_if_made(txn)
    yield from perform_late(txn)
    rows = yield from _READERS[read.kind](txn, read)
    if not txn.bound.is_past and read not in txn.work.catalog:
        # Of one that only reads too: it may move to a newer HEAD yet.
        txn.work.catalog.append(read)
    schema = SCHEMAS[read.kind]
    # A few at a time: of a million files not all are Python objects at once.
    parts = [pa.Table.from_pylist(part, schema) for part in _in_parts(rows)]
    return pa.concat_tables([schema.empty_table(), *parts])


def _in_parts(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while part := list(islice(rows, _AT_ONCE)):
        yield part


def _table_rows(txn: TransactionState, read: CatalogRead) -> Program[Iterator[Row]]:
    found = yield from tables_named(txn, read.names)
    head = txn.head
    tables = {} if head is None else head.tables.at_hand()
    if any(place not in tables for place in found.values()):
        tables = {**(yield from mounted(head)), **tables}
    return (_table(txn, name, place, tables.get(place)) for name, place in found.items())


def _table(txn: TransactionState, name: str, place: str, state: TableState | None) -> Row:
    done = [one for one in txn.work.done if one.table == place]
    if any(isinstance(one.operation, Create) for one in done):
        snapshot = txn.work.tables[place].snapshot
        state = TableState(snapshot.table_id, -1, format=snapshot.format, size=NOTHING)
    assert state is not None, "a table is in HEAD, or was made by the transaction"
    size = UNKNOWN if state.size is None else state.size
    for one in done:
        size += growth_of(one.change)
    return {
        "name": name,
        "uri": uri_of(txn, place),
        "format": state.format,
        "table_id": state.table_id,
        "guarded": state.guarded,
        "log_version": state.published if state.published >= 0 else None,
        "pending": len(state.pending),
        "files": size.files,
        "rows": size.rows,
        "bytes": size.bytes,
        "changed_version": state.changed or None,
    }


def uri_of(txn: TransactionState, location: str) -> str:
    """A location as any other client may be given it."""
    return location if is_external(location) else f"{txn.context.root.rstrip('/')}/{location}"


_READERS: dict[str, Callable[[TransactionState, CatalogRead], Program[Any]]] = {
    "tables": _table_rows,
    "files": file_rows,
    "columns": column_rows,
    "statistics": statistics_rows,
    "commits": commit_rows,
}
