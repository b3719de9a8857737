"""Digests of rows depend on the values and their order, and not on their Arrow representation."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakevilla.arrow.row_digest import RowDigest

PLACE = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
ARRAYS: list[pa.Array] = [
    pa.array([1, None, 3, 4], pa.int64()),
    pa.array([True, None, False, True]),
    pa.array(["a", None, "", "ccc"]),
    pa.array([b"a", None, b"", b"ccc"]),
    pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
    pa.array([0.0, -0.0, float("nan"), None]),
    pa.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal(0)], pa.decimal128(9, 2)),
    pa.array([1, None, 3, 4], pa.date32()),
    pa.array([1, None, 3, 4], pa.timestamp("us", "UTC")),
    pa.array([{"x": 1, "y": ["q", None]}, None, {"x": None, "y": []}, {"x": 3, "y": None}], PLACE),
    pa.array([[1, 2], None, [], [None, 4]]),
    pa.array([[["a"], None], [], None, [[]]]),
    pa.array([[("a", 1)], None, [], [("b", None), ("c", 2)]], pa.map_(pa.string(), pa.int64())),
    pa.nulls(4, pa.int64()),
    pa.nulls(4),
]


def digest(*arrays: pa.Array, column: pa.Field | None = None) -> str:
    """Digest the rows of some arrays, one after the other."""
    found = RowDigest(pa.schema([column or pa.field("a", arrays[0].type)]))
    for array in arrays:
        found.update([array])
    return found.hexdigest()


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.type))
def test_a_digest_does_not_depend_on_chunks_or_slices(array: pa.Array) -> None:
    whole = digest(array)
    assert digest(*(array.slice(n, 1) for n in range(4))) == whole
    assert digest(array.slice(0, 3), array.slice(3), array.slice(4)) == whole
    for before in range(5):
        shifted = pa.concat_arrays([array.slice(4 - before), array, array])
        assert digest(shifted.slice(before, 4)) == whole


@pytest.mark.parametrize("array", ARRAYS[:-2], ids=lambda array: str(array.type))
def test_a_digest_depends_on_the_order_and_the_number_of_rows(array: pa.Array) -> None:
    whole = digest(array)
    others = [array.take([0, 1, 3, 2]), array.take([1, 0, 2, 3]), array.slice(0, 3)]
    others += [pa.concat_arrays([array, array.slice(1, 1)]), pa.nulls(4, array.type)]
    assert whole not in [digest(other) for other in others]


TEXT = pa.array(["a", None, "", "ccc"])
LISTS = pa.array([["a"], None, [], ["ccc", None]])


@pytest.mark.parametrize(
    "same",
    [
        TEXT.dictionary_encode(),
        TEXT.cast(pa.large_string()),
        TEXT.cast(pa.string_view()),
        pa.compute.run_end_encode(TEXT),
    ],
    ids=lambda array: str(array.type),
)
def test_text_digests_do_not_depend_on_the_arrow_type(same: pa.Array) -> None:
    assert digest(same) == digest(TEXT)


@pytest.mark.parametrize("kind", [pa.large_list(pa.string()), pa.list_(pa.string_view())])
def test_list_digests_do_not_depend_on_the_arrow_type(kind: pa.DataType) -> None:
    assert digest(LISTS.cast(kind)) == digest(LISTS)


def test_values_under_a_null_do_not_change_the_digest() -> None:
    second = np.array([False, True, False])
    mask = pa.array(second)
    numbers = [pa.array(np.array([1, n, 3]), mask=second) for n in (2, 9)]
    assert digest(numbers[0]) == digest(numbers[1])
    texts = ["one", "other"]
    hidden = [
        pa.StructArray.from_arrays([pa.array(["a", text, "c"])], ["t"], mask=mask) for text in texts
    ]
    assert digest(hidden[0]) == digest(hidden[1])
    lists = [
        pa.ListArray.from_arrays(pa.array([0, 1, 2, 3]), pa.array(["a", t, "c"]), mask=mask)
        for t in texts
    ]
    assert digest(lists[0]) == digest(lists[1])


def test_a_digest_depends_on_where_one_text_ends_and_the_next_begins() -> None:
    assert digest(pa.array(["ab", "c"])) != digest(pa.array(["a", "bc"]))
    assert digest(pa.array([["a", "b"], []])) != digest(pa.array([["a"], ["b"]]))
    assert digest(pa.array([None, ""])) != digest(pa.array(["", None]))


def test_float_digests_differ_by_bits() -> None:
    (other_nan,) = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))
    values = [0.0, -0.0, float("nan"), other_nan]
    assert len({digest(pa.array(np.array([value]))) for value in values}) == 4


def of_columns(columns: Iterable[pa.Field], *arrays: Any) -> str:
    found = RowDigest(pa.schema(list(columns)))
    found.update([pa.array(values) for values in arrays])
    return found.hexdigest()


def test_a_column_digest_depends_on_the_field_id_or_else_the_name() -> None:
    def numbered(name: str, number: int) -> pa.Field:
        return pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})

    plain = pa.field("a", pa.int64())
    assert of_columns([plain], [1]) != of_columns([plain.with_name("b")], [1])
    assert of_columns([plain], [1]) == of_columns([plain.with_nullable(False)], [1])
    assert of_columns([numbered("a", 1)], [1]) == of_columns([numbered("b", 1)], [1])
    assert of_columns([numbered("a", 1)], [1]) != of_columns([numbered("a", 2)], [1])
    two = [plain, plain.with_name("b")]
    assert of_columns(two, [1], [2]) != of_columns(two, [2], [1])
    assert digest(pa.array([1])) != digest(pa.array([1], pa.int32()))
    inner = [pa.struct([pa.field(name, pa.int64())]) for name in "ab"]
    assert digest(pa.array([{"a": 1}], inner[0])) != digest(pa.array([{"b": 1}], inner[1]))
