"""Planted bugs of rows that are marked as deleted (notes 65 and 66)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow.compute as pc

from lakevilla.engines import deletes
from lakevilla.formats.files import PUFFIN_SUFFIX, DataFile, FileRef, delete_paths, file_refs
from lakevilla.formats.iceberg import commit, snapshot
from lakevilla.formats.iceberg.manifests import manifests
from lakevilla.lake import applicability, row_changes
from lakevilla.transaction.redo import replay
from lakevilla.transaction.state import files
from lakevilla_testing.planted.bugs import PLANTED, attribute, instead, planted

_NONE = np.zeros(0, dtype=np.int64)
_ICEBERG: dict[str, Any] = {"marks": True, "formats": "iceberg", "version": 3}


@planted(marks=True, kinds=("transfer", "lists"))
def vectors_overlap() -> Iterator[None]:
    """Two statements that have changed the same row of a file both commit (rule V1)."""
    original = replay.remarked

    def remarked(txn: Any, done: Any, name: Any) -> Any:
        live = set(file_refs((yield from txn.work.tables[done.table].snapshot.files())))
        known = deletes.rows_marked

        def without_others(layout: Any, file: Any) -> Any:
            yield from ()
            return _NONE if file.ref in live else (yield from known(layout, file))

        with attribute(replay, "rows_marked", without_others):
            return (yield from original(txn, done, name))

    with instead(original, remarked):
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
    known: dict[FileRef, Any] = {}
    read, made = deletes.rows_marked, deletes.mark

    def noting(layout: Any, file: Any) -> Any:
        known[file.ref] = yield from read(layout, file)
        return known[file.ref]

    def mark(layout: Any, marked: Sequence[tuple[DataFile, Any]], name: Any) -> Any:
        own = [(file, np.setdiff1d(rows, known[file.ref])) for file, rows in marked]
        return made(layout, own, name)

    with attribute(replay, "rows_marked", noting), attribute(replay, "mark", mark):
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

    with instead(replay._rows_marked, in_store):
        yield


@planted(**_ICEBERG, kinds=("transfer", "lists"))
def old_vector_stays() -> Iterator[None]:
    """The vector that a new one replaces stays in its manifest: the file has two."""
    original = manifests.are_vectors_of

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

    def only_data(location: str, file: DataFile) -> set[str]:
        return {file.path}

    def named(*given: Any, **options: Any) -> Any:
        found = yield from original(*given, **options)
        return {path for path in found if not path.endswith(PUFFIN_SUFFIX)}

    original = snapshot._named_by
    nothing = instead(delete_paths, lambda found: set())
    with instead(original, named), instead(applicability.paths_of, only_data), nothing:
        yield
