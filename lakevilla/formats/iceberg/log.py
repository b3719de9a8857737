"""Metadata files of an Iceberg table: versions, past versions, refs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    TableNotFound,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.formats.base import Leftovers, LogVersion
from lakevilla.formats.iceberg.metadata.definition import (
    MOST_VERSION,
    IcebergDefinition,
    compressed_version,
    hint_key,
    is_same_place,
    metadata_directory,
    metadata_key,
    metadata_version,
)
from lakevilla.formats.iceberg.metadata.file import (
    MAIN,
    Cache,
    Metadata,
    decode_metadata,
    number_of,
)
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get, list_objects, parallel

if TYPE_CHECKING:
    from lakevilla.formats.iceberg.snapshot import IcebergSnapshot

# -------------------- log
#
# Versions of a table without a catalog: ``metadata/v<N>.metadata.json``, by number.
#
# Snapshots need pyiceberg, which takes a quarter of a second to load. To find that a directory has
# no Iceberg table does not need pyiceberg.


#: The number of searches for a version that a hint names.
_LOOKS = 3


def blank_snapshot(
    location: str, table: str, cache: Cache[pa.Table], catalog: str = ""
) -> IcebergSnapshot:
    """Return the state before version 0."""
    from lakevilla.formats.iceberg.snapshot import IcebergSnapshot

    return IcebergSnapshot(
        -1, IcebergDefinition(location, table, {}, catalog), None, cache, listed=()
    )


def list_versions(location: str) -> Program[list[int]]:
    """Return the versions whose metadata files exist, in order: one LIST.

    Raises ``UnsupportedTableFeature`` if the newest is compressed.
    """
    directory = metadata_directory(location)
    listed = yield from list_objects(directory, f"{directory}/v")
    names = [info.key[len(directory) + 1 :] for info in listed]
    found = sorted(version for name in names if (version := metadata_version(name)) is not None)
    compressed = [v for name in names if (v := compressed_version(name)) is not None]
    if compressed and max(compressed) >= max(found, default=-1):
        raise compressed_metadata(location, max(compressed))
    return found


def compressed_metadata(location: str, version: int) -> UnsupportedTableFeature:
    """Return the error for compressed metadata: a version with two names could lose commits."""
    return UnsupportedTableFeature(
        f"table {location} has a compressed metadata file, version {version}, which LakeVilla "
        "does not read: have the client that wrote it set write.metadata.compression-codec to none",
        table=location,
    )


def newest_version(location: str, table: str) -> Program[int]:
    """Return the newest version: a LIST, and in the same round the hint.

    The list may be old and the hint behind. A hint that is ahead of the list is followed,
    for versions that are not listed any more may be the newest commits: if they were passed over,
    their rows would be lost silently, and their numbers would be assigned to other commits.

    Raises
    ------
    TableNotFound
        There is neither a metadata file nor a hint.
    UnsupportedTableFeature
        The hint names a metadata file in the way of catalogs.
    CorruptObject
        The hint names a version that does not exist, or one between two others is missing.
    """
    for _ in range(_LOOKS):
        listed: list[Any] = yield from parallel([list_versions(location), get(hint_key(location))])
        versions, hint = listed
        if not versions and not isinstance(hint, Found):
            raise TableNotFound(
                f"there is no iceberg table {table}: {metadata_directory(location)} holds no "
                "v<N>.metadata.json",
                table=table,
            )
        hinted = _version_in(hint.body) if isinstance(hint, Found) else None
        if isinstance(hint, Found):
            _refuse_catalogs(location, table, hint.body)
        last: int = max(versions, default=-1)
        if versions and (hinted is None or hinted <= last):
            yield from _refuse_gap(location, table, versions, hinted)
            return last
        if hinted is not None and (yield from read_metadata(location, table, hinted)):
            return hinted  # the list was old
        # Where other clients clean up, the version may have been deleted since: the hint has
        # advanced then.
    raise _points_nowhere(location, table, hint.body, last)


def _refuse_catalogs(location: str, table: str, hint: bytes) -> None:
    """Refuse a table whose newest version is known to a catalog, and not by a number here."""
    text = hint[:200].decode(errors="replace").strip()
    if number_of(f"{text.removesuffix('.metadata.json')}.metadata.json") is None:
        return
    raise UnsupportedTableFeature(
        f"table {table} is kept by a catalog: {hint_key(location)} names the metadata file {text}, "
        "which another may have replaced since; connect with catalogs={...} and register it by its "
        "name there (catalog.namespace.table)",
        table=table,
    )


def _points_nowhere(location: str, table: str, hint: bytes, last: int) -> CorruptObject:
    key = hint_key(location)
    text = hint[:40].decode(errors="replace").strip()
    advice = (
        f"there is no metadata file in {metadata_directory(location)}: restore the newest one"
        if last < 0
        else f"the newest metadata file is {metadata_key(location, last)}: restore the one that "
        f"is missing, or, if it was never there, correct the hint to {last + 1}"
    )
    return CorruptObject(
        f"{key} of table {table} names version {text}, and {advice}", key=key, table=table
    )


def hinted_version(location: str) -> Program[int | None]:
    """Return the version that the hint names; None if it names none."""
    hint = yield from get(hint_key(location))
    return _version_in(hint.body) if isinstance(hint, Found) else None


def _version_in(hint: bytes) -> int | None:
    text = hint.strip()
    # No table gets to a version of more digits, and Python refuses to read very many.
    return int(text) - 1 if re.fullmatch(rb"[0-9]{1,18}", text) and int(text) > 0 else None


def _refuse_gap(
    location: str, table: str, versions: list[int], hinted: int | None
) -> Program[None]:
    """Refuse a gap below the newest version, unless that version's log shows that clean-up made it.

    A clean-up that died leaves gaps. A hint that has passed a gap saves the check; one that has not
    proves nothing, for it may have been written late.
    """
    first, last = versions[0], versions[-1]
    if last - first + 1 == len(versions):
        return
    existing = set(versions)
    missing = next(v for v in range(last, first, -1) if v not in existing)
    if hinted is not None and hinted > missing:
        return
    newest = yield from read_metadata(location, table, last)
    log = [] if newest is None else newest.get("metadata-log") or []
    names = [str(entry.get("metadata-file", "")).rpartition("/")[2] for entry in log]
    named = [metadata_version(name) for name in names]
    # A version that was not made on top of the number below it does not belong in the log at all.
    if last - 1 in named[-1:] and missing not in named:
        return
    key = metadata_key(location, missing)
    raise CorruptObject(
        f"the metadata of table {table} has a gap: {key} is missing, and a newer version and the "
        f"hint do not show that it was cleaned up: restore it, or correct {hint_key(location)}",
        key=key,
        table=table,
    )


def leftovers(location: str, table_id: str) -> Program[Leftovers]:
    """List a deleted table's log: it holds a table if its newest metadata file is another table's.

    Its oldest one may also be a table's first: then a copy of the deleted table was put back. All
    other objects were written after the data was deleted.
    """
    directory = metadata_directory(location)
    listed = yield from list_objects(directory)
    names = {info.key[len(directory) + 1 :]: info.key for info in listed}
    versions = {metadata_version(name): key for name, key in names.items()}
    existing = sorted(version for version in versions if version is not None)
    if existing:
        newest = yield from read_metadata(location, location, existing[-1])
        if newest is None or newest.table_id != table_id:
            return Leftovers(True, ())
        oldest = yield from read_metadata(location, location, existing[0])
        if oldest is None or not oldest.get("metadata-log"):
            return Leftovers(True, ())
    return Leftovers(False, tuple(sorted(names.values())))


def read_metadata(location: str, table: str, version: int) -> Program[Metadata | None]:
    """Return a version's metadata file; None if it is absent."""
    key = metadata_key(location, version)
    outcome = yield from get(key)
    return decode_metadata(key, table, outcome.body) if isinstance(outcome, Found) else None


def open_version(
    location: str, table: str, version: int, uri: str, cache: Cache[pa.Table]
) -> Program[IcebergSnapshot]:
    """Return the table at a version. Raises ``VersionNotFound``."""
    document = None
    if version >= 0:
        document = yield from read_metadata(location, table, version)
    if document is None:
        raise VersionNotFound(
            f"table {table} has no version {version}, or no longer: "
            f"{metadata_key(location, max(version, 0))} is not there",
            table=table,
        )
    return opened(location, table, version, document, uri, cache)


def opened(
    location: str,
    table: str,
    version: int,
    document: Metadata,
    uri: str,
    cache: Cache[pa.Table],
    catalog: str = "",
    most_version: int = MOST_VERSION,
    *,
    refuses: str = "",
) -> IcebergSnapshot:
    """Return the state that a metadata file describes; refuse a file of another place."""
    refuse_another_place(table, document, uri)
    definition = IcebergDefinition(
        location, table, document.definition, catalog, most_version, refuses
    )
    from lakevilla.formats.iceberg.snapshot import IcebergSnapshot

    return IcebergSnapshot(version, definition, document, cache)


def refuse_another_place(table: str, document: Metadata, uri: str) -> None:
    """Refuse a table that was moved or copied to ``uri``. Raises ``InvalidOperation``."""
    own = str(document.get("location"))
    if not is_same_place(own, uri):
        raise InvalidOperation(
            f"table {table} is at {uri} and its metadata says {own}: it was moved or copied, and "
            "its manifests name files there; open it at that path, or rewrite its paths (Spark's "
            "rewrite_table_path)",
            table=table,
        )


# -------------------- past versions
#
# The versions that led to a state of an Iceberg table, as its metadata files name them.
#
# A version counts because a later one names it in its log, or because its file has made one of the
# newest version's snapshots current (``_clearly_led_to``). A number alone proves nothing: where
# metadata files are deleted it is free again, and a client that was suspended for long may take
# it. Each log goes back by a hundred versions or so, and the oldest file that it names by as many
# more.


#: Metadata files requested in one round.
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Logged:
    """A version as a later one names it: its metadata file, and the time when that was written."""

    version: int
    timestamp_ms: int
    uri: str


#: Reads a metadata file that a log names; None if it does not exist any more.
Read = Callable[[Logged], Program[Metadata | None]]


def kept_versions(
    newest: IcebergSnapshot, read: Read, limit: int | None
) -> Program[list[LogVersion]]:
    """Return the newest versions whose snapshots the table still has, newest first.

    Takes a GET for each: only its metadata file shows which snapshot was current.
    """
    if newest.document is None or limit == 0:
        return []
    named = yield from _line(newest, read, lambda found: limit is not None and len(found) >= limit)
    kept = [_described(newest.version, newest.document)]
    for start in range(1, len(named[:limit]), _AT_ONCE):
        part = named[start : min(start + _AT_ONCE, len(named[:limit]))]
        documents = yield from parallel([read(one) for one in part])
        for one, document in zip(part, documents, strict=True):
            if document is not None and _is_kept(newest.document, document):
                kept.append(_described(one.version, document))
    return kept


def kept_range(
    newest: IcebergSnapshot, read: Read
) -> Program[tuple[LogVersion, LogVersion] | None]:
    """Return the oldest version whose snapshot the table still has, and the newest, or None.

    Snapshots are expired from the oldest on, so a few GETs find it. None: there is no version.
    """
    if newest.document is None:
        return None
    named = yield from _line(newest, read, lambda found: False)
    last = oldest = _described(newest.version, newest.document)
    low, high = 0, len(named)  # named[low] is kept, and named[high] is not
    while high - low > 1:
        middle = (low + high) // 2
        document = yield from read(named[middle])
        if document is not None and _is_kept(newest.document, document):
            low, oldest = middle, _described(named[middle].version, document)
        else:
            high = middle
    return oldest, last


def version_by(newest: IcebergSnapshot, read: Read, timestamp_ms: int) -> Program[int | None]:
    """Return the newest version not later than ``timestamp_ms``; None if all named ones
    are later.
    """
    named = yield from _line(newest, read, lambda found: found[-1].timestamp_ms <= timestamp_ms)
    return next((one.version for one in named if one.timestamp_ms <= timestamp_ms), None)


def check_kept(newest: IcebergSnapshot, read: Read, state: IcebergSnapshot) -> Program[None]:
    """Refuse a version that did not lead to the newest, or whose snapshot was expired since.

    Its objects may still exist for some time. Raises ``VersionNotFound``.
    """
    version, table = state.version, newest.table
    # In a catalog, only the logs of later versions name a version.
    if not (newest.catalog or _clearly_led_to(state.document, newest.document)):
        named = yield from _line(newest, read, lambda found: found[-1].version <= version)
        if all(one.version != version for one in named):
            raise VersionNotFound(
                f"table {table} has no version {version}: no later one names the metadata file "
                "that has its number",
                table=table,
            )
    known, document = newest.document, state.document
    if known is not None and document is not None and not _is_kept(known, document):
        raise VersionNotFound(
            f"version {version} of table {table} is not kept any more: its snapshot "
            f"{state.snapshot_id} was expired",
            table=table,
        )


class _Change(msgspec.Struct, rename="kebab", frozen=True):
    """A change of the current snapshot, as a ``snapshot-log`` has it."""

    timestamp_ms: int
    snapshot_id: int


def _clearly_led_to(then: Metadata | None, newest: Metadata | None) -> bool:
    """Return whether two metadata files alone show that ``then`` led to ``newest``.

    It is so if ``then`` made a snapshot current that ``newest`` still has, and up to that change
    both have the same changes, at the same times. A file that a suspended client stored under a
    free number lacks the snapshots of the versions that others had made meanwhile.
    """
    if newest is None or then is None or newest.table_id != then.table_id:
        return False
    try:
        changes = newest.parsed("snapshot-log", list[_Change]) or []
        earlier = then.parsed("snapshot-log", list[_Change]) or []
        number = then.current_id
        made = newest.snapshot(number)
        is_same = made is not None and made == then.snapshot(number)
    except CorruptObject:
        return False
    own = None if number is None else _Change(then.last_updated_ms, number)
    if not is_same or earlier[-1:] != [own] or own not in changes:
        return False
    if sum(change.timestamp_ms == then.last_updated_ms for change in changes) > 1:
        return False
    common = changes[: changes.index(own) + 1]  # an expiry may have removed older ones
    return earlier[-len(common) :] == common


def _line(
    newest: IcebergSnapshot, read: Read, is_enough: Callable[[Sequence[Logged]], bool]
) -> Program[list[Logged]]:
    """Return the versions that led to a state, itself first; its own log costs no request."""
    document = newest.document
    if document is None:
        return []
    found = [Logged(newest.version, document.last_updated_ms, document.key)]
    while not is_enough(found):
        known = len(found)
        for entry in reversed(document.get("metadata-log") or []):
            uri = str(entry["metadata-file"])
            number = _number(newest, uri)
            if number is None or number >= found[-1].version:
                return found  # older than the table's present numbering
            found.append(Logged(number, int(entry["timestamp-ms"]), uri))
        if len(found) == known:
            break
        if not is_enough(found) and found[-1].version > 0:
            older = yield from read(found[-1])
            if older is None:
                return found[:-1]
            document = older
    return found


def _number(newest: IcebergSnapshot, uri: str) -> int | None:
    return number_of(uri) if newest.catalog else metadata_version(uri.rpartition("/")[2])


def _is_kept(newest: Metadata, then: Metadata) -> bool:
    return then.current_id is None or then.current_id in newest.snapshots


def _described(version: int, document: Metadata) -> LogVersion:
    return LogVersion(version, document.last_updated_ms, document.current_id)


# -------------------- refs
#
# Native names of an Iceberg table's states: snapshot ids, branches and tags.


#: The number of names that an error lists.
_MOST_NAMES = 10


def at_ref(newest: IcebergSnapshot, ref: int | str) -> IcebergSnapshot:
    """Return the state that a snapshot id, a branch or a tag names in the newest version.

    A branch has the columns that the table has now; any other snapshot has the columns of the
    time when it was made, as in Iceberg's own readers (Iceberg, "Branching and Tagging",
    "Schema selection with branches and tags").

    Raises
    ------
    VersionNotFound
        The table has no such snapshot, branch or tag, or no longer.
    """
    document = newest.document
    number, is_branch = None if document is None else _named(document, ref), False
    if document is None or number is None:
        raise _not_found(newest, ref)
    chosen = document.snapshot(number)
    if chosen is None:
        raise _not_found(newest, ref)
    if isinstance(ref, str):
        is_branch = ref == MAIN or _refs(document).get(ref, {}).get("type") == "branch"
    parts: dict[str, Any] = {"current-snapshot-id": number}
    schema = chosen.get("schema-id")
    if not is_branch and any(one.get("schema-id", 0) == schema for one in _schemas(document)):
        parts["current-schema-id"] = schema
    then = document.replaced(parts)
    definition = newest.definition.replaced(then.definition)
    from lakevilla.formats.iceberg.snapshot import IcebergSnapshot

    return IcebergSnapshot(newest.version, definition, then, newest.cache)


def _named(document: Metadata, ref: int | str) -> int | None:
    if isinstance(ref, int):
        return ref
    named = _refs(document).get(ref)
    if named is not None:
        return int(named["snapshot-id"])
    if ref == MAIN:
        return document.current_id
    return int(ref) if ref.isdecimal() else None


def _refs(document: Metadata) -> dict[str, Any]:
    found: dict[str, Any] = document.get("refs") or {}
    return found


def _schemas(document: Metadata) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document.get("schemas") or []
    return found


def _not_found(newest: IcebergSnapshot, ref: int | str) -> VersionNotFound:
    table, document = newest.table, newest.document
    refs = [] if document is None else sorted({MAIN, *_refs(document)})
    ids = [] if document is None else [str(number) for number in document.snapshots]
    return VersionNotFound(
        f"table {table} has no snapshot, branch or tag {ref!r}, or no longer: its branches and "
        f"tags are {_listed(refs)}, its snapshots {_listed(ids)}; request one of those",
        table=table,
    )


def _listed(names: list[str]) -> str:
    """Return names in words; of many names only the last, which are the newest snapshots."""
    shown = ", ".join(names[-_MOST_NAMES:])
    left_out = len(names) - _MOST_NAMES
    return (f"{left_out} older ones and {shown}" if left_out > 0 else shown) or "none"
