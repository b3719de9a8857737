"""SQL text is parsed into one tree; what the language lacks is refused by name."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.parse import StatementExpressions, parse_expression, parse_predicate
from lakevilla.sql.expressions.render import render_sql
from lakevilla.sql.expressions.tree import Call, Column, Expr, Literal, columns, substitute
from lakevilla.sql.expressions.values import literal
from tests.support.search import how_many
from tests.support.trees import any_tree

MONTH = Literal("string", "month")
A, B = Column(("a",)), Column(("b",))
NOW = datetime(2024, 5, 6, 1, 2, 3, tzinfo=UTC)


def long(value: int) -> Literal:
    return Literal("long", str(value))


@pytest.mark.parametrize(
    ("sql", "tree"),
    [
        ("a = 1", Call("=", (A, long(1)))),
        ("a == 1 -- equal", Call("=", (A, long(1)))),
        ("/* not */ a <> 1", Call("<>", (A, long(1)))),
        ("`a` = 'it''s'", Call("=", (A, Literal("string", "it's")))),
        ("a = '\\n'", Call("=", (A, Literal("string", "\\n")))),
        ('"a b".c', Column(("a b", "c"))),
        ("a.b.c.d.e.f", Column(tuple("abcdef"))),
        ("a is not null", Call("not", (Call("is_null", (A,)),))),
        ("a is distinct from b", Call("not", (Call("<=>", (A, B)),))),
        ("a in ()", Call("in", (A,))),
        ("a and (b and a) and b", Call("and", (A, B, A, B))),
        ("-9223372036854775808", long(-(2**63))),
        ("9223372036854775808", Literal("decimal(19,0)", "9223372036854775808")),
        ("1.50", Literal("decimal(3,2)", "1.50")),
        ("1e3", Literal("double", "1000.0")),
        ("X'00fF'", Literal("binary", "00ff")),
        ("date '2024-02-29'", Literal("date", "2024-02-29")),
        ("timestamp '2024-01-01'", Literal("timestamp", "2024-01-01 00:00:00")),
        (
            "timestamp '2024-01-01 00:00:00.5-01:00'",
            Literal("timestamp", "2024-01-01 01:00:00.500000Z"),
        ),
        ("cast('5' as byte)", Literal("byte", "5")),
        ("current_timestamp", Literal("timestamp", "2024-05-06 01:02:03Z")),
        ("now()", Literal("timestamp", "2024-05-06 01:02:03Z")),
        ("current_date", Literal("date", "2024-05-06")),
        ("a - interval '2' months", Call("add_interval", (A, long(-2), MONTH))),
        ("SUBSTR(a, 2)", Call("substring", (A, long(2)))),
    ],
)  # fmt: skip
def test_sql_text_is_parsed_into_the_expected_tree(sql: str, tree: Expr) -> None:
    assert parse_expression(sql, now=NOW) == tree


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("a = 1; drop table x", "';'"),
        ("a = 1;", "';'"),
        ("a = 1 b = 2", "near 'b'"),
        ("a, b", "near ','"),
        ("'abc", "cannot read"),
        ("a = ", "cannot read"),
        ("random() > 1", "random()"),
        ("nextval('s')", "nextval()"),
        ("count(*) > 1", "count()"),
        ("sum(a) over ()", "`SUM(a) OVER ()`"),
        ("a in (select 1)", "subquery"),
        ("exists(select 1)", "exists"),
        ("(select 1) = 1", "subquery"),
        ("a[1:2]", "`a[1:2]`"),
        ("a -> 'b'", "`JSON_EXTRACT(a, "),
        ("a ^ 1", "`a ^ 1`"),
        ("a.*", "not a column"),
        ("*", "`*`"),
        ("foo.bar(a)", "bar"),
        ("lower(a, b)", "lower(a)"),
        ("lower(x := a)", "`x := a`"),
        ("try_cast(a as int)", "try_cast()"),
        ("cast(a as geometry)", "geometry"),
        ("cast(a as decimal)", "decimal"),
        ("cast('x' as int)", "'x'"),
        ("date '2024-13-01'", "'2024-13-01'"),
        ("a + interval b day", "interval"),
        ("a + interval '1' century", "interval"),
        ("a = ?", "name"),
        ("a = :p", ":p"),
        ("current_timestamp", "current time"),
        ("X'abc'", "hex"),
        ("1e", "1e is not a number"),
        ("9" * 39, "38 digits"),
        ("(" * 3000 + "a" + ")" * 3000, "nested too deeply"),
        ("not " * 3000 + "a", "nested too deeply"),
        ("a = '" + "x" * (1 << 20) + "'", "too long"),
    ],
)
def test_unsupported_sql_is_refused_with_its_name(sql: str, named: str) -> None:
    with pytest.raises(InvalidOperation) as caught:
        parse_expression(sql)
    assert named.lower() in str(caught.value).lower()
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    "sql",
    [
        "a = b is null",
        "a <> b is not null",
        "a < b is true",
        "a = b is distinct from c",
        "a is distinct from b = c",
        "a = b in (true)",
        "a = b not in (true)",
        "a = b between c and d",
        "a between b and c = d",
        "a like b = c",
        "a = b not like c",
        "a like b escape 'c' = d",
        "a = b = c",
        "not a is null = b",
    ],
)
def test_expressions_that_databases_group_differently_are_refused_without_parentheses(
    sql: str,
) -> None:
    with pytest.raises(InvalidOperation, match="two ways"):
        parse_expression(sql)


@pytest.mark.parametrize(
    "sql", ["(a = b) is null", "a = (b is null)", "not a is null", "(not a) = b and c is not null"]
)
def test_expressions_that_databases_group_differently_are_accepted_with_parentheses(
    sql: str,
) -> None:
    parse_expression(sql)


@pytest.mark.parametrize(
    ("sql", "same"),
    [
        ("a like :x || '%'", "a like 'It''s%'"),
        ("a not ilike '%' || :x || '%' escape '/'", "a not ilike '%It''s%' escape '/'"),
        ("lower(a) like lower(:x)", "lower(a) like 'it''s'"),
        ("a = timestamp :t", "a = timestamp '2024-01-01 11:00:00.5Z'"),
    ],
)
def test_constant_expressions_are_folded(sql: str, same: str) -> None:
    params = {"x": "It's"} if ":x" in sql else {}
    sql = sql.replace(":t", "'2024-01-01 12:00:00.5+01'")
    assert parse_expression(sql, params) == parse_expression(same)


def test_expressions_that_can_not_be_folded_stay_as_they_are_or_are_refused() -> None:
    assert parse_expression("a like b || '%'") != parse_expression("a like 'b%'")
    with pytest.raises(InvalidOperation, match="2024-01-01-01"):
        parse_expression("cast('2024-01-01-01' as timestamp)")


@pytest.mark.parametrize("sql", [None, "", "  \n", "-- nothing", ";"])
def test_an_empty_predicate_is_refused(sql: str | None) -> None:
    with pytest.raises(InvalidOperation):
        parse_predicate(sql)


@settings(max_examples=how_many(50, whole=300), deadline=None)
@given(st.text(alphabet="ab1'\"`()<>=!,.;:-+*/% \n[]{}?$@~|&^#inotandcaselike", max_size=25))
def test_arbitrary_text_gives_a_tree_or_invalid_operation(text: str) -> None:
    try:
        tree = parse_expression(text, {}, NOW)
    except InvalidOperation:
        return
    assert parse_expression(render_sql(tree)) == tree


def test_thousands_of_terms_are_parsed_into_one_level() -> None:
    tree = parse_predicate(" or ".join(f"a = {n}" for n in range(5000)))
    assert isinstance(tree, Call)
    assert len(tree.args) == 5000


@settings(
    max_examples=how_many(66, whole=400),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(any_tree())
def test_rendered_text_is_parsed_back_into_the_same_tree(tree: Expr) -> None:
    assert parse_expression(render_sql(tree)) == tree
    assert msgspec.json.decode(msgspec.json.encode(tree), type=Expr) == tree  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["select", "a b", 'q"u', "b`t", "case", "é", "1a", "date", "left"])
def test_any_column_name_is_unchanged_after_rendering_and_parsing(name: str) -> None:
    tree = Call("=", (Column((name, name)), long(1)))
    assert parse_expression(render_sql(tree)) == tree


def test_parameters_become_typed_constants_and_unused_ones_are_refused() -> None:
    day = date(2024, 1, 2)
    tree = parse_predicate("a = :p and b = :q", {"p": "x' or 1=1 --", "q": day})
    assert columns(tree) == (A, B)
    assert Literal("string", "x' or 1=1 --") in tree.args[0].args  # type: ignore[union-attr]
    with pytest.raises(InvalidOperation, match="not used: q"):
        parse_predicate("a = :p", {"p": 1, "q": 2})
    assert parse_predicate("a in :ids", {"ids": [1, None]}) == Call(
        "in", (A, long(1), Literal("void"))
    )
    assert parse_predicate("a not in :ids", {"ids": []}) == Call("not", (Call("in", (A,)),))
    assert parse_predicate("a in (:ids, 3)", {"ids": (1, 2)}) == Call(
        "in", (A, long(1), long(2), long(3))
    )
    with pytest.raises(InvalidOperation, match="must be a list"):
        parse_predicate("a in :ids", {"ids": 3})


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (None, "void", None),
        (True, "boolean", "true"),
        (5, "long", "5"),
        (2**64, "decimal(20,0)", "18446744073709551616"),
        (0.1, "double", "0.1"),
        (float("-inf"), "double", "-Infinity"),
        (Decimal("1.50"), "decimal(3,2)", "1.50"),
        (Decimal("1E+2"), "decimal(3,0)", "100"),
        (Decimal("0.001"), "decimal(3,3)", "0.001"),
        (date(999, 1, 2), "date", "0999-01-02"),
        (datetime(2024, 1, 2), "timestamp_ntz", "2024-01-02 00:00:00"),
        (NOW, "timestamp", "2024-05-06 01:02:03Z"),
        (b"\x00", "binary", "00"),
        ("true", "string", "true"),
    ],
)
def test_python_values_become_typed_literals(value: Any, type_: str, text: str | None) -> None:
    assert literal(value) == Literal(type_, text)


@pytest.mark.parametrize("value", [object(), Decimal("NaN"), 10**38])
def test_unsupported_python_values_are_refused(value: Any) -> None:
    with pytest.raises(InvalidOperation):
        literal(value)


@pytest.mark.parametrize(
    "word", ["from", "on", "as", "like", "between", "null", "not", "case", "end", "localtime", "in"]
)
def test_any_word_can_be_the_name_of_a_parameter(word: str) -> None:
    sql = f"a = :{word} and not (b in (:{word}, 1) or case when a = 1 then :{word} end)"
    plain = sql.replace(f":{word}", ":p")
    assert parse_predicate(sql, {word: True}) == parse_predicate(plain, {"p": True})


def test_assignments_accept_sql_text_and_python_values() -> None:
    together = StatementExpressions({"n": 2})
    found = together.assignments({"a": "b + :n", "b": None, "c": [1]})
    together.finish()
    assert found == {
        "a": Call("+", (B, long(2))),
        "b": Literal("void"),
        "c": Call("array", (long(1),)),
    }
    with pytest.raises(InvalidOperation, match="no assignments"):
        together.assignments({})


def test_substitute_replaces_every_column_of_a_tree() -> None:
    tree = parse_predicate("a = 1 and (b = 2 and true)")
    assert substitute(tree, lambda column: long(7)) == parse_predicate("7 = 1 and (7 = 2 and true)")


@pytest.mark.parametrize("sql", ["a[0].x", "get(a, 0).x.y", "m['k'].x", "s.a[1].x = 1"])
def test_a_field_of_a_list_element_is_refused_because_it_would_not_follow_a_rename(
    sql: str,
) -> None:
    with pytest.raises(InvalidOperation, match="when that is renamed"):
        parse_expression(sql)


def test_nested_fields_become_columns_and_elements_become_calls_of_get() -> None:
    assert parse_expression("(s).x.y") == parse_expression("s.x.y") == Column(("s", "x", "y"))
    assert parse_expression("s.a[1][0]") == parse_expression("get(get(s.a, 1), 0)")
