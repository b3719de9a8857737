"""A column of Arrow, as the values that are written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; as text where Python has no such value: the year 10000."""
    try:
        return _plain_values(column)
    except (ValueError, OverflowError, pa.ArrowException):
        return list(column.cast(pa.string()).to_pylist())


def _plain_values(column: pa.ChunkedArray) -> list[Any]:
    """With maps as mappings, where no key is twice in one and each can be a key in Python."""
    try:
        return list(column.to_pylist(maps_as_pydicts="strict"))
    except (KeyError, TypeError):
        return list(column.to_pylist())


def is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
