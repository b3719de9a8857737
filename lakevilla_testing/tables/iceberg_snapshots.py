"""A snapshot's objects by an Iceberg client without LakeVilla: rows, manifests, their list."""

from __future__ import annotations

import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyroaring import BitMap

from lakevilla.formats.iceberg.manifests.avro import MemoryOutput
from lakevilla.formats.iceberg.manifests.manifests import (
    DeletesWriterV3,
    ManifestListWriterV3,
    ManifestWriterV3,
    widened,
)
from lakevilla.store.base import ANY
from lakevilla.store.effects import Program, put
from lakevilla_testing.tables.iceberg_reader import IcebergTable, uri_of
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.rows import Row, encode_rows

Metadata = dict[str, Any]


def with_snapshot(
    client: Client,
    table: IcebergTable,
    operation: str,
    added: Sequence[DataFile] = (),
    removed: Sequence[str] = (),
    *,
    vectors: Sequence[DataFile] = (),
    merge: bool = False,
    place: str = "",
) -> Program[Metadata]:
    """Store a snapshot's manifests and list; return the metadata with it as the current one.

    ``vectors`` replace those of their data files. ``place``: where the list lies, if not in the
    table's own directory for it.
    """
    number = int(client.ids.uuid().replace("-", "")[:15], 16)
    sequence = table.metadata["last-sequence-number"] + 1
    parent = table.current
    manifests: list[ManifestFile] = []
    for files in (added, vectors):
        if files:
            fresh = [_entry(file, number) for file in files]
            manifests.append((yield from _store_manifest(client, table, fresh, number)))
    lost = set(removed)
    unmarked = lost | {table.target(file) for file in vectors}
    together: dict[ManifestContent, list[ManifestEntry]] = defaultdict(list)
    for manifest, entries in table.manifests:
        live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
        gone = [
            table.path(entry.data_file.file_path) in lost
            or table.target(entry.data_file) in unmarked
            for entry in live
        ]
        moved = [_moved(entry, is_gone, number) for entry, is_gone in zip(live, gone, strict=True)]
        if merge or not live:
            together[manifest.content] += moved
        elif not any(gone):
            manifests.append(manifest)
        else:
            manifests.append((yield from _store_manifest(client, table, moved, number)))
    for moved in together.values():
        if moved:
            manifests.append((yield from _store_manifest(client, table, moved, number)))
    output = MemoryOutput(
        f"{uri_of(place or table.location)}/metadata/snap-{number}-{client.ids.uuid()}.avro"
    )
    parent_id = None if parent is None else parent["snapshot-id"]
    mark = table.metadata.get("next-row-id")
    given = 0
    if mark is not None:
        manifests, given = _numbered(manifests, mark)
    with _list_writer(output, number, parent_id, sequence, mark) as writer:
        writer.add_manifests(manifests)
    key = f"{table.location}/{table.path(output.location)}"
    yield from put(key, steady(writer, output), ANY)
    now = max(now_ms(client), table.metadata["last-updated-ms"])
    snapshot = {
        "snapshot-id": number,
        "sequence-number": sequence,
        "timestamp-ms": now,
        "manifest-list": output.location,
        "summary": {"operation": operation, "engine-name": "foreign"},
        "schema-id": table.metadata["current-schema-id"],
    }
    if parent_id is not None:
        snapshot["parent-snapshot-id"] = parent_id
    metadata = {
        **table.metadata,
        "last-sequence-number": sequence,
        "snapshots": [*table.metadata["snapshots"], snapshot],
    }
    if mark is not None:
        snapshot |= {"first-row-id": mark, "added-rows": given}
        metadata["next-row-id"] = mark + given
    return with_current(client, metadata, number)


def with_current(client: Client, metadata: Metadata, snapshot_id: int) -> Metadata:
    """Return the metadata with another current snapshot."""
    now = max(now_ms(client), metadata["last-updated-ms"])
    return {
        **metadata,
        "current-snapshot-id": snapshot_id,
        "refs": {**metadata["refs"], "main": {"snapshot-id": snapshot_id, "type": "branch"}},
        "snapshot-log": [
            *metadata["snapshot-log"],
            {"snapshot-id": snapshot_id, "timestamp-ms": now},
        ],
    }


def _store_manifest(
    client: Client, table: IcebergTable, entries: Sequence[ManifestEntry], snapshot_id: int
) -> Program[ManifestFile]:
    schema = Schema.model_validate(table.metadata["schemas"][-1])
    output = MemoryOutput(f"{uri_of(table.location)}/metadata/{client.ids.uuid()}-m0.avro")
    is_third = table.metadata["format-version"] >= 3
    make: Any = ManifestWriterV3 if is_third else partial(write_manifest, 2)
    if entries[0].data_file.content != DataFileContent.DATA:
        make = DeletesWriterV3
    with make(PartitionSpec(), schema, output, snapshot_id, "null") as writer:
        for entry in entries:
            widened(entry.data_file)
            writer.add_entry(entry)
    key = f"{table.location}/{table.path(output.location)}"
    yield from put(key, steady(writer, output), ANY)
    made: ManifestFile = writer.to_manifest_file()
    return made


def _list_writer(
    output: MemoryOutput, number: int, parent_id: int | None, sequence: int, mark: int | None
) -> Any:
    if mark is None:
        return write_manifest_list(2, output, number, parent_id, sequence, "null")
    return ManifestListWriterV3(output, number, parent_id, sequence, "null")


def _numbered(manifests: Sequence[ManifestFile], mark: int) -> tuple[list[ManifestFile], int]:
    """Return manifests with ids of their rows from ``mark`` on, and how many ids were given out."""
    found, number = [], mark
    for manifest in manifests:
        data = [*manifest._data, *[None] * (16 - len(manifest._data))]
        if manifest.content == ManifestContent.DATA and data[15] is None:
            data[15] = number
            number += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        found.append(ManifestFile(*data))
    return found, number - mark


def steady(writer: Any, output: MemoryOutput) -> bytes:
    """Return the bytes that pyiceberg's ``writer`` wrote, with block markers made from the name.

    pyiceberg draws them, and the same seed has to give the same bytes.
    """
    marker: bytes = writer._writer.sync_bytes
    digest = blake2b(output.location.encode(), digest_size=len(marker)).digest()
    return output.body.replace(marker, digest)


def _entry(file: DataFile, snapshot_id: int) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )


def _moved(entry: ManifestEntry, is_removed: bool, snapshot_id: int) -> ManifestEntry:
    """Return an entry in the form of a later snapshot's manifest."""
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.DELETED if is_removed else ManifestEntryStatus.EXISTING,
        snapshot_id=snapshot_id if is_removed else entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def write_vectors(
    client: Client, table: IcebergTable, rows: Mapping[str, Collection[int]]
) -> Program[list[DataFile]]:
    """Store the deleted rows of data files as one Puffin file; return the vectors in it."""
    body, places = b"PFA1", {}
    for path, deleted in sorted(rows.items()):
        bitmap = BitMap(deleted)
        blob = b"\xd1\xd3\x39\x64" + struct.pack("<QI", 1, 0) + bitmap.serialize()
        blob = struct.pack(">I", len(blob)) + blob + struct.pack(">I", zlib.crc32(blob))
        places[path] = len(body), len(blob)
        body += blob
    blobs = [
        {
            "type": "deletion-vector-v1",
            "fields": [2147483645],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": offset,
            "length": length,
            "properties": {
                "referenced-data-file": f"{uri_of(table.location)}/{path}",
                "cardinality": str(len(rows[path])),
            },
        }
        for path, (offset, length) in places.items()
    ]
    footer = json.dumps({"blobs": blobs}).encode()
    body += b"PFA1" + footer + struct.pack("<i", len(footer)) + bytes(4) + b"PFA1"
    stored = f"data/{client.ids.uuid()}-deletes.puffin"
    yield from put(f"{table.location}/{stored}", body, ANY)
    found = []
    for path, (offset, length) in places.items():
        file = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=f"{uri_of(table.location)}/{stored}",
            file_format=FileFormat.PUFFIN,
            partition=Record(),
            record_count=len(rows[path]),
            file_size_in_bytes=len(body),
        )
        file.spec_id = 0
        widened(file)[17:] = f"{uri_of(table.location)}/{path}", offset, length
        found.append(file)
    return found


def write_rows(client: Client, table: IcebergTable, rows: Sequence[Row]) -> Program[list[DataFile]]:
    """Store rows as one file, with the ids of its columns."""
    schema = pa.schema(
        pa.field(f["name"], _ARROW_TYPES[f["type"]], metadata={"PARQUET:field_id": str(f["id"])})
        for f in table.schema
    )
    body = encode_rows(rows, schema)
    path = f"data/{client.ids.uuid()}.parquet"
    yield from put(f"{table.location}/{path}", body, ANY)
    values = {
        f["id"]: [row[f["name"]] for row in rows if row.get(f["name"]) is not None]
        for f in table.schema
    }
    plain = {
        number: found
        for number, found in values.items()
        if found and all(type(value) is int for value in found)
    }
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{uri_of(table.location)}/{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(rows),
        file_size_in_bytes=len(body),
        column_sizes=None,
        value_counts=dict.fromkeys(values, len(rows)),
        null_value_counts={number: len(rows) - len(found) for number, found in values.items()},
        nan_value_counts={},
        lower_bounds={number: _bound(min(found)) for number, found in plain.items()},
        upper_bounds={number: _bound(max(found)) for number, found in plain.items()},
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    file.spec_id = 0
    return [file]


def _bound(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def now_ms(client: Client) -> int:
    return int(client.clock.now() * 1000)


_ARROW_TYPES = {"string": pa.string(), "long": pa.int64()}
