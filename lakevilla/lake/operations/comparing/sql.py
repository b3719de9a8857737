"""Pieces of the queries that compare rows where they meet, in DuckDB's SQL."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakevilla.formats.layout import Layout

#: Views of those rows that meet; the columns of a side have its name and their places.
BEFORE, AFTER, OURS, CHANGED = (
    f"lakevilla_{name}" for name in ("before", "after", "ours", "changed")
)
THERE = "lakevilla_there"


def state_fields(layout: Layout, side: str) -> list[pa.Field]:
    """The columns of a row on one side, by their places, and whether it has the row."""
    fields = [pa.field(f"{side}{n}", one.type) for n, one in enumerate(layout.schema)]
    return [*fields, pa.field(side, pa.bool_())]


def shown_as(layout: Layout, alias: str, side: str) -> list[str]:
    names = [f"{alias}.{quoted(name)} AS {side}{n}" for n, name in enumerate(layout.schema.names)]
    return [*names, f"{alias}.{THERE} AS {side}"]


def marked(view: str) -> str:
    return f"(SELECT *, true AS {THERE} FROM {view})"


def equal_in(keys: Sequence[str], others: Sequence[str], alias: str, other: str) -> str:
    pairs = zip(keys, others, strict=True)
    return " AND ".join(f"{alias}.{quoted(a)} = {other}.{quoted(b)}" for a, b in pairs)


def same_in_all(layout: Layout) -> str:
    """True of two rows that are the same to the last bit that is shown: SQL has but one zero."""
    terms = []
    for field in layout.schema:
        mine, other = f"b.{quoted(field.name)}", f"a.{quoted(field.name)}"
        terms.append(f"{mine} IS NOT DISTINCT FROM {other}")
        if pa.types.is_floating(field.type) or pa.types.is_nested(field.type):
            mine, other = (f"CAST({one} AS VARCHAR)" for one in (mine, other))
            terms.append(f"{mine} IS NOT DISTINCT FROM {other}")
    return " AND ".join(terms)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
