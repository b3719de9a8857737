"""Set structs in part, or from another shape: the results are those of DuckDB's own functions."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakevilla.arrow.cast import conform
from lakevilla.engines.duckdb.expressions import to_duckdb
from lakevilla.engines.duckdb.sqltext import quote_name, sql_type
from lakevilla.sql.expressions.assignments import (
    bind_assignments,
    exact_assignments,
    filled,
    spelled,
)
from lakevilla.sql.expressions.evaluate import evaluate
from lakevilla.sql.expressions.tree import Column, Expr
from lakevilla.sql.expressions.values import literal
from tests.support.search import how_many

NAMES = ["a", "B", "c d", "e.f", 'g"h', "i,j:k"]
CONNECTION = duckdb.connect()
#: The number of rows of structs in a table, and of draws.
ROWS = 4


def leaves() -> st.SearchStrategy[pa.DataType]:
    inner = st.sampled_from([pa.int64(), pa.string()])
    lists = inner.map(pa.list_)
    return st.one_of(inner, lists)


def structs(depth: int) -> st.SearchStrategy[pa.DataType]:
    kinds = leaves() if depth == 0 else st.one_of(leaves(), structs(depth - 1))
    names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)
    return names.flatmap(
        lambda some: st.tuples(*[kinds] * len(some)).map(
            lambda types: pa.struct(list(zip(some, types, strict=True)))
        )
    )


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    whole: st.SearchStrategy[Any]
    if pa.types.is_struct(kind):
        whole = st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    elif pa.types.is_list(kind):
        whole = st.lists(values(kind.value_type), max_size=2)
    else:
        whole = st.integers(-9, 9) if pa.types.is_integer(kind) else st.sampled_from(["", "x'y"])
    return st.one_of(st.none(), whole)


def paths(kind: pa.DataType, within: tuple[str, ...]) -> list[tuple[tuple[str, ...], pa.DataType]]:
    found = []
    for field in kind:
        here = (*within, field.name)
        found.append((here, field.type))
        if pa.types.is_struct(field.type):
            found += paths(field.type, here)
    return found


def parts(kind: pa.DataType) -> st.SearchStrategy[pa.DataType]:
    """Return the type with fewer fields, in another order and case."""
    if not pa.types.is_struct(kind):
        return st.just(kind)
    return st.permutations(list(kind)).flatmap(
        lambda fields: st.integers(1, len(fields)).flatmap(
            lambda count: st.tuples(*(parts(field.type) for field in fields[:count])).map(
                lambda types: pa.struct(
                    [
                        (field.name.swapcase(), inner)
                        for field, inner in zip(fields, types, strict=False)
                    ]
                )
            )
        )
    )


def field_of(sql: str, name: str) -> str:
    return f"struct_extract({sql}, '{name.replace(chr(39), chr(39) * 2)}')"


def set_in(sql: str, path: tuple[str, ...], value: str, kind: pa.DataType) -> str:
    """Return the result of DuckDB's ``struct_update``, which makes a struct even of NULL."""
    name, *rest = path
    if rest:
        inner = kind.field(name).type
        value = set_in(field_of(sql, name), tuple(rest), value, inner)
    return f"struct_update({sql}, {quote_name(name)} := {value})"


def taken(source: str, given: pa.DataType, target: str, kind: pa.DataType) -> str:
    """Return the source's fields, and the target's for the others."""
    if not (pa.types.is_struct(given) and pa.types.is_struct(kind)):
        return f"CAST({source} AS {sql_type(kind)})"
    known = {field.name.lower(): field for field in kind}
    found = target
    for field in given:
        own = known[field.name.lower()]
        value = taken(
            field_of(source, field.name), field.type, field_of(target, own.name), own.type
        )
        found = f"struct_update({found}, {quote_name(own.name)} := {value})"
    return f"CASE WHEN {source} IS NULL THEN NULL ELSE {found} END"


def asked(query: str, kind: pa.DataType, table: pa.Table) -> list[Any]:
    """Return the values of a query's result, as a column of a table has them."""
    CONNECTION.register("t", table)
    batches = CONNECTION.sql(query).to_arrow_table().select(["value"]).to_batches()
    schema = pa.schema([("value", kind)])
    return [row["value"] for batch in batches for row in conform(batch, schema, "t").to_pylist()]


SETTINGS = settings(
    max_examples=how_many(8, whole=30), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@SETTINGS
@given(st.data())
def test_fields_are_set_with_the_same_result_as_by_struct_update(data: st.DataObject) -> None:
    kind = data.draw(structs(1))
    rows = data.draw(st.lists(values(kind), min_size=1, max_size=ROWS))
    schema = pa.schema([("s", kind)])
    path, inner = data.draw(st.sampled_from(paths(kind, ())))
    new = data.draw(values(inner))
    exact = exact_assignments({spelled(("S", *path)): literal(new)}, schema)
    bound = bind_assignments(exact, schema)["s"]
    constant = to_duckdb(
        bind_assignments({"v": literal(new)}, pa.schema([("v", inner)]))["v"], schema
    )
    table = pa.table({"n": range(len(rows)), "s": pa.array(rows, kind)})
    theirs = set_in("s", path, f"CAST({constant} AS {sql_type(inner)})", kind)
    of = f"CAST({{}} AS {sql_type(kind)}) AS value FROM t ORDER BY n"
    ours = asked(f"SELECT {of.format(to_duckdb(bound, schema))}", kind, table)
    assert ours == asked(f"SELECT {of.format(theirs)}", kind, table)
    assert ours == [evaluate(bound, {"s": row}) for row in rows]


@SETTINGS
@given(st.data())
def test_a_source_of_another_shape_is_matched_by_names(data: st.DataObject) -> None:
    kind = data.draw(structs(1))
    given_ = data.draw(parts(kind))
    rows = data.draw(st.lists(st.tuples(values(kind), values(given_)), min_size=1, max_size=ROWS))
    schemas = {"o": pa.schema([("s", kind)]), "i": pa.schema([("s", given_)])}
    targets, sources = [pair[0] for pair in rows], [pair[1] for pair in rows]
    table = pa.table(
        {
            "n": range(len(rows)),
            "o": pa.array([{"s": one} for one in targets], pa.struct([("s", kind)])),
            "i": pa.array([{"s": one} for one in sources], pa.struct([("s", given_)])),
        }
    )
    source, target = Column(("s",), "i"), Column(("s",), "o")
    forms: list[tuple[Expr, str]] = [
        (source, f"CAST(i.s AS {sql_type(kind)})"),
        (filled(source, target), taken("i.s", given_, "o.s", kind)),
    ]
    for value, theirs in forms:
        exact = exact_assignments({"s": value}, schemas["o"], schemas, alias="o")
        bound = bind_assignments(exact, schemas["o"], schemas)["s"]
        sql = to_duckdb(bound, schemas)
        of = f"SELECT CAST({{}} AS {sql_type(kind)}) AS value FROM t ORDER BY n"
        ours = asked(of.format(sql), kind, table)
        assert ours == asked(of.format(theirs), kind, table)
        both = [{"o": {"s": one}, "i": {"s": other}} for one, other in rows]
        assert ours == [evaluate(bound, row) for row in both]
