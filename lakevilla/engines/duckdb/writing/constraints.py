"""NOT NULL, CHECK constraints, invariants, and values that a format can't keep.

As SQL that stops at the first row that breaks one.

The check is a filter: it passes every row or raises, inside the same pass that
writes the rows. A CHECK that is NULL is broken, as in Delta's own writer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.relabel import field_is_strict
from lakevilla.engines.duckdb.expressions import to_duckdb
from lakevilla.engines.duckdb.failures import RULE_MARK
from lakevilla.engines.duckdb.sqltext import column_of, quote_name, quote_text
from lakevilla.errors import InvalidOperation
from lakevilla.formats.layout import Layout


def needs_sql(layout: Layout) -> bool:
    """Whether rows must be checked by more than counting NULLs in columns."""
    return bool(layout.constraints) or any(field_is_strict(field) for field in layout.schema)


def guard(layout: Layout, alias: str) -> str | None:
    """A filter over ``alias``, whose columns are the table's; None if every row is allowed."""
    rules = [
        (f"column {path} must not be null", broken) for path, broken in _null_rules(layout, alias)
    ]
    rules += [
        # Of text and of bytes: ''::BLOB has none.
        (_empty(name), f"{column_of(alias, (name,))} = ''")
        for name in _empty_is_null(layout)
    ]
    for constraint in layout.constraints:
        condition = to_duckdb(
            constraint.expression,
            layout.schema,
            column=lambda path, table: column_of(alias, path),
        )
        rules.append(
            (
                f"constraint {constraint.name} ({constraint.sql}) does not hold",
                f"({condition}) IS NOT TRUE",
            )
        )
    if not rules:
        return None
    fields = ", ".join(
        f"{quote_name(f.name)} := {alias}.{quote_name(f.name)}" for f in layout.schema
    )
    shown = f"left(CAST(struct_pack({fields}) AS VARCHAR), 300)"
    branches = " ".join(
        f"WHEN {broken} THEN error({quote_text(RULE_MARK + what + ' for row ')} || {shown})"
        for what, broken in rules
    )
    return f"CASE {branches} ELSE true END"


def checks_columns(layout: Layout) -> bool:
    """Whether ``check_columns`` has anything to look for."""
    return any(not field.nullable for field in layout.schema) or bool(_empty_is_null(layout))


def check_columns(layout: Layout, batch: pa.RecordBatch) -> None:
    """Raise if a NOT NULL column of ``batch`` holds a NULL, or a partition column empty text."""
    for field, column in zip(layout.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise _broken(layout, batch, column.is_null(), f"column {field.name} must not be null")
    for name in _empty_is_null(layout):
        empty = pc.equal(pc.binary_length(batch.column(name)), 0)
        if pc.any(empty).as_py():
            raise _broken(layout, batch, empty, _empty(name))


def _empty_is_null(layout: Layout) -> list[str]:
    """Columns in which the empty text, or no bytes, would come back as NULL.

    Delta's protocol: an empty partition value of any type is NULL.
    """
    kinds = {field.name: field.type for field in layout.schema}
    return [
        name
        for name in layout.partition_by
        if pa.types.is_string(kinds[name]) or pa.types.is_binary(kinds[name])
    ]


def _empty(column: str) -> str:
    return f"partition column {column} must not be empty, which delta cannot tell from NULL,"


def _broken(
    layout: Layout, batch: pa.RecordBatch, broken: pa.BooleanArray, what: str
) -> InvalidOperation:
    place = broken.index(True).as_py()
    row = batch.slice(place, 1).to_pylist()[0]
    return InvalidOperation(
        f"table {layout.table}: {what} for row {str(row)[:300]}; correct the row and write again",
        reason="constraint",
        table=layout.table,
    )


def _null_rules(layout: Layout, alias: str) -> Iterator[tuple[str, str]]:
    """(path, SQL that is true for a row with a forbidden NULL there)."""
    names = (f"__n{i}" for i in itertools.count())
    for field in layout.schema:
        value = column_of(alias, (field.name,))
        if not field.nullable:
            yield field.name, f"{value} IS NULL"
        yield from _below(field.name, value, field.type, lambda broken: broken, names)


def _below(
    path: str,
    value: str,
    kind: pa.DataType,
    wrap: Callable[[str], str],
    names: Iterator[str],
) -> Iterator[tuple[str, str]]:
    if pa.types.is_struct(kind):
        for field in (kind.field(i) for i in range(kind.num_fields)):
            inner = f"({value}).{quote_name(field.name)}"
            here = f"{path}.{field.name}"
            if not field.nullable:
                yield here, wrap(f"({value} IS NOT NULL AND {inner} IS NULL)")
            yield from _below(here, inner, field.type, wrap, names)
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        is_map = pa.types.is_map(kind)
        field = kind.item_field if is_map else kind.value_field
        items = f"map_values({value})" if is_map else value
        name = next(names)

        def each(broken: str) -> str:
            return wrap(
                f"coalesce(list_bool_or(list_transform({items}, lambda {name}: {broken})), false)"
            )

        here = f"{path}.{'value' if is_map else 'element'}"
        if not field.nullable:
            yield here, each(f"{name} IS NULL")
        yield from _below(here, name, field.type, each, names)
