"""Whether two systems have answered a query with the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Whether both hold the same rows, in any order.

    Columns count by place: systems name those of expressions each in its own way. Sums of
    floating-point numbers depend on the order of adding: they are compared to nine digits, and so
    is a ratio that one system has as a decimal and the other does not.
    """
    if one.num_columns != other.num_columns:
        return False
    pairs = zip(one.columns, other.columns, strict=True)
    rough = [any(pa.types.is_floating(column.type) for column in pair) for pair in pairs]
    return _rows(one, rough) == _rows(other, rough)


def _rows(table: pa.Table, rough: Sequence[bool]) -> Counter[tuple[object, ...]]:
    columns = [
        [_digits(value) if few else value for value in column.to_pylist()]
        for column, few in zip(table.columns, rough, strict=True)
    ]
    return Counter(zip(*columns, strict=True))


def _digits(value: float | Decimal | None) -> str | None:
    return None if value is None else f"{float(value):.9g}"
