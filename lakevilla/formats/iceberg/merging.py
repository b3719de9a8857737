"""Merging manifests, so that their number stays bounded for any number of commits.

As the table's properties say (``commit.manifest-merge.enabled``, ``min-count-to-merge``,
``target-size-bytes``): once there are enough small manifests of one partition spec they become few
large ones, with the same entries. Manifests that are missing or damaged stay unchanged: a reader of
their rows gets the error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile

from lakevilla.errors import CorruptObject, UnsupportedTableFeature
from lakevilla.formats.iceberg.manifests.manifests import Made, encode_manifest, entries_of
from lakevilla.formats.iceberg.metadata.properties import whole_number
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot, bodies_of
from lakevilla.store.effects import Program

_ENABLED = "commit.manifest-merge.enabled"
_LEAST, _LEAST_DEFAULT = "commit.manifest.min-count-to-merge", 100
_TARGET, _TARGET_DEFAULT = "commit.manifest.target-size-bytes", 8 << 20


def merged_manifests(
    snapshot: IcebergSnapshot, kept: Sequence[ManifestFile], snapshot_id: int, name: str
) -> Program[tuple[list[Made], list[ManifestFile]]]:
    """Return large manifests made from small ones, if there are enough, and those that stay.

    ``name`` is the prefix of the new ones' names. Of delete files, only manifests of version 3 are
    merged: those of vectors.
    """
    properties = snapshot.definition.properties
    least = max(2, whole_number(properties, _LEAST, _LEAST_DEFAULT))
    target = whole_number(properties, _TARGET, _TARGET_DEFAULT)
    small: dict[tuple[int, bool], list[ManifestFile]] = defaultdict(list)
    if properties.get(_ENABLED, "true").lower() == "true":
        for one in kept:
            deletes = one.content != ManifestContent.DATA
            if one.manifest_length < target and (snapshot.definition.has_row_ids or not deletes):
                small[one.partition_spec_id, deletes].append(one)
    made: list[Made] = []
    merged: set[str] = set()
    for (spec_id, deletes), manifests in small.items():
        if len(manifests) < least:
            continue
        for group in _packed(manifests, target):
            try:
                entries = yield from _live_entries(snapshot, group)
            except (CorruptObject, UnsupportedTableFeature):
                # Merging may wait; a decided commit needs none of these manifests, and may not
                # wait.
                continue
            path = f"metadata/{name}{len(made)}.avro"
            whole = encode_manifest(
                path, entries, spec_id, snapshot_id, snapshot.definition, deletes=deletes
            )
            made.append((whole, entries))
            merged |= {one.manifest_path for one in group}
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
    """Yield runs of two or more manifests of at most ``target`` bytes together."""
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
