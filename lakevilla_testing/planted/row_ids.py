"""Planted bugs of the ids of rows (docs/design/0063-row-ids.md): tests of their own find them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from lakevilla.engines.duckdb.reading import relation
from lakevilla.engines.duckdb.writing import rewrite
from lakevilla.formats.base import Change
from lakevilla.formats.delta.commit import ROW_TRACKING_DOMAIN
from lakevilla.formats.files import DataFile, rows_in
from lakevilla.lake.frozen import frozen
from lakevilla.lake.operations import transplant
from lakevilla.store.effects import Program
from lakevilla_testing.planted.bugs import attribute, instead, planted


@planted(for_histories=False)
def copied_rows_lose_ids() -> Iterator[None]:
    """An engine copies rows without what they inherit from their file."""
    with attribute(relation, "coalesced", lambda stored, inherited: stored):
        yield


@planted(for_histories=False)
def updated_rows_keep_since() -> Iterator[None]:
    """An updated row keeps the version of the commit that changed it before."""
    with attribute(rewrite, "kept_since", lambda since, changed: since):
        yield


@planted(for_histories=False)
def base_of_a_pending_file_guessed() -> Iterator[None]:
    """An engine takes for granted that a pending file gets the ids after those that are known."""
    original = relation.origins_of

    def origins_of(files: pa.Table) -> tuple[tuple[int | None, int | None], ...]:
        found, after = [], 0
        for (first, version), stats in zip(
            original(files), files["stats"].to_pylist(), strict=True
        ):
            first = after if first is None else first
            after = max(after, first + (rows_in(stats) or 0))
            found.append((first, version))
        return tuple(found)

    with attribute(relation, "origins_of", origins_of):
        yield


@planted(for_histories=False)
def clone_begins_at_zero() -> Iterator[None]:
    """A table that is made of another table's files assigns ids from the first one on."""
    naming, making = frozen.file_by_uri, frozen.made_elsewhere

    def file_by_uri(*given: Any) -> DataFile:
        return msgspec.structs.replace(naming(*given), base_row_id=None)

    def made_elsewhere(*given: Any) -> Program[Change]:
        made = yield from making(*given)
        kept = tuple(one for one in made.domains if one["domain"] != ROW_TRACKING_DOMAIN)
        return msgspec.structs.replace(made, domains=kept)

    with instead(naming, file_by_uri), instead(making, made_elsewhere):
        yield


@planted(for_histories=False)
def rows_that_are_there_added_again() -> Iterator[None]:
    """A transplant adds a file again although its rows are in other files of the table."""

    def has_rows_twice(*_: Any) -> Program[bool]:
        yield from ()
        return False

    with instead(transplant._has_rows_twice, has_rows_twice):
        yield


@planted(for_histories=False)
def position_without_deleted_rows() -> Iterator[None]:
    """A row's place in its file is counted among the rows that are not deleted."""
    with attribute(relation, "row_id", lambda first: f"{first} + row_number() OVER () - 1"):
        yield
