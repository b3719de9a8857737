"""Arrow data whose empty nested lists lack their offsets, made whole.

A list array of n lists has n + 1 offsets, so an empty one has one. Arrow's Java library
leaves it out, and with it Spark, whenever lists lie within lists and all the outer ones are
empty or null. pyarrow takes such an array for valid, and reads the missing offset: to tell its
size, to join it, to convert it. That ends the process.
"""

from __future__ import annotations

import pyarrow as pa


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, with the offsets that it lacks; the batch itself where it lacks none."""
    if not any(pa.types.is_nested(kind) and _lacks(batch[n]) for n, kind in _columns(batch)):
        return batch
    whole = [_whole(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(whole, schema=batch.schema)


def _columns(batch: pa.RecordBatch) -> list[tuple[int, pa.DataType]]:
    return list(enumerate(batch.schema.types))


def _lacks(array: pa.Array) -> bool:
    if _is_list(array.type):
        offsets = array.buffers()[1]
        if offsets is None or offsets.size == 0:
            return True
    return any(_lacks(child) for child in _children(array))


def _whole(array: pa.Array) -> pa.Array:
    kind = array.type
    if not pa.types.is_nested(kind) or not _lacks(array):
        return array
    if len(array) == 0:
        return pa.array([], kind)
    children = [_whole(child) for child in _children(array)]
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays(children, fields=kind.fields, mask=array.is_null())
    if pa.types.is_map(kind):
        pairs = pa.struct([kind.key_field, kind.item_field])
        children = [pa.Array.from_buffers(pairs, len(children[0]), [None], children=children)]
    own = array.buffers()[:2]
    return pa.Array.from_buffers(kind, len(array), own, -1, array.offset, children)


def _children(array: pa.Array) -> list[pa.Array]:
    """The arrays that lie within: those of a list are not cut to the lists that are shown."""
    kind = array.type
    if pa.types.is_struct(kind):
        return [array.field(n) for n in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [array.keys, array.items]
    return [array.values] if _is_list(kind) else []


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind))
