"""File lists as Arrow: from checkpoint batches, from structs, and set operations on both.

Nothing here makes a Python object per file of a checkpoint, except for the
rare ones whose path must be decoded with care.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.made import array, scalar
from lakevilla.formats.delta.paths import RESPELT, decode_path, encode_path, raw_spelling
from lakevilla.formats.files import FILES_SCHEMA

_VECTOR = FILES_SCHEMA.field("deletion_vector").type
_MAP = FILES_SCHEMA.field("partition_values").type
_EMPTY = scalar("", pa.string())


# Bytes that a path may hold and still be spelt as LakeVilla spells it, "%" aside.
_PLAIN = np.zeros(256, dtype=bool)
for _code in range(128):
    _PLAIN[_code] = encode_path(chr(_code)) == chr(_code)


def decode_paths(raw: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Decoded paths, and the raw ones where LakeVilla would spell them otherwise.

    Raises ``UnicodeDecodeError``.
    """
    if _is_plain(raw) and not any(pc.any(pc.starts_with(raw, start)).as_py() for start in RESPELT):
        return raw, pa.nulls(len(raw), pa.string())
    spelt: list[str] = raw.to_pylist()
    decoded = [decode_path(text) for text in spelt]
    kept = [raw_spelling(text, path) for text, path in zip(spelt, decoded, strict=True)]
    return array(decoded, pa.string()), array(kept, pa.string())


def _is_plain(raw: pa.Array) -> bool:
    if len(raw) == 0:
        return True
    data = raw.buffers()[2]
    if data is None:
        return True
    # The bytes of all strings lie end to end: one look-up for the whole column.
    offsets = np.frombuffer(raw.buffers()[1], dtype=np.int32)
    first, last = offsets[raw.offset], offsets[raw.offset + len(raw)]
    return bool(_PLAIN[np.frombuffer(data, dtype=np.uint8)[first:last]].all())


def vector_columns(vectors: pa.Array | None, length: int) -> tuple[pa.Array, pa.Array]:
    """Ids and contents of a checkpoint's ``deletionVector`` column."""
    if vectors is None or vectors.null_count == length:
        return pa.nulls(length, pa.string()), pa.nulls(length, _VECTOR)
    kind = pc.cast(vectors.field("storageType"), pa.string())
    path = pc.cast(vectors.field("pathOrInlineDv"), pa.string())
    offset = pc.cast(_child(vectors, "offset", pa.int32()), pa.int32())
    ids = pc.binary_join_element_wise(kind, path, "")
    at = pc.binary_join_element_wise(ids, pc.cast(offset, pa.string()), "@")
    ids = pc.if_else(pc.is_null(offset), ids, at)
    # A child of a null struct may hold anything: the struct's own nulls decide.
    present_mask = pc.is_valid(vectors)
    parts = [
        kind,
        path,
        offset,
        pc.cast(vectors.field("sizeInBytes"), pa.int32()),
        pc.cast(vectors.field("cardinality"), pa.int64()),
    ]
    structs = pa.StructArray.from_arrays(parts, fields=list(_VECTOR), mask=pc.invert(present_mask))
    return pc.if_else(present_mask, ids, scalar(None, pa.string())), structs


def partition_values_column(values: pa.Array | None, length: int) -> pa.Array:
    """A checkpoint's ``partitionValues`` with empty strings made null, as the protocol says."""
    if values is None:
        return pa.array([[]] * length, _MAP)
    values = values.cast(_MAP)
    items = values.items
    if len(items) and pc.any(pc.equal(items, _EMPTY), min_count=0).as_py():
        pairs = [
            None if row is None else [(name, value or None) for name, value in row]
            for row in values.to_pylist()
        ]
        return pa.array(pairs, _MAP)
    return values


def _child(struct: pa.StructArray, name: str, kind: pa.DataType) -> pa.Array:
    if struct.type.get_field_index(name) < 0:
        return pa.nulls(len(struct), kind)
    return struct.field(name)
