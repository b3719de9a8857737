"""Writing a classic checkpoint, batch by batch.

The files of the checkpoint before are streamed as Arrow batches, less those that
later commits removed; only what the commits since have added becomes Python objects.
Memory holds the compressed result and one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakevilla.arrow.nesting import document
from lakevilla.errors import CorruptObject, InvalidOperation
from lakevilla.formats.delta.actions import encode_path, log_directory
from lakevilla.formats.delta.checkpoint.file_list import batches_of, decode_paths, vector_columns
from lakevilla.formats.delta.checkpoint.reader import fetch
from lakevilla.formats.delta.checkpoint.statistics import parsed_columns
from lakevilla.formats.delta.metadata.layout import DeltaDefinition
from lakevilla.formats.delta.metadata.properties import interval_milliseconds
from lakevilla.formats.delta.snapshot import DeltaSnapshot
from lakevilla.formats.files import DataFile, DeletionVector, Masks, RemovedFile, is_masked
from lakevilla.store.base import ABSENT, ANY, Found, Unknown
from lakevilla.store.effects import Program, get, put

_ROW_GROUP_ROWS = 131_072
_WEEK_MS = 7 * 86_400_000

#: The intervals of checkpoints, one of which a table without ``delta.checkpointInterval`` has. A
#: version that is due by the longest is due by each, so clients that know checkpoints of different
#: sizes differ only for a while. The longest is less than the number of versions that a client
#: holds: if a checkpoint is late, it can be that of a newer version.
_INTERVALS = (10, 20, 25, 50, 100)
#: A table has so many rows in its checkpoint for each entry that readers find above it.
_ROWS_PER_ENTRY = 64

# All fields are optional, as Spark writes them: in each row the columns of all other actions are
# null, and Arrow has no null struct of required fields.
_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        pa.field("storageType", pa.string()),
        pa.field("pathOrInlineDv", pa.string()),
        pa.field("offset", pa.int32()),
        pa.field("sizeInBytes", pa.int32()),
        pa.field("cardinality", pa.int64()),
    ]
)
_ADD = [
    pa.field("path", pa.string()),
    pa.field("partitionValues", _TEXTS),
    pa.field("size", pa.int64()),
    pa.field("modificationTime", pa.int64()),
    pa.field("dataChange", pa.bool_()),
    pa.field("stats", pa.string()),
    pa.field("tags", _TEXTS),
    pa.field("deletionVector", _VECTOR),
    pa.field("baseRowId", pa.int64()),
    pa.field("defaultRowCommitVersion", pa.int64()),
    pa.field("clusteringProvider", pa.string()),
]
_REMOVE = [
    pa.field("path", pa.string()),
    pa.field("deletionTimestamp", pa.int64()),
    pa.field("dataChange", pa.bool_()),
    pa.field("extendedFileMetadata", pa.bool_()),
    pa.field("partitionValues", _TEXTS),
    pa.field("size", pa.int64()),
    pa.field("deletionVector", _VECTOR),
    pa.field("baseRowId", pa.int64()),
    pa.field("defaultRowCommitVersion", pa.int64()),
]
_NAMES = pa.list_(pa.field("element", pa.string()))
_SMALL = {
    "txn": [
        pa.field("appId", pa.string()),
        pa.field("version", pa.int64()),
        pa.field("lastUpdated", pa.int64()),
    ],
    "metaData": [
        pa.field("id", pa.string()),
        pa.field("name", pa.string()),
        pa.field("description", pa.string()),
        pa.field(
            "format",
            pa.struct([pa.field("provider", pa.string()), pa.field("options", _TEXTS)]),
        ),
        pa.field("schemaString", pa.string()),
        pa.field("partitionColumns", _NAMES),
        pa.field("createdTime", pa.int64()),
        pa.field("configuration", _TEXTS),
    ],
    "protocol": [
        pa.field("minReaderVersion", pa.int32()),
        pa.field("minWriterVersion", pa.int32()),
        pa.field("readerFeatures", _NAMES),
        pa.field("writerFeatures", _NAMES),
    ],
    "domainMetadata": [
        pa.field("domain", pa.string()),
        pa.field("configuration", pa.string()),
        pa.field("removed", pa.bool_()),
    ],
    "checkpointMetadata": [
        pa.field("version", pa.int64()),
        pa.field("tags", _TEXTS),
    ],
}


def is_due(version: int, snapshot: DeltaSnapshot) -> bool:
    """Return whether a commit should write the checkpoint of its version.

    A checkpoint names all files. At a fixed interval the bytes of a commit would grow with the
    table, so the interval grows with the known checkpoint (docs/design/0061-growth.md).
    """
    rows = 0 if snapshot.checkpoint is None else snapshot.checkpoint.rows
    fitting = [one for one in _INTERVALS if one * _ROWS_PER_ENTRY <= rows]
    interval = _own_interval(snapshot) or max(fitting, default=_INTERVALS[0])
    return version > 0 and version % interval == 0


def is_overdue(snapshot: DeltaSnapshot) -> bool:
    """Return whether upkeep should write a checkpoint: a multiple of the least interval has none.

    Its writer died, or writes none, or few because the table is large. ``snapshot`` must have been
    read from the store again, for it records the checkpoint from which it was read.
    """
    interval = _own_interval(snapshot) or _INTERVALS[0]
    return snapshot.version // interval > max(snapshot.checkpoint_version, 0) // interval


def _own_interval(snapshot: DeltaSnapshot) -> int:
    """Return ``delta.checkpointInterval``; 0 if the table does not set it."""
    text = snapshot.definition.properties.get("delta.checkpointInterval", "")
    return int(text) if text.isdecimal() else 0


def write_checkpoint(snapshot: DeltaSnapshot) -> Program[None]:
    """Write the checkpoint of a published version, and point ``_last_checkpoint`` at it.

    This is safe at any time and for any number of clients: the object is created if
    absent, and a later client finds the same state under the name.
    """
    if snapshot.overlaid or snapshot.version < 0:
        raise InvalidOperation(
            f"only a published version of table {snapshot.table} can have a checkpoint",
            table=snapshot.table,
        )
    key = f"{log_directory(snapshot.location)}/{snapshot.version:020}.checkpoint.parquet"
    hint = yield from _hinted_version(snapshot.location)
    if hint >= snapshot.version:
        return
    writer = _Writer(snapshot)
    yield from _stream(snapshot, writer)
    body = writer.finish()
    outcome = yield from put(key, body, ABSENT)
    if isinstance(outcome, Unknown):
        # The next checkpoint suffices; a hint must not name an object that may not exist.
        return
    pointer = {
        "version": snapshot.version,
        "size": writer.rows,
        "sizeInBytes": len(body),
        "numOfAddFiles": writer.files,
    }
    # Two writers may set the hint at once, the older one last: it then names an older checkpoint,
    # which is valid, too.
    yield from put(
        f"{log_directory(snapshot.location)}/_last_checkpoint", msgspec.json.encode(pointer), ANY
    )


def _hinted_version(location: str) -> Program[int]:
    outcome = yield from get(f"{log_directory(location)}/_last_checkpoint")
    if isinstance(outcome, Found):
        try:
            version = document(outcome.body)["version"]
            return version if isinstance(version, int) else -1
        except (ValueError, KeyError, TypeError):
            return -1
    return -1


def _stream(snapshot: DeltaSnapshot, writer: _Writer) -> Program[None]:
    folded = snapshot.tail.fold()
    expired = _expired_before(snapshot)
    checkpoint = snapshot.checkpoint
    if checkpoint is not None:
        # A removal is kept for clients that read the state before it, and VACUUM keeps the objects
        # that it names. So it stays even if its path is added again under another vector.
        kinds = (("add", folded.masks), ("remove", folded.spoken_of()))
        for action, masks in kinds:
            for window, batches in batches_of(checkpoint, action):
                for (_, group, _), fetched in zip(window, (yield from fetch(window)), strict=True):
                    for batch in batches(fetched, group):
                        kept = _unmasked(batch, masks, fetched.part.key)
                        if action == "add":
                            writer.add_batch(kept)
                        else:
                            writer.remove_batch(_unexpired(kept, expired))
    writer.add_structs(folded.adds.values())
    writer.remove_structs(
        file for file in folded.removes.values() if (file.deletion_timestamp or 0) >= expired
    )


def _expired_before(snapshot: DeltaSnapshot) -> int:
    """Return the time before which removals may be forgotten.

    It is counted from the newest entry: its time never runs ahead of the log, so a
    checkpoint keeps too many removals rather than too few.
    """
    retention = interval_milliseconds(
        snapshot.definition.properties.get("delta.deletedFileRetentionDuration"), _WEEK_MS
    )
    return max((snapshot.timestamp_ms or 0) - retention, 0)


def _unmasked(rows: pa.StructArray, masks: Masks, key: str) -> pa.StructArray:
    """Return the ``rows`` that no later commit names."""
    if not masks:
        return rows
    try:
        paths = decode_paths(rows.field("path").cast(pa.string()))[0]
    except UnicodeDecodeError as error:
        raise CorruptObject(f"checkpoint part {key} has a broken path: {error}", key=key) from None
    hits = np.flatnonzero(
        pc.is_in(paths, value_set=pa.array(list(masks), pa.string())).to_numpy(zero_copy_only=False)
    )
    if len(hits) == 0:
        return rows
    index = rows.type.get_field_index("deletionVector")
    ids = vector_columns(None if index < 0 else rows.field("deletionVector"), len(rows))[0]
    keep = np.ones(len(rows), dtype=bool)
    for row in hits.tolist():
        keep[row] = not is_masked((paths[row].as_py(), ids[row].as_py()), masks)
    return rows.filter(pa.array(keep))


def _unexpired(rows: pa.StructArray, expired: int) -> pa.StructArray:
    times = pc.fill_null(rows.field("deletionTimestamp").cast(pa.int64()), 0)
    return rows.filter(pc.greater_equal(times, expired))


class _Writer:
    """Writer of a checkpoint's rows, one column per action, into a Parquet file in memory."""

    def __init__(self, snapshot: DeltaSnapshot) -> None:
        self._snapshot = snapshot
        definition = snapshot.definition
        self._parsed = parsed_columns(definition)
        add = list(_ADD)
        if not _writes_json(definition):
            add = [field for field in add if field.name != "stats"]
        add.extend(self._parsed.fields)
        columns: dict[str, Sequence[pa.Field]] = {**_SMALL, "add": add, "remove": _REMOVE}
        if "v2Checkpoint" not in definition.features:
            del columns["checkpointMetadata"]
        self._types = {name: pa.struct(fields) for name, fields in columns.items()}
        self._schema = pa.schema([pa.field(name, kind) for name, kind in self._types.items()])
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression="zstd",
            store_schema=False,
            write_page_checksum=True,
        )
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self.rows = 0
        self.files = 0
        self._small_actions()

    def finish(self) -> bytes:
        self._flush()
        self._writer.close()
        body: bytes = self._sink.getvalue().to_pybytes()
        return body

    def add_batch(self, rows: pa.StructArray) -> None:
        parsed = self._parsed.of_batch(rows)
        self._write("add", _conformed(rows, self._types["add"], {"dataChange": False}, parsed))
        self.files += len(rows)

    def remove_batch(self, rows: pa.StructArray) -> None:
        self._write("remove", _conformed(rows, self._types["remove"], {"dataChange": False}, {}))

    def add_structs(self, files: Iterable[DataFile]) -> None:
        for chunk in _chunks(files, 4096):
            kind = self._types["add"]
            rows = pa.array([_add_row(file) for file in chunk], pa.struct(_ADD))
            parsed = self._parsed.of_batch(rows)
            self._write("add", _conformed(rows, kind, {}, parsed))
            self.files += len(chunk)

    def remove_structs(self, files: Iterable[RemovedFile]) -> None:
        for chunk in _chunks(files, 4096):
            rows = [_remove_row(file) for file in chunk]
            self._write("remove", pa.array(rows, self._types["remove"]))

    def _small_actions(self) -> None:
        snapshot = self._snapshot
        rows: dict[str, list[dict[str, Any]]] = {
            "protocol": [snapshot.protocol],
            "metaData": [_metadata_row(snapshot.metadata)],
            "txn": [{"appId": a, "version": v} for a, v in snapshot.applications.items()],
            "domainMetadata": [
                {"domain": domain, "configuration": text, "removed": False}
                for domain, text in snapshot.domains.items()
            ],
            "checkpointMetadata": [{"version": snapshot.version, "tags": None}],
        }
        for name, values in rows.items():
            if name in self._types and values:
                self._write(name, pa.array(values, self._types[name]))
        # Actions without files get a row group of their own: readers find the file groups by null
        # counts.
        self._flush()

    def _write(self, name: str, rows: pa.Array) -> None:
        length = len(rows)
        if length == 0:
            return
        arrays = [
            rows if column == name else pa.nulls(length, kind)
            for column, kind in self._types.items()
        ]
        self._pending.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._pending_rows += length
        self.rows += length
        if self._pending_rows >= _ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending))
            self._pending = []
            self._pending_rows = 0


def _writes_json(definition: DeltaDefinition) -> bool:
    """Return whether statistics are written as JSON: unless the table wants only structs."""
    return not (
        definition.properties.get("delta.checkpoint.writeStatsAsJson", "true").lower() == "false"
        and definition.flag("delta.checkpoint.writeStatsAsStruct")
    )


def _conformed(
    rows: pa.StructArray,
    kind: pa.StructType,
    constants: Mapping[str, Any],
    parsed: Mapping[str, pa.Array],
) -> pa.StructArray:
    """Return ``rows`` as ``kind``: each field constant, parsed, cast from its namesake, or null."""
    length = len(rows)
    arrays = []
    for index in range(kind.num_fields):
        field = kind.field(index)
        if field.name in constants:
            column = pa.repeat(pa.scalar(constants[field.name], field.type), length)
        elif field.name in parsed:
            column = parsed[field.name]
        elif rows.type.get_field_index(field.name) >= 0:
            column = rows.field(field.name).cast(field.type)
        else:
            column = pa.nulls(length, field.type)
        arrays.append(column)
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _metadata_row(metadata: Mapping[str, Any]) -> dict[str, Any]:
    layout = metadata.get("format") or {}
    return {
        **{name: metadata.get(name) for name in ("id", "name", "description", "schemaString")},
        "format": {
            "provider": layout.get("provider", "parquet"),
            "options": list((layout.get("options") or {}).items()),
        },
        "partitionColumns": metadata.get("partitionColumns") or [],
        "createdTime": metadata.get("createdTime"),
        "configuration": list((metadata.get("configuration") or {}).items()),
    }


def _add_row(file: DataFile) -> dict[str, Any]:
    return {
        "path": file.raw_path or encode_path(file.path),
        "partitionValues": list(file.partition_values.items()),
        "size": file.size,
        "modificationTime": file.modification_time,
        "dataChange": False,
        "stats": file.stats,
        "tags": None if file.tags is None else list(file.tags.items()),
        "deletionVector": _vector_row(file.deletion_vector),
        "baseRowId": file.base_row_id,
        "defaultRowCommitVersion": file.default_row_commit_version,
        "clusteringProvider": file.clustering_provider,
    }


def _remove_row(file: RemovedFile) -> dict[str, Any]:
    values = file.partition_values
    return {
        "path": file.raw_path or encode_path(file.path),
        "deletionTimestamp": file.deletion_timestamp,
        "dataChange": False,
        "extendedFileMetadata": values is not None and file.size is not None,
        "partitionValues": None if values is None else list(values.items()),
        "size": file.size,
        "deletionVector": _vector_row(file.deletion_vector),
        "baseRowId": file.base_row_id,
        "defaultRowCommitVersion": file.default_row_commit_version,
    }


def _vector_row(vector: DeletionVector | None) -> dict[str, Any] | None:
    if vector is None:
        return None
    return {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }


def _chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
