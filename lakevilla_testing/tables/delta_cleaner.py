"""Clients without LakeVilla that clean up a Delta table: checkpoints, log clean-up, VACUUM."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakevilla.store.base import ANY, Stored
from lakevilla.store.effects import Program, delete, list_objects, put
from lakevilla_testing.tables.delta_reader import read_tip
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.faults import Fault


def write_checkpoint(client: Client, location: str) -> Program[bool]:
    """Write a classic checkpoint of the tip, and the hint that names it."""
    table = yield from read_tip(location)
    if table is None:
        return False
    rows: list[dict[str, Any]] = [{"protocol": table.protocol}, {"metaData": table.metadata}]
    rows += [{"add": {**add, "dataChange": False}} for add in table.files.values()]
    rows += [{"remove": {**removed, "dataChange": False}} for removed in table.removed.values()]
    rows += [{"txn": application} for application in table.applications.values()]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=_CHECKPOINT_SCHEMA), sink)
    log = f"{location}/_delta_log"
    outcome = yield from put(f"{log}/{table.version:020}.checkpoint.parquet", sink.getvalue(), ANY)
    if not isinstance(outcome, Stored):
        return False
    hint = json.dumps({"version": table.version, "size": len(rows)}).encode()
    yield from put(f"{log}/_last_checkpoint", hint, ANY)
    client.simulation.fired[Fault.CLEAN_UP] += 1
    return True


def clean_log(client: Client, location: str, retention_seconds: float) -> Program[int]:
    """Delete log entries and checkpoints below the newest checkpoint that are old enough."""
    listed = yield from list_objects(f"{location}/_delta_log")
    points = [info.key for info in listed if info.key.endswith(".checkpoint.parquet")]
    if not points:
        return 0
    deleted = 0
    # The oldest entries are deleted first, so that no gap remains if the client dies meanwhile.
    for info in sorted(listed, key=lambda info: info.key):
        old = info.modified_seconds < client.clock.now() - retention_seconds
        if info.key < max(points) and info.key[len(location) + 12 :][0].isdigit() and old:
            yield from delete(info.key)
            deleted += 1
    return _cleaned(client, deleted)


def vacuum(client: Client, location: str, retention_seconds: float) -> Program[int]:
    """Delete data files that no live file names and that are older than the retention."""
    started = client.clock.now()
    listed = yield from list_objects(location)
    table = yield from read_tip(location)
    if table is None:
        return 0
    deleted = 0
    for info in listed:
        path = info.key[len(location) + 1 :]
        hidden = any(part.startswith(("_", ".")) for part in path.split("/"))
        old = info.modified_seconds < started - retention_seconds
        if old and not hidden and path not in table.files:
            yield from delete(info.key)
            deleted += 1
    return _cleaned(client, deleted)


def _cleaned(client: Client, deleted: int) -> int:
    if deleted:
        client.simulation.fired[Fault.CLEAN_UP] += 1
    return deleted


_STRINGS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_CHECKPOINT_SCHEMA = pa.schema(
    [
        (
            "txn",
            pa.struct(
                [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
            ),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _STRINGS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                    ("deletionVector", _VECTOR),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("extendedFileMetadata", pa.bool_()),
                    ("partitionValues", _STRINGS),
                    ("size", pa.int64()),
                    ("deletionVector", _VECTOR),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    (
                        "format",
                        pa.struct([("provider", pa.string()), ("options", _STRINGS)]),
                    ),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _STRINGS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
    ]
)
