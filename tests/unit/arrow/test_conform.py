"""Batches of an engine get a table's columns by position, however their fields are named."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakevilla.arrow.cast import conform

TWO_BYTES = pa.binary(2)


@pytest.mark.parametrize(
    ("answered", "kind"),
    [
        ({"A": b"ab", "B": 1}, pa.struct([("a", TWO_BYTES), ("b", pa.int64())])),
        ([{"A": b"ab"}], pa.list_(pa.struct([("a", TWO_BYTES)]))),
        ({"S": {"A": b"ab"}}, pa.struct([("s", pa.struct([("a", TWO_BYTES)]))])),
    ],
)
def test_a_struct_field_whose_name_differs_in_case_keeps_its_value_in_a_cast(
    answered: object, kind: pa.DataType
) -> None:
    # DuckDB 2 does not cast a struct whose type differs only in the case of names.
    batch = pa.record_batch({"value": pa.array([answered, None])})
    schema = pa.schema([("value", kind)])
    made = conform(batch, schema, "t")
    assert made.schema == schema
    assert made.column(0).to_pylist() == pa.array([lowered(answered), None], kind).to_pylist()


def test_struct_fields_within_map_values_keep_their_values_in_a_cast() -> None:
    source = pa.map_(pa.string(), pa.struct([("A", pa.binary())]))
    target = pa.map_(pa.string(), pa.struct([("a", TWO_BYTES)]))
    batch = pa.record_batch({"value": pa.array([[("k", {"A": b"ab"})]], source)})
    made = conform(batch, pa.schema([("value", target)]), "t")
    assert made.column(0).to_pylist() == [[("k", {"a": b"ab"})]]


def test_values_under_a_null_struct_are_not_cast() -> None:
    fields = [pa.array([b"ab", b"too long"]), pa.array([1, 2])]
    rows = pa.StructArray.from_arrays(fields, ["a", "b"], mask=pa.array([False, True]))
    kind = pa.struct([pa.field("a", TWO_BYTES, nullable=False), ("b", pa.int64())])
    made = conform(pa.record_batch({"value": rows}), pa.schema([("value", kind)]), "t")
    assert made.column(0).to_pylist() == [{"a": b"ab", "b": 1}, None]


def lowered(value: object) -> object:
    if isinstance(value, dict):
        return {name.lower(): lowered(inner) for name, inner in value.items()}
    return [lowered(inner) for inner in value] if isinstance(value, list) else value
