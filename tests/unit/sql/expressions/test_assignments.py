"""Targets of assignments, which are columns or fields within them, and the values that fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.assignments import (
    bind_assignments,
    exact_assignments,
    filled,
    operands,
    path_in,
    spelled,
)
from lakevilla.sql.expressions.evaluate import evaluate
from lakevilla.sql.expressions.parse import parse_expression, read_assignments
from lakevilla.sql.expressions.syntax.sql_nodes import Reader
from lakevilla.sql.expressions.tree import Column, Expr
from lakevilla.sql.expressions.types import arrow_type, type_name

INNER = pa.struct([("u", pa.int64()), ("v", pa.int32())])
PLACE = pa.struct([("a", pa.int64()), ("B", pa.string()), ("t", INNER)])
TABLE = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("s", PLACE),
        pa.field("list", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))),
        pa.field("map", pa.map_(pa.string(), pa.struct([("a", pa.int64()), ("b", pa.string())]))),
        pa.field("by_number", pa.map_(pa.int32(), pa.string())),
        pa.field("x.y", pa.int64()),
        pa.field("x", pa.struct([("z", pa.int64())])),
    ]
)
ROW = {
    "k": 1,
    "s": {"a": 1, "B": "x", "t": {"u": 5, "v": 6}},
    "list": None,
    "map": None,
    "by_number": None,
    "x.y": 1,
    "x": {"z": 1},
}


def exactly(values: dict[str, Any], schema: pa.Schema = TABLE, **options: Any) -> dict[str, Expr]:
    return exact_assignments(read_assignments(values, Reader({}, None)), schema, **options)


def assigned(values: dict[str, Any], row: dict[str, Any], schema: pa.Schema = TABLE) -> Any:
    """Return the row's values of the assigned columns, after binding twice."""
    bound = bind_assignments(exactly(values, schema), schema)
    assert bind_assignments(bound, schema) == bound
    return {name: evaluate(value, row) for name, value in bound.items()}


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)


@given(st.lists(NAMES, min_size=1, max_size=3))
def test_a_column_path_is_unchanged_after_rendering_and_parsing(path: list[str]) -> None:
    assert path_in(spelled(path)) == tuple(path)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("s.a", ("s", "a")),
        ("a b.c", ("a b", "c")),
        ('`x.y`."q""r"', ("x.y", 'q"r')),
        ("a.", None),
        (".a", None),
        ('"a', None),
        ("a`b`", None),
        ("", None),
    ],
)
def test_column_names_are_split_at_dots_outside_of_quotes(
    text: str, path: tuple[str, ...] | None
) -> None:
    assert path_in(text) == path


@pytest.mark.parametrize(
    ("values", "s"),
    [
        ({"s.a": 7}, {"a": 7, "B": "x", "t": {"u": 5, "v": 6}}),
        ({"S.b": "'y'", "s.T.V": "k + 1"}, {"a": 1, "B": "y", "t": {"u": 5, "v": 2}}),
        ({"s.a": "s.t.u + s.a"}, {"a": 6, "B": "x", "t": {"u": 5, "v": 6}}),
        ({"s.t": None}, {"a": 1, "B": "x", "t": None}),
        ({"s.t": {"V": 3}}, {"a": 1, "B": "x", "t": {"u": None, "v": 3}}),
        ({"s": {"T": {"u": 1}, "b": "z"}}, {"a": None, "B": "z", "t": {"u": 1, "v": None}}),
        ({"s": "{'b': 'q', 'a': k}"}, {"a": 1, "B": "q", "t": None}),
        ({"s": {}}, {"a": None, "B": None, "t": None}),
        ({"s": None}, None),
    ],
)
def test_a_struct_is_assigned_as_a_whole_or_by_field(values: dict[str, Any], s: Any) -> None:
    assert assigned(values, ROW) == {"s": s}


def test_assigning_a_field_of_a_null_struct_makes_a_struct_with_null_in_other_fields() -> None:
    nothing = {**ROW, "s": None}
    assert assigned({"s.a": 7}, nothing)["s"] == {"a": 7, "B": None, "t": None}
    within = assigned({"s.t.u": 7}, nothing)["s"]
    assert within == {"a": None, "B": None, "t": {"u": 7, "v": None}}


@pytest.mark.parametrize(
    ("values", "row"),
    [
        ({"list": [{"b": "x", "A": 1}, None, {}]},
         [{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
        ({"map": {"k": {"b": "x"}, "K": None}}, [("k", {"a": None, "b": "x"}), ("K", None)]),
        ({"map": {}}, []),
        ({"by_number": {1: "a", 2: None}}, [(1, "a"), (2, None)]),
    ],
)  # fmt: skip
def test_dicts_are_assigned_as_structs_and_maps_at_every_depth(
    values: dict[str, Any], row: Any
) -> None:
    assert list(assigned(values, ROW).values()) == [row]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"s.a": 1, "s": None}, "s is assigned as a whole, and s.a within it"),
        ({"s": None, "s.a": 1}, "s is assigned as a whole, and s.a within it"),
        ({"s.t.u": 1, "s.t": None}, "s.t is assigned as a whole, and s.t.u within it"),
        ({"s.t": None, "s.t.u": 1}, "s.t is assigned as a whole, and s.t.u within it"),
        ({"s.a": 1, "S.A": 2}, "s.a is assigned twice"),
        ({"k": 1, "K": 2}, "k is assigned twice"),
        ({"s.q": 1}, "there is no column s.q: did you mean"),
        ({"list.a": 1}, "list.a is no field of a struct, as list is array: assign list as a whole"),
        ({"map.value.a": 1}, "as map is map: assign map as a whole"),
        ({"k.a": 1}, "as k is long"),
        ({"s": {"q": 1}}, "column s has no field q; its fields are a, B, t"),
        ({"s": {"t": {"q": 1}}}, "column s.t has no field q; its fields are u, v"),
        ({"list": [{"q": 1}]}, "column list.element has no field q"),
        ({"map": {"k": {"q": 1}}}, "column map.value has no field q"),
        ({"s": "{'a': 1, 'A': 2}"}, "has a field twice"),
        ({"s.a": "'x'"}, "string cannot be assigned to column s.a of type long"),
        ({"s": {1: 2}}, "cannot be assigned to column s"),
        ({"k": {"a": 1}}, "cannot be assigned to column k"),
        ({"s": "{}"}, "braces hold the fields"),
        ({"k": None}, "column k is NOT NULL"),
    ],
)
def test_invalid_assignments_are_refused_with_their_column(
    values: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidOperation) as caught:
        exactly(values)
    assert said in str(caught.value)


def test_a_column_name_with_a_dot_is_distinguished_from_a_field_of_a_struct() -> None:
    assert set(exactly({"x.y": 1})) == {"x.y"}
    assert set(exactly({"`x.y`": 1})) == set(exactly({'"X.Y"': 1})) == {"x.y"}
    assert set(exactly({"x.z": 1})) == {"x"}
    both = TABLE.append(pa.field("x.z", pa.int64()))
    with pytest.raises(InvalidOperation, match=r'write "x.z" for the column, "x"."z" for the'):
        exactly({"x.z": 1}, both)
    assert assigned({'"x.z"': 1}, ROW, both) == {"x.z": 1}
    assert assigned({'"x"."z"': 9}, ROW, both) == {"x": {"z": 9}}


def test_a_table_name_as_qualifier_wins_over_a_struct_of_the_same_name() -> None:
    schema = pa.schema(
        [("a", pa.int64()), ("t", pa.struct([("a", pa.int64()), ("b", pa.int64())]))]
    )
    assert set(exactly({"t.a": 1}, schema, alias="t")) == {"a"}
    assert set(exactly({"t.b": 1}, schema, alias="T")) == {"t"}
    assert set(exactly({"t.t.a": 1}, schema, alias="t")) == {"t"}
    assert set(exactly({"t.a": 1}, schema)) == {"t"}


GIVEN = pa.struct([("T", pa.struct([("V", pa.int32())])), ("b", pa.string())])
SOURCE = pa.schema(
    [
        ("s", GIVEN),
        ("list", pa.list_(pa.struct([("B", pa.string())]))),
        ("map", pa.map_(pa.string(), pa.struct([("b", pa.string()), ("A", pa.int32())]))),
    ]
)


def merged(values: dict[str, Expr], source: dict[str, Any], row: dict[str, Any]) -> Any:
    schemas = {"n": SOURCE, "o": TABLE}
    exact = exact_assignments(values, TABLE, schemas, alias="o")
    bound = bind_assignments(exact, TABLE, schemas)
    assert bind_assignments(bound, TABLE, schemas) == bound
    both = {"n": source, "o": row}
    return {name: evaluate(value, both) for name, value in bound.items()}


def test_assigned_structs_are_matched_by_field_names_in_any_order_and_case() -> None:
    source = {
        "s": {"T": {"V": 3}, "b": "q"},
        "list": [{"B": "l"}],
        "map": [("k", {"b": "m", "A": 1})],
    }
    values = {name: parse_expression(f"n.{name}") for name in source}
    assert merged(values, source, ROW) == {
        "s": {"a": None, "B": "q", "t": {"u": None, "v": 3}},
        "list": [{"a": None, "b": "l"}],
        "map": [("k", {"a": 1, "b": "m"})],
    }
    assert merged(values, dict.fromkeys(source), ROW) == dict.fromkeys(source)


def test_a_merged_struct_keeps_the_fields_that_the_source_struct_lacks() -> None:
    values: dict[str, Expr] = {"s": filled(Column(("s",), "n"), Column(("s",), "o"))}
    given = {"s": {"T": {"V": 3}, "b": None}}
    assert merged(values, given, ROW)["s"] == {"a": 1, "B": None, "t": {"u": 5, "v": 3}}
    assert merged(values, given, {**ROW, "s": None})["s"] == {
        "a": None, "B": None, "t": {"u": None, "v": 3}
    }  # fmt: skip
    assert merged(values, {"s": {"T": None, "b": "c"}}, ROW)["s"] == {"a": 1, "B": "c", "t": None}
    assert merged(values, {"s": None}, ROW)["s"] is None


def test_a_struct_with_a_field_that_the_column_lacks_is_refused() -> None:
    source = pa.schema([("s", pa.struct([("a", pa.int64()), ("q", pa.int64())]))])
    schemas = {"n": source, "o": TABLE}
    for value in (Column(("s",), "n"), filled(Column(("s",), "n"), Column(("s",), "o"))):
        with pytest.raises(InvalidOperation, match="column s has no field q; its fields are a, B"):
            exact_assignments({"s": value}, TABLE, schemas, alias="o")


def test_an_insert_that_sets_a_single_field_is_refused() -> None:
    values: dict[str, Expr] = {"s.a": parse_expression("1")}
    with pytest.raises(InvalidOperation, match=r"an insert sets columns as a whole, and s\.a is"):
        exact_assignments(values, TABLE, {"n": SOURCE, "o": TABLE}, alias="o", inserts=True)


def test_a_stored_field_assignment_keeps_fields_that_were_added_to_the_struct_since() -> None:
    stored = exactly({"s.a": "s.a + 1"})
    place = TABLE.get_field_index("s")
    later = pa.struct([("t", INNER), ("a", pa.int64()), ("B", pa.string()), ("c", pa.bool_())])
    now = TABLE.set(place, pa.field("s", later))
    row = {**ROW, "s": {"t": None, "a": 1, "B": "x", "c": True}}
    (value,) = bind_assignments(stored, now).values()
    assert evaluate(value, row) == {"t": None, "a": 2, "B": "x", "c": True}


def test_operands_of_a_field_assignment_are_only_those_of_its_value() -> None:
    (constant,) = exactly({"s.a": 1, "s.B": "'x'"}).values()
    assert operands(constant) == ()
    (computed,) = exactly({"s.a": "s.a + k", "s.B": "'x'"}).values()
    assert operands(computed) == (Column(("s", "a")), Column(("k",)))
    taken = filled(Column(("s",), "n"), Column(("s",), "o"))
    assert operands(taken) == (Column(("s",), "n"),)


@given(st.lists(NAMES, min_size=1, max_size=4, unique=True))
def test_struct_type_names_parse_back_to_the_type_whatever_the_field_names(
    names: list[str],
) -> None:
    inner = pa.struct([(name, pa.decimal128(5, 2)) for name in names])
    for kind in (inner, pa.list_(inner), pa.map_(pa.string(), pa.struct([("m", inner)]))):
        assert arrow_type(type_name(kind)).equals(kind)
