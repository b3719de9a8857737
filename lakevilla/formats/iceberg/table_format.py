"""``IcebergFormat``: Iceberg tables as a table format of the protocol."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from lakevilla.errors import (
    ConflictError,
    CorruptObject,
    InvalidOperation,
    StoreError,
    TableNotFound,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.formats.base import (
    Attempt,
    Change,
    CommitInfo,
    Entry,
    FormatName,
    Leftovers,
    LogVersion,
    TableSnapshot,
)
from lakevilla.formats.files import file_key, paths_of
from lakevilla.formats.iceberg import log
from lakevilla.formats.iceberg import log as past_versions
from lakevilla.formats.iceberg.catalog.store import (
    InCatalog,
    newest_in_catalog,
    read_document,
    refuse_another_table,
    version_in_catalog,
)
from lakevilla.formats.iceberg.commit import (
    NONCE,
    IcebergEntry,
    advanced,
    describe,
    described,
    prepare,
)
from lakevilla.formats.iceberg.expiry import check_cleanable, publish_without, without_expired
from lakevilla.formats.iceberg.given import is_on_base, prepare_given
from lakevilla.formats.iceberg.log import at_ref
from lakevilla.formats.iceberg.metadata.changes import (
    alter_table,
    create_table,
    merge_schema,
    note_voided,
    redefined,
    replace_definition,
    replace_schema,
)
from lakevilla.formats.iceberg.metadata.definition import (
    hint_key,
    is_of_state,
    metadata_directory,
    metadata_key,
    place_of,
)
from lakevilla.formats.iceberg.metadata.file import COMMIT_PROPERTY, Cache, Metadata, kept_versions
from lakevilla.formats.iceberg.metadata.properties import whole_number
from lakevilla.formats.iceberg.snapshot import (
    IcebergSnapshot,
    check_upgrade,
    manifests_of,
    named_by_all,
    named_by_current,
)
from lakevilla.formats.layout import NewDefinition, TableAlteration
from lakevilla.store.base import ANY
from lakevilla.store.effects import DeleteObject, Effect, Program, Put, list_objects, parallel

_MANIFEST_BYTES = 256 << 20
#: The manifests that later commits have merged or rewritten; older transactions still read them.
_PAST_BYTES = 8 << 20
_METADATA_BYTES = 32 << 20
_CLEANED = "write.metadata.delete-after-commit.enabled"
_SNAPSHOT_AGE = "history.expire.max-snapshot-age-ms"
_SNAPSHOT_AGE_MS = 5 * 24 * 3_600_000
#: The number of searches for the newest version, while other clients clean up.
_LOOKS = 3
_LOG_RETENTION_SECONDS = 3 * 24 * 3600.0
_LEAST_AGE_SECONDS = 24 * 3600.0
#: The number of attempts at a version without old snapshots, while other clients commit.
_ATTEMPTS = 10
_OBJECT = re.compile(r"(?:.*/)?[^/]+\.(?:parquet|puffin)|metadata/[^/]+\.avro")


class IcebergFormat:
    """See ``formats.base.TableFormat``. Thread-safe; holds caches of manifests and metadata files.

    ``uri_of`` returns the URI of a location, as metadata files spell it.
    """

    name: FormatName = "iceberg"
    file_retention_source = f"{_SNAPSHOT_AGE}, at least a day"

    def __init__(self, uri_of: Callable[[str], str]) -> None:
        self._uri_of = uri_of
        self._cache: Cache[pa.Table] = Cache(_MANIFEST_BYTES, _PAST_BYTES)
        self._documents: Cache[Metadata] = Cache(_METADATA_BYTES)

    def open(
        self,
        location: str,
        table: str,
        cached: TableSnapshot | None = None,
        *,
        catalog: str = "",
        at_least: int = -1,
    ) -> Program[TableSnapshot]:
        """Return the newest version: a LIST and a GET, or the catalog's answer and a GET."""
        if catalog:
            newest = yield from newest_in_catalog(catalog, table, self._documents)
            return self._in_catalog(location, table, newest, catalog)
        for _ in range(_LOOKS):
            version = yield from log.newest_version(location, table)
            try:
                return (yield from self.open_at(location, table, version))
            except VersionNotFound:
                continue  # cleaned up between the two requests, or the list was old
        return (yield from self.open_at(location, table, version))

    def open_at(
        self,
        location: str,
        table: str,
        version: int,
        cached: TableSnapshot | None = None,
        *,
        catalog: str = "",
    ) -> Program[TableSnapshot]:
        if not catalog:
            uri = self._uri_of(location)
            return (yield from log.open_version(location, table, version, uri, self._cache))
        newest = yield from newest_in_catalog(catalog, table, self._documents)
        document = yield from version_in_catalog(newest, version, table, self._documents)
        found = newest._replace(version=version, document=document)
        return self._in_catalog(location, table, found, catalog)

    def open_several(
        self, location: str, table: str, versions: Collection[int]
    ) -> Program[dict[int, TableSnapshot]]:
        """Return none: each version has a document of its own."""
        yield from ()
        return {}

    def kept_versions(self, newest: TableSnapshot, limit: int | None) -> Program[list[LogVersion]]:
        state = _iceberg(newest)
        return (yield from past_versions.kept_versions(state, self._reader(state), limit))

    def kept_range(self, newest: TableSnapshot) -> Program[tuple[LogVersion, LogVersion] | None]:
        state = _iceberg(newest)
        return (yield from past_versions.kept_range(state, self._reader(state)))

    def version_by(self, newest: TableSnapshot, timestamp_ms: int) -> Program[int | None]:
        state = _iceberg(newest)
        return (yield from past_versions.version_by(state, self._reader(state), timestamp_ms))

    def check_kept(self, newest: TableSnapshot, then: TableSnapshot) -> Program[None]:
        state = _iceberg(newest)
        yield from past_versions.check_kept(state, self._reader(state), _iceberg(then))

    def at_ref(self, newest: TableSnapshot, ref: int | str) -> Program[TableSnapshot]:
        yield from ()
        return at_ref(_iceberg(newest), ref)

    def _reader(self, state: IcebergSnapshot) -> past_versions.Read:
        """Return a function that reads the metadata files named by later ones."""

        def read(one: past_versions.Logged) -> Program[Metadata | None]:
            if not state.catalog:
                return (yield from log.read_metadata(state.location, state.table, one.version))
            uri = place_of(one.uri).uri
            try:
                return (yield from read_document(uri, state.table, self._documents))
            except CorruptObject:
                return None  # clean-up has deleted it

        return read

    def entry(self, known: TableSnapshot, version: int) -> Program[Entry | None]:
        """Return one version, described relative to the one before; None if either is absent."""
        state = _iceberg(known)
        if state.catalog:
            return (yield from self._entry_in_catalog(state, version))
        document = yield from log.read_metadata(state.location, state.table, version)
        if document is None:
            return None
        log.refuse_another_place(state.table, document, self._uri_of(state.location))
        if state.version != version - 1 or state.overlaid:
            if version == 0:
                state = log.blank_snapshot(state.location, state.table, self._cache)
            else:
                below = yield from log.read_metadata(state.location, state.table, version - 1)
                if below is None:
                    return None
                state = self._opened(state.location, state.table, version - 1, below)
        return (yield from describe(state, version, document))

    def described(self, newest: TableSnapshot, versions: Iterable[int]) -> Mapping[int, Entry]:
        return described(_iceberg(newest), versions)

    def _entry_in_catalog(self, state: IcebergSnapshot, version: int) -> Program[Entry | None]:
        """Return the same as ``entry``; raise ``TableNotFound`` if the catalog has another table by
        now.
        """
        table, documents = state.table, self._documents
        newest = yield from newest_in_catalog(state.catalog, table, documents)
        if newest.version <= state.version:
            refuse_another_table(table, state.document, newest.document)
        if newest.version < version:
            return None
        document = yield from version_in_catalog(newest, version, table, documents)
        log.refuse_another_place(table, document, self._uri_of(state.location))
        if version == 0:
            state = self.blank(state.location, table, catalog=state.catalog)
        else:
            below = yield from version_in_catalog(newest, version - 1, table, documents)
            known = None if state.document is None else state.document.key
            if state.version != version - 1 or state.overlaid or known != below.key:
                found = newest._replace(version=version - 1, document=below)
                state = self._in_catalog(state.location, table, found, state.catalog)
        return (yield from describe(state, version, document))

    def _opened(
        self, location: str, table: str, version: int, document: Metadata
    ) -> IcebergSnapshot:
        uri = self._uri_of(location)
        return log.opened(location, table, version, document, uri, self._cache)

    def _in_catalog(
        self, location: str, table: str, found: InCatalog, catalog: str
    ) -> IcebergSnapshot:
        uri = self._uri_of(location)
        version, document, most, refuses = found
        return log.opened(
            location, table, version, document, uri, self._cache, catalog, most, refuses=refuses
        )

    def table_id(self, metadata: Mapping[str, Any]) -> str:
        return str(metadata.get("table-uuid", ""))

    def advance(self, snapshot: TableSnapshot, entry: Entry) -> TableSnapshot:
        if not isinstance(entry, IcebergEntry) or entry.version != snapshot.version + 1:
            raise InvalidOperation(
                f"entry {entry.version} does not follow version {snapshot.version} of table "
                f"{snapshot.location}; read the entries between",
                table=snapshot.location,
            )
        return advanced(_iceberg(snapshot), entry)

    def blank(self, location: str, table: str, *, catalog: str = "") -> IcebergSnapshot:
        return log.blank_snapshot(location, table, self._cache, catalog)

    def create(
        self,
        blank: TableSnapshot,
        schema: pa.Schema,
        *,
        table_id: str,
        partition_by: Sequence[str],
        properties: Mapping[str, str],
        created_ms: int,
    ) -> Change:
        return create_table(
            _iceberg(blank).definition,
            schema,
            uri=self._uri_of(blank.location),
            table_id=table_id,
            partition_by=partition_by,
            properties=properties,
        )

    def alter(
        self,
        snapshot: TableSnapshot,
        alteration: TableAlteration,
    ) -> Change:
        state = _iceberg(snapshot)
        change = alter_table(state.definition, alteration)
        if change.metadata is not None:
            check_upgrade(state, change.metadata)
        return change

    def merge_schema(self, snapshot: TableSnapshot, schema: pa.Schema) -> Change:
        return merge_schema(_iceberg(snapshot).definition, schema)

    def replace_schema(self, snapshot: TableSnapshot, schema: pa.Schema) -> Change:
        return replace_schema(_iceberg(snapshot).definition, schema)

    def replace_definition(self, snapshot: TableSnapshot, wanted: NewDefinition) -> Change:
        return replace_definition(_iceberg(snapshot).definition, wanted)

    def redefine(
        self, snapshot: TableSnapshot, metadata: Mapping[str, Any], protocol: Mapping[str, Any]
    ) -> Change:
        return redefined(_iceberg(snapshot).definition, metadata)

    def guard_change(self, snapshot: TableSnapshot) -> Change:
        raise UnsupportedTableFeature(
            f"table {snapshot.layout.table} is an Iceberg table, and nothing in Iceberg makes "
            "other writers refuse a table: it can't be guarded",
            table=snapshot.layout.table,
        )

    def unguard_change(self, snapshot: TableSnapshot) -> Change:
        return Change()

    def void_change(self, snapshot: TableSnapshot, txn: str) -> Change:
        return note_voided(_iceberg(snapshot).definition, txn)

    def prepare(
        self, snapshot: TableSnapshot, change: Change, info: CommitInfo, timestamp_ms: int
    ) -> Program[Attempt]:
        state = _iceberg(snapshot)
        if info.given is not None and is_on_base(state, info.given):
            return (yield from prepare_given(state, info))
        return (yield from prepare(state, change, info, timestamp_ms))

    def announce(self, snapshot: TableSnapshot) -> Program[None]:
        """Write the hint with which other readers begin; an old hint costs them one more request.

        Where the table's properties require it, delete the metadata file that its log has just
        dropped.
        """
        state = _iceberg(snapshot)
        if state.catalog:
            return  # readers of this table query the catalog, which cleans up as well
        parts: list[Effect] = [Put(hint_key(state.location), str(state.version + 1).encode(), ANY)]
        if state.document is not None and _is_cleaned(snapshot):
            oldest = state.version - kept_versions(state.document.properties) - 1
            if oldest >= 0:
                parts.append(DeleteObject(metadata_key(state.location, oldest)))
        # The version takes effect without either; the next client that announces a version repeats
        # both.
        with suppress(StoreError):
            yield from parallel(parts)

    def is_announced(self, snapshot: TableSnapshot) -> Program[bool]:
        """Return whether the hint is not behind; True in a catalog, whose readers need none."""
        state = _iceberg(snapshot)
        if state.catalog:
            return True
        hinted = yield from log.hinted_version(state.location)
        return hinted is not None and hinted >= state.version

    def check_whole(self, snapshot: TableSnapshot) -> Program[None]:
        """Read the manifests of the newest state: the next manifest list is made from its list."""
        with suppress(VersionNotFound):  # a newer version exists, and is reported when found
            yield from manifests_of(_iceberg(snapshot))

    def is_accepted(self, snapshot: TableSnapshot) -> Program[bool]:
        """Return whether the newest version is this one, or was made on top of it.

        The successor of a version holds its snapshot, or its note; a stray version below other
        versions has no such successor.
        """
        state = _iceberg(snapshot)
        if state.catalog:
            return True  # a catalog assigns no number twice
        newest = max((yield from log.list_versions(state.location)), default=-1)
        if newest == state.version:
            return True
        if newest < state.version:
            # A list that lacks the version that was just stored is old; the hint is not.
            hinted = yield from log.hinted_version(state.location)
            if hinted is None or hinted <= state.version:
                return True
            newest = hinted
        after = yield from log.read_metadata(state.location, state.table, state.version + 1)
        document, noted = state.document, True
        if after is None:
            # The next version was cleaned up too: the newest one still holds the snapshot, if there
            # is one.
            after = yield from log.read_metadata(state.location, state.table, newest)
            summary = {} if document is None else (document.current or {}).get("summary") or {}
            noted = state.newest is None or summary.get(NONCE) != state.newest.nonce
        if after is None or document is None:
            return False
        own = document.properties.get(COMMIT_PROPERTY)
        if noted and after.properties.get(COMMIT_PROPERTY) != own:
            return False
        return document.current_id in (None, *after.snapshots)

    def log_retention_seconds(self, snapshot: TableSnapshot) -> float:
        """Return zero where writers delete old metadata files with each commit, else three days.

        Otherwise only a removal of orphan files deletes them, and it keeps them for as long.
        The catalog records the content of its versions: none of their numbers can be created again.
        """
        return 0.0 if _is_cleaned(snapshot) and not snapshot.catalog else _LOG_RETENTION_SECONDS

    def file_retention_seconds(self, snapshot: TableSnapshot) -> float:
        """Return ``history.expire.max-snapshot-age-ms``, by default five days; at least a day.

        Only its age identifies an object that another client has stored and not yet published.
        """
        age = whole_number(snapshot.layout.properties, _SNAPSHOT_AGE, _SNAPSHOT_AGE_MS) / 1000
        return max(age, _LEAST_AGE_SECONDS)

    def may_name(self, path: str) -> bool:
        """Return True for data files, deletion vectors, statistics, manifests and their lists, and
        for the metadata files that a gateway has made of states.
        """
        return _OBJECT.fullmatch(path) is not None or is_of_state(path.removeprefix("metadata/"))

    def check_cleanable(self, snapshot: TableSnapshot, keys: Iterable[str]) -> None:
        check_cleanable(_iceberg(snapshot), keys)

    def without_expired(
        self,
        snapshot: TableSnapshot,
        replaced_before_ms: int,
        now_ms: int,
        kept_snapshots: Collection[int] = (),
    ) -> TableSnapshot:
        state = _iceberg(snapshot)
        if state.document is None:
            return state
        expired = without_expired(state.document, replaced_before_ms, now_ms, kept_snapshots)
        return state if expired is None else state.with_document(expired)

    def expire(
        self,
        snapshot: TableSnapshot,
        replaced_before_ms: int,
        now_ms: int,
        kept_snapshots: Collection[int] = (),
    ) -> Program[bool]:
        state = _iceberg(snapshot)
        location, table, table_id = state.location, state.table, state.table_id
        if state.document is None:
            return True  # the table's creation is decided, and not published yet
        tried = -1
        for _ in range(_ATTEMPTS):
            newest = _iceberg((yield from self.open(location, table)))
            if newest.document is None or newest.table_id != table_id:
                break
            newest.check_writable()
            expired = without_expired(newest.document, replaced_before_ms, now_ms, kept_snapshots)
            if expired is None:
                if newest.version == tried:
                    yield from self.announce(newest)
                return True
            # The table is read once more, whether the version was stored or not: an answer may be
            # lost, and a number deleted meanwhile is free again: no client continues from a version
            # there.
            tried = newest.version + 1
            yield from publish_without(newest, expired, now_ms)
        raise ConflictError(
            f"vacuum of table {table}: other clients wrote it so fast, or created it again, that "
            "its old snapshots could not be expired: run it again later",
            table=table,
        )

    def objects_of(self, snapshot: TableSnapshot) -> Program[set[str]]:
        state = _iceberg(snapshot)
        paths = yield from named_by_current(state)
        paths.update(path for one in state.tail.fold().adds.values() for path in paths_of(one))
        return {state.definition.place.key(path) for path in paths}

    def objects_of_each(
        self, snapshots: Sequence[TableSnapshot]
    ) -> Program[tuple[set[str], list[VersionNotFound]]]:
        found: set[str] = set()
        lost: list[VersionNotFound] = []
        for snapshot in snapshots:
            try:
                found |= yield from self.objects_of(snapshot)
            except VersionNotFound as error:
                lost.append(error)
        return found, lost

    def named_objects(self, snapshot: TableSnapshot, removed_since_ms: int) -> Program[set[str]]:
        state = _iceberg(snapshot)
        paths = yield from named_by_all(state, with_removed=False)
        paths.update(path for one in state.tail.fold().adds.values() for path in paths_of(one))
        return {state.definition.place.key(path) for path in paths}

    def named_in_log(self, snapshot: TableSnapshot) -> Program[set[str]]:
        return (yield from named_by_all(_iceberg(snapshot)))

    def log_directory(self, location: str) -> str:
        return metadata_directory(location)

    def leftovers(self, location: str, table_id: str) -> Program[Leftovers]:
        found = yield from log.leftovers(location, table_id)
        if found.written_after and (yield from self._is_whole(location)):
            return Leftovers(True, ())
        return found

    def _is_whole(self, location: str) -> Program[bool]:
        """Return whether all objects exist that the newest metadata file in a directory needs.

        The old metadata files of a table may have been cleaned up before it was copied. What one
        client has written to a deleted table lacks the files of all the others.
        """
        try:
            snapshot = _iceberg((yield from self.open(location, location)))
            named = yield from named_by_current(snapshot)
        except (TableNotFound, VersionNotFound, CorruptObject, InvalidOperation):
            return False
        existing = {info.key for info in (yield from list_objects(location))}
        return bool(named) and all(file_key(location, path) in existing for path in named)

    def checkpoint_due(self, version: int, snapshot: TableSnapshot) -> bool:
        return False

    def checkpoint_overdue(self, snapshot: TableSnapshot) -> bool:
        return False

    def checkpoint(self, snapshot: TableSnapshot) -> Program[TableSnapshot | None]:
        yield from ()
        return None


def _is_cleaned(snapshot: TableSnapshot) -> bool:
    """Return whether writers delete old metadata files as they commit."""
    return snapshot.layout.properties.get(_CLEANED, "").lower() == "true"


def _iceberg(snapshot: TableSnapshot) -> IcebergSnapshot:
    if not isinstance(snapshot, IcebergSnapshot):
        raise InvalidOperation(f"{type(snapshot).__name__} is no state of an iceberg table")
    return snapshot
