"""The rows of a load package, as tables of a DuckDB of its own, which spills to disk.

The package's Parquet files are read where dlt has written them; no row becomes a Python object.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

__all__ = ["StagedRows", "staged_rows"]

_ROWS_AT_ONCE = 65_536


class StagedRows:
    """Tables by name, and queries of them; one result is read at a time."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def add_table(
        self, name: str, columns: pa.Schema, files: Sequence[str], others: Sequence[str] = ()
    ) -> None:
        """Make Parquet files and other staged tables one, with ``columns`` and those of its own."""
        typed = f"{name}_columns"
        self._connection.register(typed, columns.empty_table())
        parts = [quoted(typed), *map(quoted, others)]
        if files:
            paths = ", ".join(_literal(_exact(path)) for path in files)
            options = "union_by_name = true, hive_partitioning = false"
            parts.append(f"read_parquet([{paths}], {options})")
        text = " UNION ALL BY NAME ".join(f"SELECT * FROM {part}" for part in parts)
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS {text}")

    def add_rows(self, name: str, rows: pa.RecordBatchReader | pa.Table) -> None:
        """Make rows a table, which may be on disk."""
        given = f"{name}_given"
        self._connection.register(given, rows)
        try:
            self.add_query(name, f"SELECT * FROM {quoted(given)}")
        finally:
            self._connection.unregister(given)

    def add_query(self, name: str, query: str) -> None:
        """Make the rows of a query a table, which may be on disk."""
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS {query}")

    def columns(self, query: str) -> dict[str, str]:
        """Return the names and types of a query's columns."""
        described = self._connection.execute(f"DESCRIBE {query}").fetchall()
        return {row[0]: row[1] for row in described}

    def reader(self, query: str) -> pa.RecordBatchReader:
        """Return the rows of a query, as DuckDB computes them."""
        reader: pa.RecordBatchReader = self._connection.sql(query).to_arrow_reader(_ROWS_AT_ONCE)
        return reader

    def table(self, query: str) -> pa.Table:
        """Return the rows of a query, in memory."""
        return self.reader(query).read_all()

    def fitted(self, columns: Sequence[str], query: str, target: pa.Schema) -> str:
        """Return a query whose text becomes the types of ``target``, and whose times its text.

        All other types stay, so that the lake refuses what it can't keep whole.
        """
        fields = {field.name.lower(): field for field in target}
        wanted = self._types_of(target)
        selected = []
        for name, kind in zip(columns, self.columns(query).values(), strict=True):
            field = fields.get(name.lower())
            becomes = kind if field is None else wanted[field.name]
            is_text = (kind == "VARCHAR") != (becomes == "VARCHAR") or kind == '"NULL"'
            value = quoted(name)
            selected.append(f"CAST({value} AS {becomes}) AS {value}" if is_text else value)
        named = ", ".join(quoted(name) for name in columns)
        return f"SELECT {', '.join(selected)} FROM ({query}) AS fitted({named})"

    def _types_of(self, schema: pa.Schema) -> dict[str, str]:
        self._connection.register("fitted_columns", schema.empty_table())
        try:
            return self.columns("SELECT * FROM fitted_columns")
        finally:
            self._connection.unregister("fitted_columns")


@contextmanager
def staged_rows() -> Iterator[StagedRows]:
    """Open a DuckDB in memory for the block; what it spills goes to a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="lakevilla-dlt-") as directory:
        connection = duckdb.connect(config={"temp_directory": directory})
        try:
            connection.execute("SET TimeZone = 'UTC'")
            yield StagedRows(connection)
        finally:
            connection.close()


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def _exact(path: str) -> str:
    """Return a pattern of DuckDB's that only this path matches."""
    return re.sub(r"[\[*?]", r"[\g<0>]", path)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
