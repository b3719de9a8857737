"""Versions of a table in a catalog: the metadata files that the catalog has pointed at.

They are numbered by their names (``00012-<uuid>.metadata.json``), as every catalog does that
makes them by the libraries. The newest file's log names the ones before.
"""

from __future__ import annotations

import gzip

from lakevilla.errors import CorruptObject, TableNotFound, UnsupportedTableFeature, VersionNotFound
from lakevilla.formats.iceberg.metadata.cache import Cache
from lakevilla.formats.iceberg.metadata.file import Metadata, decode_metadata
from lakevilla.formats.iceberg.metadata.paths import place_of
from lakevilla.formats.iceberg.metadata.pointer import decode_pointer, number_of
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get

_GZIP = b"\x1f\x8b"


def newest_in_catalog(
    pointer: str, table: str, documents: Cache[Metadata]
) -> Program[tuple[int, Metadata]]:
    """The version that the catalog points at, by its number.

    Raises
    ------
    TableNotFound
        The catalog has no such table.
    UnsupportedTableFeature
        Its metadata file has no number.
    """
    outcome = yield from get(pointer)
    if not isinstance(outcome, Found):
        raise TableNotFound(
            f"there is no table {pointer} in its catalog: it was dropped or renamed there, or "
            "never made; make it with the catalog, and register it again",
            table=table,
        )
    uri = decode_pointer(outcome.body).metadata
    version = number_of(uri)
    if version is None:
        raise UnsupportedTableFeature(
            f"the metadata file of table {table}, {uri}, has no number in its name: commit once "
            "with the client that registered it, so that the catalog gives it one",
            table=table,
        )
    return version, (yield from read_document(uri, table, documents))


def version_in_catalog(
    newest: tuple[int, Metadata], version: int, table: str, documents: Cache[Metadata]
) -> Program[Metadata]:
    """A version at or below the newest, by the logs of later ones.

    Raises ``VersionNotFound`` if it is not kept.
    """
    number, document = newest
    while number > version:
        uri = _towards(document, number, version)
        if uri is None:
            break
        try:
            document = yield from read_document(uri, table, documents)
        except CorruptObject:
            break  # clean-up has taken it
        number = number_of(uri) or 0
    if number == version:
        return document
    raise VersionNotFound(
        f"table {table} has no version {version}, or no longer: its catalog is at {newest[0]}, and "
        "its metadata names no such file",
        table=table,
    )


def _towards(document: Metadata, number: int, version: int) -> str | None:
    """The file of the version, or of the oldest above it, that a metadata file names."""
    nearest = None
    for entry in reversed(document.get("metadata-log") or []):
        uri = place_of(str(entry["metadata-file"])).uri
        found = number_of(uri)
        if found is None or found < version:
            break
        if found < number:
            nearest, number = uri, found
    return nearest


def refuse_another_table(table: str, known: Metadata | None, newest: Metadata) -> None:
    """Refuse what is no earlier version of what is ``known``, though its number is not above it.

    A catalog may answer from what it had read before. Else the table was dropped and another
    was made, or registered, in its place. Raises ``TableNotFound``.
    """
    if known is None:
        return
    log = [place_of(str(entry["metadata-file"])).uri for entry in known.get("metadata-log") or []]
    if newest.key not in (known.key, *log):
        raise TableNotFound(
            f"table {table} is not what it was: its catalog has {newest.key} there, which "
            f"{known.key} does not follow",
            table=table,
        )


def read_document(uri: str, table: str, documents: Cache[Metadata]) -> Program[Metadata]:
    """A metadata file: it never changes under its name."""
    known = documents.find(uri)
    if known is not None:
        return known
    outcome = yield from get(uri)
    if not isinstance(outcome, Found):
        raise CorruptObject(
            f"metadata file {uri} of table {table} is missing: restore it, or have the catalog "
            "point at one that is there (`register_table`)",
            key=uri,
            table=table,
        )
    body = outcome.body
    if body.startswith(_GZIP):
        try:
            body = gzip.decompress(body)
        except (OSError, EOFError) as error:
            raise CorruptObject(
                f"metadata file {uri} of table {table} can't be unpacked ({error}): restore it "
                "from a copy",
                key=uri,
                table=table,
            ) from None
    document = decode_metadata(uri, table, body)
    documents.keep(uri, document, len(body))
    return document
