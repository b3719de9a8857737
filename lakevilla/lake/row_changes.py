"""Conflicts: does what came between touch what a transaction relied on? (design, section 6)

First the files: a removed or added file that may hold a row for which the
predicate is true. Then, while those are small, the rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.engines.base import TableInput
from lakevilla.errors import LakeVillaError
from lakevilla.formats.base import REPLACED, TableSnapshot
from lakevilla.formats.fields import as_of
from lakevilla.formats.files import FileRef, file_key, file_refs
from lakevilla.formats.layout import Layout
from lakevilla.formats.widening import in_delta
from lakevilla.lake.context import Context
from lakevilla.lake.fitness import UNREADABLE, lost_for_good
from lakevilla.lake.net_change import NetChange
from lakevilla.lake.view import View
from lakevilla.sql.expressions.tree import Expr, Literal
from lakevilla.sql.expressions.types import type_name
from lakevilla.store.effects import Program

TRUE = Literal("boolean", "true")


class Verdict(Enum):
    """What a change between means for one predicate over one table."""

    UNTOUCHED = "untouched"  # no file that may match came or went
    MOVED = "moved"  # the same rows in other files
    CHANGED = "changed"  # rows that match came, went or changed, or nobody can tell


def judge(
    context: Context, old: View, new: View, net: NetChange, where: Expr | None
) -> Program[Verdict]:
    """How ``net``, the difference between two views, touches the rows that ``where`` describes.

    ``where`` None stands for all rows. The views may lack columns of it: those that the
    transaction has added itself, see ``as_of``.
    """
    if net.contract or net.metadata:
        return Verdict.CHANGED
    if not (net.adds or net.removes):
        return Verdict.UNTOUCHED
    removed = yield from only(old.snapshot, where, net.removes)
    added = yield from only(new.snapshot, where, net.adds)
    if removed.num_rows == 0 and added.num_rows == 0:
        return Verdict.UNTOUCHED
    if net.only_moves(file_refs(removed), file_refs(added)):
        return Verdict.MOVED
    size = pc.sum(removed["size"]).as_py() or 0
    size += pc.sum(added["size"]).as_py() or 0
    if size > context.settings.row_check_limit_bytes:
        return Verdict.CHANGED
    try:
        before = yield from _matching(context, old.snapshot.layout, removed, where)
        after = yield from _matching(context, new.snapshot.layout, added, where)
    except LakeVillaError as error:
        # What went may be cleaned up since, by others too: then its rows can't be looked at
        # any more, by anybody, and to try again would be in vain for ever.
        if error.kind not in UNREADABLE or not (
            yield from lost_for_good(
                [
                    file_key(view.location, path)
                    for view, files in ((old, removed), (new, added))
                    for path in files["path"].to_pylist()
                ]
            )
        ):
            raise
        return Verdict.CHANGED
    return Verdict.MOVED if before == after else Verdict.CHANGED


def _matching(
    context: Context, layout: Layout, files: pa.Table, where: Expr | None
) -> Program[str]:
    """A digest of the rows for which ``where`` is true."""
    predicate = as_of(where, layout)
    rows = TableInput(layout, files)
    return (yield from context.engine.matching_rows(rows, TRUE if predicate is None else predicate))


def only(
    snapshot: TableSnapshot, where: Expr | None, refs: Collection[FileRef]
) -> Program[pa.Table]:
    """The files of ``snapshot`` that may match ``where`` and are among ``refs``."""
    if not refs:
        files = yield from snapshot.files(Literal("boolean", "false"))
        return files.slice(0, 0)
    files = yield from snapshot.files(as_of(where, snapshot.layout))
    paths = pa.array(sorted({path for path, _ in refs}), pa.string())
    candidates = files.filter(pc.is_in(files["path"], value_set=paths))
    wanted = set(refs)
    keep = [ref in wanted for ref in file_refs(candidates)]
    return candidates.filter(pa.array(keep, pa.bool_()))


def still_fits(old: Layout, new: Layout) -> bool:
    """Whether files written under ``old`` are right under ``new`` as they are.

    They are if the same columns are stored under the same names and types, and
    nothing is asked of their rows that was not asked before; columns and fields added
    meanwhile read as null, columns dropped are passed over.
    """
    return old.change_data_feed == new.change_data_feed and _fits(old, new, _same_type)


def rows_fit(old: Layout, new: Layout) -> bool:
    """Whether rows that others have written under ``old`` are right once their table is ``new``.

    They are where ``still_fits`` says so, and under wider types, which readers know how to read.
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
        return False  # values of theirs would be hidden, in columns that nobody has dropped
    asked = {constraint.sql for constraint in old.constraints}
    if any(constraint.sql not in asked for constraint in new.constraints):
        return False
    stored = dict(zip(old.schema.names, old.statistics_schema.names, strict=True))
    in_any_case = {name.lower(): physical for name, physical in stored.items()}
    for name, physical in zip(new.schema.names, new.statistics_schema.names, strict=True):
        # A column of the same name that is stored under another one is another column: it
        # would read as null what was written. The same name in another case is one of them.
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
    """A field as it is called, and the same as statistics know it: by what never changes."""

    name: pa.Field
    id: pa.Field


def _by_id(names: Iterable[pa.Field], ids: Iterable[pa.Field]) -> dict[str, _Named]:
    return {id.name: _Named(name, id) for name, id in zip(names, ids, strict=True)}


def _has_grown(old: _Named, new: _Named) -> bool:
    """Whether a type is the other but for fields, at any depth, that it has besides."""
    of, to = old.id.type, new.id.type
    if of == to:
        return True
    if pa.types.is_struct(of) and pa.types.is_struct(to):
        before = _by_id(old.name.type, of)
        after = _by_id(new.name.type, to)
        # One of a name that was there is another field, which would hide what was written.
        taken = {one.name.name.lower() for one in before.values()}
        added = [one for id, one in after.items() if id not in before]
        if any(not one.id.nullable or one.name.name.lower() in taken for one in added):
            return False
        return all(id in after and _is_kept(one, after[id]) for id, one in before.items())
    if pa.types.is_list(of) and pa.types.is_list(to):
        elements = (_Named(x.name.type.value_field, x.id.type.value_field) for x in (old, new))
        return _is_kept(*elements)
    if pa.types.is_map(of) and pa.types.is_map(to):
        items = (_Named(x.name.type.item_field, x.id.type.item_field) for x in (old, new))
        return bool(of.key_type == to.key_type) and _is_kept(*items)
    return False


def _is_kept(old: _Named, new: _Named) -> bool:
    return _has_grown(old, new) and (new.id.nullable or not old.id.nullable)
