"""Zeros of both signs in files of DuckDB's COPY, whose dictionaries take them for one value.

A column that has both then loses the sign of each zero; nothing raises.
https://github.com/duckdb/duckdb/issues/25781

A file without dictionaries keeps the signs, but is larger. So a file has dictionaries until rows
have a negative zero: a stream is cut there, and a SELECT, which can be run again, is written again
if its file has fewer negative zeros than its rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def has_floats(kind: pa.DataType) -> bool:
    """Return whether a value of the type has floating-point numbers at any depth."""
    if pa.types.is_nested(kind):
        return any(has_floats(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def float_columns(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if has_floats(field.type)]


def may_have_merged(path: str) -> list[str]:
    """Return the columns of a file with a dictionary that may hold a zero, by its footer alone."""
    footer = pq.read_metadata(path)
    found: dict[str, None] = {}
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.physical_type in ("FLOAT", "DOUBLE") and _may_hold_zero(chunk):
                found[_column_of(footer, chunk.path_in_schema)] = None
    return list(found)


def _may_hold_zero(chunk: pq.ColumnChunkMetaData) -> bool:
    if not any("DICTIONARY" in encoding for encoding in chunk.encodings):
        return False
    known = chunk.statistics
    if known is None or not known.has_min_max:
        return True
    return bool(known.min <= 0 <= known.max)


def _column_of(footer: pq.FileMetaData, path: str) -> str:
    """Return the column that a path begins with: a name may have dots itself."""
    names: list[str] = footer.schema.to_arrow_schema().names
    fitting = [name for name in names if path == name or path.startswith(f"{name}.")]
    return max(fitting, key=len)


def negative_zeros(batches: Iterable[pa.RecordBatch]) -> Counter[str]:
    """Return the number of negative zeros in each column, at any depth."""
    found: Counter[str] = Counter()
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            found[name] += sum(map(_negative_zeros_in, _leaves(column)))
    return found


def has_negative_zero(batch: pa.RecordBatch, columns: Sequence[str]) -> bool:
    leaves = (leaf for name in columns for leaf in _leaves(batch.column(name)))
    return any(map(_negative_zeros_in, leaves))


def negative_zeros_of_file(path: str, columns: list[str]) -> Counter[str]:
    """Return the number of negative zeros in columns of a file."""
    with pq.ParquetFile(path) as file:
        return negative_zeros(file.iter_batches(columns=columns))


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of floating-point numbers within an array."""
    kind = array.type
    if pa.types.is_floating(kind):
        yield array
    elif not has_floats(kind):
        return
    elif pa.types.is_struct(kind):
        for part in array.flatten():
            yield from _leaves(part)
    elif pa.types.is_map(kind):
        first, last = (array.offsets[at].as_py() for at in (0, len(array)))
        for part in (array.keys, array.items):
            yield from _leaves(part.slice(first, last - first))
    else:
        yield from _leaves(array.flatten())


def _negative_zeros_in(numbers: pa.Array) -> int:
    values = (numbers.drop_null() if numbers.null_count else numbers).to_numpy()
    bits = values.view(f"u{values.itemsize}")
    return int(np.count_nonzero(bits == 1 << (8 * values.itemsize - 1)))
