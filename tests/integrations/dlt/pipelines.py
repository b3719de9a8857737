"""Rows of pipelines, without what dlt adds to them."""

from __future__ import annotations

from typing import Any

import dlt

Rows = list[dict[str, Any]]


def plain(rows: Rows) -> Rows:
    """Return rows without dlt's own columns, sorted by their text."""
    kept = [
        {name: value for name, value in row.items() if not name.startswith("_dlt")} for row in rows
    ]
    return sorted(kept, key=str)


def rows_of(pipeline: dlt.Pipeline, table: str) -> Rows:
    """Return a table's rows as the pipeline's dataset shows them, without dlt's own columns."""
    return plain(pipeline.dataset()[table].arrow().to_pylist())
