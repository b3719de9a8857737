"""Values in columns that one side of a merge has written and the other side has dropped.

Readers ignore a column that a table does not have any more, so values of that column in an added
file would be lost without notice. To see whether one side has written such values, the files that
it added are compared with those that it removed (docs/design/0055-columns-that-went.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from lakevilla.engines.base import TableInput
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.files import DataFile, file_refs, files_from_structs
from lakevilla.formats.layout import REMOVED, Ids, Layout, Path, fields
from lakevilla.formats.pruning import may_match
from lakevilla.lake.context import Context
from lakevilla.lake.operations.comparing.computed import layout_before, unfit
from lakevilla.lake.operations.comparing.merging import Row, key_of, text_of
from lakevilla.lake.row_changes import still_fits
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Call, Column, Expr
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Transplant


def missing_fields(old: Layout, new: Layout) -> tuple[Path, ...]:
    """Return the paths of the fields of ``old`` that ``new`` lacks; of nested ones, the outermost.

    A field inside a list or a map is represented by the whole list or map.
    """
    pairs = zip(old.schema, old.statistics_schema, strict=True)
    return tuple(dict.fromkeys(_missing(pairs, new.statistics_schema, ())))


def _missing(
    pairs: Iterable[tuple[pa.Field, pa.Field]], others: Iterable[pa.Field], within: Path
) -> Iterator[Path]:
    known = {other.name: other for other in others}
    for field, stored in pairs:
        path, other = (*within, field.name), known.get(stored.name)
        if other is None:
            yield path
        elif pa.types.is_struct(field.type) and pa.types.is_struct(other.type):
            yield from _missing(zip(field.type, stored.type, strict=True), other.type, path)
        elif _loses(stored.type, other.type):
            yield path


def _loses(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether ``new`` lacks a field of ``old``, also inside a list or a map."""
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        known = {field.name: field.type for field in new}
        return any(one.name not in known or _loses(one.type, known[one.name]) for one in old)
    if pa.types.is_nested(old) and old.num_fields == new.num_fields:
        return any(_loses(old.field(n).type, new.field(n).type) for n in range(old.num_fields))
    return False


def refuse_hidden(
    context: Context, operation: Transplant, snapshot: TableSnapshot
) -> Program[None]:
    """Refuse a transplant that adds values in columns which the table does not have any more.

    A transplant that only undoes commits is not refused: it adds files again that were in the table
    before, and a column that was dropped since is dropped for their rows, too.

    Raises
    ------
    MergeConflict
    """
    if operation.after is not None or not operation.adds or operation.takes_back:
        return
    layout = layout_before(context, operation, snapshot)
    paths = missing_fields(layout, snapshot.layout)
    if not paths:
        return
    present = set(file_refs((yield from snapshot.files())))
    added = [file for file in operation.adds if file.ref not in present]
    found = yield from value_that_came(
        context, layout, paths, added, operation.removes, operation.keys
    )
    if found is not None:
        raise unfit(
            operation,
            snapshot,
            f"{named(paths)} was dropped from it, and the changes to apply "
            f"({' to '.join(operation.parameters.values())}) has values there: {found}",
        )


def named(paths: Sequence[Path]) -> str:
    """Return the columns' names for a message."""
    listed = ", ".join(".".join(path) for path in paths)
    return f"column {listed}"


def files_fit(files: Sequence[DataFile], old: Layout, new: Layout) -> bool:
    """Return whether files that were written for ``old`` are valid for ``new`` without loss."""
    return still_fits(old, new) and not may_lose_values(files, old, new)


def may_lose_values(files: Sequence[DataFile], old: Layout, new: Layout) -> bool:
    """Return whether files may have values in columns that layout ``new`` does not have.

    The files' statistics decide that.
    """
    return may_have_values(files, old, missing_fields(old, new) if files else ())


def may_have_values(files: Sequence[DataFile], layout: Layout, paths: Sequence[Path]) -> bool:
    """Return whether files may have values in columns, or in fields of structs, at some paths.

    The files' statistics decide that.
    """
    if not (files and paths):
        return False
    return bool(may_match(files_from_structs(files), layout, _any_value(layout, paths)).true_count)


def withdrawn_fields(layout: Layout, moved: Mapping[Ids, Ids]) -> tuple[Path, ...]:
    """Return the paths of a layout's fields that only cancelled commits had added.

    ``moved`` has the ids of such fields. A field inside a list or a map is represented by the whole
    list or map.
    """
    found = (path for path, ids in fields(layout) if moved.get(ids) == REMOVED)
    return tuple(dict.fromkeys(_outside_of_lists(layout, path) for path in found))


def _outside_of_lists(layout: Layout, path: Path) -> Path:
    kind: pa.DataType = layout.schema.field(path[0]).type
    for depth in range(1, len(path)):
        if not pa.types.is_struct(kind):
            return path[:depth]
        kind = kind.field(path[depth]).type
    return path


def value_that_came(
    context: Context,
    layout: Layout,
    paths: Sequence[Path],
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    keys: Sequence[str],
) -> Program[str | None]:
    """Return a text that describes a new value in one of the columns of the added files; or None.

    ``layout`` must have the columns. A file that is both removed and added, with other deletes, has
    no new values. With ``keys``, a row is compared with the row of the same key in the removed
    files; without keys, any value in an added file counts as new.
    """
    moved = {file.path for file in removed}
    new_files = [file for file in added if file.path not in moved]
    if not _is_bound(layout):
        return f"file {new_files[0].path} may have values in it" if new_files else None
    files, where = files_from_structs(new_files), _any_value(layout, paths)
    files = files.filter(may_match(files, layout, where))
    if not files.num_rows:
        return None
    if keys:
        return (yield from _differing(context, layout, paths, where, files, removed, keys))
    if sum(files["size"].to_pylist()) > context.settings.row_check_limit_bytes:
        return f"file {files['path'][0].as_py()} may have a value in it"
    found = yield from context.engine.find_one(TableInput(layout, files), where)
    return None if found is None else f"a row has a value in it, {found.to_pylist()[0]}"


def _any_value(layout: Layout, paths: Sequence[Path]) -> Expr:
    where: Expr | None = None
    for path in paths:
        term = Call("not", (Call("is_null", (Column(path),)),))
        where = term if where is None else Call("or", (where, term))
    assert where is not None, "some column is missing"
    return bind(where, layout.schema)


def _is_bound(layout: Layout) -> bool:
    """Return whether columns have ids or physical names that are never used again.

    Otherwise a file has a dropped column's values under its name, and a later column with the same
    name shows them.
    """
    return layout.by_field_id or layout.properties.get("delta.columnMapping.mode") in ("name", "id")


def _differing(
    context: Context,
    layout: Layout,
    paths: Sequence[Path],
    where: Expr,
    files: pa.Table,
    removed: Sequence[DataFile],
    keys: Sequence[str],
) -> Program[str | None]:
    """Return the result of ``value_that_came`` by a comparison of rows with equal keys."""
    columns = list(dict.fromkeys([*keys, *(path[0] for path in paths)]))
    known: dict[object, str] = {}
    before = TableInput(layout, files_from_structs(removed))
    for batch in (yield from context.engine.scan(before, columns, None)) if removed else ():
        known.update((key_of(row, keys), _shown(row, paths)) for row in batch.to_pylist())
    for batch in (yield from context.engine.scan(TableInput(layout, files), columns, where)):
        for row in batch.to_pylist():
            key = key_of(row, keys)
            if None in key or known.get(key) != _shown(row, paths):
                return f"a row has another value in it, {row}"
    return None


def _shown(row: Row, paths: Sequence[Path]) -> str:
    """Return a row's values in the columns, as text: equal values have equal texts."""
    return text_of({".".join(path): _value(row, path) for path in paths})


def _value(row: Row, path: Path) -> object:
    value: object = row
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
