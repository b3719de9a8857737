"""The size of a table, and the amount by which a commit changes it (docs/design/0035).

Sizes add up: the change of several commits is the sum of each commit's change, in any order. An
unknown number is None, and stays None in every sum.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.formats.base import Change
from lakevilla.formats.files import DataFile, RemovedFile, TableSize, rows_in, size_of


class Size(msgspec.Struct, frozen=True, array_like=True):
    """Files, rows and bytes of a table, or their change; an unknown number is None."""

    files: int | None
    rows: int | None
    bytes: int | None

    def __add__(self, other: Size) -> Size:
        return Size(
            _sum(self.files, other.files),
            _sum(self.rows, other.rows),
            _sum(self.bytes, other.bytes),
        )

    def __neg__(self) -> Size:
        return Size(_less(self.files), _less(self.rows), _less(self.bytes))

    @property
    def is_exact(self) -> bool:
        return None not in (self.files, self.rows, self.bytes)

    @property
    def is_unknown(self) -> bool:
        return (self.files, self.rows, self.bytes) == (None, None, None)

    @property
    def possible(self) -> Size:
        """The sum as the size of a table: a negative number is wrong, and becomes unknown."""
        return Size(_positive(self.files), _positive(self.rows), _positive(self.bytes))


NOTHING, UNKNOWN = Size(0, 0, 0), Size(None, None, None)


def growth_of(change: Change) -> Size:
    """Return the amount by which a change that LakeVilla has made changes its table's size."""
    return _of(change.adds) + -_of(change.removes)


def growth_by_others(change: Change) -> Size:
    """Return the amount by which an entry of any client changes its table's size.

    An entry that adds files, removes none and declares that no rows have changed, repeats existing
    files with other statistics (Delta's ANALYZE, the backfill of row ids).
    """
    if change.adds and not change.removes and not change.changes_data:
        return UNKNOWN
    return growth_of(change)


def size_from(known: TableSize | None) -> Size:
    """Return the size that a snapshot knows without reading the store."""
    return UNKNOWN if known is None else Size(known.files, known.rows, known.bytes)


def counted(files: pa.Table) -> Size:
    """Return the size of a table with these live files (``FILES_SCHEMA``)."""
    size = pc.sum(files.column("size")).as_py() or 0
    rows: int | None = 0
    for batch in files.select(["stats", "deletion_vector", "deletes"]).to_batches():
        rows = _sum(rows, _rows_of(batch))
    return Size(files.num_rows, rows, size)


def _rows_of(batch: pa.RecordBatch) -> int | None:
    deletes = pc.struct_field(pc.list_flatten(batch.column("deletes")), "rows")
    if deletes.null_count:
        return None  # the rows that they delete are in separate files
    vectors = pc.struct_field(batch.column("deletion_vector"), "cardinality")
    rows = -sum(pc.sum(counts).as_py() or 0 for counts in (deletes, vectors))
    for stats in batch.column("stats"):
        found = rows_in(stats.as_py())
        if found is None:
            return None
        rows += found
    return int(rows)


def _of(files: Iterable[DataFile | RemovedFile]) -> Size:
    found = size_of(files)
    return Size(found.files, found.rows, found.bytes)


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _less(value: int | None) -> int | None:
    return None if value is None else -value


def _positive(value: int | None) -> int | None:
    return None if value is None or value < 0 else value
