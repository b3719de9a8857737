"""Values of an INSERT whose type differs from that of their column."""

from __future__ import annotations

import re
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.lake.operations.inserted import _check_text, assigned

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
        (["12:00:00.5", None], pa.string(), pa.time64("us"), [time(12, 0, 0, 500_000), None]),
    ],
)
def test_a_literal_is_converted_to_the_type_of_its_column(
    values: list[Any], source: pa.DataType, target: pa.DataType, expected: list[Any]
) -> None:
    found = turned(values, source, target)
    assert found.type == target
    assert found.to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "source", "target"),
    [
        ([1, None], pa.int32(), pa.string()),
        ([None], pa.string(), pa.int64()),  # a NULL that has a type, unlike the literal NULL
        ([1.555], pa.float64(), CENTS),
        ([float("nan")], pa.float64(), CENTS),
        ([Decimal("0.12345678901234567890")], pa.decimal128(20, 20), pa.float64()),
        (["soon"], pa.string(), pa.date32()),
        (["2026-01-31 12:00:00"], pa.string(), pa.timestamp("us", "UTC")),  # its zone is unknown
        (["7"], pa.string(), pa.int64()),
    ],
)
def test_values_that_can_not_be_converted_exactly_keep_their_type(
    values: list[Any], source: pa.DataType, target: pa.DataType
) -> None:
    assert turned(values, source, target).type == source


@pytest.mark.parametrize(
    ("text", "target", "form"),
    [
        ("soon", pa.date32(), "'2024-02-29'"),
        ("2026-31-01", pa.timestamp("us"), "'2024-02-29 12:00:00'"),
        ("12", pa.timestamp("us", "UTC"), "'2024-02-29 12:00:00'"),
        ("25:00:00", pa.time64("us"), "'12:00:00'"),
    ],
)
def test_a_text_that_is_no_date_is_named_in_the_error(
    text: str, target: pa.DataType, form: str
) -> None:
    column = pa.chunked_array([pa.array([None, text], pa.string())])
    with pytest.raises(
        InvalidOperation, match=re.escape(f"which {text!r} is not: write it as {form}")
    ):
        _check_text(column, target, "day", "orders")
