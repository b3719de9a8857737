"""A reader of the bare Iceberg format without a catalog, with the view of Spark or pyiceberg.

Metadata files are read as JSON, manifests by pyiceberg, and vectors by pyroaring. It reads what
simulated tables use (``v<N>.metadata.json``, Parquet files read by field id, deletion vectors) and
refuses the rest. Versions count from
0, as in Delta: version 0 is ``v1.metadata.json``.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    _inherit_from_manifest,
)
from pyroaring import BitMap

from lakevilla.formats.iceberg.manifests.avro import MemoryInput
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get, list_objects, parallel
from lakevilla_testing.tables.bare import UnreadableTable
from lakevilla_testing.world.rows import Row, decode_by_id

#: A manifest as its list names it, with its entries.
Manifest = tuple[ManifestFile, tuple[ManifestEntry, ...]]


def uri_of(location: str) -> str:
    """Return the directory of a simulated table as metadata files spell it."""
    return f"memory://lake/{location}"


def metadata_key(location: str, version: int) -> str:
    return f"{location}/metadata/v{version + 1}.metadata.json"


@dataclass
class IcebergTable:
    """A ``bare.BareTable``: the newest metadata file, the manifests it names, older versions."""

    location: str
    version: int
    metadata: dict[str, Any]
    kept: dict[int, dict[str, Any]] = field(default_factory=dict)
    manifests: tuple[Manifest, ...] = ()

    @property
    def table_id(self) -> str:
        return str(self.metadata["table-uuid"])

    @property
    def files(self) -> dict[str, DataFile]:
        """The live data files by path."""
        return {
            self.path(entry.data_file.file_path): entry.data_file
            for manifest, entries in self.manifests
            if manifest.content == ManifestContent.DATA
            for entry in entries
            if entry.status != _DELETED
        }

    @property
    def vectors(self) -> dict[str, DataFile]:
        """The vectors of live data files, or their position delete files, by their paths."""
        found: dict[str, DataFile] = {}
        for manifest, entries in self.manifests:
            for entry in entries if manifest.content == ManifestContent.DELETES else ():
                if entry.status == _DELETED:
                    continue
                target = self.target(entry.data_file)
                if entry.data_file.equality_ids or target is None:
                    raise UnreadableTable(f"{self.location}: no such deletes are for this reader")
                if target in found:
                    raise UnreadableTable(f"{self.location}: {target} has two vectors")
                found[target] = entry.data_file
        if not found.keys() <= self.files.keys():
            raise UnreadableTable(f"{self.location}: a vector is of a file that is not live")
        return found

    def target(self, file: DataFile) -> str | None:
        """Return the path of the data file that a vector is of; None for a data file."""
        return None if file._data[_TARGET] is None else self.path(file._data[_TARGET])

    @property
    def live_files(self) -> Collection[str]:
        return self.files.keys()

    @property
    def schema(self) -> list[dict[str, Any]]:
        """The columns, as the current schema lists them."""
        wanted = self.metadata["current-schema-id"]
        return next(s["fields"] for s in self.metadata["schemas"] if s["schema-id"] == wanted)

    @property
    def current(self) -> dict[str, Any] | None:
        """The current snapshot."""
        number = self.metadata.get("current-snapshot-id", -1)
        if number in (None, -1):
            return None
        found = next((s for s in self.metadata["snapshots"] if s["snapshot-id"] == number), None)
        if found is None:
            raise UnreadableTable(
                f"{self.location}: version {self.version} lacks snapshot {number}"
            )
        return dict(found)

    @property
    def transactions(self) -> list[str]:
        found: list[str] = []
        before: dict[str, Any] | None = None
        for version in sorted(self.kept):
            metadata = self.kept[version]
            if before is None and version:
                # The relative order of the snapshot and the note is unknown.
                found += [txn for one in metadata["snapshots"] for txn in _ids_of(one)]
            else:
                found += _new_ids(before, metadata)
            before = metadata
        return found

    @property
    def is_whole(self) -> bool:
        return sorted(self.kept) == list(range(self.version + 1))

    def sequence(self, lake_id: str) -> int:
        properties = self.metadata.get("properties") or {}
        return int(properties.get(f"lakevilla.{lake_id}.sequence", -1))

    def path(self, uri: str) -> str:
        return uri.removeprefix(uri_of(self.location) + "/")


def read_metadata(location: str, version: int | None = None) -> Program[IcebergTable | None]:
    """Return the table at a version, or at the newest; None if there is no metadata file.

    Raises
    ------
    Unreadable
        Versions that the newest one's log names are missing, or objects that it needs are.
    """
    listed = yield from list_objects(f"{location}/metadata")
    names = [_VERSION.fullmatch(info.key.rsplit("/", 1)[1]) for info in listed]
    versions = sorted(int(name[1]) - 1 for name in names if name)
    if not versions:
        return None
    newest = versions[-1] if version is None else version
    # Versions below a gap were cleaned up, or stored long after their table: they do not count.
    versions = _run_up_to(newest, set(versions))
    bodies = yield from parallel([get(metadata_key(location, v)) for v in versions])
    kept = {
        v: _parsed(found.body)
        for v, found in zip(versions, bodies, strict=True)
        if isinstance(found, Found)
    }
    if newest not in kept:
        raise UnreadableTable(f"{location}: version {newest} is not there")
    table = IcebergTable(location, newest, kept[newest], kept)
    _check_log(table)
    current = table.current
    if current is not None:
        table.manifests = yield from manifests_in(table, current)
    return table


def read_rows(table: IcebergTable) -> Program[list[Row]]:
    """Return the rows of the live files, in no particular order."""
    placed = yield from rows_by_place(table, sorted(table.files))
    return [row for rows in placed.values() for row in rows.values()]


def rows_by_place(table: IcebergTable, paths: Sequence[str]) -> Program[dict[str, dict[int, Row]]]:
    """Return the rows of live files by their places, without the deleted ones."""
    bodies = yield from parallel([get(f"{table.location}/{path}") for path in paths])
    deleted = yield from parallel([deleted_rows(table, table.vectors.get(path)) for path in paths])
    names = {int(column["id"]): str(column["name"]) for column in table.schema}
    placed: dict[str, dict[int, Row]] = {}
    for path, found, gone in zip(paths, bodies, deleted, strict=True):
        if not isinstance(found, Found):
            raise UnreadableTable(
                f"{table.location}: version {table.version} lacks its file {path}"
            )
        decoded = decode_by_id(found.body)
        if len(decoded) != table.files[path].record_count:
            raise UnreadableTable(f"{table.location}: {path} has {len(decoded)} rows, not as told")
        if gone and max(gone) >= len(decoded):
            raise UnreadableTable(f"{table.location}: {path} lacks rows that are deleted")
        placed[path] = {
            place: {name: row.get(number) for number, name in names.items()}
            for place, row in enumerate(decoded)
            if place not in gone
        }
    return placed


def deleted_rows(table: IcebergTable, vector: DataFile | None) -> Program[frozenset[int]]:
    """Return the places of the rows that a vector deletes. Raises ``UnreadableTable``."""
    if vector is None:
        return frozenset()
    path = table.path(vector.file_path)
    (body,) = yield from _bodies(table, [path])
    if vector.file_format == FileFormat.PARQUET:
        return _positions_in(table, vector, body)
    offset, length = vector._data[_TARGET + 1 : _TARGET + 3]
    size, blob = body[offset : offset + 4], body[offset + 4 : offset + length - 4]
    checksum = body[offset + length - 4 : offset + length]
    if (
        len(body) != vector.file_size_in_bytes
        or int.from_bytes(size, "big") != len(blob)
        or int.from_bytes(checksum, "big") != zlib.crc32(blob)
        or blob[:12] != b"\xd1\xd3\x39\x64" + (1).to_bytes(8, "little")
    ):
        raise UnreadableTable(f"{table.location}: the vector at {offset} of {path} is damaged")
    rows = frozenset(BitMap.deserialize(blob[16:]))
    if len(rows) != vector.record_count:
        raise UnreadableTable(f"{table.location}: {path} deletes {len(rows)} rows, not as told")
    return rows


def _positions_in(table: IcebergTable, file: DataFile, body: bytes) -> frozenset[int]:
    found = pq.read_table(pa.BufferReader(body)).to_pylist()
    rows = [one["pos"] for one in found]
    paths = {table.path(one["file_path"]) for one in found}
    if paths != {table.target(file)} or rows != sorted(set(rows)) or len(rows) != file.record_count:
        raise UnreadableTable(f"{table.location}: {file.file_path} is not as told")
    return frozenset(rows)


def named_objects(table: IcebergTable, *, with_removed: bool = True) -> Program[set[str]]:
    """Return paths of all files, manifests and lists that a snapshot of an existing version names.

    ``with_removed``: also files that a snapshot names only to say that it has removed them.
    """
    snapshots = {s["snapshot-id"]: s for kept in table.kept.values() for s in kept["snapshots"]}
    named: set[str] = set()
    for snapshot in snapshots.values():
        named.add(table.path(snapshot["manifest-list"]))
        try:
            manifests = yield from manifests_in(table, snapshot)
        except UnreadableTable:
            continue  # a snapshot that was expired since
        for manifest, entries in manifests:
            named.add(table.path(manifest.manifest_path))
            named |= {
                table.path(entry.data_file.file_path)
                for entry in entries
                if with_removed or entry.status != _DELETED
            }
    return named


def transactions_in(body: bytes) -> set[str]:
    """Return all of LakeVilla's transactions that one metadata file names."""
    return set(_new_ids(None, _parsed(body)))


# ------------------------------------------------------------------ inside


def _run_up_to(newest: int, versions: set[int]) -> list[int]:
    """Return the versions without a gap that end with ``newest``."""
    first = newest
    while first - 1 in versions:
        first -= 1
    return list(range(first, newest + 1))


def _check_log(table: IcebergTable) -> None:
    """Check that a version's log names the versions right below it, up to the table's length of
    logs.
    """
    log = [entry["metadata-file"] for entry in table.metadata.get("metadata-log") or ()]
    first = table.version - len(log)
    below = [uri_of("") + metadata_key(table.location, v) for v in range(first, table.version)]
    if log != below:
        raise UnreadableTable(f"{table.location}: version {table.version} has the log {log}")
    missing = [v for v in range(first, table.version) if v not in table.kept]
    if missing:
        raise UnreadableTable(f"{table.location}: the log up to {table.version} lacks {missing}")


def manifests_in(table: IcebergTable, snapshot: dict[str, Any]) -> Program[tuple[Manifest, ...]]:
    """Return the manifests that a snapshot names, in its order. Raises ``UnreadableTable``."""
    path = table.path(snapshot["manifest-list"])
    (body,) = yield from _bodies(table, [path])
    listed = _manifest_list(body)
    paths = [table.path(manifest.manifest_path) for manifest in listed]
    bodies = yield from _bodies(table, paths)
    return tuple(
        (manifest, _entries(body, manifest)) for manifest, body in zip(listed, bodies, strict=True)
    )


def _bodies(table: IcebergTable, paths: Sequence[str]) -> Program[list[bytes]]:
    found = yield from parallel([get(f"{table.location}/{path}") for path in paths])
    bodies = []
    for path, outcome in zip(paths, found, strict=True):
        if not isinstance(outcome, Found):
            raise UnreadableTable(f"{table.location}: version {table.version} lacks {path}")
        bodies.append(outcome.body)
    return bodies


@lru_cache(maxsize=4096)
def _parsed(body: bytes) -> dict[str, Any]:
    """Return a metadata file. All readers share it: do not change it."""
    found: dict[str, Any] = json.loads(body)
    return found


@lru_cache(maxsize=4096)
def _manifest_list(body: bytes) -> tuple[ManifestFile, ...]:
    with AvroFile[ManifestFile](
        MemoryInput("", body),
        MANIFEST_LIST_FILE_SCHEMAS[3],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return tuple(reader)


_held: dict[tuple[bytes, int | None, int, int | None], tuple[ManifestEntry, ...]] = {}


def _entries(body: bytes, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
    """Return all entries, deleted ones too. An entry takes missing values from the list's line."""
    key = (body, manifest.added_snapshot_id, manifest.sequence_number, first_row_id(manifest))
    found = _held.get(key)
    if found is None:
        if len(_held) > 4096:
            _held.clear()
        with AvroFile[ManifestEntry](
            MemoryInput("", body),
            MANIFEST_ENTRY_SCHEMAS[3],
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as reader:
            read = [_inherit_from_manifest(entry, manifest) for entry in reader]
        _number(read, first_row_id(manifest))
        found = _held[key] = tuple(read)
    return found


#: The places of ``first_row_id`` in the row of a manifest list, and in a data file.
_OF_MANIFEST, _OF_FILE = 15, 16


def first_row_id(manifest: ManifestFile) -> int | None:
    """Return the first id that a manifest list gives to a manifest's rows, in version 3."""
    found: int | None = manifest._data[_OF_MANIFEST]
    return found


def id_of_first_row(file: DataFile) -> int | None:
    """Return the id of a data file's first row, in version 3."""
    found: int | None = file._data[_OF_FILE]
    return found


def _number(entries: Sequence[ManifestEntry], number: int | None) -> None:
    """Give files the ids that they inherit (spec, "First Row ID Inheritance")."""
    for entry in entries:
        data = entry.data_file._data
        if number is not None and data[_OF_FILE] is None and entry.status != _DELETED:
            data[_OF_FILE] = number
            number += entry.data_file.record_count


def _new_ids(before: dict[str, Any] | None, metadata: dict[str, Any]) -> list[str]:
    """Return the transactions of a metadata file that the one before it did not have."""
    known = set() if before is None else {s["snapshot-id"] for s in before["snapshots"]}
    fresh = [s for s in metadata["snapshots"] if s["snapshot-id"] not in known]
    found = [txn for snapshot in fresh for txn in _ids_of(snapshot)]
    note = _note_of(metadata)
    if note is not None and (before is None or note != _note_of(before)):
        found += json.loads(note).get("txns", ())
    return found


def _ids_of(snapshot: dict[str, Any]) -> Iterable[str]:
    return filter(None, snapshot["summary"].get("lakevilla.txn-ids", "").split(","))


def _note_of(metadata: dict[str, Any]) -> str | None:
    """Return the note of a commit that changes no rows."""
    note: str | None = (metadata.get("properties") or {}).get("lakevilla.commit")
    return note


#: The place of the data file that a vector is of, before its offset and its length.
_TARGET = 17
_VERSION = re.compile(r"v([1-9]\d*)\.metadata\.json")
_DELETED = 2
