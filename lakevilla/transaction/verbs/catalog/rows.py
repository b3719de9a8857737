"""Rows of the catalog: tables, files, commits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    TableNotFound,
    UnsupportedFormat,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.catalog_rows import (
    admitted,
    file_row,
    partition_rows,
    statistics_of,
)
from lakevilla.formats.files import DataFile, data_files
from lakevilla.formats.sizes import NOTHING, UNKNOWN, growth_of
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import CommitSummary, TableState, shown_names
from lakevilla.global_log.history import Timeline
from lakevilla.global_log.repo import load_names, load_tables
from lakevilla.lake.context import Event
from lakevilla.lake.frozen.mounts import mounted
from lakevilla.lake.past import recorded_objects
from lakevilla.sql.catalog import SCHEMAS, CatalogRead, NameRange
from lakevilla.sql.expressions.types import type_name
from lakevilla.store.effects import Program, parallel
from lakevilla.store.location import is_external
from lakevilla.sublogs.operations import Create
from lakevilla.transaction.queue.places import perform_late
from lakevilla.transaction.state.files import make_promised
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.bind import touch_each
from lakevilla.transaction.verbs.catalog.names import bind_if_made, tables_named

# -------------------- opened
#
# Rows from the tables' own logs: files, columns, statistics. Each requested table is opened.


Row = dict[str, Any]
_AT_ONCE = 10_000

#: Errors of one table: the catalog leaves the table out, and shows the other tables.
_WRONG_WITH_ONE = (
    TableNotFound,
    VersionNotFound,
    UnsupportedTableFeature,
    UnsupportedFormat,
    CorruptObject,
    InvalidOperation,
)


def file_rows(txn: TransactionState, read: CatalogRead) -> Program[Iterator[Row]]:
    """Return the rows of lakevilla_files that ``read`` admits."""
    opened = yield from _opened(txn, read)
    lists = yield from parallel([snapshot.files() for snapshot in opened.values()])
    return (
        row
        for (name, snapshot), files in zip(opened.items(), lists, strict=True)
        for file in _each(admitted(files, read.terms))
        if read.admits(row := file_row(txn.context.root, name, snapshot.layout, file))
    )


def rows_of_partitions(txn: TransactionState, read: CatalogRead) -> Program[Iterator[Row]]:
    """Return the rows of lakevilla_partitions that ``read`` admits: one for each that has files."""
    files = yield from file_rows(txn, read.observed)
    return (row for row in partition_rows(files) if read.admits(row))


def statistics_rows(txn: TransactionState, read: CatalogRead) -> Program[Iterator[Row]]:
    """Return the rows of lakevilla_statistics: one for each column of each file."""
    opened = yield from _opened(txn, read)
    lists = yield from parallel([snapshot.files() for snapshot in opened.values()])
    return (
        row
        for (name, snapshot), files in zip(opened.items(), lists, strict=True)
        for file in _each(admitted(files, read.terms))
        for row in statistics_of(name, snapshot.layout, file)
        if read.admits(row)
    )


def column_rows(txn: TransactionState, read: CatalogRead) -> Program[Iterator[Row]]:
    """Return the columns of the requested tables, in order; this reads no file lists."""
    opened = yield from _opened(txn, read)
    return (
        {
            "table": name,
            "name": field.name,
            "type": type_name(field.type),
            "nullable": field.nullable,
            "position": position,
        }
        for name, snapshot in opened.items()
        for position, field in enumerate(snapshot.layout.schema)
    )


def _each(files: pa.Table) -> Iterator[DataFile]:
    for batch in files.to_batches(max_chunksize=_AT_ONCE):
        yield from data_files(pa.Table.from_batches([batch]))


def _opened(txn: TransactionState, read: CatalogRead) -> Program[dict[str, TableSnapshot]]:
    """Open the tables in the range of names in parallel; return their states in the transaction."""
    found = yield from tables_named(txn, read.names)
    errors = yield from touch_each(txn, found.values())
    opened: dict[str, TableSnapshot] = {}
    for (name, location), error in zip(found.items(), errors, strict=True):
        if error is None:
            opened[name] = txn.work.tables[location].snapshot
            continue
        if not isinstance(error, _WRONG_WITH_ONE):
            raise error
        _leave_out(txn, name, error)
    return opened


def _leave_out(txn: TransactionState, name: str, error: LakeVillaError) -> None:
    message = f"table {name} is left out of the catalog: {error.message}"
    about = {"table": name, "reason": error.message}
    txn.context.notify(Event("left_out", txn.id, message, about))


# -------------------- commits
#
# The lake's commits as rows: one row for each table of a commit.


#: Columns that only a commit object fills.
_IN_OBJECTS = frozenset({"merged", "metadata"})


def commit_rows(txn: TransactionState, read: CatalogRead) -> Program[Iterator[Row]]:
    """Return the commits up to the bound state, oldest first; read only the pages needed."""
    now = txn.context.held.head if txn.bound.is_past and txn.context.held is not None else txn.head
    if now is None or txn.head is None:
        return iter(())
    last = txn.head.sequence
    first = max(_first(read), now.history_start + 1)
    if first > last:
        return iter(())
    timeline = Timeline.of(now)
    if first <= now.history_start + 1:
        newest = yield from timeline.newest(None, last)
        commits: Sequence[CommitSummary] = newest[::-1]
    else:
        commits = [one for one in (yield from timeline.after(first - 1)) if one.sequence <= last]
    yield from load_names(now)
    yield from load_tables(now, {location for commit in commits for location in commit.tables})
    names = shown_names(now)
    objects: dict[int, CommitObject | None] = {}
    if read.columns is None or not _IN_OBJECTS.isdisjoint(read.columns):
        objects = yield from recorded_objects(txn.context, commits)
    return (
        row
        for commit in commits
        for row in _rows(commit, objects.get(commit.sequence), names)
        if read.admits(row)
    )


def _first(read: CatalogRead) -> int:
    """Return the lowest version that the terms of the read admit."""
    first = 0
    for term in read.terms:
        if term.column == "version" and term.operator in ("=", "in", ">", ">="):
            numbers = [value for value in term.values if isinstance(value, int | float)]
            # Values of other types, and infinite numbers, are left to the query.
            if len(numbers) == len(term.values) and all(map(math.isfinite, numbers)):
                first = max(first, int(min(numbers)))
    return first


def _rows(
    commit: CommitSummary, stored: CommitObject | None, names: dict[str, str]
) -> Iterator[Row]:
    about: Row = {
        "version": commit.sequence,
        "timestamp": commit.timestamp_ms * 1000,
        "txn_id": commit.txn or None,
        "kind": commit.kind,
        "merged": stored.merged or None if stored is not None else None,
        "metadata": {} if stored is None else dict(stored.metadata),
        "members": list(commit.members),
    }
    for location, touch in commit.tables.items():
        yield {
            **about,
            "table": names.get(location, location),
            "adds": touch.adds,
            "removes": touch.removes,
            "metadata_changed": touch.metadata,
        }
    if not commit.tables:
        yield about


# -------------------- rows
#
# The rows of one catalog table that a query needs; the read is observed.


def catalog_rows(txn: TransactionState, read: CatalogRead) -> Program[pa.Table]:
    """Return the rows that ``read`` requests, or more; all of them count as seen by the caller.

    Raises
    ------
    InvalidOperation
        The transaction does not see one state of the lake.
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
    yield from make_promised(txn)
    rows = yield from _READERS[read.kind](txn, read)
    if not txn.bound.is_past and read.observed not in txn.work.catalog:
        # Also noted if the transaction only reads: it may still move to a newer HEAD.
        txn.work.catalog.append(read.observed)
    schema = SCHEMAS[read.kind]
    # In parts, so that not a million rows are Python objects at the same time.
    parts = [pa.Table.from_pylist(part, schema) for part in _in_parts(rows)]
    return pa.concat_tables([schema.empty_table(), *parts])


def _in_parts(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while part := list(islice(rows, _AT_ONCE)):
        yield part


def _table_rows(txn: TransactionState, read: CatalogRead) -> Program[Iterator[Row]]:
    found = yield from tables_named(txn, read.names)
    head = txn.head
    tables = {} if head is None else head.tables.cached()
    if any(location not in tables for location in found.values()):
        tables = {**(yield from mounted(head)), **tables}
    return (
        _table(txn, name, location, tables.get(location))
        for name, location in found.items()
        if not _is_view(txn, location, tables)
    )


def view_rows(txn: TransactionState, names: NameRange) -> Program[dict[str, TableSnapshot]]:
    """Return the states of the views in a range of names, by name; this is an observed read.

    Raises
    ------
    InvalidOperation
        The transaction does not see one state of the lake.
    """
    yield from catalog_rows(txn, CatalogRead("tables", names, columns=("name",)))
    found = yield from tables_named(txn, names)
    tables = {} if txn.head is None else txn.head.tables.cached()
    if any(location not in tables for location in found.values()):
        tables = {**(yield from mounted(txn.head)), **tables}
    views = {name: place for name, place in found.items() if _is_view(txn, place, tables)}
    errors = yield from touch_each(txn, views.values())
    for error in errors:
        if error is not None:
            raise error
    snapshots = {name: txn.work.tables[place].snapshot for name, place in views.items()}
    return {name: one for name, one in snapshots.items() if one.is_view}


def _is_view(txn: TransactionState, location: str, tables: Mapping[str, TableState]) -> bool:
    if any(done.table == location for done in txn.work.done):
        return txn.work.tables[location].snapshot.is_view
    state = tables.get(location)
    return state is not None and state.view


def _table(txn: TransactionState, name: str, location: str, state: TableState | None) -> Row:
    done = [one for one in txn.work.done if one.table == location]
    if any(isinstance(one.operation, Create) for one in done):
        snapshot = txn.work.tables[location].snapshot
        state = TableState(snapshot.table_id, -1, format=snapshot.format, size=NOTHING)
    assert state is not None, "a table is in HEAD, or was made by the transaction"
    size = UNKNOWN if state.size is None else state.size
    for one in done:
        size += growth_of(one.change)
    return {
        "name": name,
        "uri": uri_of(txn, location),
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
    """Return the URI of a table, for clients without LakeVilla."""
    return location if is_external(location) else f"{txn.context.root.rstrip('/')}/{location}"


_READERS: dict[str, Callable[[TransactionState, CatalogRead], Program[Any]]] = {
    "tables": _table_rows,
    "files": file_rows,
    "partitions": rows_of_partitions,
    "columns": column_rows,
    "statistics": statistics_rows,
    "commits": commit_rows,
}
