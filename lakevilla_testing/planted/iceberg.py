"""Planted bugs of Iceberg tables: each is searched for in histories with such tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from lakevilla.formats.iceberg import commit
from lakevilla.formats.iceberg.metadata.file import next_metadata
from lakevilla.formats.iceberg.table_format import IcebergFormat
from lakevilla.store.base import ANY
from lakevilla.store.effects import Program, Put, parallel
from lakevilla_testing.planted.bugs import attribute, planted


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


@planted(first_seed=2, kinds=("transfer", "lists"), formats="mixed", intensity=2.0)
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
