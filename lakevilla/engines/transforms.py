"""Iceberg's partition transforms over Arrow columns, by pyiceberg's core."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.errors import InvalidOperation


def transformed_type(transform: str, source: pa.DataType) -> pa.DataType:
    """The type of a transform's values: a day is a date, other times and buckets are ints."""
    if transform == "identity" or transform.startswith("truncate"):
        return source
    return pa.date32() if transform == "day" else pa.int32()


def partition_values(column: pa.ChunkedArray, transform: str) -> pa.Array:
    """``transformed``, to partition by.

    Raises ``InvalidOperation`` for a value whose transform is beyond its type.
    """
    values = transformed(column, transform)
    if transform.startswith("truncate"):
        _check_fits(_joined(column), values, transform)
    return values


def transformed(column: pa.ChunkedArray, transform: str) -> pa.Array:
    """The values of a transform; NULL stays NULL (Iceberg spec, "Partition Transforms")."""
    array = _joined(column)
    if transform == "identity":
        return array
    from pyiceberg_core import transform as core

    name, _, width = transform.removesuffix("]").partition("[")
    arguments = (int(width),) if width else ()
    return getattr(core, name)(array, *arguments)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    return array


def _check_fits(array: pa.Array, values: pa.Array, transform: str) -> None:
    """Refuse what the type can't hold, near its lowest value.

    Other clients wrap an integer around, and then no filter finds the row. Java and pyiceberg
    refuse a decimal (apache/iceberg#17027) when they write the manifest: the files are there.
    """
    lost = False
    if pa.types.is_integer(array.type):
        lost = pc.any(pc.greater(values, array)).as_py() is True
    elif pa.types.is_decimal(array.type):
        try:
            values.validate(full=True)
        except pa.ArrowInvalid:
            lost = True
    if lost:
        raise InvalidOperation(
            f"the rows have a value that can't be partitioned by {transform}: cut down to a "
            f"multiple of the width it is no {array.type} any more (lowest value: "
            f"{pc.min(array).as_py()}); leave it out, or write it to a table without this partition"
        )
