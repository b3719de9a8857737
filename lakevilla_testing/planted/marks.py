"""Planted bugs of rows that are marked as deleted (docs/design/0065-deletion-vectors.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from lakevilla.formats.delta import deletion_vectors
from lakevilla.formats.delta.deletion_vectors import rows_deleted
from lakevilla.formats.files import DataFile
from lakevilla.global_log import summaries
from lakevilla.lake import row_changes
from lakevilla.lake.publishing import replay_pending
from lakevilla.sublogs import operations
from lakevilla.transaction.state import files
from lakevilla_testing.planted.bugs import attribute, instead, planted

_NONE = np.zeros(0, dtype=np.int64)


@planted(marks=True, kinds=("transfer", "lists"))
def vectors_overlap() -> Iterator[None]:
    """Two statements that have changed the same row of a file both commit (rule V1)."""
    original = row_changes.marked_again

    def marked_again(snapshot: Any, change: Any) -> Any:
        live = yield from snapshot.files()
        vectors = [one["path_or_inline"] for one in live["deletion_vector"].to_pylist() if one]

        def without_others(location: Any, vector: Any) -> Any:
            yield from ()
            if vector is not None and vector.path_or_inline in vectors:
                return _NONE
            return (yield from rows_deleted(location, vector))

        with attribute(row_changes, "rows_deleted", without_others):
            return (yield from original(snapshot, change))

    with instead(original, marked_again):
        yield


@planted(for_histories=False)
def deletes_of_others_as_nothing() -> Iterator[None]:
    """Rows that others have marked as deleted count as unchanged (rule V3)."""

    def no_match(*_: Any) -> Any:
        yield from ()
        return False

    with instead(row_changes._any_matches, no_match):
        yield


@planted(marks=True, kinds=("transfer", "lists"))
def union_forgets() -> Iterator[None]:
    """A vector that is made again has the rows of its own statement alone (rule V1)."""
    original = deletion_vectors.with_deleted

    def with_deleted(file: DataFile, rows: Any) -> DataFile:
        if file.deletion_vector is not None:
            known = deletion_vectors.decode_bitmap(
                deletion_vectors.decode_z85(file.deletion_vector.path_or_inline)
            )
            rows = np.setdiff1d(rows, known)
        return original(file, rows)

    with attribute(row_changes, "with_deleted", with_deleted):
        yield


@planted(marks=True, kinds=("transfer", "merge"))
def file_of_marks_is_deleted() -> Iterator[None]:
    """A transaction that gives up deletes the files in which it has marked rows."""
    original = files.made_files

    def made_files(done: Any) -> Any:
        change = msgspec.structs.replace(done.change, removes=())
        return original(dataclasses.replace(done, change=change))

    with instead(original, made_files):
        yield


@planted(for_histories=False)
def changes_beside_as_nothing() -> Iterator[None]:
    """A pending commit stays as it is, though a foreign client has changed what it read (V4)."""

    def unasked(*_: Any) -> Any:
        yield from ()
        return row_changes.Verdict.UNTOUCHED

    with attribute(replay_pending, "judge", unasked):
        yield


@planted(for_histories=False)
def bounds_called_tight() -> Iterator[None]:
    """A file of which rows are marked says that its bounds are those of the rows that are left."""
    with attribute(deletion_vectors, "_with_wide_bounds", lambda stats: stats):
        yield


@planted(for_histories=False)
def vector_told_as_nothing() -> Iterator[None]:
    """The summary of a commit leaves out the files of which it has marked rows."""
    original = summaries.summarize

    def summarize(changes: Any, columns: Any, allowance: int) -> Any:
        told = []
        for change in changes:
            both = {file.path for file in change.adds} & {file.path for file in change.removes}
            adds, removes = (
                tuple(file for file in files if file.path not in both)
                for files in (change.adds, change.removes)
            )
            told.append(msgspec.structs.replace(change, adds=adds, removes=removes))
        return original(told, columns, allowance)

    with instead(original, summarize):
        yield


@planted(for_histories=False)
def matched_rows_as_acted_on() -> Iterator[None]:
    """A merge counts as acting on all rows that it matches, whatever its clauses say (rule V9)."""

    def acts_on_all(_: Any) -> bool:
        return True

    with instead(operations.acts_on_all, acts_on_all):
        yield
