"""Empty nested lists as Arrow's Java library writes them: with an empty offsets buffer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakevilla.arrow.cast import with_offsets
from lakevilla.arrow.opening import open_data

NOTHING = pa.py_buffer(b"")
INNER = pa.struct([("s", pa.string()), ("m", pa.map_(pa.string(), pa.list_(pa.int64())))])
TYPES = [
    pa.list_(pa.list_(pa.int64())),
    pa.list_(pa.list_(pa.list_(pa.string()))),
    pa.map_(pa.string(), pa.list_(pa.binary())),
    pa.list_(INNER),
    pa.struct([("a", pa.list_(INNER)), ("b", pa.int8())]),
    pa.large_list(pa.list_(pa.int8())),
]


def hollow(kind: pa.DataType, rows: list[Any]) -> pa.Array:
    """Return the rows with an empty offsets buffer in every list array of length 0."""
    return _hollow(pa.array(rows, kind))


def _hollow(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_struct(kind):
        inner = [_hollow(array.field(n)) for n in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], -1, 0, inner)
    if pa.types.is_map(kind):
        pairs = pa.struct([kind.key_field, kind.item_field])
        both = [_hollow(array.keys), _hollow(array.items)]
        inner = [pa.Array.from_buffers(pairs, len(both[0]), [None], 0, 0, both)]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = [_hollow(array.values)]
    else:
        return array
    validity, offsets = array.buffers()[:2]
    buffers = [validity, offsets if len(array) else NOTHING]
    return pa.Array.from_buffers(kind, len(array), buffers, -1, 0, inner)


def offsets_lacking(array: pa.Array) -> int:
    kind = array.type
    if pa.types.is_struct(kind):
        return sum(offsets_lacking(array.field(n)) for n in range(kind.num_fields))
    if pa.types.is_map(kind):
        inner = offsets_lacking(array.keys) + offsets_lacking(array.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = offsets_lacking(array.values)
    else:
        return 0
    return inner + (array.buffers()[1].size == 0)


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("shown", [slice(None), slice(1, 3)], ids=["whole", "slice"])
def test_with_offsets_keeps_the_rows_and_adds_the_missing_offsets(
    kind: pa.DataType, shown: slice
) -> None:
    empty = {"a": None, "b": 1} if pa.types.is_struct(kind) else []
    array = hollow(kind, [empty, None, empty, None])
    assert offsets_lacking(array) > 0
    batch = pa.record_batch({"k": pa.array([1, 2, 3, 4]), "x": array})
    part = batch.slice(shown.start or 0, (shown.stop or 4) - (shown.start or 0))
    whole = with_offsets(part)
    whole.validate(full=True)
    assert whole.schema == part.schema
    assert offsets_lacking(whole["x"]) == 0
    reported = pa.array([empty, None, empty, None], kind)[shown]
    assert whole["x"].to_pylist() == reported.to_pylist()
    assert whole["x"].null_count == reported.null_count


def test_with_offsets_returns_a_complete_batch_itself() -> None:
    batch = pa.record_batch({"k": pa.array([1]), "x": pa.array([[[1], [], None]])})
    assert with_offsets(batch) is batch


def test_input_from_callers_gets_its_missing_offsets() -> None:
    table = pa.table({"x": hollow(TYPES[0], [[], None])})
    (batch,) = open_data(table).batches()
    assert offsets_lacking(batch["x"]) == 0
