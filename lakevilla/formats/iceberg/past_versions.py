"""The versions that led to a state of an Iceberg table, as its metadata files name them.

A version counts because a later one names it in its log: a number alone proves nothing, for
where metadata files are deleted it is free again, and whoever slept for long may take it.
Each log goes back by a hundred versions or so, and the oldest file that it names by as many more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakevilla.errors import VersionNotFound
from lakevilla.formats.base import LogVersion
from lakevilla.formats.iceberg.metadata.file import Metadata
from lakevilla.formats.iceberg.metadata.paths import metadata_version
from lakevilla.formats.iceberg.metadata.pointer import number_of
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot
from lakevilla.store.effects import Program, parallel

#: Metadata files asked for in one round.
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Logged:
    """A version as a later one names it: its metadata file, and when that was written."""

    version: int
    timestamp_ms: int
    uri: str


#: Reads a metadata file that a log names; None if it is not there any more.
Read = Callable[[Logged], Program[Metadata | None]]


def kept_versions(
    newest: IcebergSnapshot, read: Read, limit: int | None
) -> Program[list[LogVersion]]:
    """The newest versions whose snapshots the table still has, newest first.

    A GET for each: a metadata file alone tells which snapshot was current.
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
    """The oldest version whose snapshot the table still has, and the newest; None without any.

    Snapshots are expired from the oldest on, so a few GETs find it.
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
    """The newest version that is not later; None if those that are named all are."""
    named = yield from _line(newest, read, lambda found: found[-1].timestamp_ms <= timestamp_ms)
    return next((one.version for one in named if one.timestamp_ms <= timestamp_ms), None)


def check_kept(newest: IcebergSnapshot, read: Read, then: IcebergSnapshot) -> Program[None]:
    """Refuse a version that no later one names, or whose snapshot was expired since.

    Its objects may be there for a while yet. Raises ``VersionNotFound``.
    """
    version, table = then.version, newest.table
    if not newest.catalog:  # whose versions are found by the logs of later ones alone
        named = yield from _line(newest, read, lambda found: found[-1].version <= version)
        if all(one.version != version for one in named):
            raise VersionNotFound(
                f"table {table} has no version {version}: no later one names the metadata file "
                "that has its number",
                table=table,
            )
    known, document = newest.document, then.document
    if known is not None and document is not None and not _is_kept(known, document):
        raise VersionNotFound(
            f"version {version} of table {table} is not kept any more: its snapshot "
            f"{then.snapshot_id} was expired",
            table=table,
        )


def _line(
    newest: IcebergSnapshot, read: Read, is_enough: Callable[[Sequence[Logged]], bool]
) -> Program[list[Logged]]:
    """The versions that led to a state, itself first: no request for those in its own log."""
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
                return found  # from before the table was numbered as it is now
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
