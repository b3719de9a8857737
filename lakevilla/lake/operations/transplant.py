"""Apply the changes between two states of a table to a third state (docs/design/0032-apply.md).

The rules are tried in their order: metadata, files, rows. The result depends only on the operation
and on the state, so it is the same the first time, in a redo, and for a client that publishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.engines.base import FileNamer, TableInput, Written
from lakevilla.errors import StoreError
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.files import (
    ChangeFile,
    DataFile,
    by_path,
    data_files,
    file_refs,
    files_from_structs,
    has_only_vectors,
    masked_out,
    removal,
    restored,
    size_of,
)
from lakevilla.formats.iceberg.metadata.partition_values import partition_keys
from lakevilla.lake.context import Context
from lakevilla.lake.operations.by_rows import by_rows
from lakevilla.lake.operations.comparing.computed import Beneath, layout_before, unfit
from lakevilla.lake.row_changes import compose, marked_again, marks_of, still_fits
from lakevilla.results import Counts
from lakevilla.store.effects import Program, put_all
from lakevilla.sublogs.operations import Defined, Transplant


@dataclass(frozen=True, slots=True)
class Transplanted:
    """The result of an operation on one state.

    ``written`` are new files that were made for it, ``change_files`` are those of the change data
    feed, and ``rows`` has the numbers of changed rows.
    """

    change: Change
    rows: Counts = field(default_factory=Counts)
    written: tuple[Written, ...] = ()
    change_files: tuple[tuple[ChangeFile, bytes | None], ...] = ()


def transplanted(
    context: Context,
    operation: Transplant,
    snapshot: TableSnapshot,
    name: FileNamer,
    beneath: Beneath | None = None,
) -> Program[Transplanted]:
    """Return the result of a transplant on a state; ``beneath`` has the commits in the state.

    Raises
    ------
    MergeConflict
        Other transactions have changed what the operation changes.
    InvalidOperation
        The operation is ``exact``, and other transactions have changed what it changes.
    """
    definition = _definition(context, operation, snapshot)
    found = yield from _found(operation, snapshot)
    if found.missing and not (operation.exact or operation.keys):
        found = (yield from _beside(operation, snapshot, name)) or found
    if found.is_done:
        return Transplanted(definition)
    after = snapshot.apply(definition)
    if (why := found.why_not) is not None:
        if operation.exact or (found.hidden and not operation.keys):
            raise unfit(operation, snapshot, why)
        return (yield from _by_rows(context, operation, after, definition, name, beneath))
    adds: list[DataFile] = []
    unfit_files: list[DataFile] = []
    specs = _specs_of(after)
    twice = not operation.exact and (yield from _has_rows_twice(context, after, found))
    # Rows that were marked on a branch are not marked in a table that allows it no more.
    marked = set() if after.layout.marks_deletes else {file.path for file in found.removes}
    for file in found.adds:
        must = (twice and file.base_row_id is not None) or _must_be_written(file, after, specs)
        must = must or (file.deletion_vector is not None and file.path in marked)
        (unfit_files if must else adds).append(_changed(file))
    written: tuple[Written, ...] = ()
    if unfit_files:
        layout = replace(after.layout, lineage=()) if twice else after.layout
        # Each file is a separate part: the files may be in different partitions.
        parts = [TableInput(layout, files_from_structs([file])) for file in unfit_files]
        made = yield from context.engine.compact(parts, (), name)
        written = tuple(chain.from_iterable(made))
    change = msgspec.structs.replace(
        definition,
        adds=(*adds, *(item.file for item in written)),
        removes=tuple(removal(file) for file in found.removes),
    )
    counts = Counts(
        rows_inserted=sum(map(_rows, change.adds)), rows_deleted=sum(map(_rows, found.removes))
    )
    return Transplanted(change, counts, written)


def _by_rows(
    context: Context,
    operation: Transplant,
    after: TableSnapshot,
    definition: Change,
    name: FileNamer,
    beneath: Beneath | None,
) -> Program[Transplanted]:
    """Return the result of an operation whose files do not fit (rule 4)."""
    done = yield from by_rows(context, operation, after, name, beneath)
    if done.skipped is not None:
        raise unfit(operation, after, done.skipped)
    rewrite = done.rewrite
    change = Change(
        adds=tuple(item.file for item in (*rewrite.written, *done.added)),
        removes=rewrite.removed,
        change_files=tuple(file for file, _ in rewrite.change_files),
    )
    counts = Counts(
        rewrite.rows_matched,
        rewrite.rows_inserted + sum(_rows(item.file) for item in done.added),
        rewrite.rows_updated,
        rewrite.rows_deleted,
    )
    return Transplanted(
        compose([definition, change]),
        counts,
        (*rewrite.written, *done.added),
        rewrite.change_files,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """The files of an operation that must still be removed from a state, or added to it.

    ``missing`` are files to remove that the state lacks. ``hidden`` are paths of files to add that
    the state has with other deletes.
    """

    removes: Sequence[DataFile]
    adds: Sequence[DataFile]
    missing: Sequence[DataFile]
    hidden: Sequence[str]
    has_adds: bool

    @property
    def is_done(self) -> bool:
        """Return whether the state already has the whole result.

        A state that lacks the files to remove does not prove that by itself: their rows may be in
        other files now.
        """
        return not (self.removes or self.adds) and (self.has_adds or not self.missing)

    @property
    def why_not(self) -> str | None:
        if self.missing:
            more = f" and {len(self.missing) - 1} more" if len(self.missing) > 1 else ""
            return (
                f"file {self.missing[0].path}{more}, which is to be removed, was rewritten or "
                "removed by other transactions"
            )
        if self.hidden:
            return (
                f"rows of file {self.hidden[0]}, which is to be added, were deleted by other "
                "transactions"
            )
        return None


def _found(operation: Transplant, snapshot: TableSnapshot) -> Program[_Found]:
    paths = pa.array(
        sorted({file.path for file in (*operation.removes, *operation.adds)}), pa.string()
    )
    files = yield from snapshot.files()
    # Search by path: a file with the same path and other deletes is another file, and conflicts.
    there = files.filter(pc.is_in(files["path"], value_set=paths))
    live = dict(zip(file_refs(there), data_files(there), strict=True))
    removed = {file.ref for file in operation.removes}
    added = {file.ref for file in operation.adds}
    by_others = {path for path, deletes in live if (path, deletes) not in removed | added}
    return _Found(
        [live[file.ref] for file in operation.removes if file.ref in live],
        [file for file in operation.adds if file.ref not in live],
        [file for file in operation.removes if file.ref not in live],
        [file.path for file in operation.adds if file.path in by_others],
        bool(operation.adds),
    )


def _beside(
    operation: Transplant, snapshot: TableSnapshot, name: FileNamer
) -> Program[_Found | None]:
    """Return the files of an operation that marks other rows of files than other transactions.

    Each file has the marks of both. With keys, rows are compared instead: a row may be in another
    file by now. None if the operation does not fit so, either. A new file of vectors is stored at
    once: the rows of the files may be read.
    """
    removes = tuple(removal(file) for file in operation.removes)
    change = Change(adds=operation.adds, removes=removes)
    marked = yield from marked_again(snapshot, change, name)
    if marked is None:
        return None
    again = marked.change
    gone = tuple(restored(file) for file in again.removes)
    moved = msgspec.structs.replace(operation, adds=again.adds, removes=gone)
    found = yield from _found(moved, snapshot)
    if found.why_not is not None:
        return None
    doubtful = yield from put_all(marked.bodies(snapshot.location))
    if doubtful is not None:
        raise StoreError(f"could not store {doubtful}: try again", table=snapshot.layout.table)
    return found


def _definition(context: Context, operation: Transplant, snapshot: TableSnapshot) -> Change:
    """Return the operation's change of metadata; refuse it if it does not fit (rule 1)."""
    now = Defined(dict(snapshot.metadata), dict(snapshot.protocol))
    before, after = operation.before, operation.after
    if after is None:
        if snapshot.keeps_contract(before.metadata) or still_fits(
            layout_before(context, operation, snapshot), snapshot.layout
        ):
            return Change()
        raise unfit(
            operation, snapshot, "its schema or constraints were changed by other transactions"
        )
    if now == after:
        return Change()
    if now != before:
        raise unfit(operation, snapshot, "its schema or properties were changed on both sides")
    format_ = context.formats.of(snapshot)
    return format_.redefine(snapshot, after.metadata, after.protocol)


def _has_rows_twice(context: Context, after: TableSnapshot, found: _Found) -> Program[bool]:
    """Return whether a row of a file that is added again is in another file of the table.

    A change that was applied before may be applied once more. Then a row is there twice, and the
    two must not have one id. An exact operation makes a state of the table that had each id once.
    """
    if not after.layout.lineage:
        return False
    before = {file.path: file for file in found.removes}
    again = []
    for file in found.adds:
        if file.base_row_id is None:
            continue
        marks = None
        if file.path in before:
            marks = yield from marks_of(after.layout, before[file.path], file)
        # A file of which rows are only marked as deleted brings no row to the table.
        if marks is None or len(marks.back):
            again.append(file)
    if not again:
        return False
    files = yield from after.files()
    removed = by_path(file.ref for file in found.removes)
    there = TableInput(after.layout, masked_out(files, removed))
    return (
        yield from context.engine.has_ids_of(
            there, TableInput(after.layout, files_from_structs(again))
        )
    )


def _must_be_written(
    file: DataFile, after: TableSnapshot, specs: Sequence[AbstractSet[str]] | None
) -> bool:
    """Return whether an Iceberg file can't be added again unchanged.

    With a new sequence number, its deletes would no longer apply to it, but for vectors, which are
    added again, too; and a manifest can name it only under a partition spec that the table has.
    """
    if specs is None:
        return False
    takes = after.metadata["format-version"] >= 3 and has_only_vectors(file)
    return not (takes or not file.deletes) or file.partition_values.keys() not in specs


def _specs_of(after: TableSnapshot) -> list[AbstractSet[str]] | None:
    """Return the partition keys of each spec of an Iceberg table; None for other tables."""
    if not after.layout.by_field_id or after.format != "iceberg":
        return None
    specs = partition_keys(after.metadata["partition-specs"])
    return [{*keys.values()} for keys in specs.values()]


def _rows(file: DataFile) -> int:
    return size_of([file]).rows or 0


def _changed(file: DataFile) -> DataFile:
    """Return a file with ``data_change`` set: its first log entry may only have moved rows."""
    return msgspec.structs.replace(file, data_change=True)
