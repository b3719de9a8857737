"""A state of a table as another one has it, elsewhere: its files named by URIs.

Nothing is copied. The files lie where they are, so whoever names them so needs somebody to keep
them: a clone's base does (docs/design/0039-clones.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.delta.deletion_vectors import vector_key
from lakevilla.formats.delta.paths import encode_path
from lakevilla.formats.delta.snapshot import DeltaSnapshot
from lakevilla.formats.files import DataFile, DeleteFile, DeletionVector, data_files, file_key
from lakevilla.formats.iceberg.metadata.paths import TableAddress
from lakevilla.store.effects import Program
from lakevilla.store.location import is_external

#: What of an Iceberg table's metadata is its own history, and not what it is.
HISTORY = frozenset(
    {
        "snapshots",
        "current-snapshot-id",
        "snapshot-log",
        "metadata-log",
        "refs",
        "last-sequence-number",
        "last-updated-ms",
        "statistics",
        "partition-statistics",
        "next-row-id",
    }
)
#: What marks one table among all, so no other has it.
_OF_ONE = ("delta.inCommitTimestampEnablement", "lakevilla.export", "lakevilla.voided")
_ROW_IDS = "delta.rowTracking"
#: To which no path is relative.
_NOWHERE = TableAddress("", "memory://nowhere")


def uri_at(root: str, key: str) -> str:
    """The URI of an object, as other clients write it."""
    found = key if is_external(key) else f"{root.rstrip('/')}/{key}"
    return f"file://{found}" if found.startswith("/") else found


def key_below(root: str, uri: str) -> str:
    """The key of an object of the lake that is named by its URI."""
    return uri_at(root, uri).removeprefix(uri_at(root, ""))


def file_by_uri(root: str, snapshot: TableSnapshot, file: DataFile) -> DataFile:
    """A file of a table, as any other table may name it.

    Of Iceberg spelled as the table's own metadata spells it: files of positions name it so.
    """
    location = snapshot.location
    if snapshot.format == "iceberg":
        address = TableAddress("", snapshot.metadata["location"])

        def uri(path: str) -> str:
            return _NOWHERE.path(address.spelled(path))
    else:

        def uri(path: str) -> str:
            return uri_at(root, file_key(location, path))

    def moved(one: DeleteFile) -> DeleteFile:
        return msgspec.structs.replace(one, path=uri(one.path))

    return msgspec.structs.replace(
        file,
        path=uri(file.path),
        raw_path=None,
        data_change=True,
        deletion_vector=vector_by_uri(root, location, file.deletion_vector),
        deletes=tuple(moved(one) for one in file.deletes),
        base_row_id=None,
        default_row_commit_version=None,
    )


def vector_by_uri(root: str, location: str, vector: DeletionVector | None) -> DeletionVector | None:
    """The same of a deletion vector; one that the log itself holds stays."""
    if vector is None or vector.storage_type == "i":
        return vector
    uri = encode_path(uri_at(root, vector_key(location, vector)))
    return msgspec.structs.replace(vector, storage_type="p", path_or_inline=uri)


def made_elsewhere(
    snapshot: TableSnapshot, root: str, location: str, table_id: str, created_ms: int
) -> Program[Change]:
    """The change that makes a table at ``location`` that has the state of ``snapshot``."""
    files = data_files((yield from snapshot.files()))
    iceberg = snapshot.format == "iceberg"
    metadata = (
        _of_iceberg(snapshot.metadata, uri_at(root, location), table_id)
        if iceberg
        else _of_delta(snapshot.metadata, table_id, created_ms)
    )
    domains = snapshot.domains if isinstance(snapshot, DeltaSnapshot) else {}
    return Change(
        adds=tuple(file_by_uri(root, snapshot, file) for file in files),
        metadata=metadata,
        protocol=unguarded(snapshot.protocol) or None,
        domains=tuple(
            {"domain": name, "configuration": text, "removed": False}
            for name, text in domains.items()
            if name != _ROW_IDS
        ),
    )


def unguarded(protocol: Mapping[str, Any]) -> dict[str, Any]:
    """A protocol without the feature that would keep others from writing the lake's own table."""
    kept = dict(protocol)
    if "writerFeatures" in kept:
        kept["writerFeatures"] = [one for one in kept["writerFeatures"] if one != "lakevilla"]
    return kept


def _of_delta(metadata: Mapping[str, Any], table_id: str, created_ms: int) -> dict[str, Any]:
    configuration = metadata.get("configuration") or {}
    kept = {name: text for name, text in configuration.items() if not name.startswith(_OF_ONE)}
    return {**metadata, "configuration": kept, "id": table_id, "createdTime": created_ms}


def _of_iceberg(metadata: Mapping[str, Any], uri: str, table_id: str) -> dict[str, Any]:
    kept = {name: value for name, value in metadata.items() if name not in HISTORY}
    properties = metadata.get("properties") or {}
    kept["properties"] = {
        name: text for name, text in properties.items() if not name.startswith(_OF_ONE)
    }
    return {**kept, "location": uri, "table-uuid": table_id}
