"""Merges of rows that go, change and come, and which files of a table they concern."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from lakevilla.engines.base import MergeClause, MergeSpec
from lakevilla.errors import InvalidOperation
from lakevilla.formats.layout import Layout
from lakevilla.lake.operations.comparing.rows import Key
from lakevilla.sql.expressions.assignments import bind_assignments
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Call, Column, Expr
from lakevilla.sql.expressions.values import literal

#: The column of a source that says what is to be done to the row of a key.
ACT = "lakevilla_act"
#: Beyond so many keys the table is looked through rather than asked for each.
MOST_ASKED_FOR = 2000


def source_schema(layout: Layout) -> pa.Schema:
    """The columns of a source whose rows say what is to be done to them; of a deletion the keys."""
    fields = [pa.field(one.name, one.type) for one in layout.schema]
    return pa.schema([*fields, pa.field(ACT, pa.string())])


def merge_of_acts(layout: Layout, keys: Sequence[str]) -> MergeSpec:
    """One update of the table, by a source of ``source_schema``: rows that go, change and come."""
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


def is_one_of(layout: Layout, keys: Sequence[str], wanted: Sequence[Key]) -> Expr | None:
    """A predicate that is true of every row with such a key, and maybe of others."""
    terms: list[Expr] = []
    for place, key in enumerate(keys):
        values = list(dict.fromkeys(values[place] for values in wanted))
        # Statistics leave a NaN out, so whoever asks for one finds no file.
        if len(values) > MOST_ASKED_FOR or any(value != value for value in values):
            continue
        try:
            literals = [literal(value) for value in values]
            terms.append(bind(Call("in", (Column((key,)), *literals)), layout.schema))
        except InvalidOperation:
            continue  # of a type that has no literal: then all rows are looked at
    return _all_of(terms)


def is_within(layout: Layout, spans: pa.Table, keys: Sequence[str]) -> Expr | None:
    """A predicate that is true of every row whose keys lie between values that ``spans`` has.

    Its columns are the keys, and it has the least and the greatest values of some rows.
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
