"""Rows as an agent gets them: values of JSON, and no more of them than it may have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.serve.agents.limits import AgentLimits
from lakevilla.values import json_text, plain

Answer = dict[str, Any]


def rows_of(found: pa.Table, limits: AgentLimits) -> Answer:
    """Return the first rows of a table, and whether there are others.

    Raises
    ------
    InvalidOperation
        Not even the first row may be given.
    """
    most = min(found.num_rows, limits.rows)
    columns = [[_value(one) for one in column.slice(0, most)] for column in found.columns]
    rows: list[list[Any]] = []
    size = 0
    for row in zip(*columns, strict=True):
        size += len(json_text(row))
        if size > limits.characters:
            break
        rows.append(list(row))
    if most and not rows:
        raise InvalidOperation(
            f"the first row has more than {limits.characters} characters: select fewer columns, or "
            "left(column, 100)"
        )
    answer: Answer = {"columns": found.column_names, "rows": rows}
    if len(rows) < found.num_rows:
        answer["note"] = (
            f"only the first {len(rows)} rows: there are more. Aggregate, narrow it by WHERE, or "
            "go on by ORDER BY and OFFSET"
        )
    return answer


def _value(value: Any) -> Any:
    try:
        if pa.types.is_map(value.type):
            return plain(dict(value.as_py())) if value.is_valid else None
        return plain(value.as_py())
    except (ArithmeticError, ValueError):  # Python has no such time, or no such text
        return str(value.cast(pa.string())) if pa.types.is_temporal(value.type) else "?"
