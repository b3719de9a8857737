"""A merge leaves out files by the key values of its source if no row of them can match."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest

from lakevilla.engines.base import MergeSpec
from lakevilla.lake.operations.matching import may_be_matched, rows_made
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.sql.expressions.tree import Call, Column, Expr, Literal
from lakevilla.sublogs.operations import (
    Append,
    Delete,
    InlineSource,
    Merge,
    MergeClause,
    Operation,
    Update,
)


def asked_for(target: pa.DataType, source: pa.DataType) -> bool:
    schema = pa.schema([("id", target)])
    rows = pa.table({"id": pa.array([Decimal(1), Decimal(2)], pa.decimal128(5, 0)).cast(source)})
    on = bind(parse_predicate("t.id = s.id"), {"t": schema, "s": rows.schema})
    spec = MergeSpec(on=on, source_alias="s", target_alias="t", clauses=())
    return may_be_matched(spec, schema, rows, None) is not None


@pytest.mark.parametrize("type_", [pa.int64(), pa.float64(), pa.decimal128(10, 2)])
def test_keys_of_equal_types_leave_out_files_of_the_target(type_: pa.DataType) -> None:
    assert asked_for(type_, type_)


@pytest.mark.parametrize(
    ("target", "source"),
    [
        (pa.int32(), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 3)),
        (pa.decimal128(10, 2), pa.int64()),
    ],
)
def test_keys_of_two_types_leave_out_no_file(target: pa.DataType, source: pa.DataType) -> None:
    """One of the two is cast for the comparison, and no statistic is about the cast value."""
    assert not asked_for(target, source)


SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
KEY = Column(("id",), "s")
WHERE = parse_predicate("id = 3")
KEYS = Call("in", (Column(("id",)), Literal("long", "1"), Literal("long", "2")))


def merged(
    *clauses: MergeClause, on: str = "t.id = s.id", ids: Sequence[int | None] = (1, 2)
) -> Merge:
    columns = {"id": ids, "other": [7] * len(ids)}
    rows = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    source = InlineSource(sink.getvalue().to_pybytes())
    condition = bind(parse_predicate(on), {"t": SCHEMA, "s": rows.schema})
    return Merge("t", source, condition, "s", "t", clauses)


def update(**values: Column | Literal) -> MergeClause:
    return MergeClause("matched_update", None, values)


def insert(**values: Column | Literal) -> MergeClause:
    return MergeClause("not_matched_insert", None, values)


@pytest.mark.parametrize(
    ("operation", "shown"),
    [
        (Update("t", {"v": Literal("string", "a")}, WHERE), WHERE),
        (Delete("t", WHERE), Literal("boolean", "false")),
        (merged(update(v=KEY), insert(id=KEY)), KEYS),
        (merged(update(id=KEY)), KEYS),
        (merged(insert(id=KEY), ids=(1, None, 2)), KEYS),
        (merged(insert(id=KEY), ids=()), Literal("boolean", "false")),
        (merged(MergeClause("matched_delete", None, {})), KEYS),
    ],
)
def test_an_operation_that_keeps_its_keys_shows_which_rows_it_makes(
    operation: Operation, shown: Expr
) -> None:
    assert rows_made(operation, SCHEMA) == shown


@pytest.mark.parametrize(
    "operation",
    [
        Append("t", ()),
        Update("t", {"id": Literal("long", "4")}, WHERE),
        merged(update(id=Literal("long", "9"))),
        merged(insert(id=Column(("other",), "s"))),
        merged(insert(v=KEY)),
        merged(MergeClause("not_matched_by_source_update", None, {"v": KEY})),
        merged(insert(id=KEY), on="t.id = s.id AND t.id = s.other"),
        merged(insert(id=KEY), on="t.id > s.id"),
        merged(insert(id=KEY), ids=(None, None)),
    ],
)
def test_an_operation_that_may_make_other_rows_shows_none(operation: Operation) -> None:
    assert rows_made(operation, SCHEMA) is None
