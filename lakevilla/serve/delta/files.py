"""Data files of a Delta table as columns of an Iceberg manifest.

Bounds are those by which LakeVilla itself passes over files: wide enough for what writers have cut.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.errors import UnsupportedTableFeature
from lakevilla.formats.file_statistics import ColumnStatistics, partition_column, read_statistics
from lakevilla.formats.iceberg.manifests.columns import FileColumns, Integers
from lakevilla.serve.delta.schema import Column, Shown
from lakevilla.sql.expressions.types import is_decimal

#: A value of each file by column id.
Known = dict[int, pa.Array]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DAY = datetime.date(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
#: How a type's bounds lie in memory, which is how manifests have them.
_FORMS = {
    "byte": "<i4",
    "short": "<i4",
    "integer": "<i4",
    "long": "<i8",
    "float": "<f4",
    "double": "<f8",
    "date": "<i4",
    "timestamp": "<i8",
    "timestamp_ntz": "<i8",
}
_FLOATS = ("float", "double")
#: What the statistics of a file say whose rows were deleted since they were made.
_NOT_TIGHT = r'"tightBounds"\s*:\s*false'


def file_columns(
    files: pa.Table, uris: pa.Array, rows: Integers, shown: Shown, table: str
) -> FileColumns:
    """Return a table of files as a manifest has them, without bounds and numbers of nulls.

    Raises
    ------
    UnsupportedTableFeature
        A partition value can't be read.
    """
    partitions, places = _partitions(files, shown, table)
    sizes = files["size"].combine_chunks().to_numpy(zero_copy_only=False)
    return FileColumns(uris, rows, sizes, partitions, places, {}, {}, {})


def with_statistics(columns: FileColumns, files: pa.Table, shown: Shown) -> FileColumns:
    """Return the same with bounds and numbers of nulls."""
    stats = files["stats"].combine_chunks()
    by_path = {one.path: one for one in shown.columns}
    read = read_statistics(stats, {path: one.type for path, one in by_path.items()})
    is_tight = pc.invert(pc.match_substring_regex(stats, _NOT_TIGHT)).fill_null(False)
    nulls: Known = {}
    lower: Known = {}
    upper: Known = {}
    for path, found in read.items():
        column = by_path[path]
        bounds = _bounds(column, found)
        for values, kept in zip(
            (_nulls(found, is_tight), *bounds), (nulls, lower, upper), strict=True
        ):
            if values is not None and values.null_count < len(values):
                kept[column.field_id] = values
    return FileColumns(
        columns.uris,
        columns.rows,
        columns.sizes,
        columns.partitions,
        columns.partition_of,
        nulls,
        lower,
        upper,
    )


def _nulls(found: ColumnStatistics, is_tight: pa.Array) -> pa.Array:
    """Return numbers of nulls; bounds that are not tight have a true number only at its ends."""
    at_end = pc.or_kleene(pc.equal(found.nulls, 0), pc.equal(found.nulls, found.rows))
    holds = pc.fill_null(pc.or_kleene(is_tight, at_end), False)
    return pc.if_else(holds, found.nulls, pa.scalar(None, pa.int64()))


def _bounds(column: Column, found: ColumnStatistics) -> tuple[pa.Array | None, pa.Array | None]:
    """Return the lower and upper bounds of a column; None where it has none."""
    kind = column.type
    if is_decimal(kind):
        return _each(found.low, _decimal_bytes), _each(found.high, _decimal_bytes)
    if kind == "string":
        return found.low.cast(pa.binary()), found.high.cast(pa.binary())
    if kind == "boolean":
        return _each(found.low, _boolean_bytes), _each(found.high, _boolean_bytes)
    form = _FORMS.get(kind)
    if form is None:
        return None, None
    # An upper bound of floats leaves out NaN, which some engines take for the greatest number.
    high = None if kind in _FLOATS else _fixed(found.high, form)
    return _fixed(found.low, form), high


def _fixed(values: pa.Array, form: str) -> pa.Array:
    """Return numbers as the bytes that they have in memory."""
    dtype = np.dtype(form)
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False).astype(dtype)
    if dtype.kind == "f":
        numbers = np.where(numbers == 0, dtype.type(-0.0), numbers)  # below both zeros
    ends = np.arange(len(values) + 1, dtype=np.int32) * dtype.itemsize
    data = pa.py_buffer(numbers.astype(dtype).tobytes())
    found = pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends), data])
    return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.binary()))


def _each(values: pa.Array, encoded: Callable[[Any], bytes]) -> pa.Array:
    found = [None if value is None else encoded(value) for value in values.to_pylist()]
    return pa.array(found, pa.binary())


def _decimal_bytes(value: Decimal) -> bytes:
    sign, digits, _ = value.as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    length = ((unscaled if unscaled >= 0 else ~unscaled).bit_length() + 8) // 8
    return unscaled.to_bytes(length, "big", signed=True)


def _boolean_bytes(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def _partitions(
    files: pa.Table, shown: Shown, table: str
) -> tuple[Sequence[tuple[Any, ...]], npt.NDArray[np.int64]]:
    """Return the partition tuples of files, and the place of each file's among them."""
    if not shown.partition_ids:
        return [()], np.zeros(files.num_rows, np.int64)
    types = {one.path[0]: one.type for one in shown.columns}
    maps = files["partition_values"].combine_chunks()
    columns, places = [], []
    for name in shown.partition_ids:
        read = partition_column(maps, name, types[name])
        if not all(read.readable):
            raise UnsupportedTableFeature(
                f"Delta table {table} can't be shown to Iceberg clients: a file's value of "
                f"partition column {name}, of type {types[name]}, can't be read",
                table=table,
            )
        columns.append([_internal(value) for value in read.values])
        places.append(read.indices.fill_null(-1).to_pylist())
    known: dict[tuple[int, ...], int] = {}
    found = [known.setdefault(one, len(known)) for one in zip(*places, strict=True)]
    tuples = [
        tuple(None if at < 0 else values[at] for at, values in zip(one, columns, strict=True))
        for one in known
    ]
    return tuples, np.array(found, np.int64)


def _internal(value: Any) -> Any:
    """Return a partition value as manifests have it: days and microseconds since 1970."""
    if isinstance(value, datetime.datetime):
        return (value.replace(tzinfo=value.tzinfo or datetime.UTC) - _EPOCH) // _MICROSECOND
    if isinstance(value, datetime.date):
        return (value - _DAY).days
    return value
