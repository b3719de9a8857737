"""Planted bugs of rows that are marked as deleted (notes 65 and 66)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow.compute as pc

from lakevilla.engines import deletes
from lakevilla.formats.delta import deletion_vectors, log
from lakevilla.formats.files import (
    PUFFIN_SUFFIX,
    DataFile,
    FileRef,
    RemovedFile,
    delete_paths,
    file_refs,
)
from lakevilla.formats.iceberg import commit, snapshot
from lakevilla.formats.iceberg.manifests import manifests
from lakevilla.global_log import summaries
from lakevilla.lake import applicability, row_changes
from lakevilla.lake.frozen import kept
from lakevilla.lake.operations import matching
from lakevilla.lake.publishing import replay_pending
from lakevilla.sublogs import operations
from lakevilla.transaction.state import files
from lakevilla.transaction.validation import overlap
from lakevilla_testing.planted.bugs import PLANTED, attribute, instead, planted

_NONE = np.zeros(0, dtype=np.int64)
_ICEBERG: dict[str, Any] = {"marks": True, "formats": "iceberg", "version": 3}


@planted(marks=True, kinds=("transfer", "lists"))
def vectors_overlap() -> Iterator[None]:
    """Two statements that have changed the same row of a file both commit (rule V1)."""
    original = row_changes.marked_again

    def marked_again(state: Any, change: Any, name: Any = None, read: Any = None) -> Any:
        live = set(file_refs((yield from state.files())))
        known = read or deletes.rows_marked

        def without_others(layout: Any, file: Any) -> Any:
            yield from ()
            return _NONE if file.ref in live else (yield from known(layout, file))

        return (yield from original(state, change, name, without_others))

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


@planted(first_seed=3, marks=True, kinds=("transfer", "lists"))
def union_forgets() -> Iterator[None]:
    """A vector that is made again has the rows of its own statement alone (rule V1)."""
    known: dict[FileRef, Any] = {}
    read, made = deletes.rows_marked, deletes.mark

    def noting(layout: Any, file: Any) -> Any:
        known[file.ref] = yield from read(layout, file)
        return known[file.ref]

    def mark(layout: Any, marked: Sequence[tuple[DataFile, Any]], name: Any) -> Any:
        own = [(file, np.setdiff1d(rows, known[file.ref])) for file, rows in marked]
        return made(layout, own, name)

    with attribute(row_changes, "mark", mark), instead(read, noting):
        yield


@planted(first_seed=5, marks=True, kinds=("transfer", "merge"))
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


@planted(for_histories=False)
def reads_as_acted_on() -> Iterator[None]:
    """A row that a caller has read counts as one that its transaction has changed (rule V11)."""
    with instead(overlap._left_in_place, lambda *_: []):
        yield


@planted(for_histories=False)
def rows_come_back_unseen() -> Iterator[None]:
    """A file that stays counts as one without a new row, whatever the operation (rule V11)."""
    with attribute(overlap, "_ONLY_MARK", (*overlap._ONLY_MARK, operations.Transplant)):
        yield


@planted(for_histories=False)
def keys_as_kept() -> Iterator[None]:
    """A merge counts as making rows of its source's keys alone, whatever it sets (rule V12)."""
    original = matching.rows_made

    def rows_made(operation: Any, target: Any) -> Any:
        if isinstance(operation, operations.Merge):
            return operation.within
        return original(operation, target)

    with instead(original, rows_made):
        yield


# -------------------- vectors of Iceberg


for _name in ("vectors_overlap", "union_forgets", "file_of_marks_is_deleted"):
    _bug = PLANTED[_name]
    PLANTED[f"{_name}_in_iceberg"] = dataclasses.replace(
        _bug, name=f"{_name}_in_iceberg", focus={**_bug.focus, **_ICEBERG}
    )


@planted(for_histories=False)
def own_vectors_are_stored() -> Iterator[None]:
    """A redo looks for a vector of its own transaction in the store, and it is in memory."""

    def in_store(txn: Any, layout: Any, file: Any) -> Any:
        return (yield from deletes.rows_marked(layout, file))

    with instead(files.marked_rows, in_store):
        yield


@planted(**_ICEBERG, kinds=("transfer", "lists"))
def old_vector_stays() -> Iterator[None]:
    """The vector that a new one replaces stays in its manifest: the file has two."""
    original = manifests.are_alone_of

    def none(found: Any, staying: Any) -> Any:
        return pc.and_(original(found, staying), False)

    with instead(original, none):
        yield


@planted(**_ICEBERG, kinds=("transfer", "lists"))
def marked_file_is_added_again() -> Iterator[None]:
    """A file that gets a vector is added once more: its rows get new ids, or are there twice."""
    with instead(commit._new_files, lambda change, staying: list(change.adds)):
        yield


@planted(**_ICEBERG, kinds=("transfer", "merge"), collects=True, long=True)
def vectors_are_garbage() -> Iterator[None]:
    """Gc takes the files of vectors for leftovers: it looks for data files alone."""

    def only_data(location: str, file: DataFile | RemovedFile) -> set[str]:
        return {file.path}

    def nothing(*_: Any) -> set[str]:
        return set()

    def named(*given: Any, **options: Any) -> Any:
        found = yield from original(*given, **options)
        return {path for path in found if not path.endswith(PUFFIN_SUFFIX)}

    original = snapshot._named_by
    with (
        instead(original, named),
        instead(delete_paths, nothing),
        instead(deletion_vectors.vector_paths, nothing),
        attribute(applicability, "paths_of", only_data),
        attribute(kept, "paths_of", only_data),
        attribute(log, "paths_of", only_data),
    ):
        yield


_bug = PLANTED["vectors_are_garbage"]
PLANTED["vectors_are_garbage_in_delta"] = dataclasses.replace(
    _bug, name="vectors_are_garbage_in_delta", focus={**_bug.focus, "formats": "delta"}
)
