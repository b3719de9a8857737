"""Native names of an Iceberg table's states: snapshot ids, branches and tags."""

from __future__ import annotations

from typing import Any

from lakevilla.errors import VersionNotFound
from lakevilla.formats.iceberg.metadata.file import MAIN, Metadata
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot

#: Names that an error tells.
_MOST_NAMES = 10


def at_ref(newest: IcebergSnapshot, ref: int | str) -> IcebergSnapshot:
    """The state that a snapshot id, a branch or a tag names in the newest version.

    A branch has the columns that the table has now, any other snapshot those that it had when
    the snapshot was made, as Iceberg's own readers have it (Iceberg, "Branching and Tagging",
    "Schema selection with branches and tags").

    Raises
    ------
    VersionNotFound
        The table has no such snapshot, branch or tag, or no longer.
    """
    document = newest.document
    number, is_branch = None if document is None else _named(document, ref), False
    if document is None or number is None:
        raise _not_found(newest, ref)
    chosen = document.snapshot(number)
    if chosen is None:
        raise _not_found(newest, ref)
    if isinstance(ref, str):
        is_branch = ref == MAIN or _refs(document).get(ref, {}).get("type") == "branch"
    parts: dict[str, Any] = {"current-snapshot-id": number}
    schema = chosen.get("schema-id")
    if not is_branch and any(one.get("schema-id", 0) == schema for one in _schemas(document)):
        parts["current-schema-id"] = schema
    then = document.replaced(parts)
    definition = newest.definition.replaced(then.definition)
    return IcebergSnapshot(newest.version, definition, then, newest.cache)


def _named(document: Metadata, ref: int | str) -> int | None:
    if isinstance(ref, int):
        return ref
    named = _refs(document).get(ref)
    if named is not None:
        return int(named["snapshot-id"])
    if ref == MAIN:
        return document.current_id
    return int(ref) if ref.isdecimal() else None


def _refs(document: Metadata) -> dict[str, Any]:
    found: dict[str, Any] = document.get("refs") or {}
    return found


def _schemas(document: Metadata) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document.get("schemas") or []
    return found


def _not_found(newest: IcebergSnapshot, ref: int | str) -> VersionNotFound:
    table, document = newest.table, newest.document
    refs = [] if document is None else sorted({MAIN, *_refs(document)})
    ids = [] if document is None else [str(number) for number in document.snapshots]
    return VersionNotFound(
        f"table {table} has no snapshot, branch or tag {ref!r}, or no longer: its branches and "
        f"tags are {_listed(refs)}, its snapshots {_listed(ids)}; ask for one of those",
        table=table,
    )


def _listed(names: list[str]) -> str:
    """Names in words; of many the last ones, which are the newest snapshots."""
    shown = ", ".join(names[-_MOST_NAMES:])
    left_out = len(names) - _MOST_NAMES
    return (f"{left_out} older ones and {shown}" if left_out > 0 else shown) or "none"
