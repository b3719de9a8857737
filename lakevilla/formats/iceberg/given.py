"""The version that an Iceberg REST client asks for: what it comes to, and its metadata file.

Who decides the client's commit, and whoever publishes it, apply the same updates to the same file
(docs/design/0073-given-commits.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import ManifestContent, ManifestFile

from lakevilla.arrow.nesting import document
from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    StoreError,
    UnsupportedTableFeature,
)
from lakevilla.formats.base import Attempt, Change, ClientUpdates, CommitInfo
from lakevilla.formats.files import DataFile, is_elsewhere
from lakevilla.formats.iceberg.commit import (
    NONCE,
    TXN_IDS,
    IcebergEntry,
    check_next,
    commit_note,
    describe,
)
from lakevilla.formats.iceberg.manifests.manifests import ADDED, EXISTING
from lakevilla.formats.iceberg.metadata.definition import is_same_place, metadata_key
from lakevilla.formats.iceberg.metadata.file import (
    COMMIT_PROPERTY,
    MAIN,
    Metadata,
    decode_metadata,
    kept_versions,
    property_of,
)
from lakevilla.formats.iceberg.metadata.updates import added_snapshots, refs_of, updated
from lakevilla.formats.iceberg.snapshot import (
    IcebergSnapshot,
    entries_in,
    listed_by,
    live_entries,
    manifests_of,
)
from lakevilla.store.base import ABSENT
from lakevilla.store.effects import Program


@dataclass(frozen=True, slots=True)
class Consequence:
    """The change that updates come to; see ``sublogs.operations.Given``."""

    given: ClientUpdates
    change: Change
    moves: bool
    objects: tuple[str, ...]


def consequence(
    snapshot: IcebergSnapshot,
    updates: Sequence[Mapping[str, Any]],
    now_ms: int,
    admits: Callable[[str], bool],
) -> Program[Consequence]:
    """Apply updates to a published version, or to a table that is being made; read what they name.

    ``admits`` returns whether a data file outside of the table's directory may be named.

    Raises
    ------
    InvalidOperation
        They do not fit the table; they name files outside of its directory, or missing ones; or
        they move it.
    ConflictError
        A sequence number, or row ids, were given out by others meanwhile.
    UnsupportedTableFeature
        LakeVilla could not write the table any more.
    """
    snapshot.check_writable()
    given = ClientUpdates(snapshot.version, tuple(map(dict, updates)), now_ms)
    before = snapshot.document
    try:
        after = _after(snapshot, given)
        _refuse_move(snapshot, after)
        snapshot.definition.replaced(after.definition).check_writable()
        _refuse_lists_elsewhere(snapshot, after)
        entry = yield from describe(snapshot, snapshot.version + 1, after)
        if entry.listed is not None:  # this process will mostly publish the version at once
            snapshot.next_listed = _list_of(after), entry.listed
        known = {} if before is None else before.snapshots
        fresh = [after.snapshot(one) or {} for one in after.snapshots if one not in known]
        own = yield from _own_manifests(snapshot, fresh, {after.current_id: entry.listed})
        yield from _refuse_removed(snapshot, after, entry.listed or (), own)
    except CorruptObject as error:
        raise InvalidOperation(
            f"table {snapshot.table}: what the updates name can't be read: {error.message}",
            table=snapshot.table,
        ) from error
    _refuse_rows_back(snapshot, entry.change)
    _refuse_files_elsewhere(snapshot, entry.change.adds, admits)
    statistics = [path for update in given.updates for path in _statistics_paths(update)]
    for path in statistics:
        _refuse_elsewhere(snapshot, path)
    current = after.current_id
    is_new = current is not None and current not in known
    moves = (yield from _moves(snapshot, after, entry, own, given)) if is_new else False
    place = snapshot.definition.place
    named = [str(one["manifest-list"]) for one in fresh]
    named += [one.manifest_path for one in own]
    named += statistics
    return Consequence(
        msgspec.structs.replace(given, snapshot=current if is_new else None),
        _without_row_ids(snapshot.metadata, entry.change, defines=before is not None),
        moves,
        tuple(dict.fromkeys(place.path(one) for one in named)),
    )


def consequence_of_state(
    snapshot: IcebergSnapshot,
    shown: Metadata,
    updates: Sequence[Mapping[str, Any]],
    now_ms: int,
    directory: str,
) -> Program[tuple[Change, int | None]]:
    """Apply updates to a state that no log has; return the change, and the new snapshot's id.

    ``snapshot`` is the log's version below the state, ``shown`` the state's metadata, as the client
    was given it: with ``directory``, relative to the table, as the place of the client's files.

    Raises
    ------
    InvalidOperation
        As ``consequence``.
    ConflictError
        A sequence number, or row ids, were given out by others meanwhile.
    UnsupportedTableFeature
        What they do is no part of a state, or LakeVilla could not write the table any more.
    """
    for update in updates:
        _refuse_no_part(snapshot, update)
    place = snapshot.definition.place
    parts = updated(document(shown.encode()), updates, now_ms, snapshot.table)
    told = place.spelled(directory)
    if not is_same_place(str(parts.get("location")), told):
        raise _moved(snapshot, told, str(parts.get("location")))
    real = {"location": place.uri}
    before = shown.replaced(real)
    key = f"{shown.key}, updated"
    after = decode_metadata(key, snapshot.table, msgspec.json.encode({**parts, **real}))
    definition = snapshot.definition.replaced(before.definition)
    state = IcebergSnapshot(snapshot.version, definition, before, snapshot.cache)
    definition.replaced(after.definition).check_writable()
    known = before.snapshots
    if after.current_id != before.current_id and after.current_id in known:
        raise _no_part(snapshot, "a rollback")
    try:
        _refuse_lists_elsewhere(state, after)
        entry = yield from describe(state, state.version + 1, after)
        fresh = [after.snapshot(one) or {} for one in after.snapshots if one not in known]
        own = yield from _own_manifests(state, fresh, {after.current_id: entry.listed})
        yield from _refuse_removed(state, after, entry.listed or (), own)
    except CorruptObject as error:
        raise InvalidOperation(
            f"table {snapshot.table}: what the updates name can't be read: {error.message}",
            table=snapshot.table,
        ) from error
    _refuse_rows_back(snapshot, entry.change)
    is_new = after.current_id not in known
    change = _without_row_ids(before.definition, entry.change, defines=True)
    return change, after.current_id if is_new else None


#: What updates of a state that no log has may do.
_OF_STATES = frozenset(
    {
        "add-snapshot",
        "add-schema",
        "set-current-schema",
        "add-spec",
        "set-default-spec",
        "add-sort-order",
        "set-default-sort-order",
        "set-properties",
        "remove-properties",
        "set-location",
        "assign-uuid",
    }
)
_OF_MAIN = frozenset({"set-snapshot-ref", "remove-snapshot-ref"})


def _refuse_no_part(snapshot: IcebergSnapshot, update: Mapping[str, Any]) -> None:
    action = update.get("action")
    if action in _OF_MAIN and update.get("ref-name") == MAIN:
        return
    if action not in _OF_STATES:
        raise _no_part(snapshot, f"the update {action!r}")


def _no_part(snapshot: IcebergSnapshot, what: str) -> UnsupportedTableFeature:
    return UnsupportedTableFeature(
        f"table {snapshot.table}: {what} can't be committed on a branch of the lake: commit it on "
        "the lake itself",
        table=snapshot.table,
    )


def names_live_files(
    snapshot: IcebergSnapshot, updates: Sequence[Mapping[str, Any]]
) -> Program[bool]:
    """Return whether a version has a data file that the new snapshots of updates add.

    Then the updates took effect, though others may have expired their snapshots since.
    """
    try:
        own = yield from _own_manifests(snapshot, added_snapshots(updates), {})
        parts = yield from entries_in(snapshot, own)
    except (LakeVillaError, KeyError) as error:
        if isinstance(error, StoreError):
            raise
        return False  # what they name can't be read, so it was never committed
    added = [part["path"].filter(pc.equal(part["status"], ADDED)) for part in parts]
    if not added:
        return False
    live = yield from snapshot.files()
    named = pa.chunked_array([chunk for one in added for chunk in one.chunks], pa.string())
    return bool(pc.any(pc.is_in(live["path"], value_set=named.combine_chunks())).as_py())


def is_on_base(snapshot: IcebergSnapshot, given: ClientUpdates) -> bool:
    """Return whether a version is the one that the client knew."""
    return snapshot.version == given.base


def prepare_given(snapshot: IcebergSnapshot, info: CommitInfo) -> Program[Attempt]:
    """Return the version that the client asks for, on top of the one that it knew.

    The new current snapshot, or else the file's note, says whose commit it is.
    """
    assert info.given is not None
    yield from check_next(snapshot)
    document = _after(
        snapshot,
        info.given,
        own={property_of(name): str(value) for name, value in info.applications.items()},
        summary={TXN_IDS: ",".join(info.txn_ids), NONCE: str(info.nonce)},
        note=commit_note(info.txn_ids, info.nonce, info.operation),
    )
    uri, listed = snapshot.next_listed or ("", None)
    listed = listed if uri == _list_of(document) else None
    entry = yield from describe(snapshot, snapshot.version + 1, document, listed)
    return Attempt(document.key, document.encode(), ABSENT, entry)


def _list_of(document: Metadata) -> str:
    return str((document.current or {}).get("manifest-list", ""))


def _after(
    snapshot: IcebergSnapshot,
    given: ClientUpdates,
    *,
    own: Mapping[str, str] | None = None,
    summary: Mapping[str, str] | None = None,
    note: str | None = None,
) -> Metadata:
    """Return the file after a version, with the updates and with the lake's own properties."""
    before = snapshot.document
    known = None if before is None else document(before.encode())
    parts = updated(known, given.updates, given.now_ms, snapshot.table)
    current = parts.get("current-snapshot-id")
    is_new = before is None or current not in before.snapshots
    parts["snapshots"] = [
        {**one, "summary": {**one["summary"], **(summary or {})}}
        if is_new and one["snapshot-id"] == current
        else one
        for one in parts["snapshots"]
    ]
    properties = {**(parts.get("properties") or {}), **(own or {})}
    if note is not None and (not is_new or current == -1):
        properties[COMMIT_PROPERTY] = note
    parts["properties"] = properties
    if before is not None:
        entry = {"metadata-file": snapshot.document_uri, "timestamp-ms": before.last_updated_ms}
        log = [*(parts.get("metadata-log") or ()), entry]
        parts["metadata-log"] = log[-kept_versions(properties) :]
    key = metadata_key(snapshot.location, snapshot.version + 1)
    return decode_metadata(key, snapshot.table, msgspec.json.encode(parts))


def _refuse_move(snapshot: IcebergSnapshot, after: Metadata) -> None:
    uri, wanted = snapshot.definition.place.uri, str(after.get("location"))
    if wanted.rstrip("/") != uri and not is_same_place(wanted, uri):
        raise _moved(snapshot, uri, wanted)


def _moved(snapshot: IcebergSnapshot, uri: str, wanted: str) -> InvalidOperation:
    return InvalidOperation(
        f"table {snapshot.table} is at {uri}, and can't be moved to {wanted}", table=snapshot.table
    )


def _refuse_lists_elsewhere(snapshot: IcebergSnapshot, after: Metadata) -> None:
    known = () if snapshot.document is None else snapshot.document.snapshots.keys()
    for number in after.snapshots.keys() - known:
        one = after.snapshot(number) or {}
        _refuse_elsewhere(snapshot, str(one["manifest-list"]))


def _refuse_removed(
    snapshot: IcebergSnapshot,
    after: Metadata,
    listed: Sequence[ManifestFile],
    own: Sequence[ManifestFile],
) -> Program[None]:
    """Refuse a new snapshot that names files which neither its client has added nor its parent has.

    They were removed, and may be gone. ``listed``: its manifests; ``own``: those that it has added.
    """
    known = {} if snapshot.document is None else snapshot.document.snapshots
    parent: Any = after.current_id
    if parent is None or parent in known:
        return
    passed = set()
    while parent is not None and parent not in known:
        passed.add(parent)
        parent = (after.snapshot(parent) or {}).get("parent-snapshot-id")
        if parent in passed:
            raise _removed(snapshot, "itself among its parents", parent)
    if parent == snapshot.snapshot_id:
        below = yield from manifests_of(snapshot)
    else:
        below = yield from listed_by(snapshot, None if parent is None else after.snapshot(parent))
    place = snapshot.definition.place
    there = {place.path(one.manifest_path) for one in below}
    added = {place.path(one.manifest_path) for one in own}
    now = {place.path(one.manifest_path) for one in listed}
    stray = sorted(now - there - added)
    if stray:
        raise _removed(snapshot, stray[0], parent)
    kept: set[str] = set()
    for part in (yield from entries_in(snapshot, own)):  # whatever the list says of their numbers
        kept.update(part.filter(pc.equal(part["status"], EXISTING))["path"].to_pylist())
    if not kept:
        return
    left = [one for one in below if place.path(one.manifest_path) not in now]
    for part in (yield from entries_in(snapshot, left)):
        kept.difference_update(live_entries(part)["path"].to_pylist())
    if kept:
        raise _removed(snapshot, min(kept), parent)


def _removed(snapshot: IcebergSnapshot, what: str, parent: object) -> InvalidOperation:
    return InvalidOperation(
        f"the new snapshot of table {snapshot.table} names {what}, which it does not add, and "
        f"which its parent {parent} does not have: load the table, and commit on its newest state",
        table=snapshot.table,
    )


def _refuse_rows_back(snapshot: IcebergSnapshot, change: Change) -> None:
    """Refuse a change that takes a file's vector away and leaves the file: its rows would be back.

    A new snapshot has no other way to do that on purpose than to write the rows again.
    """
    had, has = (
        {file.path for file in files if any(one.kind == "vector" for one in file.deletes)}
        for files in (change.removes, change.adds)
    )
    for file in change.adds:
        if file.path in had - has:
            raise UnsupportedTableFeature(
                f"table {snapshot.table}: deleted rows of {file.path} would be back, as its "
                "deletion vector is dropped and none replaces it (DuckDB drops all vectors of a "
                "Puffin file together): `optimize` the table, or write by another engine",
                table=snapshot.table,
            )


def _refuse_files_elsewhere(
    snapshot: IcebergSnapshot, files: Sequence[DataFile], admits: Callable[[str], bool]
) -> None:
    for file in files:
        for path in (file.path, *(one.path for one in file.deletes)):
            if is_elsewhere(path) and not admits(path):
                raise _elsewhere(snapshot, path)


def _refuse_elsewhere(snapshot: IcebergSnapshot, uri: str) -> None:
    if is_elsewhere(snapshot.definition.place.path(uri)):
        raise _elsewhere(snapshot, uri)


def _elsewhere(snapshot: IcebergSnapshot, uri: str) -> InvalidOperation:
    return InvalidOperation(
        f"{uri} is not in the directory of table {snapshot.table}: store its files below "
        f"{snapshot.definition.place.uri}",
        table=snapshot.table,
    )


def _own_manifests(
    snapshot: IcebergSnapshot,
    fresh: Sequence[Mapping[str, Any]],
    listed: Mapping[int | None, Sequence[ManifestFile] | None],
) -> Program[list[ManifestFile]]:
    """Return the manifests that new snapshots have added; refuse those that lie elsewhere.

    ``listed``: the lists that were read, by the snapshots' ids.
    """
    found = []
    for one in fresh:
        known = listed.get(one["snapshot-id"])
        if known is None:
            known = yield from listed_by(snapshot, one)
        for manifest in known:
            _refuse_elsewhere(snapshot, manifest.manifest_path)
            if manifest.added_snapshot_id == one["snapshot-id"]:
                found.append(manifest)
    return found


def _moves(
    snapshot: IcebergSnapshot,
    after: Metadata,
    entry: IcebergEntry,
    own: Sequence[ManifestFile],
    given: ClientUpdates,
) -> Program[bool]:
    """Return whether the updates only add and remove data files on the main branch.

    A file that a rewrite gives an older sequence number than its snapshot's stays where it is:
    under a later one, deletes of others would not apply to it.
    """
    before = snapshot.document
    if before is None:
        return False
    current = after.current or {}
    kinds = sorted(str(update.get("action")) for update in given.updates)
    was, now = refs_of(document(before.encode())), refs_of(document(after.encode()))
    rules = [{**refs.pop(MAIN, {}), "snapshot-id": None, "type": "branch"} for refs in (was, now)]
    is_plain = (
        kinds == ["add-snapshot", "set-snapshot-ref"]
        and rules[0] == rules[1]
        and was == now
        and current.get("parent-snapshot-id") == before.current_id
        and entry.change.metadata is None
        and all(one.content == ManifestContent.DATA for one in own)
        and not any(file.deletes for file in entry.change.adds)
    )
    if not is_plain:
        return False
    for part in (yield from entries_in(snapshot, own)):
        added = part.filter(pc.equal(part["status"], ADDED))
        if not pc.all(pc.equal(added["sequence"], current["sequence-number"])).as_py():
            return False
    return True


def _without_row_ids(definition: Mapping[str, Any], change: Change, *, defines: bool) -> Change:
    """Leave out the row ids of new files: who publishes the version gives them out (note 64).

    ``defines``: the change has the table's definition, if it has a new one. A table that is made
    has it already.
    """
    known = {file.path for file in change.removes}
    adds = tuple(
        file
        if file.path in known
        else msgspec.structs.replace(file, base_row_id=None, default_row_commit_version=None)
        for file in change.adds
    )
    metadata = change.metadata if defines else None
    change = msgspec.structs.replace(change, adds=adds, metadata=metadata)
    # Refs, statistics and snapshots are no part of a change: the definition stays, and is said.
    return msgspec.structs.replace(change, metadata=dict(definition)) if change.is_empty else change


def _statistics_paths(update: Mapping[str, Any]) -> list[str]:
    found = (update.get(name) for name in ("statistics", "partition-statistics"))
    return [str(one["statistics-path"]) for one in found if isinstance(one, Mapping)]
