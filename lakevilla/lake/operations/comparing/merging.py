"""Merge the changes of two sides, such as a branch and the lake, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.engines.base import FileNamer, MergeClause, MergeSpec, Rewrite, Written
from lakevilla.engines.staged import Met
from lakevilla.errors import InvalidOperation, MergeConflict
from lakevilla.formats.layout import Layout
from lakevilla.lake.context import owner_of
from lakevilla.lake.operations.comparing.computed import ANY
from lakevilla.sql.expressions.assignments import bind_assignments
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Call, Column, Expr
from lakevilla.sql.expressions.values import literal
from lakevilla.store.effects import Program, delete, parallel
from lakevilla.sublogs.operations import OnConflict, Transplant

# -------------------- merging
#
# Merges that delete, update and insert rows by key, and predicates for the files to read for them.


#: The column of a merge's source that has the act on a row: insert, update or delete.
ACT = "lakevilla_act"
#: The most keys that a predicate names; for more keys it names only their range.
MOST_ASKED_FOR = 2000


def source_schema(layout: Layout) -> pa.Schema:
    """Return the columns of a merge's source: those of the table, and the act (``ACT``).

    A row to delete has values only in the key columns.
    """
    fields = [pa.field(one.name, one.type) for one in layout.schema]
    return pa.schema([*fields, pa.field(ACT, pa.string())])


def merge_of_acts(layout: Layout, keys: Sequence[str]) -> MergeSpec:
    """Return the merge of a source with ``source_schema`` into the table.

    It deletes, updates and inserts rows, as the source's acts say.
    """
    every = {one: Column((one,), "source") for one in layout.schema.names}
    rest: dict[str, Expr] = {one: value for one, value in every.items() if one not in keys}
    is_delete = Call("=", (Column((ACT,), "source"), literal("delete")))
    clauses = [MergeClause("matched_delete", is_delete)]
    if rest:
        clauses.append(MergeClause("matched_update", None, rest))
    not_delete = Call("<>", (Column((ACT,), "source"), literal("delete")))
    clauses.append(MergeClause("not_matched_insert", not_delete, dict(every)))
    return spec_on(layout, source_schema(layout), keys, "=", clauses)


def spec_on(
    layout: Layout,
    source: pa.Schema,
    columns: Sequence[str],
    equal: str,
    clauses: Iterable[MergeClause],
) -> MergeSpec:
    """Return a merge by equality of ``columns``, bound to the source and the target."""
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


def is_one_of(layout: Layout, keys: Sequence[str], wanted: Sequence[Key]) -> Expr | None:
    """Return a predicate that is true for all rows with a wanted key, perhaps for other rows."""
    terms: list[Expr] = []
    for number, key in enumerate(keys):
        values = list(dict.fromkeys(values[number] for values in wanted))
        # Statistics do not include NaN, so a predicate with a NaN would exclude its files.
        if len(values) > MOST_ASKED_FOR or any(value != value for value in values):
            continue
        try:
            literals = [literal(value) for value in values]
            terms.append(bind(Call("in", (Column((key,)), *literals)), layout.schema))
        except InvalidOperation:
            continue  # the type has no literal: this key column excludes no rows
    return _all_of(terms)


def is_within(layout: Layout, spans: pa.Table, keys: Sequence[str]) -> Expr | None:
    """Return a predicate that is true for every row whose keys are in the ranges of ``spans``.

    ``spans`` has one column for each key, with the least and the greatest values of the wanted
    rows.
    """
    terms: list[Expr] = []
    for name, key in zip(spans.schema.names, keys, strict=True):
        values = spans[name].to_pylist()
        if pa.types.is_floating(spans[name].type):
            continue
        try:
            for compare, value in ((">=", min(values)), ("<=", max(values))):
                terms.append(bind(Call(compare, (Column((key,)), literal(value))), layout.schema))
        except InvalidOperation:
            continue
    return _all_of(terms)


def _all_of(terms: Sequence[Expr]) -> Expr | None:
    where: Expr | None = None
    for term in terms:
        where = term if where is None else Call("and", (where, term))
    return where


# -------------------- rows
#
# The act on a row by its three states: before and after the change to apply, and in the table.


Row = dict[str, Any]
Key = tuple[Any, ...]
#: The act on the row with a key.
Act = Literal["insert", "update", "delete"]
_NAN = float("nan")
#: Reasons why rows without keys can't be compared.
TOO_LARGE = "its files were rewritten by other transactions, and are too large to compare"
CHANGED_BY_OTHERS = "a row to delete was changed by another transaction"
NOT_APART = "rows to delete can't be distinguished from other rows"


@dataclass(frozen=True, slots=True)
class ByRows:
    """The files written after a comparison of rows; ``skipped``: why there was none, or None."""

    rewrite: Rewrite = field(default_factory=Rewrite)
    added: tuple[Written, ...] = ()
    skipped: str | None = None


def act_on(
    base: Row | None, theirs: Row | None, ours: Row | None, on_conflict: OnConflict
) -> Act | Literal["conflict"] | None:
    """Return the act by which the table's row ``ours`` gets the change of ``base`` to ``theirs``.

    None if the table's row needs no change.
    """
    if same(base, theirs) or same(ours, theirs):
        return None
    if not same(ours, base) and on_conflict != "theirs":
        return "conflict"
    if theirs is None:
        return "delete"
    return "insert" if ours is None else "update"


def asks_of_equal(operation: Transplant) -> bool:
    """Return whether rows that both sides changed to the same value must be checked."""
    return operation.on_equal == "conflict" and operation.on_conflict == "error"


def changed_alike(base: Row | None, theirs: Row | None, ours: Row | None) -> frozenset[str]:
    """Return the changed columns of a row that both sides have changed to the same; else none."""
    if base is None or theirs is None or not same(ours, theirs):
        return frozenset()
    return changed_in(base, theirs)


def changed_in(base: Row, theirs: Row) -> frozenset[str]:
    """Return the columns in which two states of a row differ."""
    return frozenset(name for name in base if repr(base[name]) != repr(theirs[name]))


def may_be_two(changed: frozenset[str], computed: frozenset[str]) -> bool:
    """Return whether equal changes of both sides may be two: if a changed column was computed."""
    return bool(changed) and (computed >= ANY or not computed.isdisjoint(changed))


def key_of(row: Row, keys: Sequence[str]) -> Key:
    """Return the key that identifies a row; NaN keys are one object, so they are equal."""
    return tuple(_NAN if value != value else value for value in map(row.__getitem__, keys))


def indexed(layout: Layout, keys: Sequence[str], rows: Iterable[Row]) -> dict[Key, Row]:
    """Return rows by their keys. Raises ``InvalidOperation`` if the keys do not identify rows."""
    found: dict[Key, Row] = {}
    for row in rows:
        key = key_of(row, keys)
        if None in key:
            raise null_in_key(layout, keys, row)
        if key in found:
            raise two_of_key(layout, keys, key)
        found[key] = row
    return found


def null_in_key(layout: Layout, keys: Sequence[str], row: Row) -> InvalidOperation:
    return _no_key(layout, keys, f"a row has NULL in it: {row}")


def two_of_key(layout: Layout, keys: Sequence[str], key: Key) -> InvalidOperation:
    return _no_key(layout, keys, f"two rows have {', '.join(map(repr, key))}")


def _no_key(layout: Layout, keys: Sequence[str], why: str) -> InvalidOperation:
    return InvalidOperation(
        f"keys: {', '.join(keys)} of table {layout.table} does not identify its rows: {why}; name "
        "other columns",
        table=layout.table,
    )


def conflict_schema(layout: Layout, keys: Sequence[str]) -> pa.Schema:
    """Return the columns of ``MergeConflict.rows``."""
    row = pa.struct(list(layout.schema))
    key = pa.struct([layout.schema.field(key) for key in keys])
    return pa.schema([("key", key), ("base", row), ("ours", row), ("theirs", row)])


def equal_conflict(
    layout: Layout, keys: Sequence[str], rows: pa.Table, count: int, computed: frozenset[str]
) -> MergeConflict:
    """Return the error for rows that both sides changed to the same, computed values."""
    why = "which may be" if computed >= ANY else f"in {', '.join(sorted(computed))}, which was"
    return _in_conflict(
        layout,
        keys,
        rows,
        count,
        f"changed alike on both sides, {why} computed of the row itself, so one of two changes may "
        "be lost",
        "then give on_equal='keep' if both are the same change, or on_conflict='ours' and repeat "
        "the change",
    )


def conflict(layout: Layout, keys: Sequence[str], rows: pa.Table, count: int) -> MergeConflict:
    """Return the error for ``count`` rows in conflict, of which ``rows`` may be only some."""
    remedy = "then give on_conflict='ours' or 'theirs'"
    return _in_conflict(layout, keys, rows, count, "changed on both sides", remedy)


def _in_conflict(
    layout: Layout, keys: Sequence[str], rows: pa.Table, count: int, how: str, remedy: str
) -> MergeConflict:
    key = rows["key"][0].as_py()
    first = ", ".join(f"{name} {key[name]!r}" for name in keys)
    more = f" and {count - 1} more" if count > 1 else ""
    shown = f", which has the first {rows.num_rows} of them" if count > rows.num_rows else ""
    return MergeConflict(
        f"table {layout.table}: the row with {first}{more} was {how}: see rows() of this "
        f"error{shown}, {remedy}",
        rows={layout.location: rows},
        table=layout.table,
    )


def text_of(row: Row) -> str:
    """Return a text that represents a row: equal rows have equal texts, also with NaN."""
    return repr(list(row.values()))


def same(one: Row | None, other: Row | None) -> bool:
    if one is None or other is None:
        return one is other
    return text_of(one) == text_of(other)


# -------------------- aside
#
# Temporary objects in the store with rows that a verb compares, and their deletion.


T = TypeVar("T")


class Aside:
    """The temporary objects of a verb, named by the transaction: gc deletes them after a crash."""

    def __init__(self, txn: str) -> None:
        self.prefix = f"_lakevilla/txns/{txn}/source-"
        self._keys: list[str] = []

    def keep(self, met: Met) -> Met:
        """Note the temporary objects that a join of rows (``MeetingEngine.meet``) has stored."""
        self._keys += met.rows.keys
        return met

    def cleared(self) -> Program[None]:
        """Delete the temporary objects."""
        yield from parallel([delete(key) for key in self._keys])


def with_aside(name: FileNamer, do: Callable[[Aside], Program[T]]) -> Program[T]:
    """Return the result of ``do``, and delete its temporary objects, also after an error.

    ``name`` makes names of the transaction's files, which contain its id.
    """
    owner = owner_of(name(""))
    assert owner is not None, name("")
    aside = Aside(owner[1])
    try:
        done = yield from do(aside)
    except (Exception, KeyboardInterrupt):
        yield from aside.cleared()
        raise
    yield from aside.cleared()
    return done


# -------------------- extents
#
# Reports of tasks to the driver about the rows they found, to exclude files without such rows.


@dataclass(frozen=True, slots=True)
class Extent:
    """The number of rows that one task has found, and the rows themselves if they are few.

    ``spans`` has two rows, the least and the greatest value of each column; NULL if the column has
    a NULL, or its type has no order.
    """

    count: int
    rows: pa.Table
    spans: pa.Table


def extent_of(rows: pa.Table) -> Extent:
    """Return the extent of some rows."""
    few = rows.num_rows <= MOST_ASKED_FOR
    spans = [pa.array(_span(column), column.type) for column in rows.columns]
    return Extent(
        rows.num_rows,
        rows if few else rows.schema.empty_table(),
        pa.table(spans, schema=pa.schema([pa.field(f.name, f.type) for f in rows.schema])),
    )


def all_extents(extents: Sequence[Extent]) -> tuple[pa.Table | None, pa.Table]:
    """Return the rows of all tasks, or None if too many; and the spans of tasks with rows."""
    filled = [one for one in extents if one.count]
    spans = pa.concat_tables(one.spans for one in filled)
    if sum(one.count for one in filled) > MOST_ASKED_FOR:
        return None, spans
    return pa.concat_tables(one.rows for one in filled), spans


def _span(column: pa.ChunkedArray) -> list[object]:
    kind = column.type
    if column.null_count or pa.types.is_floating(kind) or pa.types.is_nested(kind):
        return [None, None]
    if pa.types.is_boolean(kind):
        return [False, True]
    bounds = pc.min_max(column)
    return [bounds["min"].as_py(), bounds["max"].as_py()]


# -------------------- sql
#
# Parts of the queries, in DuckDB's SQL, by which tasks compare joined rows.


#: Views of the joined rows; a side's columns are named by the side and their positions.
BEFORE, AFTER, OURS, CHANGED = (
    f"lakevilla_{name}" for name in ("before", "after", "ours", "changed")
)
THERE = "lakevilla_there"


def state_fields(layout: Layout, side: str) -> list[pa.Field]:
    """Return a side's columns, named by position, and a flag: whether the side has the row."""
    fields = [pa.field(f"{side}{n}", one.type) for n, one in enumerate(layout.schema)]
    return [*fields, pa.field(side, pa.bool_())]


def shown_as(layout: Layout, alias: str, side: str) -> list[str]:
    names = [f"{alias}.{quoted(name)} AS {side}{n}" for n, name in enumerate(layout.schema.names)]
    return [*names, f"{alias}.{THERE} AS {side}"]


def marked(view: str) -> str:
    return f"(SELECT *, true AS {THERE} FROM {view})"


def equal_in(keys: Sequence[str], others: Sequence[str], alias: str, other: str) -> str:
    pairs = zip(keys, others, strict=True)
    return " AND ".join(f"{alias}.{quoted(a)} = {other}.{quoted(b)}" for a, b in pairs)


def same_in_all(layout: Layout) -> str:
    """Return SQL that is true for two rows whose values are equal, also as text.

    In SQL 0.0 equals -0.0; their texts differ.
    """
    terms = []
    for column in layout.schema:
        mine, other = f"b.{quoted(column.name)}", f"a.{quoted(column.name)}"
        terms.append(f"{mine} IS NOT DISTINCT FROM {other}")
        if pa.types.is_floating(column.type) or pa.types.is_nested(column.type):
            mine, other = (f"CAST({one} AS VARCHAR)" for one in (mine, other))
            terms.append(f"{mine} IS NOT DISTINCT FROM {other}")
    return " AND ".join(terms)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
