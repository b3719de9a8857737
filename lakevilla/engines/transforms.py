"""Iceberg's partition transforms over Arrow columns, by pyiceberg's core."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["transformed", "transformed_type"]


def transformed_type(transform: str, source: pa.DataType) -> pa.DataType:
    """The type of a transform's values: a day is a date, other times and buckets are ints."""
    if transform == "identity" or transform.startswith("truncate"):
        return source
    return pa.date32() if transform == "day" else pa.int32()


def transformed(column: pa.ChunkedArray, transform: str) -> pa.Array:
    """The values of a transform; NULL stays NULL (Iceberg spec, "Partition Transforms")."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    if transform == "identity":
        return array
    from pyiceberg_core import transform as core

    name, _, width = transform.removesuffix("]").partition("[")
    arguments = (int(width),) if width else ()
    return getattr(core, name)(array, *arguments)
