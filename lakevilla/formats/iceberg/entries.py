"""What one metadata file has changed beside the one before: an ``Entry``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import ManifestContent, ManifestFile

from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.formats.base import Change, Entry
from lakevilla.formats.files import DataFile, RemovedFile, data_files, removal
from lakevilla.formats.iceberg.manifests.manifests import ADDED, DELETED
from lakevilla.formats.iceberg.metadata.file import COMMIT_PROPERTY, Metadata
from lakevilla.formats.iceberg.snapshot import (
    IcebergSnapshot,
    current_files,
    entries_in,
    files_of,
    manifests_of,
)
from lakevilla.store.effects import Program

#: Where a snapshot's summary tells which transactions made it, and the nonce of its write.
TXN_IDS, NONCE = "lakevilla.txn-ids", "lakevilla.nonce"


class IcebergEntry(Entry, frozen=True, eq=False):
    """A metadata file, described. Two are equal if the files are.

    ``listed`` are its manifests, where they were read.
    """

    document: Any = None
    listed: Any = None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, IcebergEntry)
            and self.version == other.version
            and self.document == other.document
        )

    def __hash__(self) -> int:
        return hash(self.version)


class _Note(msgspec.Struct):
    txns: tuple[str, ...] = ()
    nonce: str | None = None
    operation: str = ""


_notes = JsonDecoder(_Note)


def commit_note(txns: tuple[str, ...], nonce: str | None, operation: str) -> str:
    """What ``COMMIT_PROPERTY`` says of a commit that makes no snapshot."""
    return msgspec.json.encode(_Note(txns, nonce, operation)).decode()


def advanced(snapshot: IcebergSnapshot, entry: IcebergEntry) -> IcebergSnapshot:
    """The state after ``entry``."""
    document: Metadata = entry.document
    definition = snapshot.definition
    if definition.document != document.definition:
        definition = definition.replaced(document.definition)
    return IcebergSnapshot(
        entry.version, definition, document, snapshot.cache, listed=entry.listed, newest=entry
    )


def describe(before: IcebergSnapshot, version: int, document: Metadata) -> Program[IcebergEntry]:
    """The entry that led from ``before`` to ``document``."""
    old = before.document
    definition = document.definition
    changed = old is None or old.definition != definition
    note = _note(old, document)
    after = advanced(before, _bare(version, document))
    summary: Mapping[str, Any] = {}
    adds: tuple[DataFile, ...] = ()
    removes: tuple[RemovedFile, ...] = ()
    txns, nonce, operation = note.txns, note.nonce, note.operation
    if document.current_id != (None if old is None else old.current_id):
        current = document.current or {}
        summary = current.get("summary") or {}
        moves = summary.get("operation") == "replace"
        adds, removes = yield from _files_between(before, after, data_change=not moves)
        txns = tuple(filter(None, str(summary.get(TXN_IDS, "")).split(",")))
        nonce = summary.get(NONCE)
        operation = str(summary.get("operation", "")).upper()
    known = {} if old is None else old.applications
    return IcebergEntry(
        version=version,
        change=Change(adds=adds, removes=removes, metadata=definition if changed else None),
        applications={n: v for n, v in document.applications.items() if known.get(n) != v},
        txn_ids=txns,
        nonce=nonce,
        operation=operation,
        is_blind_append=summary.get("operation") == "append",
        timestamp_ms=document.last_updated_ms,
        raw_commit_info=dict(summary),
        document=document,
        listed=after.listed,
    )


def _bare(version: int, document: Metadata) -> IcebergEntry:
    return IcebergEntry(version, Change(), {}, (), None, "", False, 0, {}, document)


def _note(old: Metadata | None, new: Metadata) -> _Note:
    """What a commit without a snapshot says of itself; nothing where it is an older one's."""
    text = new.properties.get(COMMIT_PROPERTY)
    if text is None or (old is not None and old.properties.get(COMMIT_PROPERTY) == text):
        return _Note()
    try:
        return _notes.decode(text)
    except ValueError:
        return _Note()  # another client's: it proves nothing


def _files_between(
    before: IcebergSnapshot, after: IcebergSnapshot, *, data_change: bool
) -> Program[tuple[tuple[DataFile, ...], tuple[RemovedFile, ...]]]:
    """The files that came and went between two states' current snapshots.

    One new snapshot on top of the old one that only moves data files is told by the
    manifests that it added. Anything else (deletes, several snapshots, a rollback) is the
    difference of the two file lists: what deletes apply to decides a file's identity.
    """
    assert after.document is not None
    new = after.document.current
    listed = yield from manifests_of(after)
    parent = None if new is None else new.get("parent-snapshot-id")
    own = [] if new is None else _own(listed, new["snapshot-id"])
    follows = new is not None and parent == before.snapshot_id
    plain = all(one.content == ManifestContent.DATA for one in listed)
    if follows and plain and new is not None:
        parts = yield from entries_in(after, own)
        rows = [part.filter(pc.equal(part["snapshot_id"], new["snapshot-id"])) for part in parts]
        added = [row for part in rows for row in _rows(part, ADDED)]
        removed = [row for part in rows for row in _rows(part, DELETED)]
    else:
        old_files = yield from current_files(before)
        new_files = yield from files_of(after, listed)
        old = {file.ref: file for file in data_files(old_files)}
        fresh = {file.ref: file for file in data_files(new_files)}
        added = [file for ref, file in fresh.items() if ref not in old]
        removed = [file for ref, file in old.items() if ref not in fresh]
    adds = tuple(msgspec.structs.replace(file, data_change=data_change) for file in added)
    return adds, tuple(removal(file, data_change=data_change) for file in removed)


def _own(listed: tuple[ManifestFile, ...], snapshot_id: int) -> list[ManifestFile]:
    return [one for one in listed if one.added_snapshot_id == snapshot_id]


def _rows(part: pa.Table, status: int) -> list[DataFile]:
    chosen = part.filter(pc.equal(part["status"], pa.scalar(status, pa.int8())))
    columns = ("path", "size", "partition_values", "stats")
    return [
        DataFile(path, size, 0, dict(values or ()), stats)
        for path, size, values, stats in zip(
            *(chosen.column(name).to_pylist() for name in columns), strict=True
        )
    ]
