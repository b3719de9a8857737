"""Column ids and physical names of tables that map columns.

Names are made from the table's id and the column's, not drawn at random: the
same change made twice makes the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from lakevilla.formats.delta.metadata.schema import ID, PHYSICAL, Field, walk

MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"


def assign_ids(fields: list[Field], table_id: str, last: int) -> tuple[list[Field], int]:
    """``fields`` with ids above ``last`` and physical names where they have none."""
    return _assigned(fields, last, lambda path, number: _name("col", table_id, f"{number}{path}"))


def keep_names(fields: list[Field]) -> tuple[list[Field], int]:
    """``fields`` with ids, for a table whose files name columns as its schema does."""
    return _assigned(fields, 0, lambda path, _: path.rpartition("/")[2])


def _assigned(
    fields: list[Field], last: int, name: Callable[[str, int], str]
) -> tuple[list[Field], int]:
    def one(field: Field, path: str) -> Field:
        nonlocal last
        metadata = dict(field.get("metadata") or {})
        path = f"{path}/{field['name']}"
        if ID not in metadata:
            last += 1
            metadata[ID] = last
            metadata[PHYSICAL] = name(path, last)
        return {**field, "type": inner(field["type"], path), "metadata": metadata}

    def inner(kind: Any, path: str) -> Any:
        if isinstance(kind, str):
            return kind
        if kind["type"] == "struct":
            return {**kind, "fields": [one(field, path) for field in kind["fields"]]}
        parts = ("elementType",) if kind["type"] == "array" else ("keyType", "valueType")
        return {**kind, **{part: inner(kind[part], f"{path}/{part}") for part in parts}}

    return [one(field, "") for field in fields], last


def highest_id(fields: list[Field]) -> int:
    """The highest column id in a schema, 0 for none."""
    ids = [(field.get("metadata") or {}).get(ID, 0) for _, field in walk(fields)]
    return max(ids, default=0)


def materialized_name(table_id: str, part: str) -> str:
    """The name of a hidden column for materialised row ids or commit versions."""
    return _name("_row-tracking", table_id, part)


def _name(prefix: str, table_id: str, text: str) -> str:
    digest = blake2b(f"{table_id}/{text}".encode(), digest_size=16).hexdigest()
    parts = (digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:])
    return f"{prefix}-{'-'.join(parts)}"
