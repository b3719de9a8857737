"""Rows of Arrow as Python's tuples, some thousand at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa

from lakevilla.dbapi.errors import DataError

#: So many rows are Python objects at once, more than are asked for.
_PART_ROWS = 4096


class Rows:
    """What a query has found, read once from its first row to its last; what was taken is freed."""

    def __init__(self, table: pa.Table) -> None:
        self.schema: pa.Schema = table.schema
        self.count: int = table.num_rows
        self._table = table
        #: How many rows of the table were taken; those before it were dropped.
        self._read = 0
        self._ready: Iterator[tuple[object, ...]] = iter(())

    def take(self, count: int | None) -> list[tuple[object, ...]]:
        """The next rows: so many, or all that are left."""
        found: list[tuple[object, ...]] = []
        while count is None or len(found) < count:
            part = list(
                itertools.islice(self._ready, None if count is None else count - len(found))
            )
            found += part
            self._read += len(part)
            if not part and not self._next_part():
                break
        return found

    def rest(self) -> pa.Table:
        """The rows that were not taken yet; none is left afterwards."""
        rest = self._table.slice(self._read)
        self._table, self._read, self._ready = self.schema.empty_table(), 0, iter(())
        return rest

    def _next_part(self) -> bool:
        self._table, self._read = self._table.slice(self._read), 0  # without the chunks before
        part = self._table.slice(0, _PART_ROWS)
        if not part.num_rows:
            return False
        columns = [
            _values(field.name, column)
            for field, column in zip(self.schema, part.columns, strict=True)
        ]
        self._ready = iter(list(zip(*columns, strict=True)))
        return True


def _values(name: str, column: pa.ChunkedArray) -> list[object]:
    try:
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            column = column.cast(pa.timestamp("us", column.type.tz))
        values: list[object] = column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise DataError(
            f"column {name} of type {column.type} has a value that Python has no type for "
            f"({error}): fetch it by fetch_arrow_table(), or cast it in the query"
        ) from error
    return values
