"""Binding assignments to many columns takes a number of calls proportional to the number of
columns.
"""

from __future__ import annotations

import sys

import pyarrow as pa

from lakevilla.sql.expressions.assignments import bind_assignments
from lakevilla.sql.expressions.tree import Column


def _calls(columns: int) -> int:
    count = 0

    def counted(frame: object, event: str, of: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    schema = pa.schema([(f"c{i}", pa.int64()) for i in range(columns)])
    values = {f"C{i}": Column((f"C{i}",)) for i in range(columns)}
    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        bind_assignments(values, schema)
    finally:
        sys.setprofile(before)
    return count


def test_the_calls_for_assigning_each_column_grow_linearly_with_the_columns() -> None:
    _calls(2)
    assert _calls(400) < 6 * _calls(100)
