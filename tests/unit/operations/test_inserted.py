"""What INSERT makes of values whose type is not their column's."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakevilla.operations.inserted import assigned

CENTS = pa.decimal128(9, 2)


def turned(values: list[Any], source: pa.DataType, target: pa.DataType) -> pa.ChunkedArray:
    return assigned(pa.chunked_array([pa.array(values, source)]), target)


@pytest.mark.parametrize(
    ("values", "source", "target", "expected"),
    [
        ([None, None], pa.int32(), pa.string(), [None, None]),
        ([Decimal("1.1"), None], pa.decimal128(2, 1), pa.float64(), [1.1, None]),
        ([1.5, None], pa.float64(), CENTS, [Decimal("1.50"), None]),
        ([15.7563], pa.float64(), pa.decimal128(8, 4), [Decimal("15.7563")]),
        (["2026-01-31", None], pa.string(), pa.date32(), [date(2026, 1, 31), None]),
        (["2026-01-31 12:00:00"], pa.string(), pa.timestamp("us"), [datetime(2026, 1, 31, 12)]),
    ],
)
def test_a_literal_becomes_what_its_column_holds(
    values: list[Any], source: pa.DataType, target: pa.DataType, expected: list[Any]
) -> None:
    found = turned(values, source, target)
    assert found.type == target
    assert found.to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "source", "target"),
    [
        ([1, None], pa.int32(), pa.string()),
        ([None], pa.string(), pa.int64()),  # NULL with a type of its own
        ([1.555], pa.float64(), CENTS),
        ([float("nan")], pa.float64(), CENTS),
        ([Decimal("0.12345678901234567890")], pa.decimal128(20, 20), pa.float64()),
        (["soon"], pa.string(), pa.date32()),
        (["2026-01-31 12:00:00"], pa.string(), pa.timestamp("us", "UTC")),  # in which zone?
        (["7"], pa.string(), pa.int64()),
    ],
)
def test_what_would_lose_something_or_is_no_literal_stays_what_it_is(
    values: list[Any], source: pa.DataType, target: pa.DataType
) -> None:
    assert turned(values, source, target).type == source
