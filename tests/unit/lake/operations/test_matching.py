"""A merge leaves out files by the key values of its source if no row of them can match."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from lakevilla.engines.base import MergeSpec
from lakevilla.lake.operations.matching import may_be_matched
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_predicate


def asked_for(target: pa.DataType, source: pa.DataType) -> bool:
    schema = pa.schema([("id", target)])
    rows = pa.table({"id": pa.array([Decimal(1), Decimal(2)], pa.decimal128(5, 0)).cast(source)})
    on = bind(parse_predicate("t.id = s.id"), {"t": schema, "s": rows.schema})
    spec = MergeSpec(on=on, source_alias="s", target_alias="t", clauses=())
    return may_be_matched(spec, schema, rows, None) is not None


@pytest.mark.parametrize("type_", [pa.int64(), pa.float64(), pa.decimal128(10, 2)])
def test_keys_of_equal_types_leave_out_files_of_the_target(type_: pa.DataType) -> None:
    assert asked_for(type_, type_)


@pytest.mark.parametrize(
    ("target", "source"),
    [
        (pa.int32(), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 3)),
        (pa.decimal128(10, 2), pa.int64()),
    ],
)
def test_keys_of_two_types_leave_out_no_file(target: pa.DataType, source: pa.DataType) -> None:
    """One of the two is cast for the comparison, and no statistic is about the cast value."""
    assert not asked_for(target, source)
