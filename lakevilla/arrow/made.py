"""Arrow arrays and scalars of plain Python values, made without pandas.

For the first Python or NumPy value that it converts pyarrow imports pandas, where that is
installed: 33 MB and a fifth of a second, for a process that only looks at a table's log. Here
they are made of buffers, which asks for nothing; kinds that are seldom seen are left to pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_INTEGERS = {pa.int8(): "i1", pa.int16(): "i2", pa.int32(): "i4", pa.int64(): "i8"}
_EPOCH = date(1970, 1, 1).toordinal()


def scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    """As ``pyarrow.scalar``."""
    return array([value], type_)[0]


def array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """As ``pyarrow.array``, of values that may be None."""
    missing = None in values
    given = [value for value in values if value is not None] if missing else values
    if not given:
        return pa.nulls(len(values), type_)
    made = _without_nulls(given, type_)
    if made is None:
        return pa.array(values, type_)
    if not missing:
        return made
    there = np.fromiter((value is not None for value in values), bool, len(values))
    return made.take(_of_numbers(np.cumsum(there) - 1, pa.int64(), there))


def mask(chosen: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    """Truth values of NumPy."""
    return pa.Array.from_buffers(pa.bool_(), len(chosen), [None, _bits(chosen)])


def places(rows: npt.NDArray[Any]) -> pa.Int64Array:
    """Whole numbers of NumPy, as ``take`` wants them."""
    return _of_numbers(rows, pa.int64())


def truths(values: pa.BooleanArray | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Truth values for NumPy; null counts as false."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if values.null_count:
        values = pc.fill_null(values, scalar(False, pa.bool_()))
    if not len(values):
        return np.zeros(0, bool)
    data = np.frombuffer(values.buffers()[1], np.uint8)
    bits = np.unpackbits(data, count=values.offset + len(values), bitorder="little")
    return bits[values.offset :].view(bool)


def numbers(values: pa.Array) -> npt.NDArray[Any]:
    """Whole numbers for NumPy, none of them null; not to be written to."""
    assert not values.null_count
    if not len(values):
        return np.zeros(0, _INTEGERS[values.type])
    data = np.frombuffer(values.buffers()[1], _INTEGERS[values.type])
    return data[values.offset : values.offset + len(values)]


def _without_nulls(values: Sequence[Any], type_: pa.DataType) -> pa.Array | None:
    """None where it is better left to pyarrow, what it refuses included."""
    kinds = set(map(type, values))
    if type_ in _INTEGERS and kinds <= {int}:
        limit = 1 << (type_.bit_width - 1)
        if -limit <= min(values) and max(values) < limit:
            return _of_numbers(np.array(values, _INTEGERS[type_]), type_)
    elif type_ == pa.float64() and kinds <= {float}:
        return _of_numbers(np.array(values, "f8"), type_)
    elif type_ == pa.bool_() and kinds <= {bool}:
        return mask(np.array(values, bool))
    elif type_ == pa.date32() and kinds <= {date}:
        days = [value.toordinal() - _EPOCH for value in values]
        return _of_numbers(np.array(days, "i4"), type_)
    elif type_ == pa.string() and kinds <= {str}:
        return _texts(values)
    elif pa.types.is_map(type_) and kinds <= {list}:
        return _maps(values, type_)
    return None


def _texts(values: Sequence[str]) -> pa.Array | None:
    try:
        encoded = [value.encode() for value in values]
    except UnicodeEncodeError:
        return None
    ends = np.cumsum([0, *map(len, encoded)])
    if ends[-1] >= 1 << 31:
        return None
    buffers = [None, pa.py_buffer(ends.astype("i4")), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def _maps(values: Sequence[list[tuple[Any, Any]]], type_: pa.MapType) -> pa.Array:
    ends = np.cumsum([0, *map(len, values)])
    keys = array([key for pairs in values for key, _ in pairs], type_.key_type)
    items = array([item for pairs in values for _, item in pairs], type_.item_type)
    return pa.MapArray.from_arrays(_of_numbers(ends, pa.int32()), keys, items, type=type_)


def _of_numbers(
    given: npt.NDArray[Any], type_: pa.DataType, there: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    width = np.dtype(f"{'f' if type_ == pa.float64() else 'i'}{type_.bit_width // 8}")
    data = pa.py_buffer(np.ascontiguousarray(given, width))
    valid = None if there is None else _bits(there)
    return pa.Array.from_buffers(type_, len(given), [valid, data])


def _bits(chosen: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(chosen, bitorder="little"))
