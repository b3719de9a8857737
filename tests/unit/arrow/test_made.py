"""Arrays that LakeVilla builds from buffers equal those of pyarrow, and the same values are
refused.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakevilla.arrow.cast import array, mask, numbers, places, scalar, truths

INTEGERS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
MAP = pa.map_(pa.string(), pa.string())
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **{
        type_: st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        for type_, bits in INTEGERS.items()
    },
    pa.float64(): st.floats(allow_nan=False),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.timestamp("us"): st.datetimes(),
    pa.decimal128(12, 2): st.decimals(-999, 999, places=2),
    MAP: st.lists(st.tuples(st.text(), st.none() | st.text()), max_size=3),
}


@pytest.mark.parametrize("type_", VALUES, ids=str)
@given(data=st.data())
def test_arrays_built_from_values_equal_those_of_pyarrow(
    type_: pa.DataType, data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.none() | VALUES[type_], max_size=20))
    made = array(values, type_)
    made.validate(full=True)
    assert made.equals(pa.array(values, type_))
    assert made.type == type_
    for value in values[:1]:
        assert scalar(value, type_).equals(pa.scalar(value, type_))


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (128, pa.int8()),
        (1 << 63, pa.int64()),
        (True, pa.int32()),
        (1, pa.float64()),
        (1.5, pa.int64()),
        ("x", pa.int64()),
        (2, pa.bool_()),
        (datetime(2024, 1, 1, 13), pa.date32()),
        (b"x", pa.string()),
        ("\ud800", pa.string()),
        (np.int64(5), pa.int64()),
        (np.float64(5), pa.float64()),
        ([("a", 1)], MAP),
    ],
)
def test_a_value_of_another_type_is_accepted_or_refused_as_by_pyarrow(
    value: Any, type_: pa.DataType
) -> None:
    outcomes: list[Any] = []
    for make in (array, pa.array):
        try:
            outcomes.append(make([value, None], type_))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1]


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 20))
def test_boolean_arrays_convert_to_numpy_and_back(chosen: list[bool], start: int) -> None:
    whole = mask(np.array(chosen, bool))
    assert whole.to_pylist() == chosen
    part = whole.slice(start)
    assert truths(part).tolist() == chosen[start:]
    assert truths(pa.chunked_array([part, whole], pa.bool_())).tolist() == chosen[start:] + chosen
    found = truths(whole)
    found[:] = False  # a copy: the caller may change it
    assert whole.to_pylist() == chosen


def test_a_null_boolean_counts_as_false() -> None:
    assert truths(pa.array([True, None, False])).tolist() == [True, False, False]


@given(st.lists(st.integers(-5, 5), max_size=40), st.integers(0, 20))
def test_integer_arrays_convert_to_numpy_and_back(given_: list[int], start: int) -> None:
    whole = places(np.array(given_, np.int64))
    assert whole.to_pylist() == given_
    assert numbers(whole.slice(start)).tolist() == given_[start:]
    assert numbers(pa.array(given_, pa.int32())).tolist() == given_


def test_dates_before_the_epoch_are_kept() -> None:
    assert array([date(1, 1, 1), None], pa.date32()).to_pylist() == [date(1, 1, 1), None]
