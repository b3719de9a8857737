"""The state of an Iceberg table: a metadata file, its manifests, and changes laid over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import ManifestContent, ManifestFile

from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.formats.base import Change, Entry, FormatName
from lakevilla.formats.files import (
    DELETE_FILE_TYPE,
    FILES_SCHEMA,
    FileRef,
    TableSize,
    masked_out,
    present,
)
from lakevilla.formats.iceberg.manifests.manifests import (
    DELETED,
    ENTRIES,
    cache_key,
    counted,
    decode_list,
    decode_manifest,
    held_bytes,
    is_counted,
    with_deletes,
)
from lakevilla.formats.iceberg.metadata.definition import (
    MOST_VERSION,
    IcebergDefinition,
    contract_of,
    keeps_contract,
    metadata_directory,
    metadata_version,
)
from lakevilla.formats.iceberg.metadata.file import (
    STATISTICS,
    Cache,
    Metadata,
    StatisticsFile,
    decode_pointer,
    number_of,
    statistics_in,
)
from lakevilla.formats.layout import DefinedSnapshot, contract_digest
from lakevilla.formats.overlay import EMPTY_TAIL, AddedFiles, Overlay
from lakevilla.formats.pruning import may_match
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get, list_objects, parallel


class IcebergSnapshot(DefinedSnapshot[IcebergDefinition]):
    """See ``formats.base.TableSnapshot``.

    ``document`` is the metadata file (None before the table is created). ``listed`` are its
    manifests, where they are known without reading the store.
    """

    __slots__ = (
        "_added",
        "cache",
        "definition",
        "document",
        "listed",
        "newest",
        "next_listed",
        "tail",
        "version",
    )

    def __init__(
        self,
        version: int,
        definition: IcebergDefinition,
        document: Metadata | None,
        cache: Cache[pa.Table],
        *,
        listed: tuple[ManifestFile, ...] | None = None,
        tail: Overlay = EMPTY_TAIL,
        newest: Entry | None = None,
    ) -> None:
        self.version = version
        self.definition = definition
        self.document = document
        self.cache = cache
        self.listed = listed
        self.tail = tail
        self.newest = newest
        #: The manifest list that a client asks for as the next, and its manifests, as read last.
        self.next_listed: tuple[str, tuple[ManifestFile, ...]] | None = None
        #: The files that this state, or one over which it is laid, has added.
        self._added: AddedFiles | None = None

    @property
    def format(self) -> FormatName:
        return "iceberg"

    @property
    def catalog(self) -> str:
        return self.definition.catalog

    @property
    def snapshot_id(self) -> int | None:
        return None if self.document is None else self.document.current_id

    @property
    def held_bytes(self) -> int:
        """The size of the metadata file, which lists all snapshots of the table."""
        return 0 if self.document is None else self.document.size

    @property
    def document_uri(self) -> str | None:
        """The URI of the metadata file, as metadata spells it."""
        if self.document is None:
            return None
        return self.definition.place.spelled(self.document.key.removeprefix(f"{self.location}/"))

    @property
    def time_travel(self) -> int | None:
        if self.catalog:
            return None  # readers of a directory do not find a table that only a catalog knows
        # A reader that opens a snapshot shows the columns that the table had at that time.
        current = None if self.document is None else self.document.current
        if current is None or current.get("schema-id") != self.metadata["current-schema-id"]:
            return None
        return self.snapshot_id

    @property
    def metadata(self) -> dict[str, Any]:
        return self.definition.document

    @property
    def protocol(self) -> dict[str, Any]:
        """An empty mapping: a table's requirements are part of its definition."""
        return {}

    @property
    def rules(self) -> tuple[object, ...]:
        return (self.metadata,)

    @property
    def guarded(self) -> bool:
        """False: Iceberg has nothing that makes other writers refuse a table."""
        return False

    @property
    def append_only(self) -> bool:
        return False

    @property
    def overlaid(self) -> bool:
        """True if changes are laid over the metadata file."""
        known = {} if self.document is None else self.document.definition
        return not self.tail.is_empty or self.definition.document != known

    def application_version(self, application: str) -> int | None:
        return None if self.document is None else self.document.applications.get(application)

    def keeps_contract(self, metadata: Mapping[str, Any]) -> bool:
        return keeps_contract(self.metadata, metadata)

    def contract_of(self, metadata: Mapping[str, Any]) -> str:
        return contract_digest(contract_of(metadata))

    def with_document(self, document: Metadata) -> IcebergSnapshot:
        """Return the same state with ``document``, a metadata file that contains less."""
        return IcebergSnapshot(
            self.version, self.definition, document, self.cache, listed=self.listed, tail=self.tail
        )

    @property
    def limits(self) -> tuple[str, ...]:
        found = []
        if self.definition.most_version < MOST_VERSION:
            found.append(
                "an upgrade to format version 3 is refused: pyiceberg writes it in REST catalogs "
                "alone"
            )
        if marks := sorted(self.layout.marks_deletes):
            found.append(
                f"{', '.join(marks)} of few rows of a large file marks them by a "
                f"{'deletion vector' if self.layout.lineage else 'position delete file'}, and "
                "leaves the file"
            )
        return tuple(found)

    @property
    def next_row_id(self) -> int | None:
        if self.document is None or self.document.format_version < 3:
            return None
        return self.document.next_row_id

    def check_upgradable(self) -> None:
        self.definition.check_upgradable()

    def apply(self, change: Change) -> IcebergSnapshot:
        if change.protocol or change.domains or change.change_files:
            raise InvalidOperation(
                f"table {self.table} is an Iceberg table: it takes no actions of Delta's",
                table=self.table,
            )
        definition = self.definition
        if change.metadata is not None:
            definition = definition.replaced(change.metadata)
        made = IcebergSnapshot(
            self.version,
            definition,
            self.document,
            self.cache,
            listed=self.listed,
            tail=self.tail.with_change(change),
            newest=self.newest,
        )
        made._added = self._added
        return made

    def forget_files(self) -> None:
        self._added = None

    def files(self, where: Expr | None = None) -> Program[pa.Table]:
        folded = self.tail.fold()
        base = masked_out((yield from current_files(self)), folded.masks)
        if folded.adds:
            self._added = added = AddedFiles.of(folded, self._added)
            base = pa.concat_tables([base, added.table])
        if where is not None and base.num_rows:
            kept = may_match(base, self.layout, where)
            if kept.true_count < len(kept):
                base = base.filter(kept)
        return base

    def check_files(self) -> Program[None]:
        yield from current_files(self)

    def missing(self, refs: Sequence[FileRef]) -> Program[list[FileRef]]:
        spoken = {ref: self.tail.live(ref) for ref in refs}
        unknown = [ref for ref, live in spoken.items() if live is None]
        found: set[FileRef] = set()
        if unknown:
            found = present((yield from current_files(self)), unknown)
        return [ref for ref in refs if not (spoken[ref] or ref in found)]

    def known_size(self) -> TableSize | None:
        current = None if self.document is None or self.overlaid else self.document.current
        summary = {} if current is None else current.get("summary") or {}
        try:
            files, size = int(summary["total-data-files"]), int(summary["total-files-size"])
            exact = int(summary.get("total-delete-files", 0)) == 0
            return TableSize(int(summary["total-records"]) if exact else None, files, size)
        except (KeyError, ValueError):
            return None  # the fields of a summary are its writer's choice


def manifests_of(snapshot: IcebergSnapshot) -> Program[tuple[ManifestFile, ...]]:
    """Return the manifests of the metadata file's current snapshot."""
    if snapshot.listed is None:
        document = snapshot.document
        current = None if document is None else document.current
        snapshot.listed = yield from listed_by(snapshot, current)
    return snapshot.listed


def listed_by(
    snapshot: IcebergSnapshot, chosen: Mapping[str, Any] | None
) -> Program[tuple[ManifestFile, ...]]:
    """Return the manifests of one of the table's snapshots, as the metadata file has it."""
    if chosen is None:
        return ()
    place, table = snapshot.definition.place, snapshot.table
    uri = chosen.get("manifest-list")
    if uri is None and chosen.get("manifests") is not None:
        raise UnsupportedTableFeature(
            f"snapshot {chosen.get('snapshot-id')} of table {table} keeps its manifests in the "
            "metadata file, as version 1 could, which LakeVilla does not read: commit once with "
            "the client that wrote it",
            table=table,
        )
    if uri is None:
        raise CorruptObject(
            f"snapshot {chosen.get('snapshot-id')} of table {table} names no manifest list: "
            "restore the metadata file from a copy",
            table=table,
        )
    key = place.key(place.path(str(uri)))
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        raise (yield from missing_object(snapshot, f"manifest list {key}", key))
    listed = tuple(decode_list(key, table, outcome.body))
    said = (chosen.get("summary") or {}).get("total-data-files")
    if not listed and said not in (None, "0"):
        # Nothing else tells an empty list from one that was cut after its header.
        raise CorruptObject(
            f"manifest list {key} of table {table} names no manifest, and its snapshot says that "
            f"it has {said} data files: restore it from a copy",
            key=key,
            table=table,
        )
    unknown = [one for one in listed if not is_counted(one)]
    for one, entries in zip(unknown, (yield from entries_in(snapshot, unknown)), strict=True):
        counted(one, entries)
    return listed


def check_upgrade(snapshot: IcebergSnapshot, metadata: Mapping[str, Any]) -> None:
    """Refuse an upgrade from version 1 where snapshots can't be part of a later version.

    Raises ``UnsupportedTableFeature``.
    """
    document = snapshot.document
    if document is None or document.format_version >= min(2, metadata["format-version"]):
        return
    for number in document.snapshots:
        if (document.snapshot(number) or {}).get("manifest-list") is None:
            raise UnsupportedTableFeature(
                f"snapshot {number} of table {snapshot.table} keeps its manifests in the metadata "
                "file, as version 1 alone can: expire it with the client that wrote it, and "
                "upgrade the table then",
                table=snapshot.table,
            )


def missing_object(snapshot: IcebergSnapshot, what: str, key: str) -> Program[LakeVillaError]:
    """Return the error for a missing object that a version names.

    Either the version is old, or it is damaged: only the newest version must have all its objects.
    A client that expires snapshots first publishes a version without them, and then deletes the
    objects that only they have named.
    """
    table = snapshot.table
    if (yield from _newest_number(snapshot)) > snapshot.version:
        return VersionNotFound(
            f"version {snapshot.version} of table {table} is not kept any more, its snapshots "
            f"were expired since ({what} is missing): request a newer one",
            table=table,
        )
    return CorruptObject(
        f"{what} of table {table} is missing: restore it, or roll the table back to a snapshot "
        "that does not need it",
        key=key,
        table=table,
    )


def _newest_number(snapshot: IcebergSnapshot) -> Program[int]:
    if snapshot.catalog:
        pointed = yield from get(snapshot.catalog)
        if not isinstance(pointed, Found):
            return -1
        number = number_of(decode_pointer(pointed.body).metadata)
        return -1 if number is None else number
    directory = metadata_directory(snapshot.location)
    listed = yield from list_objects(directory, f"{directory}/v")
    versions = [metadata_version(one.key[len(directory) + 1 :]) for one in listed]
    return max((v for v in versions if v is not None), default=-1)


def bodies_of(
    snapshot: IcebergSnapshot, manifests: Sequence[ManifestFile]
) -> Program[list[tuple[ManifestFile, str, bytes]]]:
    """Return manifests with their keys and bodies, read in one round."""
    place = snapshot.definition.place
    keys = [place.key(place.path(one.manifest_path)) for one in manifests]
    outcomes = yield from parallel([get(key) for key in keys])
    found = []
    for manifest, key, outcome in zip(manifests, keys, outcomes, strict=True):
        if not isinstance(outcome, Found):
            raise (yield from missing_object(snapshot, f"manifest {key}", key))
        _refuse_cut(snapshot, manifest, key, outcome.body)
        found.append((manifest, key, outcome.body))
    return found


def entries_in(
    snapshot: IcebergSnapshot, manifests: Sequence[ManifestFile]
) -> Program[list[pa.Table]]:
    """Return the entries of manifests as columns; those not cached are read in one round."""
    cache = snapshot.cache
    wanted = [one for one in manifests if cache.find(cache_key(one)) is None]
    fresh = {}
    for manifest, key, body in (yield from bodies_of(snapshot, wanted)):
        read = decode_manifest(key, body, manifest, snapshot.definition)
        fresh[cache_key(manifest)] = read
        cache.keep(cache_key(manifest), read, held_bytes(read))
    found = []
    for manifest in manifests:
        columns = fresh.get(cache_key(manifest))
        if columns is None:
            columns = cache.find(cache_key(manifest))
        if columns is None:  # other threads' manifests have replaced it in the cache
            (columns,) = yield from entries_in(snapshot, [manifest])
        found.append(columns)
    return found


def _refuse_cut(snapshot: IcebergSnapshot, manifest: ManifestFile, key: str, body: bytes) -> None:
    """Refuse a manifest that is shorter, and has fewer entries, than its list says.

    Nothing in the manifest itself tells that it was cut at the end of a block. A length alone may
    be its writer's mistake: Iceberg's rewriting of a table's paths kept those of longer manifests.
    """
    if len(body) >= manifest.manifest_length:
        return
    counts = [manifest._data[place] for place in (7, 8, 9)]  # added, existing, deleted files
    entries = decode_manifest(key, body, manifest, snapshot.definition)
    if None in counts or entries.num_rows < sum(counts):
        said = "" if None in counts else f" of its {sum(counts)}"
        raise CorruptObject(
            f"manifest {key} of table {snapshot.table} has {entries.num_rows}{said} entries, and "
            f"{len(body)} of its {manifest.manifest_length} bytes: restore it from a copy",
            key=key,
            table=snapshot.table,
        )


def live_entries(entries: pa.Table) -> pa.Table:
    """Return a manifest's entries without those that only record the removal of a file."""
    live = pc.not_equal(entries["status"], pa.scalar(DELETED, pa.int8()))
    # Most manifests have no other entries, and to copy all columns takes six times as long or more.
    return entries if pc.all(live).as_py() else entries.filter(live)


def named_by_all(snapshot: IcebergSnapshot, *, with_removed: bool = True) -> Program[set[str]]:
    """Return the paths of all objects that a snapshot names which the table still has.

    ``with_removed``: also data files that a snapshot names only to record their removal.
    """
    document = snapshot.document
    if document is None:
        return set()
    chosen = [document.snapshot(number) for number in document.snapshots]
    statistics = [one for name in STATISTICS for one in statistics_in(document, name)]
    return (yield from _named_by(snapshot, chosen, statistics, with_removed=with_removed))


def named_by_current(snapshot: IcebergSnapshot) -> Program[set[str]]:
    """Return the paths of the objects that the metadata file's current snapshot needs."""
    document = snapshot.document
    if document is None or document.current is None:
        return set()
    return (yield from _named_by(snapshot, [document.current], (), with_removed=False))


def _named_by(
    snapshot: IcebergSnapshot,
    chosen: Sequence[Mapping[str, Any] | None],
    statistics: Iterable[StatisticsFile],
    *,
    with_removed: bool,
) -> Program[set[str]]:
    lists = yield from parallel([listed_by(snapshot, one) for one in chosen])
    manifests = {one.manifest_path: one for listed in lists for one in listed}
    parts = yield from entries_in(snapshot, list(manifests.values()))
    place = snapshot.definition.place
    own = [*(one["manifest-list"] for one in chosen if one and "manifest-list" in one), *manifests]
    own += [one.statistics_path for one in statistics]
    named = {place.path(uri) for uri in own}
    for part in parts:
        entries = part if with_removed else live_entries(part)
        named.update(entries["path"].to_pylist())
    return named


def current_files(snapshot: IcebergSnapshot) -> Program[pa.Table]:
    """Return the live files of the metadata file's current snapshot (``FILES_SCHEMA``)."""
    manifests = yield from manifests_of(snapshot)
    return (yield from files_of(snapshot, manifests))


def files_of(snapshot: IcebergSnapshot, manifests: Sequence[ManifestFile]) -> Program[pa.Table]:
    """Return the live files that manifests name, with the deletes that apply to them."""
    live = [one for one in manifests if one.has_added_files() or one.has_existing_files()]
    parts = yield from entries_in(snapshot, live)
    data: list[pa.Table] = []
    deletes: list[pa.Table] = []
    for manifest, part in zip(live, parts, strict=True):
        (deletes if manifest.content == ManifestContent.DELETES else data).append(
            live_entries(part)
        )
    rows = pa.concat_tables(data) if data else ENTRIES.empty_table()
    count = rows.num_rows
    ids: Any = pa.nulls(count, pa.string())
    lists: Any = pa.nulls(count, pa.list_(DELETE_FILE_TYPE))
    if deletes:
        ids, lists = with_deletes(rows, pa.concat_tables(deletes), snapshot.table)
    columns = {
        "path": rows.column("path"),
        "dv_id": ids,
        "size": rows.column("size"),
        "modification_time": pa.repeat(pa.scalar(0, pa.int64()), count),
        "partition_values": rows.column("partition_values"),
        "stats": rows.column("stats"),
        "raw_path": rows.column("spelled"),
        "deletes": lists,
    }
    if snapshot.definition.has_row_ids:
        columns["base_row_id"] = rows.column("first_row_id")
        columns["default_row_commit_version"] = rows.column("sequence")
    arrays = [columns.get(f.name, pa.nulls(count, f.type)) for f in FILES_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=FILES_SCHEMA)
