"""Planted bugs of Iceberg tables: each is searched for in histories with such tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any

from pyiceberg.manifest import ManifestEntryStatus

from lakevilla.formats.iceberg import commit
from lakevilla.formats.iceberg.manifests.manifests import (
    encode_manifest,
    number_rows,
    numbered_manifests,
    rows_of_manifest,
    widened,
)
from lakevilla.formats.iceberg.metadata.file import Metadata, next_metadata
from lakevilla.formats.iceberg.table_format import IcebergFormat
from lakevilla.store.base import ANY
from lakevilla.store.effects import Program, Put, parallel
from lakevilla_testing.planted.bugs import attribute, instead, planted


@planted(kinds=("lists", "add", "transfer"), formats="mixed")
def metadata_file_stored_over_another() -> Iterator[None]:
    """A client stores a version without a check that its number is free, like a rename on S3."""
    original = IcebergFormat.prepare

    def prepare(*given: Any) -> Program[Any]:
        attempt = yield from original(*given)
        return replace(attempt, condition=ANY)

    with attribute(IcebergFormat, "prepare", prepare):
        yield


@planted(kinds=("transfer", "lists"), formats="mixed", intensity=2.0)
def lake_not_noted_in_properties() -> Iterator[None]:
    """A version does not say how far the lake's commits are published in it."""

    def unnoted(*given: Any, **named: Any) -> Any:
        return next_metadata(*given, **{**named, "applications": {}})

    with attribute(commit, "next_metadata", unnoted):
        yield


@planted(first_seed=6, kinds=("transfer", "lists"), formats="mixed", intensity=2.0)
def manifests_stored_after_their_version() -> Iterator[None]:
    """A metadata file names manifests that are not stored yet."""
    late: list[Put] = []
    announcing = IcebergFormat.announce

    def together(parts: Iterable[Any]) -> Program[list[Any]]:
        parts = list(parts)
        late.extend(part for part in parts if isinstance(part, Put))
        return (yield from parallel(part for part in parts if not isinstance(part, Put)))

    def announce(*given: Any) -> Program[None]:
        puts, late[:] = list(late), []
        yield from parallel(puts)
        yield from announcing(*given)

    with (
        attribute(commit, "parallel", together),
        attribute(IcebergFormat, "announce", announce),
    ):
        yield


#: What most bugs in row ids need: manifests that are merged, other writers, an upgrade.
_IDS: dict[str, Any] = {
    "kinds": ("add", "lists", "add"),
    "formats": "iceberg",
    "version": 3,
    "short": True,
    "foreign": ("beside", "checkpoint", "upgrade", "append"),
}


@planted(**_IDS)
def row_ids_from_the_snapshot() -> Iterator[None]:
    """Ids begin after those of the newest snapshot of ``main``, and not at the table's mark."""

    def mark(document: Metadata) -> int:
        current = document.current or {}
        return int(current.get("first-row-id", 0)) + int(current.get("added-rows", 0))

    with attribute(Metadata, "next_row_id", property(mark)):
        yield


@planted(**_IDS)
def moved_files_lose_their_numbers() -> Iterator[None]:
    """A merged manifest does not say which ids the rows of its files have."""

    def encode(path: str, entries: Any, *given: Any) -> Any:
        for entry in entries:
            if entry.status == ManifestEntryStatus.EXISTING:
                widened(entry.data_file)[_FIRST_ROW] = None
        return encode_manifest(path, entries, *given)

    with instead(encode_manifest, encode):
        yield


@planted(**_IDS)
def files_numbered_in_another_order() -> Iterator[None]:
    """Files get their ids in another order than that of their manifest's entries."""

    def number(entries: Any, manifest: Any) -> None:
        number_rows(entries[::-1], manifest)

    with instead(number_rows, number):
        yield


@planted(2, **_IDS)
def ids_of_existing_rows_not_counted() -> Iterator[None]:
    """The mark does not pass the ids of a merged manifest's rows."""
    with instead(rows_of_manifest, lambda manifest: manifest.added_rows_count or 0):
        yield


@planted(**_IDS)
def manifests_numbered_again() -> Iterator[None]:
    """Each list gives its manifests new ids, also those that have some."""

    def numbered(manifests: Any, next_row_id: int) -> Any:
        fresh = [copy(one) for one in manifests]
        for one in fresh:
            one._data = list(one._data[:_FIRST_OF_MANIFEST])
        return numbered_manifests(fresh, next_row_id)

    with instead(numbered_manifests, numbered):
        yield


_FIRST_ROW, _FIRST_OF_MANIFEST = 16, 15
