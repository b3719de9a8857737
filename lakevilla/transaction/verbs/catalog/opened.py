"""What a table's own log tells: files, columns, statistics. Each table asked for is opened."""

from __future__ import annotations

from collections.abc import Iterator
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
from lakevilla.formats.catalog_rows import file_row, statistics_of
from lakevilla.formats.files import DataFile, data_files
from lakevilla.lake.context import Event
from lakevilla.sql.catalog import CatalogRead
from lakevilla.sql.expressions.types import type_name
from lakevilla.store.effects import Program, parallel
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.bind import touch_each
from lakevilla.transaction.verbs.catalog.names import tables_named

Row = dict[str, Any]
_AT_ONCE = 10_000

#: These tell of one table: the others are shown.
_WRONG_WITH_ONE = (
    TableNotFound,
    VersionNotFound,
    UnsupportedTableFeature,
    UnsupportedFormat,
    CorruptObject,
    InvalidOperation,
)


def file_rows(txn: TransactionState, read: CatalogRead) -> Program[Iterator[Row]]:
    """The files of the tables that are asked for, and that the terms admit."""
    opened = yield from _opened(txn, read)
    lists = yield from parallel([snapshot.files() for snapshot in opened.values()])
    return (
        row
        for (name, snapshot), files in zip(opened.items(), lists, strict=True)
        for file in _each(files)
        if read.admits(row := file_row(txn.context.root, name, snapshot.layout, file))
    )


def statistics_rows(txn: TransactionState, read: CatalogRead) -> Program[Iterator[Row]]:
    """What is known of each column in each file."""
    opened = yield from _opened(txn, read)
    lists = yield from parallel([snapshot.files() for snapshot in opened.values()])
    return (
        row
        for (name, snapshot), files in zip(opened.items(), lists, strict=True)
        for file in _each(files)
        for row in statistics_of(name, snapshot.layout, file)
        if read.admits(row)
    )


def column_rows(txn: TransactionState, read: CatalogRead) -> Program[Iterator[Row]]:
    """The columns of the tables, in their order. No list of files is read."""
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
    """The tables in the range of names as the transaction sees them, all opened at once."""
    found = yield from tables_named(txn, read.names)
    errors = yield from touch_each(txn, found.values())
    opened: dict[str, TableSnapshot] = {}
    for (name, place), error in zip(found.items(), errors, strict=True):
        if error is None:
            opened[name] = txn.work.tables[place].snapshot
            continue
        if not isinstance(error, _WRONG_WITH_ONE):
            raise error
        _leave_out(txn, name, error)
    return opened


def _leave_out(txn: TransactionState, name: str, error: LakeVillaError) -> None:
    message = f"table {name} is left out of the catalog: {error.message}"
    about = {"table": name, "reason": error.message}
    txn.context.notify(Event("left_out", txn.id, message, about))
