"""Versions of a table without a catalog: ``metadata/v<N>.metadata.json``, by number."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    TableNotFound,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.formats.base import Leftovers
from lakevilla.formats.iceberg.metadata.cache import Cache
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition
from lakevilla.formats.iceberg.metadata.file import Metadata, decode_metadata
from lakevilla.formats.iceberg.metadata.paths import (
    compressed_version,
    hint_key,
    is_same_place,
    metadata_directory,
    metadata_key,
    metadata_version,
)
from lakevilla.formats.iceberg.metadata.pointer import number_of
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get, list_objects, parallel

#: How often a version that a hint names is looked for.
_LOOKS = 3


def blank_snapshot(
    location: str, table: str, cache: Cache[pa.Table], catalog: str = ""
) -> IcebergSnapshot:
    """The state before version 0."""
    return IcebergSnapshot(
        -1, IcebergDefinition(location, table, {}, catalog), None, cache, listed=()
    )


def list_versions(location: str) -> Program[list[int]]:
    """The versions whose metadata files are there, in order: one LIST.

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
    """Two writers could take one version under two names, and lose each other's commits."""
    return UnsupportedTableFeature(
        f"table {location} has a compressed metadata file, version {version}, which LakeVilla "
        "does not read: have the client that wrote it set write.metadata.compression-codec to none",
        table=location,
    )


def newest_version(location: str, table: str) -> Program[int]:
    """The newest version: a LIST, and in the same round the hint.

    The list may be an old one and the hint behind. A hint that is ahead of the list is looked
    after, for what nobody lists any more may be the newest commits: passed over, their rows
    would be gone without a word, and their numbers would be given to others.

    Raises
    ------
    TableNotFound
        There is no metadata file, and no hint at one.
    UnsupportedTableFeature
        The hint names a metadata file as catalogs call them.
    CorruptObject
        The hint names a version that is not there, or one between two others is missing.
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
            return hinted  # the list was an old one
        # Where others clean up, it may have gone since the hint was read: then the hint moved.
    raise _points_nowhere(location, table, hint.body, last)


def _refuse_catalogs(location: str, table: str, hint: bytes) -> None:
    """Refuse a table whose newest version a catalog knows, and no number here."""
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
    there = (
        f"there is no metadata file in {metadata_directory(location)}: restore the newest one"
        if last < 0
        else f"the newest metadata file is {metadata_key(location, last)}: restore the one that "
        f"is missing, or, if it was never there, correct the hint to {last + 1}"
    )
    return CorruptObject(
        f"{key} of table {table} names version {text}, and {there}", key=key, table=table
    )


def hinted_version(location: str) -> Program[int | None]:
    """The version that the hint names; None if it names none."""
    hint = yield from get(hint_key(location))
    return _version_in(hint.body) if isinstance(hint, Found) else None


def _version_in(hint: bytes) -> int | None:
    text = hint.decode(errors="replace").strip()
    return int(text) - 1 if text.isdigit() and int(text) > 0 else None


def _refuse_gap(
    location: str, table: str, versions: list[int], hinted: int | None
) -> Program[None]:
    """A gap below the newest version is clean-up's, unless that version names what is missing.

    Clean-up that died leaves gaps. A hint that has passed one saves the look; one that has not
    proves nothing, for it may have been written late.
    """
    first, last = versions[0], versions[-1]
    if last - first + 1 == len(versions):
        return
    there = set(versions)
    missing = next(v for v in range(last, first, -1) if v not in there)
    if hinted is not None and hinted > missing:
        return
    newest = yield from read_metadata(location, table, last)
    log = [] if newest is None else newest.get("metadata-log") or []
    names = [str(entry.get("metadata-file", "")).rpartition("/")[2] for entry in log]
    named = [metadata_version(name) for name in names]
    # One that was not made on top of the number below it has no place in the log at all.
    if last - 1 in named[-1:] and missing not in named:
        return
    key = metadata_key(location, missing)
    raise CorruptObject(
        f"the metadata of table {table} has a gap: {key} is missing, and a newer version and the "
        f"hint do not tell that it was cleaned up: restore it, or correct {hint_key(location)}",
        key=key,
        table=table,
    )


def leftovers(location: str, table_id: str) -> Program[Leftovers]:
    """A metadata file of another table is a table; those of this one are strays, and the hint."""
    directory = metadata_directory(location)
    listed = yield from list_objects(directory)
    names = {info.key[len(directory) + 1 :]: info.key for info in listed}
    versions = {metadata_version(name): key for name, key in names.items()}
    there = sorted(version for version in versions if version is not None)
    if there:
        newest = yield from read_metadata(location, location, there[-1])
        if newest is None or newest.table_id != table_id:
            return Leftovers(True, ())
    return Leftovers(False, tuple(sorted(names.values())))


def read_metadata(location: str, table: str, version: int) -> Program[Metadata | None]:
    """A version's metadata file; None if it is absent."""
    key = metadata_key(location, version)
    outcome = yield from get(key)
    return decode_metadata(key, table, outcome.body) if isinstance(outcome, Found) else None


def open_version(
    location: str, table: str, version: int, uri: str, cache: Cache[pa.Table]
) -> Program[IcebergSnapshot]:
    """The table at a version. Raises ``VersionNotFound``."""
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
) -> IcebergSnapshot:
    """The state that a metadata file tells of; refuses one of another place."""
    refuse_another_place(table, document, uri)
    definition = IcebergDefinition(location, table, document.definition, catalog)
    return IcebergSnapshot(version, definition, document, cache)


def refuse_another_place(table: str, document: Metadata, uri: str) -> None:
    """Refuse what was moved or copied to ``uri``. Raises ``InvalidOperation``."""
    own = str(document.get("location"))
    if not is_same_place(own, uri):
        raise InvalidOperation(
            f"table {table} lies at {uri} and its metadata says {own}: it was moved or copied, "
            "and its manifests name files over there; open it where it was, or rewrite its paths "
            "(Spark's rewrite_table_path)",
            table=table,
        )
