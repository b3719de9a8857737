"""Changes between two states, applied row by row because other transactions rewrote the files.

With keys, a row is identified by its keys. Without keys, a table is a bag of rows: only the number
of equal rows counts. The rows that differ are held in memory, the table's other rows are not. If
the engine works by tasks, the tasks compare the rows (``comparing.met``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.engines.base import FileNamer, MergeClause, Rewrite, TableInput
from lakevilla.engines.staged import MeetingEngine
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.delta.deletion_vectors import RowIndices
from lakevilla.formats.files import DataFile, file_key
from lakevilla.formats.layout import Layout
from lakevilla.lake.applicability import lost_for_good
from lakevilla.lake.context import Context
from lakevilla.lake.operations.comparing.computed import Beneath, columns_computed_separately
from lakevilla.lake.operations.comparing.merging import (
    ACT,
    CHANGED_BY_OTHERS,
    NOT_APART,
    TOO_LARGE,
    ByRows,
    Key,
    Row,
    act_on,
    asks_of_equal,
    changed_alike,
    conflict,
    conflict_schema,
    equal_conflict,
    indexed,
    is_one_of,
    key_of,
    may_be_two,
    merge_of_acts,
    same,
    source_schema,
    spec_on,
    text_of,
)
from lakevilla.lake.operations.comparing.met import by_tasks
from lakevilla.lake.row_changes import few_marks, inputs_at
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Transplant


def by_rows(
    context: Context,
    operation: Transplant,
    snapshot: TableSnapshot,
    name: FileNamer,
    beneath: Beneath | None = None,
) -> Program[ByRows]:
    """Apply the rows that differ between the removed and the added files of an operation.

    ``snapshot`` already has the definition that the table must have after the operation;
    ``beneath`` has the commits of which ``snapshot`` consists.

    Raises
    ------
    MergeConflict
        Other transactions have changed the same rows, and ``on_conflict`` is "error".
    InvalidOperation
        A row's key has NULL, or two rows have the same key.
    """
    location = operation.table
    files = (*operation.removes, *operation.adds)
    lost = yield from lost_for_good([file_key(location, file.path) for file in files])
    if lost:
        return ByRows(skipped=f"{lost[0]}, which has rows to compare, was deleted by other clients")
    layout = snapshot.layout
    for key in operation.keys:
        if key not in layout.schema.names:
            return ByRows(skipped=f"it has no column {key} any more")
    if not operation.keys and (why := _no_bags(layout)) is not None:
        return ByRows(skipped=why)
    if isinstance(context.engine, MeetingEngine):
        return (yield from by_tasks(context, context.engine, operation, snapshot, name, beneath))
    old, new = yield from _differing(context, layout, operation)
    if operation.keys:
        return (yield from _by_keys(context, operation, snapshot, old, new, name, beneath))
    return (yield from _as_bags(context, snapshot, old, new, name))


def _differing(
    context: Context, layout: Layout, operation: Transplant
) -> Program[tuple[list[Row], list[Row]]]:
    """Return the rows of the removed files and of the added ones.

    Of a file of which rows are marked as deleted, or brought back, these rows alone are read.
    """
    marks = yield from few_marks(layout, operation.removes, operation.adds)
    gone = {path: one.gone for path, one in marks.items()}
    back = {path: one.back for path, one in marks.items()}
    old = yield from _rows_of(context, layout, operation.removes, gone)
    new = yield from _rows_of(context, layout, operation.adds, back)
    return old, new


def _rows_of(
    context: Context,
    layout: Layout,
    files: Sequence[DataFile],
    places: Mapping[str, RowIndices],
) -> Program[list[Row]]:
    """Return the rows of files; of a file that has ``places``, the rows at these."""
    found: list[Row] = []
    for table in inputs_at(layout, files, places):
        found += (yield from context.engine.scan(table, None, None)).read_all().to_pylist()
    return found


# ------------------------------------------------------------------------- by keys


def _by_keys(
    context: Context,
    operation: Transplant,
    snapshot: TableSnapshot,
    old: Sequence[Row],
    new: Sequence[Row],
    name: FileNamer,
    beneath: Beneath | None,
) -> Program[ByRows]:
    layout, keys = snapshot.layout, operation.keys
    base = indexed(layout, keys, old)
    theirs = indexed(layout, keys, new)
    changed = [key for key in {**base, **theirs} if not same(base.get(key), theirs.get(key))]
    if not changed:
        return ByRows()
    ours = yield from _ours(context, snapshot, keys, changed)
    acts: list[Row] = []
    conflicts: list[Row] = []
    equal: list[tuple[frozenset[str], Row]] = []
    for key in changed:
        base_row, their_row, our_row = base.get(key), theirs.get(key), ours.get(key)
        act = act_on(base_row, their_row, our_row, operation.on_conflict)
        named = dict(zip(keys, key, strict=True))
        states: Row = {"key": named, "base": base_row, "ours": our_row, "theirs": their_row}
        if act == "conflict":
            conflicts.append(states)
        elif act is not None:
            acts.append({**(their_row or named), ACT: act})
        elif both := changed_alike(base_row, their_row, our_row):
            equal.append((both, states))
    if conflicts and operation.on_conflict == "error":
        rows = pa.Table.from_pylist(conflicts, conflict_schema(layout, keys))
        raise conflict(layout, keys, rows, len(conflicts))
    if equal and asks_of_equal(operation):
        computed = yield from columns_computed_separately(context, operation, layout, beneath)
        twice = [row for both, row in equal if may_be_two(both, computed)]
        if twice:
            rows = pa.Table.from_pylist(twice, conflict_schema(layout, keys))
            raise equal_conflict(layout, keys, rows, len(twice), computed)
    if not acts:
        return ByRows()
    source = pa.Table.from_pylist(acts, source_schema(layout))
    wanted_keys = [key_of(row, keys) for row in acts]
    files = yield from snapshot.files(is_one_of(layout, keys, wanted_keys))
    table, spec = TableInput(layout, files), merge_of_acts(layout, keys)
    return ByRows((yield from context.engine.merge(table, source.to_reader(), spec, name)))


def _ours(
    context: Context, snapshot: TableSnapshot, keys: Sequence[str], wanted: Sequence[Key]
) -> Program[dict[Key, Row]]:
    """Return the rows of the table that have one of these keys."""
    layout = snapshot.layout
    where = is_one_of(layout, keys, wanted)
    files = yield from snapshot.files(where)
    reader = yield from context.engine.scan(TableInput(layout, files), None, where)
    known = set(wanted)
    found: list[Row] = []
    for batch in reader:
        columns = batch.select(list(keys)).to_pylist()
        indices = [n for n, row in enumerate(columns) if key_of(row, keys) in known]
        found += batch.take(pa.array(indices, pa.int64())).to_pylist() if indices else []
    return indexed(layout, keys, found)


# ------------------------------------------------------------------------- as bags


def _as_bags(
    context: Context,
    snapshot: TableSnapshot,
    old: Sequence[Row],
    new: Sequence[Row],
    name: FileNamer,
) -> Program[ByRows]:
    """Apply the difference of two bags of rows, ``old`` and ``new``, to the table.

    The table must have at least as many copies of a row as are to be removed, in any of its files.
    """
    layout = snapshot.layout
    removed, added = _surplus(old, new), _surplus(new, old)
    rows = {text_of(row): row for row in (*old, *new)}
    found, files = yield from _there(context, snapshot, [rows[text] for text in removed])
    if found is None:
        return ByRows(skipped=TOO_LARGE)
    lacking = next((text for text, count in removed.items() if found[text] < count), None)
    if lacking is not None:
        return ByRows(skipped=f"{CHANGED_BY_OTHERS}: {rows[lacking]}")
    rewrite = Rewrite()
    if removed:
        source = pa.Table.from_pylist([rows[text] for text in removed], _nullable(layout.schema))
        clauses = [MergeClause("matched_delete")]
        spec = spec_on(layout, source.schema, layout.schema.names, "<=>", clauses)
        rewrite = yield from context.engine.merge(
            TableInput(layout, files), source.to_reader(), spec, name
        )
        if rewrite.rows_deleted != sum(found[text] for text in removed):
            return ByRows(skipped=NOT_APART)
    # The merge has removed all copies of each row: add those copies again that must stay.
    to_add = added + Counter({text: found[text] - count for text, count in removed.items()})
    given = [rows[text] for text in to_add.elements()]
    if not given:
        return ByRows(rewrite)
    data = pa.Table.from_pylist(given, layout.schema)
    return ByRows(rewrite, (yield from context.engine.write(layout, data.to_reader(), name)))


def _no_bags(layout: Layout) -> str | None:
    """Return why rows of a table can't be compared as bags, or None."""
    nested = next((one.name for one in layout.schema if pa.types.is_nested(one.type)), None)
    if nested is None and not layout.change_data_feed:
        return None
    what = "a change data feed" if nested is None else f"a nested column {nested}"
    return f"its files were rewritten by other transactions, and it has {what}"


def _there(
    context: Context, snapshot: TableSnapshot, removed: Sequence[Row]
) -> Program[tuple[Counter[str] | None, pa.Table]]:
    """Return how often the table has each of these rows, and the files that may have them.

    The count is None if the files are larger than ``row_check_limit_bytes``.
    """
    layout = snapshot.layout
    wanted = {text_of(row) for row in removed}
    where = _is_like(layout, removed)
    files = yield from snapshot.files(where)
    size = pc.sum(files["size"]).as_py() or 0
    if size > context.settings.row_check_limit_bytes:
        return None, files
    reader = yield from context.engine.scan(TableInput(layout, files), None, where)
    found: Counter[str] = Counter()
    for batch in reader:
        found.update(text for row in batch.to_pylist() if (text := text_of(row)) in wanted)
    return found, files


def _is_like(layout: Layout, rows: Sequence[Row]) -> Expr | None:
    """Return a predicate that is true for ``rows``, over columns in which none of them has NULL."""
    whole = [key for key in layout.schema.names if all(row[key] is not None for row in rows)]
    if not whole or not rows:
        return None
    return is_one_of(layout, whole, [tuple(row[key] for key in whole) for row in rows])


def _surplus(rows: Iterable[Row], others: Iterable[Row]) -> Counter[str]:
    return Counter(map(text_of, rows)) - Counter(map(text_of, others))


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(one.name, one.type) for one in schema])
