"""A table defined again as one of its other states defines it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import REPLACED, VOIDED, Change, replaced_between
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition

#: Lists of which nothing is ever taken out, with the name of an entry's id and of the current one.
_LISTS = (
    ("schemas", "schema-id", "current-schema-id"),
    ("partition-specs", "spec-id", "default-spec-id"),
    ("sort-orders", "order-id", "default-sort-order-id"),
)
#: Ids that are given out once.
_COUNTS = ("format-version", "last-column-id", "last-partition-id")


def redefined(now: IcebergDefinition, metadata: Mapping[str, Any]) -> Change:
    """See ``formats.base.TableFormat.redefine``."""
    had = now.document
    if metadata.get("table-uuid") != had.get("table-uuid"):
        raise InvalidOperation(
            f"table {now.table} has another id in that state: it was replaced since, and can't be "
            "defined as it was then; read that state, and overwrite the table with it",
            table=now.table,
        )
    wanted = dict(had)
    for name in _COUNTS:
        wanted[name] = max(had.get(name) or 0, metadata.get(name) or 0)
    for name, number, current in _LISTS:
        wanted[name] = _united(now.table, had[name], metadata[name], number)
        wanted[current] = metadata[current]
    properties = dict(metadata.get("properties") or {})
    known = had.get("properties") or {}
    if (times := replaced_between(known, properties)) is not None:
        properties[REPLACED] = times
    if VOIDED in known:
        properties[VOIDED] = known[VOIDED]
    wanted["properties"] = properties
    return Change(metadata=None if wanted == had else wanted)


def _united(
    table: str, had: list[dict[str, Any]], wanted: list[dict[str, Any]], number: str
) -> list[dict[str, Any]]:
    """The entries of both; one id is one entry. Raises ``InvalidOperation``."""
    known = {entry.get(number, 0): entry for entry in had}
    for entry in wanted:
        if known.setdefault(entry.get(number, 0), entry) != entry:
            raise InvalidOperation(
                f"table {table} was given two definitions under {number} {entry.get(number, 0)}, "
                "by each side one: make the change of its schema again on this side, then apply "
                "the rest",
                table=table,
            )
    return list(known.values())
