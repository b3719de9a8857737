"""Plain Python values: a column takes values of one kind, and none is changed by another one."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from lakevilla.arrow.plain_values import inferred, with_floats_of
from lakevilla.errors import InvalidOperation

VALUES: dict[str, Any] = {
    "bool": True,
    "int": 3,
    "float": 1.5,
    "Decimal": Decimal("2.5"),
    "str": "x",
    "bytes": b"y",
    "date": date(2024, 1, 2),
    "datetime": datetime(2024, 1, 1, 5),
    "aware": datetime(2024, 1, 1, 5, tzinfo=timezone(timedelta(hours=2))),
    "time": time(1, 2),
    "timedelta": timedelta(hours=1),
    "list": [1],
    "dict": {"a": 1},
    "numpy bool": np.bool_(True),
    "numpy int": np.int64(4),
    "numpy float": np.float32(0.5),
    "numpy datetime": np.datetime64("2024-01-01T05:00:00"),
    "numpy timedelta": np.timedelta64(5, "s"),
}
WITHIN: dict[str, Callable[[Any], Any]] = {
    "at the top": lambda value: value,
    "in a list": lambda value: [value],
    "in a dict": lambda value: {"x": value},
    "in a list of dicts": lambda value: [{"x": value}],
}


@pytest.mark.parametrize("within", WITHIN)
def test_a_value_next_to_one_of_another_kind_is_refused_or_kept_as_it_is_alone(
    within: str,
) -> None:
    kept = 0
    for one, other in permutations(VALUES.values(), 2):
        given = [WITHIN[within](one), WITHIN[within](other)]
        try:
            found = inferred(given, "a")
        except InvalidOperation:
            continue
        kept += 1
        alone = [inferred([value], "a") for value in given]
        for value, own in zip(found.to_pylist(), alone, strict=True):
            assert value == own.to_pylist()[0]
    assert kept > 10


@pytest.mark.parametrize("within", WITHIN)
@pytest.mark.parametrize("absent", [None, pd.NaT, pd.NA], ids=["None", "NaT", "NA"])
def test_absent_values_of_pandas_are_null(within: str, absent: Any) -> None:
    wrap = WITHIN[within]
    for value in (7, datetime(2024, 1, 1, tzinfo=UTC)):
        found = inferred([wrap(value), wrap(absent), None], "a")
        plain = pa.array([wrap(value), wrap(None), None])
        assert found.equals(plain)


def test_a_float_nan_stays_a_value() -> None:
    (found,) = inferred([math.nan], "a").to_pylist()
    assert math.isnan(found)


@pytest.mark.parametrize("within", WITHIN)
def test_nanoseconds_of_a_timestamp_are_refused(within: str) -> None:
    stamp = pd.Timestamp("2024-01-01 00:00:00.000000001")
    with pytest.raises(InvalidOperation, match="has nanoseconds"):
        inferred([WITHIN[within](stamp)], "a")
    assert inferred([pd.Timestamp("2024-01-01")], "a").to_pylist() == [datetime(2024, 1, 1)]


@pytest.mark.parametrize("within", WITHIN)
def test_datetimes_with_and_without_a_zone_are_refused_together(within: str) -> None:
    given = [WITHIN[within](VALUES[name]) for name in ("datetime", "aware")]
    with pytest.raises(InvalidOperation, match="with and without a time zone"):
        inferred(given, "a")


SINGLE = {
    "at the top": pa.float32(),
    "in a list": pa.list_(pa.float32()),
    "in a dict": pa.struct([("x", pa.float32())]),
    "in a list of dicts": pa.list_(pa.struct([("x", pa.float32())])),
}


@pytest.mark.parametrize("within", WITHIN)
def test_python_floats_take_the_precision_of_a_column_unless_they_are_beyond_its_range(
    within: str,
) -> None:
    wrap, column = WITHIN[within], SINGLE[within]
    _, found = with_floats_of([wrap(0.1), wrap(-math.inf), None], column, "a")
    assert found.type == column
    assert found.to_pylist() == [wrap(float(np.float32(0.1))), wrap(-math.inf), None]
    _, beyond = with_floats_of([wrap(0.1), wrap(1e300)], column, "a")
    assert beyond.type != column
