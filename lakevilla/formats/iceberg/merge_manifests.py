"""Merging manifests, so that their number stays bounded however many commits there are.

As the table's properties say (``commit.manifest-merge.enabled``, ``min-count-to-merge``,
``target-size-bytes``): once there are enough small manifests of one partition spec they
become few large ones, with the same entries. Those that are missing or damaged stay as they
are: who reads the rows is told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)

from lakevilla.errors import CorruptObject
from lakevilla.formats.iceberg.manifests.manifests import MadeManifest, encode_manifest, entries_of
from lakevilla.formats.iceberg.metadata.properties import whole_number
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot, bodies_of
from lakevilla.store.effects import Program

_ENABLED = "commit.manifest-merge.enabled"
_LEAST, _LEAST_DEFAULT = "commit.manifest.min-count-to-merge", 100
_TARGET, _TARGET_DEFAULT = "commit.manifest.target-size-bytes", 8 << 20

Made = tuple[MadeManifest, list[ManifestEntry]]


def merged_manifests(
    snapshot: IcebergSnapshot, kept: Sequence[ManifestFile], snapshot_id: int, name: str
) -> Program[tuple[list[Made], list[ManifestFile]]]:
    """Large manifests for small ones, if there are enough, and those that stay.

    ``name`` is what the new ones' names begin with. Only manifests of data files are merged.
    """
    properties = snapshot.definition.properties
    least = max(2, whole_number(properties, _LEAST, _LEAST_DEFAULT))
    target = whole_number(properties, _TARGET, _TARGET_DEFAULT)
    small: dict[int, list[ManifestFile]] = defaultdict(list)
    if properties.get(_ENABLED, "true").lower() == "true":
        for one in kept:
            if one.content == ManifestContent.DATA and one.manifest_length < target:
                small[one.partition_spec_id].append(one)
    made: list[Made] = []
    merged: set[str] = set()
    for spec_id, manifests in small.items():
        if len(manifests) < least:
            continue
        for some in _packed(manifests, target):
            try:
                entries = yield from _live_entries(snapshot, some)
            except CorruptObject:
                # Merging may wait; a commit that is decided needs none of them, and may not.
                continue
            path = f"metadata/{name}{len(made)}.avro"
            whole = encode_manifest(path, entries, spec_id, snapshot_id, snapshot.definition)
            made.append((whole, entries))
            merged |= {one.manifest_path for one in some}
    return made, [one for one in kept if one.manifest_path not in merged]


def _live_entries(
    snapshot: IcebergSnapshot, manifests: Sequence[ManifestFile]
) -> Program[list[ManifestEntry]]:
    found = []
    for manifest, key, body in (yield from bodies_of(snapshot, manifests)):
        for entry in entries_of(key, snapshot.definition, body, manifest):
            if entry.status != ManifestEntryStatus.DELETED:
                entry.status = ManifestEntryStatus.EXISTING
                found.append(entry)
    return found


def _packed(manifests: Sequence[ManifestFile], target: int) -> Iterator[list[ManifestFile]]:
    """Runs of two or more manifests of at most ``target`` bytes together."""
    run: list[ManifestFile] = []
    size = 0
    for one in manifests:
        if run and size + one.manifest_length > target:
            if len(run) > 1:
                yield run
            run, size = [], 0
        run.append(one)
        size += one.manifest_length
    if len(run) > 1:
        yield run
