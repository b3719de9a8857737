"""Comparison of rows by the tasks of an engine, which join them: by keys, or as bags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.engines.base import FileNamer, MergeClause, MergeSpec, TableInput
from lakevilla.engines.staged import Judgement, Look, MeetingEngine, Side
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.files import files_from_structs
from lakevilla.formats.layout import Layout
from lakevilla.lake.context import Context
from lakevilla.lake.operations.comparing.computed import Beneath, columns_computed_separately
from lakevilla.lake.operations.comparing.merging import (
    ACT,
    AFTER,
    BEFORE,
    CHANGED,
    CHANGED_BY_OTHERS,
    NOT_APART,
    OURS,
    THERE,
    TOO_LARGE,
    Aside,
    ByRows,
    Extent,
    Row,
    act_on,
    all_extents,
    asks_of_equal,
    changed_alike,
    changed_in,
    conflict,
    conflict_schema,
    equal_conflict,
    equal_in,
    extent_of,
    is_one_of,
    is_within,
    key_of,
    marked,
    may_be_two,
    merge_of_acts,
    null_in_key,
    quoted,
    same_in_all,
    shown_as,
    source_schema,
    spec_on,
    state_fields,
    two_of_key,
    with_aside,
)
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Call, Column, Expr
from lakevilla.sql.expressions.values import literal
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import OnConflict, Transplant

# -------------------- keys met
#
# Comparison of rows by keys: which rows differ, and the act on each.
#
# Tasks join the rows before and after a change by their keys, and store those that differ. Then
# tasks join these with the table's own rows, and store the act on each. A merge performs the acts.


_KEY = "lakevilla_key"
#: The approximate number of rows in conflict that an error shows.
_SHOWN = 1000
#: The number of rows whose acts are computed in Python at a time.
_AT_ONCE = 4096


def by_keys(
    context: Context,
    engine: MeetingEngine,
    operation: Transplant,
    snapshot: TableSnapshot,
    name: FileNamer,
    aside: Aside,
    beneath: Beneath | None,
) -> Program[ByRows]:
    """Apply the rows that differ; see ``by_rows``."""
    layout, keys = snapshot.layout, operation.keys
    sides = {
        BEFORE: Side(TableInput(layout, files_from_structs(operation.removes)), keys),
        AFTER: Side(TableInput(layout, files_from_structs(operation.adds)), keys),
    }
    changed = aside.keep((yield from engine.meet(sides, ChangedRows(layout, keys), aside.prefix)))
    if not changed.rows.keys:
        return ByRows()
    where = _where(layout, keys, changed.said)
    table = TableInput(layout, (yield from snapshot.files(where)))
    sides = {
        CHANGED: Side(changed.rows, tuple(f"{_KEY}{n}" for n in range(len(keys)))),
        OURS: Side(table, keys, where, CHANGED),
    }
    judge = Acts(layout, keys, operation.on_conflict)
    acts = aside.keep((yield from engine.meet(sides, judge, aside.prefix)))
    conflicts = sum(one.conflicts for one in acts.said)
    if conflicts and operation.on_conflict == "error":
        rows = pa.concat_tables(one.shown for one in acts.said).slice(0, _SHOWN)
        raise conflict(layout, keys, rows, conflicts)
    if asks_of_equal(operation) and any(one.equal for one in acts.said):
        computed = yield from columns_computed_separately(context, operation, layout, beneath)
        _refuse_twice(layout, keys, acts.said, computed)
    if not acts.rows.keys:
        return ByRows()
    spec = merge_of_acts(layout, keys)
    return ByRows((yield from context.engine.merge(table, acts.rows, spec, name)))


def _refuse_twice(
    layout: Layout, keys: Sequence[str], reports: Sequence[ActsReport], computed: frozenset[str]
) -> None:
    """Raise ``MergeConflict`` if rows changed alike on both sides have computed values."""
    count = sum(
        count
        for one in reports
        for changed, count in one.equal.items()
        if may_be_two(changed, computed)
    )
    if not count:
        return
    found = [
        row
        for one in reports
        for row in one.shown_equal.to_pylist()
        if may_be_two(changed_in(row["base"], row["theirs"]), computed)
    ]
    rows = pa.Table.from_pylist(found[:_SHOWN], conflict_schema(layout, keys))
    raise equal_conflict(layout, keys, rows, count, computed)


def _where(layout: Layout, keys: Sequence[str], extents: Sequence[Extent]) -> Expr | None:
    """Return a predicate that is true for all rows with a changed key, perhaps for other rows."""
    known, spans = all_extents(extents)
    if known is None:
        return is_within(layout, spans, keys)
    return is_one_of(layout, keys, [tuple(row.values()) for row in known.to_pylist()])


# --------------------------------------------------------------------- differing rows


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """A task's query for the rows that a change has changed, each before and after it."""

    layout: Layout
    keys: tuple[str, ...]

    @property
    def table(self) -> str:
        return self.layout.table

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field(f"{_KEY}{n}", one.type) for n, one in enumerate(self._key_fields)]
        return pa.schema(
            [*fields, *state_fields(self.layout, BEFORE), *state_fields(self.layout, AFTER)]
        )

    @property
    def _key_fields(self) -> list[pa.Field]:
        return [self.layout.schema.field(key) for key in self.keys]

    def judged(self, query: Look) -> Judgement:
        for view in (BEFORE, AFTER):
            _refuse_unkeyed(self.layout, self.keys, view, query)
        keys = [
            f"coalesce(b.{quoted(key)}, a.{quoted(key)}) AS {_KEY}{n}"
            for n, key in enumerate(self.keys)
        ]
        states = [
            *shown_as(self.layout, "b", BEFORE),
            *shown_as(self.layout, "a", AFTER),
        ]
        found = query(
            f"SELECT {', '.join([*keys, *states])} FROM {marked(BEFORE)} AS b "
            f"FULL JOIN {marked(AFTER)} AS a ON {equal_in(self.keys, self.keys, 'b', 'a')} "
            f"WHERE b.{THERE} IS NULL OR a.{THERE} IS NULL OR NOT ({same_in_all(self.layout)})"
        )
        rows = found.select(self.schema.names).cast(self.schema)
        keys_alone = rows.select(range(len(self.keys)))
        return Judgement(rows if rows.num_rows else None, extent_of(keys_alone))


def _refuse_unkeyed(layout: Layout, keys: Sequence[str], view: str, query: Look) -> None:
    """Raise ``InvalidOperation`` if the keys do not identify the rows of a view."""
    names = [quoted(key) for key in keys]
    missing = " OR ".join(f"{name} IS NULL" for name in names)
    found = query(f"SELECT * FROM {view} WHERE {missing} LIMIT 1")
    for row in found.to_pylist():
        raise null_in_key(layout, keys, row)
    listed = ", ".join(names)
    found = query(f"SELECT {listed} FROM {view} GROUP BY {listed} HAVING count(*) > 1 LIMIT 1")
    for row in found.to_pylist():
        raise two_of_key(layout, keys, key_of(row, keys))


# ------------------------------------------------------------------- acts


@dataclass(frozen=True, slots=True)
class ActsReport:
    """The number of rows in conflict that one task has found, and some of them.

    ``equal`` has the numbers of rows that both sides have changed alike, by the changed columns.
    """

    conflicts: int
    shown: pa.Table
    equal: Mapping[frozenset[str], int]
    shown_equal: pa.Table


@dataclass(frozen=True, slots=True)
class Acts:
    """A task's query for the acts on the table's rows that apply the other side's changes."""

    layout: Layout
    keys: tuple[str, ...]
    on_conflict: OnConflict

    @property
    def table(self) -> str:
        return self.layout.table

    @property
    def schema(self) -> pa.Schema:
        return source_schema(self.layout)

    def judged(self, query: Look) -> Judgement:
        given = [f"{_KEY}{n}" for n in range(len(self.keys))]
        joined = f"{CHANGED} AS c {{}} JOIN {marked(OURS)} AS o ON " + equal_in(
            given, self.keys, "c", "o"
        )
        listed = ", ".join(f"c.{one}" for one in given)
        twice = query(
            f"SELECT {listed} FROM {joined.format('')} GROUP BY {listed} "
            "HAVING count(*) > 1 LIMIT 1"
        )
        for row in twice.to_pylist():
            raise two_of_key(self.layout, self.keys, tuple(row.values()))
        names = [
            field.name for side in (BEFORE, AFTER) for field in state_fields(self.layout, side)
        ]
        shown = [*(f"c.{one}" for one in (*given, *names)), *shown_as(self.layout, "o", OURS)]
        found = query(f"SELECT {', '.join(shown)} FROM {joined.format('LEFT')}")
        acts: list[pa.Table] = [self.schema.empty_table()]
        conflicts: list[Row] = []
        count = 0
        equal: Counter[frozenset[str]] = Counter()
        alike: list[Row] = []
        for batch in _in_batches(found, self._found_schema(given)):
            indices: dict[str, list[int]] = {"insert": [], "update": [], "delete": []}
            states = zip(*(_rows_in(self.layout, batch, one) for one in _STATES), strict=True)
            for index, (base, theirs, ours) in enumerate(states):
                act = act_on(base, theirs, ours, self.on_conflict)
                if act is None:
                    changed = changed_alike(base, theirs, ours)
                    if changed:
                        equal[changed] += 1
                        if equal[changed] <= _SHOWN:
                            alike.append(_shown(self.keys, base, ours, theirs))
                    continue
                if act != "conflict":
                    indices[act].append(index)
                    continue
                count += 1
                if self.on_conflict == "error" and len(conflicts) < _SHOWN:
                    conflicts.append(_shown(self.keys, base, ours, theirs))
            acts += [self._acts(batch, some, act) for act, some in indices.items() if some]
        rows = pa.concat_tables(acts)
        schema = conflict_schema(self.layout, self.keys)
        report = ActsReport(
            count,
            pa.Table.from_pylist(conflicts, schema),
            equal,
            pa.Table.from_pylist(alike, schema),
        )
        return Judgement(rows if rows.num_rows else None, report)

    def _found_schema(self, given: Sequence[str]) -> pa.Schema:
        keys = [
            pa.field(one, self.layout.schema.field(key).type)
            for one, key in zip(given, self.keys, strict=True)
        ]
        return pa.schema([*keys, *(f for one in _STATES for f in state_fields(self.layout, one))])

    def _acts(self, batch: pa.RecordBatch, indices: Sequence[int], act: str) -> pa.Table:
        """Return rows as a source for ``merge_of_acts``; rows to delete have only their keys."""
        rows = batch.take(pa.array(indices, pa.int64()))
        columns = []
        for n, field in enumerate(self.layout.schema):
            if act != "delete":
                columns.append(rows.column(f"{AFTER}{n}"))
            elif field.name in self.keys:
                columns.append(rows.column(f"{_KEY}{self.keys.index(field.name)}"))
            else:
                columns.append(pa.nulls(len(indices), field.type))
        columns.append(pa.repeat(pa.scalar(act, pa.string()), len(indices)))
        return pa.table(columns, schema=self.schema)


def _shown(keys: Sequence[str], base: Row | None, ours: Row | None, theirs: Row | None) -> Row:
    """Return a row of ``MergeConflict.rows``: the key and the three states."""
    named = dict(zip(keys, key_of(base or theirs or {}, keys), strict=True))
    return {"key": named, "base": base, "ours": ours, "theirs": theirs}


_STATES = (BEFORE, AFTER, OURS)


def _in_batches(found: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    yield from found.select(schema.names).cast(schema).to_batches(max_chunksize=_AT_ONCE)


def _rows_in(layout: Layout, batch: pa.RecordBatch, side: str) -> list[Row | None]:
    """Return the rows of one side; None for each row that this side does not have."""
    columns = [batch.column(f"{side}{n}") for n in range(len(layout.schema))]
    rows = pa.RecordBatch.from_arrays(columns, names=layout.schema.names).to_pylist()
    presence = batch.column(side).to_pylist()
    return [row if is_there else None for row, is_there in zip(rows, presence, strict=True)]


# -------------------- bags met
#
# Comparison of rows without keys: how many copies of a row are removed, added, and in the table.


_MORE, _FOUND = "lakevilla_more", "lakevilla_found"


def as_bags(
    context: Context,
    engine: MeetingEngine,
    operation: Transplant,
    snapshot: TableSnapshot,
    name: FileNamer,
    aside: Aside,
) -> Program[ByRows]:
    """Apply the rows that differ, as bags, to a table without nested columns; see ``by_rows``."""
    layout = snapshot.layout
    columns = tuple(layout.schema.names)
    sides = {
        BEFORE: Side(TableInput(layout, files_from_structs(operation.removes)), columns),
        AFTER: Side(TableInput(layout, files_from_structs(operation.adds)), columns),
    }
    moved = aside.keep((yield from engine.meet(sides, MovedRows(layout), aside.prefix)))
    if not moved.rows.keys:
        return ByRows()
    where, files = None, files_from_structs([])
    if any(one.count for one in moved.said):
        where = _where_in_bag(layout, moved.said)
        files = yield from snapshot.files(where)
        if (pc.sum(files["size"]).as_py() or 0) > context.settings.row_check_limit_bytes:
            return ByRows(skipped=TOO_LARGE)
    table = TableInput(layout, files)
    sides = {CHANGED: Side(moved.rows, columns), OURS: Side(table, columns, where, CHANGED)}
    acts = aside.keep((yield from engine.meet(sides, BagActs(layout), aside.prefix)))
    for one in acts.said:
        if one.lacking is not None:
            return ByRows(skipped=f"{CHANGED_BY_OTHERS}: {one.lacking}")
    if not acts.rows.keys:
        return ByRows()
    rewrite = yield from context.engine.merge(table, acts.rows, _spec(layout), name)
    if rewrite.rows_deleted != sum(one.found for one in acts.said):
        return ByRows(skipped=NOT_APART)
    return ByRows(rewrite)


def _where_in_bag(layout: Layout, extents: Sequence[Extent]) -> Expr | None:
    """Return a predicate that is true for all rows to remove, and perhaps for other rows."""
    known, spans = all_extents(extents)
    rows = spans if known is None else known
    whole = [name for name in layout.schema.names if not rows[name].null_count]
    if not whole:
        return None
    if known is None:
        return is_within(layout, spans.select(whole), whole)
    return is_one_of(layout, whole, [tuple(row[n] for n in whole) for row in known.to_pylist()])


def _spec(layout: Layout) -> MergeSpec:
    """Return a merge that deletes all rows equal to a removed row, and inserts the added rows."""
    schema = source_schema(layout)
    schemas = {"source": schema, "target": layout.schema}

    def says(act: str) -> Expr:
        return Call("=", (Column((ACT,), "source"), literal(act)))

    every = {one: Column((one,), "source") for one in layout.schema.names}
    clauses = [
        MergeClause("matched_delete"),
        MergeClause("not_matched_insert", says("insert"), dict(every)),
    ]
    spec = spec_on(layout, schema, layout.schema.names, "<=>", clauses)
    return msgspec.structs.replace(spec, on=Call("and", (spec.on, bind(says("delete"), schemas))))


@dataclass(frozen=True, slots=True)
class MovedRows:
    """A task's query for the rows whose number of copies has changed, with the difference."""

    layout: Layout

    @property
    def table(self) -> str:
        return self.layout.table

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*_plain(self.layout), pa.field(_MORE, pa.int64())])

    def judged(self, query: Look) -> Judgement:
        names, groups = _names(self.layout), _groups(self.layout)
        found = query(
            f"SELECT {names}, CAST(sum({_MORE}) AS BIGINT) AS {_MORE} FROM "
            f"(SELECT {names}, -1 AS {_MORE} FROM {BEFORE} UNION ALL "
            f"SELECT {names}, 1 AS {_MORE} FROM {AFTER}) AS t "
            f"GROUP BY {groups} HAVING sum({_MORE}) <> 0"
        )
        rows = found.select(self.schema.names).cast(self.schema)
        going = rows.filter(pc.less(rows[_MORE], 0)).select(self.layout.schema.names)
        return Judgement(rows if rows.num_rows else None, extent_of(going))


@dataclass(frozen=True, slots=True)
class BagReport:
    """A row to remove that the table lacks, or None.

    ``found`` is the number of the table's rows that equal a row to remove.
    """

    lacking: dict[str, object] | None
    found: int


@dataclass(frozen=True, slots=True)
class BagActs:
    """A task's query for the rows to delete and to insert.

    All rows equal to a removed row are deleted, and those that must stay are inserted again.
    """

    layout: Layout

    @property
    def table(self) -> str:
        return self.layout.table

    @property
    def schema(self) -> pa.Schema:
        return source_schema(self.layout)

    def judged(self, query: Look) -> Judgement:
        names, groups = _names(self.layout), _groups(self.layout)
        same = []
        for field in self.layout.schema:
            mine, other = f"c.{quoted(field.name)}", f"o.{quoted(field.name)}"
            same.append(f"{mine} IS NOT DISTINCT FROM {other}")
            if pa.types.is_floating(field.type):
                same.append(
                    f"CAST({mine} AS VARCHAR) IS NOT DISTINCT FROM CAST({other} AS VARCHAR)"
                )
        counted = f"SELECT {names}, count(*) AS {_FOUND} FROM {OURS} AS t GROUP BY {groups}"
        found = query(
            f"SELECT c.*, CAST(coalesce(o.{_FOUND}, 0) AS BIGINT) AS {_FOUND} "
            f"FROM {CHANGED} AS c LEFT JOIN ({counted}) AS o ON {' AND '.join(same)}"
        )
        more = found[_MORE].to_numpy()
        present = found[_FOUND].to_numpy()
        rows = found.select(self.layout.schema.names).cast(pa.schema(_plain(self.layout)))
        is_removed = more < 0
        lacking = np.flatnonzero(is_removed & (present < -more))
        if len(lacking):
            return Judgement(None, BagReport(rows.slice(int(lacking[0]), 1).to_pylist()[0], 0))
        added_again = np.repeat(np.arange(len(more)), np.where(is_removed, present + more, more))
        acts = pa.concat_tables(
            [
                self._acts(rows.take(pa.array(np.flatnonzero(is_removed))), "delete"),
                self._acts(rows.take(pa.array(added_again)), "insert"),
            ]
        )
        return Judgement(
            acts if acts.num_rows else None, BagReport(None, int(present[is_removed].sum()))
        )

    def _acts(self, rows: pa.Table, act: str) -> pa.Table:
        said = pa.repeat(pa.scalar(act, pa.string()), rows.num_rows)
        return pa.table([*rows.columns, said], schema=self.schema)


def _plain(layout: Layout) -> list[pa.Field]:
    """Return the columns without NOT NULL: a row to compare may lack some values."""
    return [pa.field(field.name, field.type) for field in layout.schema]


def _names(layout: Layout) -> str:
    return ", ".join(map(quoted, layout.schema.names))


def _groups(layout: Layout) -> str:
    """Return the GROUP BY terms: all columns, and floats also as text, to distinguish -0.0."""
    texts = [
        f"CAST(t.{quoted(field.name)} AS VARCHAR)"
        for field in layout.schema
        if pa.types.is_floating(field.type)
    ]
    return ", ".join([*(f"t.{quoted(name)}" for name in layout.schema.names), *texts])


# -------------------- by tasks
#
# ``by_rows`` done by the tasks of an engine, so that the driver holds no rows.


def by_tasks(
    context: Context,
    engine: MeetingEngine,
    operation: Transplant,
    snapshot: TableSnapshot,
    name: FileNamer,
    beneath: Beneath | None,
) -> Program[ByRows]:
    """Apply the rows that differ, by the operation's keys or as bags; see ``by_rows``."""

    def done(aside: Aside) -> Program[ByRows]:
        if not operation.keys:
            return as_bags(context, engine, operation, snapshot, name, aside)
        return by_keys(context, engine, operation, snapshot, name, aside, beneath)

    return (yield from with_aside(name, done))
