"""What changed between two states, applied row by row where others have rewritten the files.

With keys a row is told by them; without, rows are bags: equal ones are the same, wherever they
lie. Rows of the difference are held in memory, those of the table are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.engines.base import (
    FileNamer,
    MergeClause,
    MergeSpec,
    Rewrite,
    TableInput,
    Written,
)
from lakevilla.errors import InvalidOperation, MergeConflict
from lakevilla.expressions.bind import bind, bind_assignments
from lakevilla.expressions.tree import Call, Column, Expr
from lakevilla.expressions.values import literal
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.files import DataFile, file_key, files_from_structs
from lakevilla.formats.layout import Layout
from lakevilla.lake.context import Context
from lakevilla.lake.fitness import lost_for_good
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Transplant

Row = dict[str, Any]
#: What is to be done to the row of a key.
_Act = Literal["insert", "update", "delete"]
_ACT = "lakevilla_act"
#: Beyond so many keys the table is looked through rather than asked for each.
_MOST_ASKED_FOR = 2000


@dataclass(frozen=True, slots=True)
class ByRows:
    """What was written; ``skipped`` says why the rows can't be told."""

    rewrite: Rewrite = field(default_factory=Rewrite)
    added: tuple[Written, ...] = ()
    skipped: str | None = None


def by_rows(
    context: Context, operation: Transplant, snapshot: TableSnapshot, name: FileNamer
) -> Program[ByRows]:
    """Apply the rows that differ between the removed and the added files of an operation.

    ``snapshot`` is defined as it is to be after it.

    Raises
    ------
    MergeConflict
        Rows are otherwise by now, and the operation does not say what counts.
    InvalidOperation
        A key is NULL, or there twice.
    """
    location = operation.table
    files = (*operation.removes, *operation.adds)
    lost = yield from lost_for_good([file_key(location, file.path) for file in files])
    if lost:
        return ByRows(skipped=f"{lost[0]}, which has rows to be compared, was deleted by others")
    layout = snapshot.layout
    old = yield from _rows_of(context, layout, operation.removes)
    new = yield from _rows_of(context, layout, operation.adds)
    if operation.keys:
        return (yield from _by_keys(context, operation, snapshot, old, new, name))
    return (yield from _as_bags(context, snapshot, old, new, name))


def _rows_of(context: Context, layout: Layout, files: Sequence[DataFile]) -> Program[list[Row]]:
    if not files:
        return []
    table = TableInput(layout, files_from_structs(files))
    rows: list[Row] = (yield from context.engine.scan(table, None, None)).read_all().to_pylist()
    return rows


# ------------------------------------------------------------------------- by keys


def _by_keys(
    context: Context,
    operation: Transplant,
    snapshot: TableSnapshot,
    old: Sequence[Row],
    new: Sequence[Row],
    name: FileNamer,
) -> Program[ByRows]:
    layout, keys = snapshot.layout, operation.keys
    for key in keys:
        if key not in layout.schema.names:
            return ByRows(skipped=f"it has no column {key} any more")
    before, after = _indexed(layout, keys, old), _indexed(layout, keys, new)
    changed = [key for key in {**before, **after} if not _same(before.get(key), after.get(key))]
    if not changed:
        return ByRows()
    ours = yield from _ours(context, snapshot, keys, changed)
    acts: list[tuple[_Act, Row]] = []
    conflicts = []
    for key in changed:
        was, wanted, now = before.get(key), after.get(key), ours.get(key)
        if _same(now, wanted):
            continue
        if not _same(now, was) and operation.on_conflict != "theirs":
            conflicts.append((key, was, now, wanted))
            continue
        acts.append(_act(keys, key, wanted, now))
    if conflicts and operation.on_conflict == "error":
        raise _conflict(layout, keys, conflicts)
    if not acts:
        return ByRows()
    return ByRows((yield from _merged(context, snapshot, keys, acts, name)))


def _act(keys: Sequence[str], key: tuple[Any, ...], wanted: Row | None, now: Row | None) -> Any:
    if wanted is None:
        return "delete", dict(zip(keys, key, strict=True))
    return ("insert" if now is None else "update"), wanted


def _indexed(layout: Layout, keys: Sequence[str], rows: Iterable[Row]) -> dict[Any, Row]:
    """Rows by their keys. Raises ``InvalidOperation`` where they tell no rows apart."""
    found: dict[Any, Row] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        if None in key:
            raise _no_key(layout, keys, f"a row has NULL in it: {row}")
        if key in found:
            raise _no_key(layout, keys, f"two rows have {', '.join(map(repr, key))}")
        found[key] = row
    return found


def _no_key(layout: Layout, keys: Sequence[str], why: str) -> InvalidOperation:
    return InvalidOperation(
        f"keys: {', '.join(keys)} of table {layout.table} tells its rows not apart: {why}; name "
        "other columns",
        table=layout.table,
    )


def _ours(
    context: Context, snapshot: TableSnapshot, keys: Sequence[str], wanted: Sequence[Any]
) -> Program[dict[Any, Row]]:
    """The rows of the table that have one of these keys."""
    layout = snapshot.layout
    where = _is_one_of(layout, keys, wanted)
    files = yield from snapshot.files(where)
    reader = yield from context.engine.scan(TableInput(layout, files), None, where)
    known = set(wanted)
    found: list[Row] = []
    for batch in reader:
        columns = [batch.column(batch.schema.get_field_index(key)).to_pylist() for key in keys]
        places = [n for n, key in enumerate(zip(*columns, strict=True)) if key in known]
        found += batch.take(pa.array(places, pa.int64())).to_pylist() if places else []
    return _indexed(layout, keys, found)


def _is_one_of(layout: Layout, keys: Sequence[str], wanted: Sequence[Any]) -> Expr | None:
    """A predicate that is true of every row with such a key, and maybe of others."""
    terms = []
    for place, key in enumerate(keys):
        values = list(dict.fromkeys(values[place] for values in wanted))
        if len(values) > _MOST_ASKED_FOR:
            continue
        try:
            literals = [literal(value) for value in values]
            terms.append(bind(Call("in", (Column((key,)), *literals)), layout.schema))
        except InvalidOperation:
            continue  # of a type that has no literal: then all rows are looked at
    if not terms:
        return None
    where = terms[0]
    for term in terms[1:]:
        where = Call("and", (where, term))
    return where


def _merged(
    context: Context,
    snapshot: TableSnapshot,
    keys: Sequence[str],
    acts: Sequence[tuple[_Act, Row]],
    name: FileNamer,
) -> Program[Rewrite]:
    """One update of the table: rows that go, change and come."""
    layout = snapshot.layout
    fields = [pa.field(one.name, one.type) for one in layout.schema]
    schema = pa.schema([*fields, pa.field(_ACT, pa.string())])
    source = pa.Table.from_pylist([{**row, _ACT: act} for act, row in acts], schema)
    every = {one: Column((one,), "source") for one in layout.schema.names}
    rest: dict[str, Expr] = {one: value for one, value in every.items() if one not in keys}
    is_delete = Call("=", (Column((_ACT,), "source"), literal("delete")))
    clauses = [MergeClause("matched_delete", is_delete)]
    if rest:
        clauses.append(MergeClause("matched_update", None, rest))
    not_delete = Call("<>", (Column((_ACT,), "source"), literal("delete")))
    clauses.append(MergeClause("not_matched_insert", not_delete, dict(every)))
    spec = _spec(layout, schema, keys, "=", clauses)
    files = yield from snapshot.files(_is_one_of(layout, keys, _keys_of(keys, acts)))
    return (
        yield from context.engine.merge(TableInput(layout, files), source.to_reader(), spec, name)
    )


def _keys_of(keys: Sequence[str], acts: Iterable[tuple[_Act, Row]]) -> list[tuple[Any, ...]]:
    return [tuple(row[key] for key in keys) for _, row in acts]


def _spec(
    layout: Layout,
    source: pa.Schema,
    columns: Sequence[str],
    equal: str,
    clauses: Iterable[MergeClause],
) -> MergeSpec:
    """A merge on equal columns, bound to both sides."""
    schemas = {"source": source, "target": layout.schema}
    on: Expr | None = None
    for column in columns:
        same = Call(equal, (Column((column,), "target"), Column((column,), "source")))
        on = same if on is None else Call("and", (on, same))
    assert on is not None
    bound = tuple(
        MergeClause(
            one.kind,
            None if one.predicate is None else bind(one.predicate, schemas),
            bind_assignments(one.assignments, layout.schema, schemas),
        )
        for one in clauses
    )
    return MergeSpec(bind(on, schemas), "source", "target", bound)


def _conflict(
    layout: Layout,
    keys: Sequence[str],
    conflicts: Sequence[tuple[Any, Row | None, Row | None, Row | None]],
) -> MergeConflict:
    row = pa.struct(list(layout.schema))
    schema = pa.schema(
        [
            ("key", pa.struct([layout.schema.field(key) for key in keys])),
            ("base", row),
            ("ours", row),
            ("theirs", row),
        ]
    )
    rows = [
        {"key": dict(zip(keys, key, strict=True)), "base": was, "ours": now, "theirs": wanted}
        for key, was, now, wanted in conflicts
    ]
    first = ", ".join(f"{n} {value!r}" for n, value in zip(keys, conflicts[0][0], strict=True))
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return MergeConflict(
        f"table {layout.table}: the row with {first}{more} was changed on both sides: look at "
        "rows() of this error, then give on_conflict='ours' or 'theirs'",
        rows={layout.location: pa.Table.from_pylist(rows, schema)},
        table=layout.table,
    )


# ------------------------------------------------------------------------- as bags


def _as_bags(
    context: Context,
    snapshot: TableSnapshot,
    old: Sequence[Row],
    new: Sequence[Row],
    name: FileNamer,
) -> Program[ByRows]:
    """Each row that goes must be there, as often as it goes; others may have moved it."""
    layout = snapshot.layout
    nested = next((one.name for one in layout.schema if pa.types.is_nested(one.type)), None)
    if nested is not None or layout.change_data_feed:
        what = "a change data feed" if nested is None else f"a nested column {nested}"
        return ByRows(skipped=f"its files were rewritten by others, and it has {what}")
    going, coming = _apart(old, new), _apart(new, old)
    rows = {_text(row): row for row in (*old, *new)}
    found, files = yield from _there(context, snapshot, [rows[text] for text in going])
    if found is None:
        return ByRows(skipped="its files were rewritten by others, and are too large to compare")
    lacking = next((text for text, count in going.items() if found[text] < count), None)
    if lacking is not None:
        return ByRows(skipped=f"a row that is to go was changed by others: {rows[lacking]}")
    rewrite = Rewrite()
    if going:
        source = pa.Table.from_pylist([rows[text] for text in going], _nullable(layout.schema))
        clauses = [MergeClause("matched_delete")]
        spec = _spec(layout, source.schema, layout.schema.names, "<=>", clauses)
        rewrite = yield from context.engine.merge(
            TableInput(layout, files), source.to_reader(), spec, name
        )
        if rewrite.rows_deleted != sum(found[text] for text in going):
            return ByRows(skipped="rows that are to go can't be told from others")
    # All equal ones went: those that are to stay come again.
    back = coming + Counter({text: found[text] - count for text, count in going.items()})
    given = [rows[text] for text in back.elements()]
    if not given:
        return ByRows(rewrite)
    data = pa.Table.from_pylist(given, layout.schema)
    return ByRows(rewrite, (yield from context.engine.write(layout, data.to_reader(), name)))


def _there(
    context: Context, snapshot: TableSnapshot, going: Sequence[Row]
) -> Program[tuple[Counter[str] | None, pa.Table]]:
    """How often the table has each of these rows, and the files that may have them.

    None if these are larger than a transaction looks at for a conflict.
    """
    layout = snapshot.layout
    wanted = {_text(row) for row in going}
    where = _is_like(layout, going)
    files = yield from snapshot.files(where)
    size = pc.sum(files["size"]).as_py() or 0
    if size > context.settings.row_check_limit_bytes:
        return None, files
    reader = yield from context.engine.scan(TableInput(layout, files), None, where)
    found: Counter[str] = Counter()
    for batch in reader:
        found.update(text for row in batch.to_pylist() if (text := _text(row)) in wanted)
    return found, files


def _is_like(layout: Layout, rows: Sequence[Row]) -> Expr | None:
    """A predicate that is true of these rows, by the columns in which none of them is NULL."""
    whole = [key for key in layout.schema.names if all(row[key] is not None for row in rows)]
    if not whole or not rows:
        return None
    return _is_one_of(layout, whole, [tuple(row[key] for key in whole) for row in rows])


def _apart(rows: Iterable[Row], others: Iterable[Row]) -> Counter[str]:
    return Counter(map(_text, rows)) - Counter(map(_text, others))


def _text(row: Row) -> str:
    """What stands for a row: equal rows have equal ones, NaN is itself."""
    return repr(list(row.values()))


def _same(one: Row | None, other: Row | None) -> bool:
    if one is None or other is None:
        return one is other
    return _text(one) == _text(other)


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(one.name, one.type) for one in schema])
