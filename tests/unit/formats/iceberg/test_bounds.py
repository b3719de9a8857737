"""Statistics converted between the library's JSON and the maps of a manifest."""

from __future__ import annotations

import json
import math
import struct
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from lakevilla.formats.iceberg.manifests.bounds import metrics_of, statistics_of
from lakevilla.formats.iceberg.metadata.partition_values import partition_text, partition_value
from lakevilla.formats.iceberg.metadata.schema import LeafField

TYPES: dict[str, Any] = {
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamptz": TimestamptzType(),
    "decimal(20, 4)": DecimalType(20, 4),
}
_MOMENTS = st.integers(
    int(timedelta(days=-700_000) / timedelta(microseconds=1)),
    int(timedelta(days=2_900_000) / timedelta(microseconds=1)),
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    "date": st.dates().map(lambda day: (day - date(1970, 1, 1)).days),
    "timestamp": _MOMENTS,
    "timestamptz": _MOMENTS,
    "decimal(20, 4)": st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-4)),
}


@pytest.mark.parametrize("kind", TYPES)
@given(data=st.data())
def test_bounds_are_unchanged_after_conversion_to_a_manifest_and_back(
    kind: str, data: st.DataObject
) -> None:
    value = data.draw(VALUES[kind])
    leaves = {5: LeafField(5, ("2", "5"), kind, False)}
    raw = to_bytes(TYPES[kind], value)
    text = statistics_of(9, {5: 1}, {5: raw}, {5: raw}, leaves)
    assert json.loads(text)["nullCount"] == {"2": {"5": 1}}
    reported = metrics_of(text, leaves)
    assert (reported.record_count, reported.null_counts, reported.value_counts) == (
        9,
        {5: 1},
        {5: 9},
    )
    assert from_bytes(TYPES[kind], reported.lower[5]) == value
    assert from_bytes(TYPES[kind], reported.upper[5]) == value


def test_a_column_within_a_list_has_no_bounds() -> None:
    leaves = {5: LeafField(5, ("2", "5"), "long", True)}
    text = statistics_of(1, {5: 0}, {5: b"\x01" * 8}, {5: b"\x01" * 8}, leaves)
    assert json.loads(text) == {"numRecords": 1, "minValues": {}, "maxValues": {}, "nullCount": {}}


def test_int_bounds_of_a_column_widened_to_long_are_read() -> None:
    leaves = {5: LeafField(5, ("5",), "long", False)}
    low = to_bytes(IntegerType(), -7)
    assert json.loads(statistics_of(1, {}, {5: low}, {5: low}, leaves))["minValues"] == {"5": -7}


@pytest.mark.parametrize("raw", [b"\xff\xfe", b""])
def test_an_unreadable_bound_is_left_out(raw: bytes) -> None:
    leaves = {5: LeafField(5, ("5",), "string", False), 6: LeafField(6, ("6",), "date", False)}
    far = (2**31 - 1).to_bytes(4, "little")
    reported = json.loads(statistics_of(1, {}, {5: raw, 6: far}, {5: raw, 6: far}, leaves))
    assert reported["minValues"] == ({"5": ""} if raw == b"" else {})


def test_missing_statistics_give_no_bounds() -> None:
    reported = metrics_of(None, {5: LeafField(5, ("5",), "long", False)})
    assert (reported.record_count, reported.lower, reported.null_counts) == (0, {}, {})


@pytest.mark.parametrize("kind", [*VALUES, "boolean", "binary"])
@given(data=st.data())
def test_partition_values_are_unchanged_after_conversion_to_text_and_back(
    kind: str, data: st.DataObject
) -> None:
    others = {"boolean": st.booleans(), "binary": st.binary(min_size=1, max_size=9)}
    value = data.draw(st.none() | {**VALUES, **others}[kind])
    text = partition_text(kind, value)
    again = partition_value(kind, text)
    assert again == value
    if isinstance(value, float):
        assert math.copysign(1, again) == math.copysign(1, value)


def test_a_timestamp_before_year_1_gives_no_bound() -> None:
    leaves = {5: LeafField(5, ("5",), "timestamp", False)}
    raw = (-(2**62)).to_bytes(8, "little", signed=True)
    assert json.loads(statistics_of(1, {}, {5: raw}, {5: raw}, leaves))["minValues"] == {}
    assert datetime.min.year == 1


@pytest.mark.parametrize(
    ("kind", "raw", "meant"),
    [
        ("timestamp", struct.pack("<i", 18_993), "2022-01-01T00:00:00.000000"),
        ("timestamp", struct.pack("<i", -1), "1969-12-31T00:00:00.000000"),
        ("double", struct.pack("<f", 0.5), 0.5),
        ("long", struct.pack("<i", -7), -7),
        ("timestamptz", struct.pack("<i", 18_993), None),
        ("date", struct.pack("<q", 18_993), None),
        ("int", struct.pack("<q", 7), None),
        ("int", b"\x07", None),
        ("long", b"", None),
        ("long", bytes(16), None),
        ("float", struct.pack("<d", 0.5), None),
        ("double", bytes(2), None),
        ("timestamp_ns", struct.pack("<i", 18_993), None),
    ],
)
def test_a_bound_is_read_with_the_type_that_its_length_shows(
    kind: str, raw: bytes, meant: Any
) -> None:
    """Bounds of a promoted column stay as they were written; bounds of other lengths are
    ignored.
    """
    said = statistics_of(1, {}, {1: raw}, {1: raw}, {1: LeafField(1, ("c",), kind, False)})
    assert json.loads(said)["minValues"] == ({} if meant is None else {"c": meant})
    assert json.loads(said)["maxValues"] == ({} if meant is None else {"c": meant})
