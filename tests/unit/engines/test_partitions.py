"""Partition values, and their directory names as Delta's writers spell them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakevilla.engines.partitions import (
    partition_directory,
    partition_values,
    serialise_partition_value,
    split_by_partition,
)
from lakevilla.errors import InvalidOperation


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, pa.int64(), None),
        (-7, pa.int8(), "-7"),
        (True, pa.bool_(), "true"),
        ("", pa.string(), ""),
        ("a/b", pa.string(), "a/b"),
        (Decimal("-0.50"), pa.decimal128(10, 2), "-0.50"),
        (Decimal("1E+10"), pa.decimal128(38, 0), "10000000000"),
        (datetime.date(999, 1, 2), pa.date32(), "0999-01-02"),
        (datetime.datetime(999, 1, 2, 3, 4, 5), pa.timestamp("us"), "0999-01-02 03:04:05.000000"),
        (
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, datetime.UTC),
            pa.timestamp("us", "UTC"),
            "1969-12-31T23:59:59.999999Z",
        ),
        (b"\x00a", pa.binary(), "\\u0000\\u0061"),
        (1.5, pa.float64(), "1.5"),
    ],
)
def test_partition_values_are_written_to_the_log_as_delta_spells_them(
    value: object, kind: pa.DataType, text: str | None
) -> None:
    assert serialise_partition_value(pa.scalar(value, kind), "p", "t") == text


def test_nested_partition_columns_are_refused() -> None:
    with pytest.raises(InvalidOperation, match="column p"):
        serialise_partition_value(pa.scalar([1]), "p", "t")


def test_directory_names_of_partitions_are_escaped_as_by_hive() -> None:
    values = [("a b", "x=y/z"), ("c", None), ("d", "100%: ü"), ("e", "Inc."), ("f", "..")]
    assert partition_directory(values) == (
        "a b=x%3Dy%2Fz/c=__HIVE_DEFAULT_PARTITION__/d=100%25%3A ü/e=Inc%2E/f=.%2E"
    )
    assert partition_directory([]) == ""


@given(st.lists(st.tuples(st.none() | st.integers(0, 3), st.sampled_from([None, "", "x"]))))
def test_split_by_partition_keeps_every_row_in_its_partition(
    pairs: list[tuple[int | None, str | None]],
) -> None:
    rows = pa.table(
        {
            "p": pa.array([p for p, _ in pairs], pa.int64()),
            "q": pa.array([q for _, q in pairs], pa.string()),
            "n": pa.array(range(len(pairs)), pa.int64()),
        }
    )
    parts = split_by_partition(rows, ("p", "q"))
    keys = [{(r["p"], r["q"]) for r in part.to_pylist()} for part in parts]
    assert all(len(key) == 1 for key in keys)
    assert len(set().union(*keys)) == len(parts) if parts else not pairs
    assert sorted(n for part in parts for n in part.column("n").to_pylist()) == list(
        range(len(pairs))
    )


NARROW, WIDE = pa.decimal128(9, 2), pa.decimal128(38, 0)
LOWEST = 1 - 10**38


@pytest.mark.parametrize(
    ("kind", "lost", "lowest", "part"),
    [
        (NARROW, "-9999999.99", "-9999999.90", "-9999999.90"),
        (NARROW, "-9999999.91", "-9999999.89", "-9999999.90"),
        (WIDE, LOWEST, LOWEST + 9, LOWEST + 9),
        (pa.int32(), -(2**31), 8 - 2**31, 8 - 2**31),
        (pa.int64(), -(2**63), 8 - 2**63, 8 - 2**63),
    ],
)
def test_a_value_whose_truncation_leaves_the_range_of_its_type_is_refused(
    kind: pa.DataType, lost: Any, lowest: Any, part: Any
) -> None:
    def column(value: Any) -> pa.ChunkedArray:
        decimal = pa.types.is_decimal(kind)
        return pa.chunked_array([[None, Decimal(value) if decimal else value]], kind)

    with pytest.raises(InvalidOperation, match=r"can't be partitioned by truncate\[10\]"):
        partition_values(column(lost), "truncate[10]")
    assert partition_values(column(lowest), "truncate[10]").equals(column(part).chunk(0))
