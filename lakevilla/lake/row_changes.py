"""Changes of rows, and their net effect over several commits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.engines.base import FileNamer, TableInput, Written
from lakevilla.engines.deletes import can_be_marked, mark, rows_marked
from lakevilla.errors import LakeVillaError
from lakevilla.formats.base import REPLACED, Change, TableSnapshot
from lakevilla.formats.delta.deletion_vectors import RowIndices, among, paths_of, united
from lakevilla.formats.files import (
    FILES_SCHEMA,
    ChangeFile,
    DataFile,
    FileRef,
    RemovedFile,
    data_files,
    file_key,
    file_refs,
    files_from_structs,
    removal,
    restored,
)
from lakevilla.formats.layout import Layout, as_of, in_delta
from lakevilla.lake.applicability import UNREADABLE, lost_for_good
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.table_log import entries_at
from lakevilla.lake.view import View
from lakevilla.sql.expressions.tree import Expr, Literal
from lakevilla.sql.expressions.types import type_name
from lakevilla.store.effects import Program, parallel

# -------------------- row changes
#
# Conflicts: whether later commits have changed what a transaction relied on (design, section 6).
#
# First the removed and added files are checked: whether one may have a row for which the predicate
# is true. If so, and if these files are small, their rows are compared. Of a file that stays, and
# has further deleted rows, these rows alone are read.


TRUE = Literal("boolean", "true")
#: More deleted rows are not read by their places: some may match.
_MOST_ROWS = 100_000


class Verdict(Enum):
    """The effect of later commits on the rows of one table for which a predicate is true."""

    UNTOUCHED = "untouched"  # no file that may have such rows was added or removed
    MOVED = "moved"  # the same rows are in other files now
    CHANGED = "changed"  # such rows were added, removed or changed, or may have been


def judge(
    context: Context,
    old: View,
    new: View,
    net: NetChange,
    where: Expr | None,
    acted: Acted | None = None,
    without: Collection[str] = (),
) -> Program[Verdict]:
    """Return how ``net``, the difference of two views, affects the rows that match ``where``.

    ``where`` None means all rows. ``acted``: the rows of an operation that acts on all rows that
    match; then of a file that stays, no row is read to see whether it matches. ``without``: files
    that are known to have no row that matches. The views may lack columns that ``where`` names:
    those that the transaction has added itself, see ``as_of``.
    """
    if net.contract or net.metadata:
        return Verdict.CHANGED
    if not (net.adds or net.removes):
        return Verdict.UNTOUCHED
    gone = yield from deleted_since(old.snapshot.layout, net)
    asked = (
        gone if acted is None else {path: gone[path] for path in gone if _meet(acted, gone, path)}
    )
    if asked and (yield from _any_matches(context, old.snapshot, asked, where)):
        return Verdict.CHANGED
    removed = yield from only(old.snapshot, where, _without(net.removes, gone))
    added = yield from only(new.snapshot, where, _without(net.adds, {*gone, *without}))
    if removed.num_rows == 0 and added.num_rows == 0:
        return Verdict.UNTOUCHED
    if net.only_moves(file_refs(removed), file_refs(added)):
        return Verdict.MOVED
    size = pc.sum(removed["size"]).as_py() or 0
    size += pc.sum(added["size"]).as_py() or 0
    if size > context.settings.row_check_limit_bytes:
        return Verdict.CHANGED
    try:
        same = yield from _have_same_rows(context, (old, removed), (new, added), where)
    except LakeVillaError as error:
        # A client may have cleaned up the removed files since. Then no client can read their rows
        # any more, and every new attempt would fail, too.
        if error.kind not in UNREADABLE or not (
            yield from lost_for_good(
                [
                    file_key(view.location, path)
                    for view, files in ((old, removed), (new, added))
                    for file in data_files(files)
                    for path in paths_of(view.location, file)
                ]
            )
        ):
            raise
        return Verdict.CHANGED
    return Verdict.MOVED if same else Verdict.CHANGED


#: By path, the places of the rows of a file on which an operation has acted; None for any rows.
Acted = Mapping[str, RowIndices | None]


#: Return the places of a file's deleted rows; a transaction may have their vector in memory.
MarkedRows = Callable[[Layout, DataFile | RemovedFile], Program[RowIndices]]


def acted_on(layout: Layout, change: Change, read: MarkedRows = rows_marked) -> Program[Acted]:
    """Return the rows on which the operation with this change has acted."""
    again = {file.path: file for file in change.adds}
    found: dict[str, RowIndices | None] = {}
    for file in change.removes:
        marks = None
        if file.path in again:
            marks = yield from marks_of(layout, file, again[file.path], read)
        found[file.path] = None if marks is None or len(marks.back) else marks.gone
    return found


def _meet(acted: Acted, gone: Gone, path: str) -> bool:
    """Return whether rows of a file that are gone may be some on which an operation has acted."""
    if path not in acted:
        return False
    rows = acted[path]
    return rows is None or bool(among(gone[path][1], rows).any())


#: By path, a file with further deleted rows: as it was, and the places of these rows.
Gone = Mapping[str, tuple[FileRef, RowIndices]]


def deleted_since(layout: Layout, net: NetChange) -> Program[Gone]:
    """Return the files that ``net`` leaves as they are, but for rows that it marks as deleted.

    Files whose deletes can't be read any more are left out, like those whose rows may have changed.
    """
    again = {file.path: file for file in net.adds.values()}
    found: dict[str, tuple[FileRef, RowIndices]] = {}
    for ref, removed in net.removes.items():
        added = again.get(removed.path)
        if added is None or not (added.deletion_vector or added.deletes):
            continue
        try:
            marks = yield from marks_of(layout, removed, added)
        except LakeVillaError as error:
            if error.kind not in UNREADABLE:
                raise
            continue
        if marks is not None and not len(marks.back):
            found[removed.path] = ref, marks.gone
    return found


@dataclass(frozen=True, slots=True)
class MarkedAgain:
    """A change that marks rows in the files as they are now, and what must be stored with it."""

    change: Change
    written: tuple[Written, ...] = ()

    def bodies(self, location: str) -> dict[str, bytes]:
        """Return the objects that must be stored, by their keys."""
        found = [pair for one in self.written for pair in one.bodies.items()]
        return {f"{location}/{path}": body for path, body in found}


def marked_again(
    snapshot: TableSnapshot,
    change: Change,
    name: FileNamer,
    read: MarkedRows = rows_marked,
) -> Program[MarkedAgain | None]:
    """Return a change that marks the rows of ``change`` in the files of ``snapshot``.

    Rows that ``change`` brings back are brought back there. None if a file or one of the rows is
    gone, or is there already: then the rows must be found again (note 65, rule V1). So it is in
    version 2 of Iceberg if rows are brought back: a position delete file of several data files may
    have them. ``name`` names a new file of vectors.
    """
    layout = snapshot.layout
    before = {file.path: file for file in change.removes}
    marked = {file.path: file for file in change.adds if file.path in before}
    files = yield from snapshot.files()
    live = files.filter(pc.is_in(files["path"], value_set=pa.array(list(marked), pa.string())))
    now = {file.path: file for file in data_files(live)}
    if now.keys() != marked.keys():
        return None
    found: list[tuple[DataFile, RowIndices]] = []
    for path, file in marked.items():
        marks = yield from marks_of(layout, before[path], file, read)
        if marks is None or not can_be_marked(now[path].deletes):
            return None
        others = yield from read(layout, now[path])
        if among(marks.gone, others).any() or not among(marks.back, others).all():
            return None
        rows = united(others, marks.gone)
        rows = rows[~among(rows, marks.back)]
        if layout.uri and not layout.lineage and len(marks.back):
            return None
        found.append((now[path], rows))
    written = mark(layout, found, name)
    again = {one.file.path: one.file for one in written}
    adds = tuple(again.get(file.path, file) for file in change.adds)
    removes = tuple(
        removal(now[file.path]) if file.path in now else file for file in change.removes
    )
    return MarkedAgain(msgspec.structs.replace(change, adds=adds, removes=removes), written)


@dataclass(frozen=True, slots=True)
class Marks:
    """The places of a file's rows that a change marks as deleted, and of those it brings back."""

    gone: RowIndices
    back: RowIndices


def marks_of(
    layout: Layout,
    before: RemovedFile | DataFile,
    after: DataFile,
    read: MarkedRows = rows_marked,
) -> Program[Marks | None]:
    """Return how the deleted rows of a file change; None where a vector does not tell all."""
    if not can_be_marked((*before.deletes, *after.deletes)):
        return None
    old, new = yield from parallel([read(layout, before), read(layout, after)])
    return Marks(new[~among(new, old)], old[~among(old, new)])


def few_marks(
    layout: Layout, removed: Iterable[DataFile], added: Iterable[DataFile]
) -> Program[dict[str, Marks]]:
    """Return, by path, how the deleted rows change of the files that are on both sides.

    Files with many such rows are left out: all their rows are read.
    """
    after = {file.path: file for file in added}
    found: dict[str, Marks] = {}
    for file in removed:
        if file.path in after:
            marks = yield from marks_of(layout, file, after[file.path])
            if marks is not None and len(marks.gone) + len(marks.back) <= _MOST_ROWS:
                found[file.path] = marks
    return found


def inputs_at(
    layout: Layout, files: Sequence[DataFile], places: Mapping[str, RowIndices]
) -> list[TableInput]:
    """Return the inputs that have the rows of files; of a file with ``places``, those at these."""
    whole = [file for file in files if file.path not in places]
    some = [file for file in files if len(places.get(file.path, ()))]
    rows = tuple(tuple(places[file.path].tolist()) for file in some)
    return [
        *([TableInput(layout, files_from_structs(whole))] if whole else []),
        *([TableInput(layout, files_from_structs(some), rows=rows)] if some else []),
    ]


def _without(refs: Iterable[FileRef], gone: Collection[str]) -> list[FileRef]:
    return [ref for ref in refs if ref[0] not in gone]


def _any_matches(
    context: Context, old: TableSnapshot, gone: Gone, where: Expr | None
) -> Program[bool]:
    """Return whether ``where`` is true for one of the rows that are gone; no other row is read."""
    files = yield from only(old, where, [ref for ref, _ in gone.values()])
    if not files.num_rows:
        return False
    if where is None:
        return True
    rows = tuple(tuple(gone[path][1].tolist()) for path in files["path"].to_pylist())
    if sum(map(len, rows)) > _MOST_ROWS:
        return True
    table = TableInput(old.layout, files, rows=rows)
    return (yield from _has_rows(context, table, as_of(where, old.layout)))


def _have_same_rows(
    context: Context,
    before: tuple[View, pa.Table],
    after: tuple[View, pa.Table],
    where: Expr | None,
) -> Program[bool]:
    """Return whether the rows for which ``where`` is true are the same in two sets of files."""
    sides = [
        (TableInput(view.snapshot.layout, files), as_of(where, view.snapshot.layout))
        for view, files in (before, after)
        if files.num_rows
    ]
    if len(sides) == 1:
        ((table, predicate),) = sides
        return not (yield from _has_rows(context, table, predicate))
    digests = []
    for table, predicate in sides:
        predicate = TRUE if predicate is None else predicate
        digests.append((yield from context.engine.matching_rows(table, predicate)))
    return digests[0] == digests[1]


def _has_rows(context: Context, table: TableInput, where: Expr | None) -> Program[bool]:
    """Return whether ``where``, which is bound, is true for a row of some files."""
    found = yield from context.engine.scan(table, table.layout.schema.names[:1], where)
    return any(batch.num_rows for batch in found)


def only(
    snapshot: TableSnapshot, where: Expr | None, refs: Collection[FileRef]
) -> Program[pa.Table]:
    """Return those files of ``snapshot`` among ``refs`` that may have rows matching ``where``."""
    if not refs:
        return FILES_SCHEMA.empty_table()
    files = yield from snapshot.files(as_of(where, snapshot.layout))
    paths = pa.array(sorted({path for path, _ in refs}), pa.string())
    candidates = files.filter(pc.is_in(files["path"], value_set=paths))
    wanted = set(refs)
    keep = [ref in wanted for ref in file_refs(candidates)]
    return candidates.filter(pa.array(keep, pa.bool_()))


def still_fits(old: Layout, new: Layout) -> bool:
    """Return whether files that were written for layout ``old`` are valid for ``new`` unchanged.

    They are if the same columns are stored under the same names and types, and ``new`` requires of
    rows only what ``old`` did. Columns and fields that were added read as null; dropped columns are
    ignored.
    """
    return old.change_data_feed == new.change_data_feed and _fits(old, new, _same_type)


def rows_fit(old: Layout, new: Layout) -> bool:
    """Return whether rows that were written for layout ``old`` are valid once it is ``new``.

    They are if ``still_fits`` holds, except that ``new`` may have wider types, which readers
    convert.
    """
    return _fits(old, new, _same_or_wider)


def _same_type(old: pa.DataType, new: pa.DataType) -> bool:
    return bool(old == new)


def _same_or_wider(old: pa.DataType, new: pa.DataType) -> bool:
    if old == new:
        return True
    if pa.types.is_nested(old) or pa.types.is_nested(new):
        return False
    return in_delta(type_name(old), type_name(new))


def _fits(old: Layout, new: Layout, may_become: Callable[[pa.DataType, pa.DataType], bool]) -> bool:
    if old.partition_by != new.partition_by or old.by_field_id != new.by_field_id:
        return False
    if old.partition_fields != new.partition_fields:
        return False
    if old.properties.get(REPLACED) != new.properties.get(REPLACED):
        return False  # the table was replaced: its new columns would not show values of old files
    kept = {constraint.sql for constraint in old.constraints}
    if any(constraint.sql not in kept for constraint in new.constraints):
        return False
    stored = dict(zip(old.schema.names, old.statistics_schema.names, strict=True))
    in_any_case = {name.lower(): physical for name, physical in stored.items()}
    for name, physical in zip(new.schema.names, new.statistics_schema.names, strict=True):
        # A column of the same name (in any case) that is stored under another physical name is
        # another column: it would read the written values as null.
        if stored.get(name, in_any_case.get(name.lower(), physical)) != physical:
            return False
    before = _by_id(old.schema, old.statistics_schema)
    for name, field in zip(new.schema, new.statistics_schema, strict=True):
        known = before.get(field.name)
        if known is None:
            if not field.nullable:
                return False
        elif (
            not may_become(known.id.type, field.type) and not _has_grown(known, _Named(name, field))
        ) or (known.id.nullable and not field.nullable):
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Named:
    """A field by its name, and the same field as in statistics, by an id that never changes."""

    name: pa.Field
    id: pa.Field


def _by_id(names: Iterable[pa.Field], ids: Iterable[pa.Field]) -> dict[str, _Named]:
    return {id.name: _Named(name, id) for name, id in zip(names, ids, strict=True)}


def _has_grown(old: _Named, new: _Named) -> bool:
    """Return whether ``new`` is the type of ``old``, perhaps with more fields at any depth."""
    old_type, new_type = old.id.type, new.id.type
    if old_type == new_type:
        return True
    if pa.types.is_struct(old_type) and pa.types.is_struct(new_type):
        before = _by_id(old.name.type, old_type)
        after = _by_id(new.name.type, new_type)
        # A new field with the name of an earlier one is another field: it would not show the values
        # that were written to the earlier one.
        taken = {one.name.name.lower() for one in before.values()}
        added = [one for id, one in after.items() if id not in before]
        if any(not one.id.nullable or one.name.name.lower() in taken for one in added):
            return False
        return all(id in after and _is_kept(one, after[id]) for id, one in before.items())
    if pa.types.is_list(old_type) and pa.types.is_list(new_type):
        elements = (_Named(x.name.type.value_field, x.id.type.value_field) for x in (old, new))
        return _is_kept(*elements)
    if pa.types.is_map(old_type) and pa.types.is_map(new_type):
        items = (_Named(x.name.type.item_field, x.id.type.item_field) for x in (old, new))
        return bool(old_type.key_type == new_type.key_type) and _is_kept(*items)
    return False


def _is_kept(old: _Named, new: _Named) -> bool:
    return _has_grown(old, new) and (new.id.nullable or not old.id.nullable)


# -------------------- net change
#
# The changes that a transaction gets when it moves from one view of a table to a newer one.


@dataclass(frozen=True, slots=True)
class NetChange:
    """The difference between two views of a table.

    ``contract``: the metadata requires something else of data files, or the difference is unknown,
    which has the same effect. ``untold``: rows were changed in files that are in neither view,
    because they were added and removed in between. Then the ``dataChange`` of the remaining files
    does not show whether rows have changed. ``by_lists``: no entry was read that would show it.
    """

    adds: Mapping[FileRef, DataFile]
    removes: Mapping[FileRef, RemovedFile]
    contract: bool = False
    metadata: bool = False
    untold: bool = False
    by_lists: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.adds or self.removes or self.contract or self.metadata)

    @property
    def may_be_moves(self) -> bool:
        """True if the entries may show that files were only moved, where the lists do not.

        With another definition that makes no difference.
        """
        return self.by_lists and bool(self.removes) and not (self.contract or self.metadata)

    def only_moves(self, removed: Iterable[FileRef], added: Iterable[FileRef]) -> bool:
        """Return whether the given files were removed and added without a change of rows."""
        return not (
            self.untold
            or any(self.removes[ref].data_change for ref in removed)
            or any(self.adds[ref].data_change for ref in added)
        )


#: The number of entries that are read in one round: an Iceberg table's may have megabytes.
_AT_ONCE = 16
#: With more unread entries between two views, their lists of files are compared first.
_MANY_ENTRIES = 64
_EVERYTHING = NetChange({}, {}, contract=True, metadata=True)


def change_of_definition(old: View, new: View) -> NetChange:
    """Return ``net_change`` without files, for a transaction that relies on no row of the table.

    No entry between the two views is read.
    """
    if (
        new.placement.logged < old.placement.logged
        or new.snapshot.table_id != old.snapshot.table_id
    ):
        return _EVERYTHING
    changed = old.snapshot.rules != new.snapshot.rules
    return NetChange({}, {}, contract=not _same_contract(old, new), metadata=changed)


def change_of_lists(old: View, new: View, tail: Tail) -> Program[NetChange | None]:
    """Return ``net_change`` by the two views' lists of files, if many entries between are unread.

    A list has each file that is live, so the difference has the files of ``net_change``. That some
    of them were only moved, it does not show. None if few entries are unread, or if a list can't be
    read.
    """
    versions = range(old.placement.logged + 1, new.placement.logged + 1)
    if sum(version not in tail.entries for version in versions) <= _MANY_ENTRIES:
        return None
    definition = change_of_definition(old, new)
    if definition is _EVERYTHING:
        return definition
    try:
        before, after = yield from parallel([old.snapshot.files(), new.snapshot.files()])
    except LakeVillaError as error:
        if error.kind not in UNREADABLE:
            raise
        return None
    was, now = _identities(before), _identities(after)
    removed = before.filter(pc.invert(pc.is_in(was, value_set=now)))
    added = after.filter(pc.invert(pc.is_in(now, value_set=was)))
    removes = [removal(file) for file in data_files(removed)]
    return NetChange(
        {file.ref: file for file in data_files(added)},
        {file.ref: file for file in removes},
        definition.contract,
        definition.metadata,
        untold=True,
        by_lists=True,
    )


def _identities(files: pa.Table) -> pa.ChunkedArray:
    """Return the identities of the rows of a ``FILES_SCHEMA`` table, as texts."""
    vectors = pc.fill_null(files["dv_id"], "")
    return pc.binary_join_element_wise(vectors, files["path"], "\n")


def net_change(context: Context, old: View, new: View, tail: Tail) -> Program[NetChange]:
    """Return the change that a transaction on ``old`` would see if it moved to ``new``.

    The two views may use different versions of the log, and lay different commits over it. For each
    file that either changed, it is determined whether it was live in ``old`` and is live in
    ``new``.
    """
    if (
        new.placement.logged < old.placement.logged
        or new.snapshot.table_id != old.snapshot.table_id
    ):
        return _EVERYTHING
    between: list[Change] = []
    versions = range(old.placement.logged + 1, new.placement.logged + 1)
    for first in versions[::_AT_ONCE]:
        some = versions[first - versions.start :][:_AT_ONCE]
        for entry in (yield from entries_at(context, tail, some)):
            if entry is None:
                return _EVERYTHING
            between.append(entry.change)
    between.extend(part.change for part in new.parts)
    before = _Touches(part.change for part in old.parts)
    after = _Touches(between)
    adds: dict[FileRef, DataFile] = {}
    removes: dict[FileRef, RemovedFile] = {}
    untold = False
    for ref in {**before.last, **after.last}:
        was_live = before.ends_live(ref, otherwise=after.began_live(ref))
        is_live = after.ends_live(ref, otherwise=before.began_live(ref))
        changed = ref in after.changed or ref in before.changed
        if is_live and not was_live:
            added = after.added.get(ref) or before.restored(ref)
            # The file's rows are new, though the last entry that added it may have changed only
            # its statistics.
            adds[ref] = _changed(added) if changed else added
        elif was_live and not is_live:
            removes[ref] = after.removed.get(ref) or before.withdrawn(ref)
        elif not is_live:
            # Rows were appended to the file and then moved to another one, or were moved to it and
            # then deleted. Or a commit that was cancelled since had deleted them, and a client that
            # did not know that commit has moved them.
            untold = untold or changed
    contract = not _same_contract(old, new)
    metadata = (
        old.snapshot.metadata != new.snapshot.metadata
        or old.snapshot.protocol != new.snapshot.protocol
        or any(change.clusters for change in between)
    )
    return NetChange(adds, removes, contract, metadata, untold)


def _same_contract(old: View, new: View) -> bool:
    from_old, to_new = old.snapshot, new.snapshot
    return from_old.metadata == to_new.metadata or from_old.keeps_contract(to_new.metadata)


class _Touches:
    """The first and the last effect on each file of a series of changes."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self.first: dict[FileRef, bool] = {}
        self.last: dict[FileRef, bool] = {}
        self.added: dict[FileRef, DataFile] = {}
        self.removed: dict[FileRef, RemovedFile] = {}
        self.changed: set[FileRef] = set()
        for change in changes:
            self.changed.update(file.ref for file in change.removes if file.data_change)
            self.changed.update(file.ref for file in change.adds if file.data_change)
            # Within one commit a removal is before an addition of the same path.
            for removed in change.removes:
                self.first.setdefault(removed.ref, False)
                self.last[removed.ref] = False
                self.removed[removed.ref] = removed
            for added in change.adds:
                self.first.setdefault(added.ref, True)
                self.last[added.ref] = True
                self.added[added.ref] = added

    def began_live(self, ref: FileRef) -> bool:
        """Return whether the file existed before the changes: their first effect removes it."""
        return self.first.get(ref) is False

    def ends_live(self, ref: FileRef, *, otherwise: bool) -> bool:
        return self.last.get(ref, otherwise)

    def restored(self, ref: FileRef) -> DataFile:
        """Return a file whose removal is not in the newer view; its statistics are not known."""
        return restored(self.removed[ref])

    def withdrawn(self, ref: FileRef) -> RemovedFile:
        """Return the removal of a file whose addition is not in the newer view."""
        return removal(self.added[ref])


def compose(changes: Sequence[Change]) -> Change:
    """Return one change with the effect of ``changes`` in order.

    Files that are added and removed again are left out, and so are those that are removed and added
    again: no log entry may do both.

    Readers of a change data feed expect that an entry's change files contain all of its changes
    (hazard 32); ``changes.in_one_entry`` ensures that. If one change only moves rows that another
    changes, ``dataChange`` is true for all files: it is not known which of the remaining files
    contain the changed rows.
    """
    if len(changes) == 1:
        return changes[0]
    crossed = False
    adds: dict[FileRef, DataFile] = {}
    removes: dict[FileRef, RemovedFile] = {}
    change_files: list[ChangeFile] = []
    metadata = protocol = None
    domains: dict[str, dict[str, object]] = {}
    for change in changes:
        for removed in change.removes:
            made = adds.pop(removed.ref, None)
            if made is None:
                removes[removed.ref] = removed
            else:
                crossed = crossed or made.data_change != removed.data_change
        for added in change.adds:
            gone = removes.pop(added.ref, None)
            if gone is None:
                adds[added.ref] = added
            else:
                crossed = crossed or added.data_change != gone.data_change
        change_files.extend(change.change_files)
        metadata = change.metadata or metadata
        protocol = change.protocol or protocol
        for domain in change.domains:
            domains[domain["domain"]] = domain
    return Change(
        adds=tuple(_changed(file) if crossed else file for file in adds.values()),
        removes=tuple(_changed(file) if crossed else file for file in removes.values()),
        change_files=tuple(change_files),
        metadata=metadata,
        protocol=protocol,
        domains=tuple(domains.values()),
        row_ids_below=max((change.row_ids_below for change in changes), default=0),
        sequence_from=max((change.sequence_from for change in changes), default=0),
    )


_File = TypeVar("_File", DataFile, RemovedFile)


def _changed(file: _File) -> _File:
    return msgspec.structs.replace(file, data_change=True)
