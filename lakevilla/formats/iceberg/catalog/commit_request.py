"""What a catalog is asked for a table's next version: requirements, and updates.

The catalog makes the metadata file. It may do so on top of another one than the state that
the request was made from; the requirements name all of that state that the commit relies on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.formats.iceberg.metadata.file import MAIN, Metadata, property_of


class CommitRequest(msgspec.Struct, frozen=True):
    """A commit in the terms of the REST specification, and the snapshot it makes.

    By ``snapshot_id`` it is known again, and it can only follow ``parent_id``.
    """

    snapshot_id: int
    parent_id: int | None
    requirements: list[Any]
    updates: list[Any]


_requests = JsonDecoder(CommitRequest)


def decode_request(body: bytes) -> CommitRequest:
    return _requests.decode(body)


def commit_request(
    before: Metadata,
    definition: Mapping[str, Any] | None,
    snapshot: Mapping[str, Any],
    applications: Mapping[str, int],
) -> bytes:
    """The request for a version on top of ``before``, with a new current snapshot.

    Every commit has one, be it without a file: of all that a catalog compares, the snapshot of
    the main branch is what tells two commits of the lake from one that is made twice.
    """
    number, parent = int(snapshot["snapshot-id"]), before.current_id
    known = before.definition
    properties = {property_of(name): str(value) for name, value in applications.items()}
    changes: list[Any] = []
    removed: list[str] = []
    if definition is not None:
        changes = _schema_updates(known, definition)
        old, new = known["properties"], definition["properties"]
        properties |= {name: value for name, value in new.items() if old.get(name) != value}
        removed = [name for name in old if name not in new]
    if properties:
        changes.append({"action": "set-properties", "updates": properties})
    if removed:
        changes.append({"action": "remove-properties", "removals": removed})
    changes.append({"action": "add-snapshot", "snapshot": snapshot})
    changes.append(
        {
            "action": "set-snapshot-ref",
            "ref-name": MAIN,
            "type": "branch",
            "snapshot-id": number,
            **_kept_by(before),
        }
    )
    requirements = [
        {"type": "assert-table-uuid", "uuid": before.table_id},
        {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": parent},
        {
            "type": "assert-last-assigned-field-id",
            "last-assigned-field-id": known["last-column-id"],
        },
        {"type": "assert-current-schema-id", "current-schema-id": known["current-schema-id"]},
        {"type": "assert-default-spec-id", "default-spec-id": known["default-spec-id"]},
        {
            "type": "assert-default-sort-order-id",
            "default-sort-order-id": known["default-sort-order-id"],
        },
    ]
    return msgspec.json.encode(CommitRequest(number, parent, requirements, changes))


def _schema_updates(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Any]:
    current = new["current-schema-id"]
    if current == old["current-schema-id"]:
        return []
    schema = next(one for one in new["schemas"] if one.get("schema-id", 0) == current)
    if schema in old["schemas"]:
        return [{"action": "set-current-schema", "schema-id": current}]
    last = new["last-column-id"]
    return [
        {"action": "add-schema", "schema": schema, "last-column-id": last},
        {"action": "set-current-schema", "schema-id": -1},
    ]


def _kept_by(before: Metadata) -> dict[str, Any]:
    """How long the main branch keeps snapshots, where the table says so: that stays."""
    main = (before.get("refs") or {}).get(MAIN, {})
    return {name: value for name, value in main.items() if name not in ("snapshot-id", "type")}
