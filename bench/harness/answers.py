"""Whether two systems have answered a query with the same rows."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Whether both hold the same rows, in any order.

    Columns count by place: systems name those of expressions each in its own way. Sums of
    floating-point numbers depend on the order of adding: they are compared to nine digits.
    """
    return _rows(one) == _rows(other)


def _rows(table: pa.Table) -> Counter[tuple[object, ...]]:
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True))


def _plain(value: object) -> object:
    return f"{value:.9g}" if isinstance(value, float) else value
