"""Expressions tied to field ids, located in schemas with other names, columns and types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.formats.layout import REMOVED, Layout, as_of, fields, located, renumbered, tied
from lakevilla.sql.expressions.assignments import exact_assignments
from lakevilla.sql.expressions.bind import bind, exact
from lakevilla.sql.expressions.evaluate import is_true
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.sql.expressions.render import render_sql
from lakevilla.sql.expressions.tree import Column, Expr
from lakevilla.sublogs.binding import (
    locate,
    moves,
    outcome,
    refuse_renamed,
    renumber,
    tie,
    unsettled,
)
from lakevilla.sublogs.operations import Alter, Append, Insert, QuerySource, Update

Shape = dict[str, Any]
"""Names to ``(id, type or the shape within)``."""

LONG = pa.int64()


def layout(shape: Shape) -> Layout:
    def made(shape: Shape, named: bool) -> list[pa.Field]:
        found = []
        for name, (number, kind) in shape.items():
            type_ = pa.struct(made(kind, named)) if isinstance(kind, dict) else kind
            found.append(pa.field(name if named else number, type_))
        return found

    return Layout(
        "t", "t", pa.schema(made(shape, True)), pa.schema(made(shape, False)), False, (), (), (), {}
    )


BEFORE = layout({"a": ("1", LONG), "b": ("2", LONG), "s": ("3", {"p": ("4", LONG)})})
SWAPPED = layout({"x": ("1", LONG), "a": ("2", LONG), "r": ("3", {"q": ("4", LONG)})})


def meant(text: str) -> Expr:
    return tied(exact(parse_predicate(text), BEFORE.schema), BEFORE)


@pytest.mark.parametrize(
    ("text", "on_the_other"),
    [
        ("a = 5", "x = 5"),
        ("B = 5", "a = 5"),
        ("a < b", "x < a"),
        ("s.p IS NULL", "r.q IS NULL"),
        ("CASE WHEN b > 1 THEN cast(a AS double) ELSE 0 END > 1", None),
    ],
)
def test_a_tied_expression_follows_its_fields_to_their_new_names(
    text: str, on_the_other: str | None
) -> None:
    here = located(meant(text), SWAPPED)
    if on_the_other is not None:
        assert render_sql(here) == render_sql(parse_predicate(on_the_other))
    row = {"x": 3, "a": 2, "r": {"q": None}}
    old = {"a": 3, "b": 2, "s": {"p": None}}
    before = bind(parse_predicate(text), BEFORE.schema)
    assert is_true(bind(here, SWAPPED.schema), row) == is_true(before, old)


def test_a_field_that_does_not_exist_yet_is_null_and_a_dropped_one_is_refused() -> None:
    older = layout({"a": ("1", LONG)})
    assert is_true(as_of(meant("b IS NULL AND a = 1"), older), {"a": 1})
    assert not is_true(as_of(meant("b = 5"), older), {"a": 1})
    with pytest.raises(InvalidOperation, match="column b of table t was dropped"):
        located(meant("b = 5"), older)


def test_a_column_created_again_under_its_name_is_not_found() -> None:
    anew = layout({"a": ("1", LONG), "b": ("9", LONG), "s": ("3", {"p": ("9", LONG)})})
    for text in ("b = 5", "s.p = 5"):
        with pytest.raises(InvalidOperation, match="was dropped, or created again"):
            located(meant(text), anew)


def test_constants_in_a_tied_expression_are_typed_by_the_present_type_of_the_column() -> None:
    """If it had been bound before, a comparison with a widened column would use the narrow type."""
    wide = layout({"a": ("1", pa.float64()), "b": ("2", pa.float64())})
    where = bind(located(meant("a <= 1.6 OR a > 3000000000"), wide), wide.schema)
    found = [x for x in (1.5, 1.7, 1e300, -1e300, None) if is_true(where, {"a": x, "b": 0.0})]
    assert found == [1.5, 1e300, -1e300]
    values = exact_assignments({"A": parse_expression("b + 1")}, BEFORE.schema)
    assert values == {"a": parse_expression("b + 1")}


def test_a_function_of_a_missing_column_makes_no_predicate_true() -> None:
    dated = layout({"a": ("1", LONG), "d": ("7", pa.timestamp("us"))})
    where = tied(exact(parse_predicate("date_trunc('day', d) = d"), dated.schema), dated)
    found = as_of(where, layout({"a": ("1", LONG)}))
    assert found is None or not is_true(found, {"a": 1})


def test_binding_a_tied_expression_that_was_not_located_raises() -> None:
    with pytest.raises(AssertionError, match="not located"):
        bind(meant("a = 5"), SWAPPED.schema)


def test_an_expression_without_field_ids_as_in_earlier_versions_is_located_by_name() -> None:
    assert located(parse_predicate("a = 5"), SWAPPED) == parse_predicate("a = 5")


def test_renumbering_replaces_all_field_ids_at_once() -> None:
    moved = {("1",): ("2",), ("2",): ("3",)}
    found = renumbered(meant("a = b"), moved)
    assert found.args == (Column(("a",), None, ("2",)), Column(("b",), None, ("3",)))  # type: ignore[union-attr]


def test_fields_lists_all_fields_that_a_name_can_reach() -> None:
    assert list(fields(BEFORE)) == [
        (("a",), ("1",)),
        (("b",), ("2",)),
        (("s",), ("3",)),
        (("s", "p"), ("3", "4")),
    ]


# -------------------------------------------------------------- operations


def test_an_operation_gets_the_present_names_of_its_fields() -> None:
    update = Update("t", {"b": parse_expression("a + 1")}, parse_predicate("s.p = 1"))
    now = locate(tie(update, BEFORE, {}), SWAPPED)
    assert now == Update("t", {"a": parse_expression("x + 1")}, parse_predicate("r.q = 1"))


@pytest.mark.parametrize(
    "request_",
    [
        {"drop_columns": ["B"]},
        {"drop_columns": ["s.p"]},
        {"drop_not_null": ["a"]},
        {"rename_columns": {"a": "c"}},
    ],
)
def test_an_alteration_of_a_column_that_another_commit_has_renamed_is_refused(
    request_: dict[str, Any],
) -> None:
    alter = tie(Alter("t", request_), BEFORE, {})
    now = locate(alter, BEFORE)
    assert isinstance(now, Alter)
    assert now.request == request_
    with pytest.raises(InvalidOperation, match=r"was renamed to .* by another commit"):
        locate(alter, SWAPPED)


@pytest.mark.parametrize(
    ("sql", "refused"),
    [("SELECT b FROM u", True), ("SELECT 1", False), ("SELECT * FROM u", True)],
)
def test_a_query_is_refused_if_a_name_that_it_may_use_now_means_another_field(
    sql: str, refused: bool
) -> None:
    insert = tie(Insert("t", ("a",), QuerySource(sql, {"u": "u"})), BEFORE, {"u": BEFORE})
    refuse_renamed(insert, "u", BEFORE)
    other = layout({"a": ("1", LONG), "b": ("9", LONG)})
    if refused:
        with pytest.raises(InvalidOperation, match="column b of table t"):
            refuse_renamed(insert, "u", other)
    else:
        refuse_renamed(insert, "u", other)


def test_operations_follow_columns_whose_ids_changed_when_a_redo_added_them_again() -> None:
    empty = layout({"a": ("1", LONG)})
    first = layout({"a": ("1", LONG), "c": ("7", LONG), "d": ("8", LONG)})
    again = layout({"a": ("1", LONG), "e": ("7", LONG), "c": ("8", LONG), "d": ("9", LONG)})
    alter = outcome(Alter("t", {}, b"c and d"), empty, first)
    anew = outcome(alter, layout({"a": ("1", LONG), "e": ("7", LONG)}), again)
    moved = {"t": moves(alter, anew)}
    assert moved == {"t": {("7",): ("8",), ("8",): ("9",)}}
    update = tie(Update("t", {"d": parse_expression("c")}, parse_predicate("c = 1")), first, {})
    now = locate(renumber(update, moved), again)
    assert now == Update("t", {"d": parse_expression("c")}, parse_predicate("c = 1"))
    with pytest.raises(InvalidOperation, match="column c of table t"):
        locate(renumber(update, {"t": {("7",): REMOVED}}), again)
    assert outcome(Append("t", ()), empty, first) == Append("t", ())


def test_an_id_that_only_pending_commits_had_counts_only_under_the_same_name() -> None:
    seen = layout({"a": ("1", LONG), "c": ("7", LONG), "d": ("8", LONG)})
    now = layout({"b": ("1", LONG), "e": ("7", LONG), "d": ("8", LONG)})
    assert unsettled(layout({"a": ("1", LONG)}), seen, now) == {("7",): REMOVED}
