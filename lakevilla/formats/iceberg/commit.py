"""Commit a change to an Iceberg table: manifest entries, manifests, and lists."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile

from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    TableNotFound,
    UnsupportedTableFeature,
)
from lakevilla.formats.base import Attempt, Change, CommitInfo, Entry
from lakevilla.formats.files import (
    DataFile,
    RemovedFile,
    data_files,
    paths_of_deletes,
    removal,
    rows_deleted_in,
    rows_in,
)
from lakevilla.formats.iceberg.catalog.object_store_catalog import commit_request
from lakevilla.formats.iceberg.log import compressed_metadata
from lakevilla.formats.iceberg.manifests.manifests import (
    ADDED,
    DELETED,
    ENTRIES,
    Made,
    apply_to_none,
    are_alone_of,
    cache_key,
    columns_of,
    content_offset,
    deletes_manifests,
    encode_list,
    encode_manifest,
    entries_of,
    files_with_vectors,
    first_row_id,
    held_bytes,
    inherit,
    new_entry,
    number_rows,
    rows_of_manifest,
)
from lakevilla.formats.iceberg.merging import merged_manifests
from lakevilla.formats.iceberg.metadata.definition import (
    IcebergDefinition,
    compressed_key,
    metadata_key,
    metadata_version,
)
from lakevilla.formats.iceberg.metadata.file import (
    COMMIT_PROPERTY,
    Metadata,
    decode_metadata,
    next_metadata,
)
from lakevilla.formats.iceberg.snapshot import (
    IcebergSnapshot,
    bodies_of,
    current_files,
    entries_in,
    files_of,
    live_entries,
    manifests_of,
)
from lakevilla.store.base import ABSENT, ANY, Found, Match, Token
from lakevilla.store.effects import Program, Put, get, parallel

# -------------------- commit
#
# The next version of a table: its manifests, its manifest list, its metadata file.
#
# The objects that a version names are stored before it under names of their own, and have no effect
# until the metadata file exists. Only the manifest list and the metadata file depend on the
# version below; both are created again for each number that is tried.


_OPERATION = "lakevilla.operation"
_HEAD_BYTES = 4096
#: Numbers of merged manifests begin here, above those of the manifests that lose files.
_MERGED = 1000000
#: Numbers of manifests that add files of other specs than the present one begin here.
_OF_OTHER_SPECS = 2000000
#: Numbers of manifests that lose delete files begin above this.
_OF_DELETES = 3000000
#: Numbers of manifests of new vectors begin here.
_OF_VECTORS = 4000000
_TOTALS = (
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-records", "added-records", "deleted-records"),
    ("total-files-size", "added-files-size", "removed-files-size"),
    ("total-delete-files", "added-delete-files", "removed-delete-files"),
    ("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
    ("total-equality-deletes", None, "removed-equality-deletes"),
)


def prepare(
    snapshot: IcebergSnapshot, change: Change, info: CommitInfo, timestamp_ms: int
) -> Program[Attempt]:
    """See ``formats.base.TableFormat.prepare``."""
    if snapshot.overlaid or info.nonce is None:
        raise InvalidOperation(
            f"a version of table {snapshot.table} follows a published one", table=snapshot.table
        )
    definition = snapshot.definition
    if change.metadata is not None:
        definition = definition.replaced(change.metadata)
    definition.check_writable()
    if snapshot.catalog:
        return (yield from _ask_catalog(snapshot, definition, change, info, timestamp_ms))
    version = snapshot.version + 1
    key = metadata_key(snapshot.location, version)
    listed: tuple[ManifestFile, ...] | None = snapshot.listed
    made: _Made | None = None
    parts: list[Program[Any]] = [check_next(snapshot)]
    if change.adds or change.removes:
        parts.append(_snapshot(snapshot, definition, change, info, timestamp_ms))
    _, *rest = yield from parallel(parts)
    if rest:
        made = rest[0]
        listed = made.listed
    elif snapshot.document is None:
        listed = ()
    before = snapshot.document
    note = None if made is not None else commit_note(info.txn_ids, info.nonce, info.operation)
    document = next_metadata(
        before,
        key,
        snapshot.table,
        snapshot.document_uri,
        definition=change.metadata,
        snapshot=None if made is None else made.snapshot,
        applications=info.applications,
        commit=note,
        now_ms=timestamp_ms,
    )
    entry = IcebergEntry(
        version=version,
        change=change,
        applications=info.applications,
        txn_ids=info.txn_ids,
        nonce=info.nonce,
        operation=info.operation,
        is_blind_append=info.is_blind_append,
        timestamp_ms=document.last_updated_ms,
        raw_commit_info={} if made is None else dict(made.snapshot["summary"]),
        members=info.members,
        document=document,
        listed=listed,
    )
    return Attempt(key, document.encode(), ABSENT, entry)


def check_next(snapshot: IcebergSnapshot) -> Program[None]:
    """Refuse to continue from a version if a second successor of it could be created.

    Raises
    ------
    UnsupportedTableFeature
        Another writer's next version is compressed, and so has another name.
    TableNotFound
        See ``_check_still_there``.
    """
    version = snapshot.version + 1
    looks: list[Program[Any]] = [
        get(compressed_key(snapshot.location, version)),
        _check_still_there(snapshot),
    ]
    outcome, _ = yield from parallel(looks)
    if isinstance(outcome, Found):
        raise compressed_metadata(snapshot.location, version)


def _check_still_there(snapshot: IcebergSnapshot) -> Program[None]:
    """Refuse to continue from a version whose table another client has dropped.

    A metadata file is a whole state. On top of a version that does not exist any more it would hide
    the table that was made in its place, which may have a version of that number by now.
    Raises ``TableNotFound``.
    """
    before = snapshot.document
    if before is None:
        return
    found = yield from get(before.key, byte_range=(0, _HEAD_BYTES))
    if isinstance(found, Found) and before.table_id.encode() in found.body:
        return  # its id is at the beginning, in the file of any writer
    if isinstance(found, Found):
        found = yield from get(before.key)
        if isinstance(found, Found):
            now = decode_metadata(before.key, snapshot.table, found.body)
            if now.table_id == before.table_id:
                return
    raise TableNotFound(
        f"version {snapshot.version} of table {snapshot.table} does not exist any more, or "
        "belongs to another table: it was dropped, or created again; open it again",
        table=snapshot.table,
    )


def _ask_catalog(
    snapshot: IcebergSnapshot,
    definition: IcebergDefinition,
    change: Change,
    info: CommitInfo,
    timestamp_ms: int,
) -> Program[Attempt]:
    """Return the commit as a request to the table's catalog, which makes the metadata file."""
    before = snapshot.document
    if before is None:
        raise InvalidOperation(
            f"table {snapshot.table} is not in its catalog any more, and LakeVilla makes no tables "
            "there: make it with the catalog",
            table=snapshot.table,
        )
    made = yield from _snapshot(snapshot, definition, change, info, timestamp_ms)
    body = commit_request(before, change.metadata, made.snapshot, info.applications)
    return Attempt(snapshot.catalog, body, Match(Token(before.key)), None)


def snapshot_id_of(nonce: str) -> int:
    """Return the id of the snapshot that a commit makes: as random as its nonce, and positive."""
    digest = blake2b(nonce.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class _Made:
    def __init__(self, snapshot: dict[str, Any], listed: tuple[ManifestFile, ...]) -> None:
        self.snapshot = snapshot
        self.listed = listed


def _snapshot(
    before: IcebergSnapshot,
    definition: IcebergDefinition,
    change: Change,
    info: CommitInfo,
    now_ms: int,
) -> Program[_Made]:
    """Store the manifests and the manifest list of a new snapshot."""
    assert info.nonce is not None
    number = snapshot_id_of(info.nonce)
    if info.given is not None and info.given.snapshot is not None:
        number = info.given.snapshot  # its client looks for it
    name = _name(info)
    known = yield from manifests_of(before)
    rest = yield from _changed(before, known, change, definition, number, name)
    kept, made = rest.kept, rest.made
    place = definition.place
    sequence = _sequence(before, change)
    merged, kept = yield from merged_manifests(before, kept, number, f"{name}-m{_MERGED}")
    made += merged
    path = f"metadata/snap-{number}-{name}.avro"
    row_ids = _row_ids(before, known, definition, change)
    body, named = encode_list(
        place.spelled(path),
        [*(one.file for one, _ in made), *kept],
        snapshot_id=number,
        parent_id=before.snapshot_id,
        sequence=sequence,
        definition=definition,
        next_row_id=row_ids.begin,
    )
    yield from parallel(
        [
            *(Put(place.key(one.path), one.body, ANY) for one, _ in made),
            Put(place.key(path), body, ANY),
        ]
    )
    for listed, (_, entries) in zip(named, made, strict=False):
        _keep(before, listed, entries, definition)
    now = {cache_key(listed) for listed in named}
    before.cache.leave(key for one in known if (key := cache_key(one)) not in now)
    last = 0 if before.document is None else before.document.last_updated_ms
    snapshot = {
        "snapshot-id": number,
        "sequence-number": sequence,
        "timestamp-ms": max(now_ms, last),
        "manifest-list": place.spelled(path),
        "summary": _summary(before, change, info, rest),
        "schema-id": definition.document["current-schema-id"],
    }
    if before.snapshot_id is not None:
        snapshot["parent-snapshot-id"] = before.snapshot_id
    if definition.has_row_ids:
        snapshot |= row_ids.given_out(known, named)
    return _Made(snapshot, tuple(named))


def _changed(
    before: IcebergSnapshot,
    known: Sequence[ManifestFile],
    change: Change,
    definition: IcebergDefinition,
    number: int,
    name: str,
) -> Program[_Rest]:
    """Return the manifests after a change: those that stay, and new ones, those of new files
    first.
    """
    # Manifests that only record files which were removed earlier are of no use any more.
    manifests = [one for one in known if one.has_added_files() or one.has_existing_files()]
    rest = _Rest(list(manifests), [], ENTRIES.empty_table(), ENTRIES.empty_table())
    staying = _staying(change)
    if change.removes:
        rest = yield from _without(before, manifests, change.removes, staying, number, name)
    rest.made[:0] = [
        *_added(_new_files(change, staying), definition, number, name),
        *deletes_manifests(change, rest.specs, definition, number, f"{name}-m{_OF_VECTORS}"),
    ]
    return rest


def _sequence(before: IcebergSnapshot, change: Change) -> int:
    """Return the number of the next snapshot: no row of it may have been changed later.

    Files of a copied table say when their rows were changed, by the numbers of that table.
    """
    last = 0 if before.document is None else before.document.last_sequence_number
    known = (one.default_row_commit_version for one in change.adds if one.base_row_id is not None)
    return max(1 + last, change.sequence_from, *(number for number in known if number is not None))


def _keep(
    before: IcebergSnapshot,
    listed: ManifestFile,
    entries: Sequence[ManifestEntry],
    definition: IcebergDefinition,
) -> None:
    """Keep the entries of a manifest that was made, as a reader would find them."""
    filled = [inherit(entry, listed) for entry in entries]
    number_rows(filled, listed)
    read = columns_of(filled, listed.partition_spec_id, definition)
    before.cache.keep(cache_key(listed), read, held_bytes(read))


@dataclass(frozen=True, slots=True)
class _RowIds:
    """The ids of rows that a snapshot gives out: from ``begin`` on, at least the table's mark."""

    mark: int
    begin: int

    def given_out(
        self, known: Sequence[ManifestFile], named: Sequence[ManifestFile]
    ) -> dict[str, int]:
        """Return the snapshot's fields; the next mark is their sum (spec, "Row Lineage")."""
        numbered = {cache_key(one) for one in known}
        fresh = [
            one
            for one in named
            if one.content == ManifestContent.DATA and cache_key(one) not in numbered
        ]
        end = self.begin + sum(map(rows_of_manifest, fresh))
        return {"first-row-id": self.mark, "added-rows": end - self.mark}


def _row_ids(
    before: IcebergSnapshot,
    known: Sequence[ManifestFile],
    definition: IcebergDefinition,
    change: Change,
) -> _RowIds:
    """Return the ids that a snapshot on top of ``before`` may give out.

    The mark is that of the metadata file, and not of the current snapshot: another branch may have
    moved it. Rows of a copied table have ids that this table has not given out yet; the next one is
    above them. Raises ``CorruptObject`` if manifests have ids above the mark.
    """
    mark = 0 if before.document is None else before.document.next_row_id
    for manifest in known:
        first = first_row_id(manifest)
        if first is not None and first + rows_of_manifest(manifest) > mark:
            raise CorruptObject(
                f"manifest {manifest.manifest_path} of table {before.table} has row ids up to "
                f"{first + rows_of_manifest(manifest)}, and the table's next-row-id is {mark}: new "
                "rows would get ids that others have; set next-row-id above all ids with the "
                "client that wrote it",
                key=None if before.document is None else before.document.key,
                table=before.table,
            )
    if not definition.has_row_ids:
        return _RowIds(mark, mark)
    ends = (
        one.base_row_id + _rows(one.stats) for one in change.adds if one.base_row_id is not None
    )
    return _RowIds(mark, max((mark, change.row_ids_below, *ends)))


def _added(
    files: Sequence[DataFile], definition: IcebergDefinition, number: int, name: str
) -> list[Made]:
    """Return manifests of added files, one for each partition spec.

    Files that were written for this commit are of the present spec; those of a copied table, or of
    an earlier state, may be of others.
    """
    by_spec: dict[int, list[ManifestEntry]] = defaultdict(list)
    for entry in (new_entry(file, number, definition) for file in files):
        by_spec[entry.data_file.spec_id].append(entry)
    made = []
    for count, (spec_id, entries) in enumerate(by_spec.items()):
        is_present = spec_id == definition.spec.spec_id
        path = f"metadata/{name}-m{0 if is_present else _OF_OTHER_SPECS + count}.avro"
        made.append((encode_manifest(path, entries, spec_id, number, definition), entries))
    return made


def _staying(change: Change) -> set[str]:
    """Return the paths of files that stay, with other deleted rows: their entries stay, too.

    A file that has no vector any more is added again: position deletes that its vector had
    replaced would apply to its old entry.
    """
    marked = {file.path for file in change.adds if file.deletes}
    return {file.path for file in change.removes if file.path in marked}


def _new_files(change: Change, staying: Collection[str]) -> list[DataFile]:
    return [file for file in change.adds if file.path not in staying]


def _name(info: CommitInfo) -> str:
    """Return the prefix of the names of a commit's manifests, by which gc knows their commit.

    The nonce separates two publishers of the same commit.
    """
    kind = "h" if any(name.startswith("lakevilla/") for name in info.applications) else "l"
    return f"lv-{kind}-{info.txn_ids[-1]}-{info.nonce}" if info.txn_ids else f"{info.nonce}"


class _Rest(NamedTuple):
    """The manifests that are left of a table's once data files are removed.

    ``kept`` stay, ``made`` replace others. ``files`` are the entries of the removed data files,
    ``deletes`` of the delete files that went with them. ``specs``: by path, the partition specs of
    data files that stay with other deletes.
    """

    kept: list[ManifestFile]
    made: list[Made]
    files: pa.Table
    deletes: pa.Table
    specs: Mapping[str, int] = {}


def _without(
    before: IcebergSnapshot,
    manifests: Sequence[ManifestFile],
    removes: Sequence[RemovedFile],
    staying: set[str],
    number: int,
    name: str,
) -> Program[_Rest]:
    """Remove data files from manifests, and delete files that then apply to no data file.

    The ``staying`` ones of the removed files keep their entries, and lose their deletes.
    """
    data = [one for one in manifests if one.content == ManifestContent.DATA]
    kept: list[ManifestFile] = []
    paths = {file.path for file in removes} - staying
    wanted, there = (pa.array(sorted(some), pa.string()) for some in (paths, staying))
    hit, parts, left = [], [], []
    specs: dict[str, int] = {}
    for manifest, part in zip(data, (yield from entries_in(before, data)), strict=True):
        live = live_entries(part)
        if staying:
            same = live.filter(pc.is_in(live["path"], value_set=there))
            specs.update(zip(same["path"].to_pylist(), same["spec_id"].to_pylist(), strict=True))
        is_removed = pc.is_in(live["path"], value_set=wanted)
        found = live.filter(is_removed)
        if found.num_rows:
            hit.append(manifest)
            parts.append(found)
            live = live.filter(pc.invert(is_removed))
        else:
            kept.append(manifest)
        left.append(live)
    removed = pa.concat_tables(parts) if parts else ENTRIES.empty_table()
    missing = (paths | staying) - {*removed["path"].to_pylist(), *specs}
    if missing:
        raise CorruptObject(
            f"table {before.table} has no file {min(missing)} at version {before.version}, which a "
            "commit removes",
            table=before.table,
        )
    made = yield from _marked(before, hit, paths, number, name)
    deletes = [one for one in manifests if one.content != ManifestContent.DATA]
    known = {file.path: file for file in removes if file.path in staying}
    rest = yield from _without_idle(before, deletes, left, known, number, name)
    return _Rest([*rest.kept, *kept], [*made, *rest.made], removed, rest.deletes, specs)


def _without_idle(
    before: IcebergSnapshot,
    manifests: Sequence[ManifestFile],
    data: Sequence[pa.Table],
    staying: Mapping[str, RemovedFile],
    number: int,
    name: str,
) -> Program[_Rest]:
    """Remove the delete files that apply to none of the live data files from their manifests.

    They would stay for good: no data file that is added later is old enough for them. A manifest
    that can't be read stays as it is, for a decided commit may not wait for it. But if a file that
    stays gets a vector, all manifests are read: it must have one.
    """
    kept, hit, gone = [], [], [ENTRIES.empty_table()]
    if staying:
        parts = yield from entries_in(before, manifests)
        _refuse_others(before, [live_entries(part) for part in parts], staying)
    else:
        parts = yield from parallel([_entries_if_read(before, one) for one in manifests])
    # A position delete file of several data files stays beside a new one of one of them alone.
    replaces = staying and before.definition.has_row_ids
    marked = {*staying, *files_with_vectors(map(live_entries, parts))} if replaces else ()
    for manifest, part in zip(manifests, parts, strict=True):
        if part is None:
            kept.append(manifest)
            continue
        live = live_entries(part)
        is_idle = apply_to_none(live, data, marked)
        if staying:
            is_idle = pc.or_(is_idle, are_alone_of(live, staying))
        idle = live.filter(is_idle)
        if idle.num_rows:
            hit.append(manifest)
            gone.append(idle)
        else:
            kept.append(manifest)
    idle = pa.concat_tables(gone)
    made = yield from _marked(before, hit, _places(idle), number, name, deletes=True)
    return _Rest(kept, made, ENTRIES.empty_table(), idle)


def _refuse_others(
    before: IcebergSnapshot, parts: Sequence[pa.Table], staying: Mapping[str, RemovedFile]
) -> None:
    """Refuse to replace deletes of which the commit does not know: their rows would come back."""
    known = {(one.path, one.offset) for file in staying.values() for one in file.deletes}
    kind = "vector" if before.definition.has_row_ids else "position"
    for part in parts:
        vectors = part.filter(pc.equal(part["kind"], kind))
        for path, offset, target in zip(
            *(vectors[name].to_pylist() for name in ("path", "offset", "target")), strict=True
        ):
            if target in staying and (path, offset) not in known:
                raise CorruptObject(
                    f"file {target} of table {before.table} has the deletes {path} at version "
                    f"{before.version}, of which a commit that deletes further rows does not know",
                    key=path,
                    table=before.table,
                )


def _entries_if_read(before: IcebergSnapshot, manifest: ManifestFile) -> Program[pa.Table | None]:
    try:
        (part,) = yield from entries_in(before, [manifest])
    except (CorruptObject, UnsupportedTableFeature):
        return None
    return part


def _places(entries: pa.Table) -> set[tuple[str, int | None]]:
    """Return what distinguishes delete files: a Puffin file may have several vectors."""
    return set(zip(entries["path"].to_pylist(), entries["offset"].to_pylist(), strict=True))


def _marked(
    before: IcebergSnapshot,
    manifests: Sequence[ManifestFile],
    gone: Collection[object],
    number: int,
    name: str,
    *,
    deletes: bool = False,
) -> Program[list[Made]]:
    """Return manifests made again, in which the files that are ``gone`` are marked as deleted."""
    place = before.definition.place
    made = []
    first = 1 + (_OF_DELETES if deletes else 0)
    bodies = yield from bodies_of(before, manifests)
    for count, (manifest, key, body) in enumerate(bodies, first):
        entries = []
        for entry in entries_of(key, before.definition, body, manifest):
            path = place.path(entry.data_file.file_path)
            one = (path, content_offset(entry.data_file)) if deletes else path
            if entry.status != ManifestEntryStatus.DELETED:
                entries.append(_kept_or_deleted(entry, one in gone, number))
        whole = encode_manifest(
            f"metadata/{name}-m{count}.avro",
            entries,
            manifest.partition_spec_id,
            number,
            before.definition,
            deletes=deletes,
        )
        made.append((whole, entries))
    return made


def _kept_or_deleted(entry: ManifestEntry, is_deleted: bool, number: int) -> ManifestEntry:
    entry.status = ManifestEntryStatus.DELETED if is_deleted else ManifestEntryStatus.EXISTING
    if is_deleted:
        entry.snapshot_id = number
    return entry


def _summary(
    before: IcebergSnapshot, change: Change, info: CommitInfo, rest: _Rest
) -> dict[str, str]:
    """Return the snapshot's summary: the fields that the spec requires, and the commit's own."""
    files = _new_files(change, _staying(change))
    had = paths_of_deletes(change.removes)
    made = [one for file in change.adds for one in file.deletes if one.path not in had]
    vectors = sum(one.kind == "vector" for one in made)
    counts = {
        "added-data-files": len(files),
        "added-records": sum(_rows(file.stats) for file in files),
        "added-files-size": sum(file.size for file in files)
        + sum(one.length or one.size for one in made),
        "added-delete-files": len(made),
        "added-dvs": vectors,
        "added-position-delete-files": len(made) - vectors,
        "added-position-deletes": sum(one.rows or 0 for one in made),
        "deleted-data-files": rest.files.num_rows,
        "deleted-records": pc.sum(rest.files["rows"]).as_py() or 0,
        "removed-files-size": pc.sum(rest.files["size"]).as_py() or 0,
        **_removed_deletes(rest.deletes),
    }
    counts["removed-files-size"] += counts.pop(_DELETES_SIZE)
    document = before.document
    current = None if document is None else document.current
    known: Mapping[str, Any] = {} if current is None else current.get("summary") or {}
    totals = {}
    for total, added, removed in _TOTALS:
        text = str(known.get(total, "" if current is not None else "0"))
        if text.isdigit():
            plus = counts.get(added or "", 0) - counts.get(removed or "", 0)
            totals[total] = max(0, int(text) + plus)
    own = {TXN_IDS: ",".join(info.txn_ids), NONCE: str(info.nonce), _OPERATION: info.operation}
    if info.members:
        own[_MEMBERS] = ",".join(info.members)
    numbers = {name: count for name, count in counts.items() if count} | totals
    described = {name: value for name, value in info.metadata.items() if name not in numbers}
    return {
        **described,
        "operation": _operation(change, deletes_alone=not files and _loses_rows(change)),
        **own,
        **{name: str(value) for name, value in numbers.items()},
        "engine-name": "lakevilla",
    }


#: The size of removed delete files, which ``removed-files-size`` includes.
_DELETES_SIZE = "removed-delete-files-size"


def _removed_deletes(gone: pa.Table) -> dict[str, int]:
    """Return the fields of a summary about delete files that went, as Java counts them."""
    counts = dict.fromkeys(
        (
            "removed-delete-files",
            "removed-position-delete-files",
            "removed-dvs",
            "removed-equality-delete-files",
            "removed-position-deletes",
            "removed-equality-deletes",
            _DELETES_SIZE,
        ),
        0,
    )
    columns = ("kind", "rows", "size", "length")
    names = {"vector": "dvs"}
    for kind, rows, size, length in zip(
        *(gone.column(name).to_pylist() for name in columns), strict=True
    ):
        counts["removed-delete-files"] += 1
        counts[f"removed-{names.get(kind, f'{kind}-delete-files')}"] += 1
        counts[f"removed-{'equality' if kind == 'equality' else 'position'}-deletes"] += rows
        counts[_DELETES_SIZE] += size if length is None else length
    return counts


def _loses_rows(change: Change) -> bool:
    """Return whether each file that stays has more deleted rows than before."""
    before = {file.path: rows_deleted_in(file) for file in change.removes}
    after = {file.path: rows_deleted_in(file) for file in change.adds}
    return all((before[path] or 0) < (rows or 0) for path, rows in after.items() if path in before)


def _operation(change: Change, *, deletes_alone: bool) -> str:
    if not change.removes and not any(file.deletes for file in change.adds):
        return "append"
    if not change.changes_data:
        return "replace"
    return "delete" if deletes_alone else "overwrite"


def _rows(stats: str | None) -> int:
    return rows_in(stats) or 0


# -------------------- entries
#
# The changes of one metadata file relative to the one before: an ``Entry``.


#: Fields of a snapshot's summary: the transactions that made it, and the nonce of its write.
TXN_IDS, NONCE = "lakevilla.txn-ids", "lakevilla.nonce"
_MEMBERS = "lakevilla.members"


class IcebergEntry(Entry, frozen=True, eq=False):
    """The description of a metadata file. Two descriptions are equal if their files are.

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

    def described_alone(self) -> Entry:
        return msgspec.structs.replace(self, document=None, listed=None)


class _Note(msgspec.Struct):
    txns: tuple[str, ...] = ()
    nonce: str | None = None
    operation: str = ""


_notes = JsonDecoder(_Note)


def commit_note(txns: tuple[str, ...], nonce: str | None, operation: str) -> str:
    """Return the value of ``COMMIT_PROPERTY`` for a commit that makes no snapshot."""
    return msgspec.json.encode(_Note(txns, nonce, operation)).decode()


def advanced(snapshot: IcebergSnapshot, entry: IcebergEntry) -> IcebergSnapshot:
    """Return the state after ``entry``."""
    document: Metadata = entry.document
    definition = snapshot.definition
    if definition.document != document.definition:
        definition = definition.replaced(document.definition)
    return IcebergSnapshot(
        entry.version, definition, document, snapshot.cache, listed=entry.listed, newest=entry
    )


def describe(
    before: IcebergSnapshot,
    version: int,
    document: Metadata,
    listed: tuple[ManifestFile, ...] | None = None,
) -> Program[IcebergEntry]:
    """Return the entry that led from ``before`` to ``document``.

    ``listed``: the manifests of its current snapshot, where they are known.
    """
    old = before.document
    definition = document.definition
    changed = old is None or old.definition != definition
    note = _note(old, document)
    after = advanced(before, _bare(version, document))
    after.listed = listed
    summary: Mapping[str, Any] = {}
    adds: tuple[DataFile, ...] = ()
    removes: tuple[RemovedFile, ...] = ()
    txns, nonce, operation = note.txns, note.nonce, note.operation
    kinds: set[object] = set()
    if document.current_id != (None if old is None else old.current_id):
        is_new, kinds = _operations_since(old, document)
        adds, removes = yield from _files_between(before, after, data_change=kinds != {"replace"})
        if is_new:
            summary = (document.current or {}).get("summary") or {}
            # Else main was set back by a client of a lake, whose note says so, or by another one.
            txns, nonce = _ids_in(summary, TXN_IDS), summary.get(NONCE)
        operation = str(summary.get("operation", "rollback")).upper()
    known = {} if old is None else old.applications
    return IcebergEntry(
        version=version,
        change=Change(adds=adds, removes=removes, metadata=definition if changed else None),
        applications={n: v for n, v in document.applications.items() if known.get(n) != v},
        txn_ids=txns,
        nonce=nonce,
        operation=operation,
        is_blind_append=kinds == {"append"},
        timestamp_ms=document.last_updated_ms,
        raw_commit_info=dict(summary),
        members=_ids_in(summary, _MEMBERS),
        document=document,
        listed=after.listed,
    )


def described(newest: IcebergSnapshot, versions: Iterable[int]) -> dict[int, IcebergEntry]:
    """Return the entries of versions, without their files, that the newest metadata file describes.

    Its ``metadata-log`` has the time of each version before it, and its ``snapshot-log`` the time
    of each change of the current snapshot, which is that of the version that made it. Where two
    versions have the same time, or a version made no snapshot, its own file is needed: it is left
    out.
    """
    document = newest.document
    if document is None or newest.catalog:
        return {}
    try:
        files = document.parsed("metadata-log", list[_LoggedFile]) or []
        switches = document.parsed("snapshot-log", list[_LoggedSnapshot]) or []
    except CorruptObject:
        return {}  # they are needed for nothing else
    times = {newest.version: document.last_updated_ms}
    for file in files:
        version = metadata_version(file.metadata_file.rpartition("/")[2])
        if version is not None:
            times[version] = file.timestamp_ms
    made = {switch.timestamp_ms: switch.snapshot_id for switch in switches}
    versions_at = Counter(times.values())
    switches_at = Counter(switch.timestamp_ms for switch in switches)
    found: dict[int, IcebergEntry] = {}
    for version in versions:
        time_ms = times.get(version)
        # Without the version before, that one may have the same time.
        if time_ms is None or version - 1 not in times:
            continue
        if versions_at[time_ms] != 1 or switches_at[time_ms] != 1:
            continue
        snapshot = document.snapshot(made[time_ms])
        if snapshot is None or snapshot.get("timestamp-ms") != time_ms:
            continue  # it was expired, or was made by an earlier version
        summary = snapshot.get("summary") or {}
        found[version] = IcebergEntry(
            version,
            Change(),
            {},
            _ids_in(summary, TXN_IDS),
            summary.get(NONCE),
            str(summary.get("operation", "")).upper(),
            False,
            time_ms,
            dict(summary),
            _ids_in(summary, _MEMBERS),
        )
    return found


class _LoggedFile(msgspec.Struct, rename="kebab"):
    metadata_file: str
    timestamp_ms: int


class _LoggedSnapshot(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    timestamp_ms: int


def _ids_in(summary: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(filter(None, str(summary.get(name, "")).split(",")))


def _operations_since(old: Metadata | None, new: Metadata) -> tuple[bool, set[object]]:
    """Return whether the current snapshot is new, and the operations that lead to it.

    These are the operations of the snapshots after the old current one. The set contains None if
    ``main`` was set back, or continues from another snapshot.
    """
    current = new.current or {}
    before = None if old is None else old.current_id
    last = 0 if old is None else old.last_sequence_number
    if current.get("parent-snapshot-id") == before and last < new.last_sequence_number:
        # The usual commit is recognised without parsing all snapshots: a snapshot that existed
        # before and is current again does not raise the sequence number.
        return True, {(current.get("summary") or {}).get("operation")}
    known = {} if old is None else old.snapshots
    found: set[object] = set()
    passed: set[object] = set()  # a client may have made two snapshots each other's parents
    number = new.current_id
    while number is not None and number not in known and number not in passed:
        passed.add(number)
        snapshot = new.snapshot(number) or {}
        found.add((snapshot.get("summary") or {}).get("operation"))
        number = snapshot.get("parent-snapshot-id")
    return bool(found), found if number == before else {*found, None}


def _bare(version: int, document: Metadata) -> IcebergEntry:
    return IcebergEntry(version, Change(), {}, (), None, "", False, 0, {}, document=document)


def _note(old: Metadata | None, new: Metadata) -> _Note:
    """Return the note of a commit without a snapshot; empty if it is an older commit's note."""
    text = new.properties.get(COMMIT_PROPERTY)
    if text is None or (old is not None and old.properties.get(COMMIT_PROPERTY) == text):
        return _Note()
    try:
        return _notes.decode(text)
    except ValueError:
        return _Note()  # another client's note: it proves nothing


#: The columns of a manifest's entries of which a file's row is made.
_OF_A_ROW = [
    "status",
    "path",
    "size",
    "partition_values",
    "stats",
    "first_row_id",
    "sequence",
    "spelled",
]


def _files_between(
    before: IcebergSnapshot, after: IcebergSnapshot, *, data_change: bool
) -> Program[tuple[tuple[DataFile, ...], tuple[RemovedFile, ...]]]:
    """Return the files added and removed between two states' current snapshots.

    If one new snapshot follows the old one and concerns only data files, they are read from the
    manifests that it added. Any other change (deletes, several snapshots, a rollback) is the
    difference of the two file lists: the deletes that apply to a file are part of its identity.
    """
    assert after.document is not None
    new = after.document.current
    listed = yield from manifests_of(after)
    parent = None if new is None else new.get("parent-snapshot-id")
    own = [] if new is None else _own(listed, new["snapshot-id"])
    follows = new is not None and parent == before.snapshot_id
    plain = all(one.content == ManifestContent.DATA for one in listed)
    plain = plain and not _counts_deletes(before)  # or they are not listed any more
    if follows and plain and new is not None:
        parts = yield from entries_in(after, own)
        rows = [
            part.select(_OF_A_ROW).filter(pc.equal(part["snapshot_id"], new["snapshot-id"]))
            for part in parts
        ]
        has_ids = after.definition.has_row_ids
        added = [row for part in rows for row in _rows_of_entries(part, ADDED, has_ids)]
        removed = [row for part in rows for row in _rows_of_entries(part, DELETED, has_ids)]
    else:
        old_files = yield from current_files(before)
        new_files = yield from files_of(after, listed)
        old = {file.ref: file for file in data_files(old_files)}
        fresh = {file.ref: file for file in data_files(new_files)}
        added = [file for ref, file in fresh.items() if ref not in old]
        removed = [file for ref, file in old.items() if ref not in fresh]
    adds = tuple(msgspec.structs.replace(file, data_change=data_change) for file in added)
    return adds, tuple(removal(file, data_change=data_change) for file in removed)


def _counts_deletes(snapshot: IcebergSnapshot) -> bool:
    current = None if snapshot.document is None else snapshot.document.current
    summary = (current or {}).get("summary") or {}
    return str(summary.get("total-delete-files", "0")) != "0"


def _own(listed: tuple[ManifestFile, ...], snapshot_id: int) -> list[ManifestFile]:
    return [one for one in listed if one.added_snapshot_id == snapshot_id]


def _rows_of_entries(part: pa.Table, status: int, has_ids: bool) -> list[DataFile]:
    chosen = part.filter(pc.equal(part["status"], pa.scalar(status, pa.int8())))
    return [
        DataFile(
            path,
            size,
            0,
            dict(values or ()),
            stats,
            base_row_id=first,
            default_row_commit_version=sequence if has_ids else None,
            raw_path=spelled,
        )
        for _, path, size, values, stats, first, sequence, spelled in zip(
            *(column.to_pylist() for column in chosen.columns), strict=True
        )
    ]
