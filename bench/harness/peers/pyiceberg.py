"""pyiceberg, with its catalog in a local file and a warm handle for each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table

from bench.harness.store.places import Places


class PyIceberg:
    """pyiceberg with its SQL catalog in a local SQLite file, and warm handles.

    It has no transaction over tables. It computes no expressions: an update reads the rows that
    match, and replaces them in one commit.
    """

    def __init__(self, catalog: Path, root: str, options: Mapping[str, str]) -> None:
        self._made_of = (catalog, root, options)
        self.catalog = SqlCatalog(
            "bench",
            uri=f"sqlite:///{catalog}",
            warehouse=root,
            **{name: options[key] for name, key in _OPTIONS.items() if key in options},
        )
        self.catalog.create_namespace_if_not_exists("lake")
        self.handles: dict[str, Table] = {}

    def create(self, tables: Sequence[str], rows: pa.Table) -> None:
        for table in tables:
            self.handles[table] = self.catalog.create_table(f"lake.{table}", rows.schema)
            self.handles[table].append(rows)

    def append(self, tables: Sequence[str], rows: pa.Table) -> None:
        for table in tables:
            self.handle(table).append(rows)

    def read(self, table: str, where: str | None = None) -> pa.Table:
        handle = self.handle(table).refresh()
        return handle.scan(row_filter=AlwaysTrue() if where is None else where).to_arrow()

    def update(self, table: str, change: Mapping[str, str], where: str) -> None:
        found = self.read(table, where)
        replaced = ", ".join(f'{expression} AS "{name}"' for name, expression in change.items())
        with duckdb.connect() as engine:
            engine.register("found", found)
            query = engine.sql(f"SELECT * REPLACE ({replaced}) FROM found")
            changed = query.to_arrow_table().cast(found.schema)
        self.handle(table).overwrite(changed, overwrite_filter=where)

    def handle(self, table: str) -> Table:
        if table not in self.handles:
            self.handles[table] = self.catalog.load_table(f"lake.{table}")
        return self.handles[table]

    def twin(self) -> PyIceberg:
        """What another client of the same tables works with: handles are not shared."""
        return PyIceberg(*self._made_of)

    def literal(self, text: str) -> str:
        """A string as SQL has it here."""
        return "'" + text.replace("'", "''") + "'"

    def is_conflict(self, error: Exception) -> bool:
        """Whether a commit lost to one that was made meanwhile."""
        return isinstance(error, CommitFailedException | ValidationException)

    def close(self) -> None:
        self.catalog.close()


_OPTIONS = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.region": "AWS_REGION",
}


def of(places: Places) -> PyIceberg:
    return PyIceberg(places.file("pyiceberg.db"), places.root("pyiceberg"), places.options)
