"""Rows that nothing tells apart, where equal ones meet: how often each goes, comes and is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.engines.base import FileNamer, MergeClause, MergeSpec, TableInput
from lakevilla.engines.meeting import Judgement, Look, MeetingEngine, Side
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.files import files_from_structs
from lakevilla.formats.layout import Layout
from lakevilla.lake.context import Context
from lakevilla.lake.operations.comparing.aside import Aside
from lakevilla.lake.operations.comparing.extents import Extent, all_extents, extent_of
from lakevilla.lake.operations.comparing.merging import (
    ACT,
    is_one_of,
    is_within,
    source_schema,
    spec_on,
)
from lakevilla.lake.operations.comparing.rows import CHANGED_BY_OTHERS, NOT_APART, TOO_LARGE, ByRows
from lakevilla.lake.operations.comparing.sql import AFTER, BEFORE, CHANGED, OURS, quoted
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Call, Column, Expr
from lakevilla.sql.expressions.values import literal
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Transplant

_MORE, _FOUND = "lakevilla_more", "lakevilla_found"


def as_bags(
    context: Context,
    engine: MeetingEngine,
    operation: Transplant,
    snapshot: TableSnapshot,
    name: FileNamer,
    aside: Aside,
) -> Program[ByRows]:
    """Apply the rows that differ, none of whose columns is nested; see ``by_rows``."""
    layout = snapshot.layout
    every = tuple(layout.schema.names)
    sides = {
        BEFORE: Side(TableInput(layout, files_from_structs(operation.removes)), every),
        AFTER: Side(TableInput(layout, files_from_structs(operation.adds)), every),
    }
    moved = aside.keep((yield from engine.meet(sides, MovedRows(layout), aside.prefix)))
    if not moved.rows.keys:
        return ByRows()
    where, files = None, files_from_structs([])
    if any(one.count for one in moved.said):
        where = _where(layout, moved.said)
        files = yield from snapshot.files(where)
        if (pc.sum(files["size"]).as_py() or 0) > context.settings.row_check_limit_bytes:
            return ByRows(skipped=TOO_LARGE)
    table = TableInput(layout, files)
    sides = {CHANGED: Side(moved.rows, every), OURS: Side(table, every, where, CHANGED)}
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


def _where(layout: Layout, said: Sequence[Extent]) -> Expr | None:
    """A predicate that is true of all rows that go, and maybe of others."""
    known, spans = all_extents(said)
    rows = spans if known is None else known
    whole = [name for name in layout.schema.names if not rows[name].null_count]
    if not whole:
        return None
    if known is None:
        return is_within(layout, spans.select(whole), whole)
    return is_one_of(layout, whole, [tuple(row[n] for n in whole) for row in known.to_pylist()])


def _spec(layout: Layout) -> MergeSpec:
    """All rows that are like one that goes are deleted; those that come are like none."""
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
    """Finds the rows of which there are more or fewer after than before, and how many."""

    layout: Layout

    @property
    def table(self) -> str:
        return self.layout.table

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*_plain(self.layout), pa.field(_MORE, pa.int64())])

    def judged(self, look: Look) -> Judgement:
        names, groups = _names(self.layout), _groups(self.layout)
        found = look(
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
    """A row that the table lacks, and how many of its rows are like those that go."""

    lacking: dict[str, object] | None
    found: int


@dataclass(frozen=True, slots=True)
class BagActs:
    """Finds what is to go and to come: of equal rows all go, and those that stay come again."""

    layout: Layout

    @property
    def table(self) -> str:
        return self.layout.table

    @property
    def schema(self) -> pa.Schema:
        return source_schema(self.layout)

    def judged(self, look: Look) -> Judgement:
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
        found = look(
            f"SELECT c.*, CAST(coalesce(o.{_FOUND}, 0) AS BIGINT) AS {_FOUND} "
            f"FROM {CHANGED} AS c LEFT JOIN ({counted}) AS o ON {' AND '.join(same)}"
        )
        more = found[_MORE].to_numpy()
        there = found[_FOUND].to_numpy()
        rows = found.select(self.layout.schema.names).cast(pa.schema(_plain(self.layout)))
        going = more < 0
        lacking = np.flatnonzero(going & (there < -more))
        if len(lacking):
            return Judgement(None, BagReport(rows.slice(int(lacking[0]), 1).to_pylist()[0], 0))
        back = np.repeat(np.arange(len(more)), np.where(going, there + more, more))
        acts = pa.concat_tables(
            [
                self._acts(rows.take(pa.array(np.flatnonzero(going))), "delete"),
                self._acts(rows.take(pa.array(back)), "insert"),
            ]
        )
        return Judgement(acts if acts.num_rows else None, BagReport(None, int(there[going].sum())))

    def _acts(self, rows: pa.Table, act: str) -> pa.Table:
        said = pa.repeat(pa.scalar(act, pa.string()), rows.num_rows)
        return pa.table([*rows.columns, said], schema=self.schema)


def _plain(layout: Layout) -> list[pa.Field]:
    """The columns, of which a row that is put aside may lack some."""
    return [pa.field(field.name, field.type) for field in layout.schema]


def _names(layout: Layout) -> str:
    return ", ".join(map(quoted, layout.schema.names))


def _groups(layout: Layout) -> str:
    """What rows are equal by that are the same: SQL has but one zero."""
    texts = [
        f"CAST(t.{quoted(field.name)} AS VARCHAR)"
        for field in layout.schema
        if pa.types.is_floating(field.type)
    ]
    return ", ".join([*(f"t.{quoted(name)}" for name in layout.schema.names), *texts])
