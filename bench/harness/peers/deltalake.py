"""deltalake, with a warm handle for each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import deltalake
import pyarrow as pa

from bench.harness.store.places import Places


class Deltalake:
    """deltalake with warm handles; a transaction over tables is one commit each, not atomic."""

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        self.root = root
        self.options = dict(options)
        self.handles: dict[str, deltalake.DeltaTable] = {}

    def create(self, tables: Sequence[str], rows: pa.Table) -> None:
        for table in tables:
            uri = f"{self.root}/{table}"
            deltalake.write_deltalake(uri, rows, storage_options=self.options)
            self.handles[table] = deltalake.DeltaTable(uri, storage_options=self.options)

    def append(self, tables: Sequence[str], rows: pa.Table) -> None:
        for table in tables:
            deltalake.write_deltalake(self.handles[table], rows, mode="append")

    def read(self, table: str, where: str | None = None) -> pa.Table:
        handle = self.handles[table]
        handle.update_incremental()
        condition = "" if where is None else f" WHERE {where}"
        return answer(handle, table, f'SELECT * FROM "{table}"{condition}')

    def update(self, table: str, change: Mapping[str, str], where: str) -> None:
        handle = self.handles[table]
        handle.update_incremental()
        handle.update(dict(change), predicate=where)

    def open_cold(self, table: str) -> int:
        return deltalake.DeltaTable(f"{self.root}/{table}", storage_options=self.options).version()

    def close(self) -> None:
        """Nothing is held."""


def answer(handle: deltalake.DeltaTable, table: str, query: str) -> pa.Table:
    """What a query over one table gives."""
    stream = deltalake.QueryBuilder().register(table, handle).execute(query)
    # Not its own read_all, which holds the interpreter while it waits.
    return pa.RecordBatchReader.from_stream(stream).read_all()


def of(places: Places) -> Deltalake:
    return Deltalake(places.root("deltalake"), places.options)
