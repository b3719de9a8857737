"""Values of other libraries become the equal Python values, or are refused with their name."""

from __future__ import annotations

import enum
import math
import uuid
from collections import deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.arrow.scalars import plain


class Color(enum.Enum):
    RED = 1


class Size(enum.IntEnum):
    SMALL = 1


class Word(enum.StrEnum):
    YES = "yes"


DAY = date(2020, 1, 2)
MOMENT = datetime(2020, 1, 2, 3, 4, 5, 123456)
NANOSECOND = 1577934245123456001
BERLIN = ZoneInfo("Europe/Berlin")

SAME: list[tuple[Any, object]] = [
    (np.float64(1.5), 1.5),
    (np.float32(0.1), 0.10000000149011612),
    (np.int64(-3), -3),
    (np.uint64(2**64 - 1), 2**64 - 1),
    (np.bool_(True), True),
    (np.str_("x"), "x"),
    (np.bytes_(b"x"), b"x"),
    (np.datetime64("2020-01-02"), DAY),
    (np.datetime64("2020-01"), date(2020, 1, 1)),
    (np.datetime64("2020-01-02T03:04:05.123456000"), MOMENT),
    (np.datetime64("2020-01-02T03", "h"), datetime(2020, 1, 2, 3)),
    (np.datetime64("NaT"), None),
    (np.array(5), 5),
    (np.array([1, 2]), [1, 2]),
    (np.array(["a"]), ["a"]),
    (np.array([1.5, "x", None], dtype=object), [1.5, "x", None]),
    (pd.Timestamp("2020-01-02T03:04:05.123456"), MOMENT),
    (pd.Timestamp("2020-01-02", tz=BERLIN), datetime(2020, 1, 2, tzinfo=BERLIN)),
    (pd.NaT, None),
    (pd.NA, None),
    (pd.Series([1, 2]), [1, 2]),
    (pd.Series([1.5, None]), [1.5, None]),
    (pd.Series(["a", "b"], dtype="category"), ["a", "b"]),
    (pd.Index([1]), [1]),
    (pd.array([1, None], dtype="Int64"), [1, None]),
    (pl.Series([1, None]), [1, None]),
    (pa.scalar(1), 1),
    (pa.scalar(None, pa.int8()), None),
    (pa.scalar(NANOSECOND - 1, pa.timestamp("ns", "UTC")), MOMENT.replace(tzinfo=UTC)),
    (pa.scalar(1000, pa.time64("ns")), time(0, 0, 0, 1)),
    (pa.scalar(Decimal("1.50")), Decimal("1.50")),
    (pa.scalar("x").cast(pa.dictionary(pa.int8(), pa.string())), "x"),
    (pa.array([1, None]), [1, None]),
    (pa.chunked_array([["a"], ["b"]]), ["a", "b"]),
    (Size.SMALL, 1),
    (Word.YES, "yes"),
    (bytearray(b"x"), b"x"),
    (memoryview(b"x"), b"x"),
    (uuid.UUID(int=1), uuid.UUID(int=1)),
    ({1}, [1]),
    (range(3), [0, 1, 2]),
    ({"a": 1}.keys(), ["a"]),
    (deque([np.int64(1)]), [1]),
    ((np.float64(1.5), None), [1.5, None]),
]


@pytest.mark.parametrize(("value", "expected"), SAME, ids=lambda value: type(value).__name__)
def test_a_value_of_another_library_becomes_a_python_value(value: Any, expected: object) -> None:
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)
    if isinstance(found, list):
        assert [type(item) for item in found] == [type(item) for item in expected]  # type: ignore[attr-defined]


def test_nan_stays_nan_except_in_pandas_data() -> None:
    number = plain(np.float64("nan"))
    assert isinstance(number, float)
    assert math.isnan(number)
    assert plain(pd.Series([math.nan])) == [None]


@pytest.mark.parametrize(
    "value",
    [
        pd.Timestamp(NANOSECOND),
        np.datetime64(NANOSECOND, "ns"),
        np.datetime64(10**6, "Y"),
        np.longdouble(1) / 3,
        pa.scalar(NANOSECOND, pa.timestamp("ns")),
        pa.scalar(1, pa.time64("ns")),
        pa.scalar(2**62, pa.timestamp("s")),
        pd.Timedelta("1s"),
        np.timedelta64(1, "s"),
        pa.scalar(1, pa.duration("s")),
        timedelta(days=1),
        pd.Period("2020-01"),
        pd.DataFrame({"a": [1]}),
        np.array([[1]]),
        np.zeros(1, dtype=[("a", "i4")]),
        np.void(b"x"),
        np.complex64(1),
        pa.scalar({"a": 1}),
        pa.table({"a": [1]}),
        pl.col("a"),
        Color.RED,
        Path("x"),
        {"a": 1},
        {"a": 1}.items(),
        (one for one in [1]),
        object(),
        int,
        [1, [object()]],
    ],
    ids=lambda value: type(value).__name__,
)
def test_parameter_values_that_can_not_be_converted_exactly_are_refused_with_their_name(
    value: Any,
) -> None:
    with pytest.raises(lv.InvalidOperation, match="parameter :n is"):
        plain(value, "parameter :n")


@pytest.mark.parametrize(
    "moment",
    [
        datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-12))),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=12))),
    ],
)
def test_a_timestamp_whose_utc_year_is_out_of_range_is_refused_with_its_name(
    moment: datetime,
) -> None:
    for value in (moment, [moment]):
        with pytest.raises(
            lv.InvalidOperation, match=r"parameter :p is .*beyond the years 1 to 9999"
        ):
            plain(value, "parameter :p")
