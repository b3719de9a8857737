"""Binding: names become columns of the schema, and types are made equal without loss, or
refused.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings

from lakevilla.engines.duckdb import expressions as duckdb
from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions import evaluate as reference
from lakevilla.sql.expressions.assignments import bind_assignments
from lakevilla.sql.expressions.bind import bind, type_of
from lakevilla.sql.expressions.evaluate import evaluate
from lakevilla.sql.expressions.functions.catalogue import FUNCTIONS, documentation
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.sql.expressions.tree import Call, Cast, Column, Expr, Literal, columns
from lakevilla.sql.expressions.types import arrow_type, common_type, type_name
from tests.support.search import how_many
from tests.support.trees import SCHEMA, any_tree

PLAIN = pa.schema(
    [
        pa.field("Id", pa.int32(), nullable=False),
        ("tiny", pa.int8()),
        ("price", pa.decimal128(10, 2)),
        ("x", pa.float64()),
        ("name", pa.string()),
        ("NAME2", pa.string()),
        ("name2", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("tags", pa.list_(pa.int16())),
        ("st", pa.struct([("City", pa.string())])),
    ]
)


def bound(sql: str, **params: Any) -> Expr:
    return bind(parse_predicate(sql, params or None), PLAIN)


@settings(
    max_examples=how_many(50, whole=300),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(any_tree())
def test_binding_twice_gives_the_same_expression(tree: Expr) -> None:
    try:
        once = bind(tree, SCHEMA, predicate=False)
    except InvalidOperation:
        assume(False)
    assert bind(once, SCHEMA, predicate=False) == once
    assert type_of(once, SCHEMA) == type_of(tree, SCHEMA)


def test_column_names_are_found_in_any_case() -> None:
    assert bound("ID = 1") == Call("=", (Column(("Id",)), Literal("integer", "1")))
    assert bound("ST.city = 'x'") == Call("=", (Column(("st", "City")), Literal("string", "x")))
    assert bound("name2 = NAME2") == Call("=", (Column(("name2",)), Column(("NAME2",))))
    aliased = bind(parse_predicate("t.id = 1"), PLAIN, alias="T")
    assert aliased == bound("id = 1")


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("nmae = 'x'", "did you mean name"),
        ("Name2 = 'x'", "NAME2, name2"),
        ("st.town = 'x'", "st.City"),
        ("name = 5", "string and long"),
        ("id = 'x'", "integer and string"),
        ("id", "must be boolean"),
        ("id and true", "a and b does not take"),
        ("at = local", "timestamp and timestamp_ntz"),
        ("st < st", "fields of a struct"),
        ("day > 'soon'", "'soon'"),
        ("name + 1 > 2", "numbers"),
        ("day - day > 2", "datediff(end, start)"),
        ("local + 1 > at", "interval '1' day"),
        ("length(tags) > 1", "write size(a)"),
        ("round(x, 2) = 1", "cast the number to decimal"),
        ("cast(x as string) = '1'", "engines differ"),
        ("name like name", "constant"),
        ("name like 'a!b' escape '!'", "escape"),
        ("substring(name, 0) = 'a'", "at least 1"),
        ("date_trunc('hour', day) = day", "timestamp"),
        ("date_trunc('eon', day) = day", "units"),
        ("case when id then true end", "not boolean"),
        ("x in (array(1))", "do not go together"),
        ("price * price * price * price * price * price * price * price"
         " * price * price * price * price * price * price"
         " * price * price * price * price * price * price > 1", "out of range"),
    ],
)  # fmt: skip
def test_expressions_with_incompatible_types_are_refused_with_the_reason(
    sql: str, named: str
) -> None:
    with pytest.raises(InvalidOperation) as caught:
        bound(sql)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "other"),
    [
        ("id = 1.0", "id = cast(1 as integer)"),
        ("price > 1", "price > cast('1.00' as decimal(10,2))"),
        ("x = 0.1", "x = 0.1e0"),
        ("day = '2024-01-02'", "day = date '2024-01-02'"),
        ("at > '2024-01-02'", "at > timestamp '2024-01-02 00:00:00Z'"),
        ("local > timestamp '2024-01-02'", "local > timestamp_ntz '2024-01-02'"),
        ("local > timestamp '2024-01-02' - interval 1 day", "local > timestamp_ntz '2024-01-01'"),
        (
            "at >= date_trunc('month', timestamp '2024-02-01' - interval 1 hour)",
            "at >= timestamp '2024-01-01 00:00:00Z'",
        ),
        ("null", "cast(null as boolean)"),
        ("id in (1, null)", "id in (cast(1 as integer), cast(null as integer))"),
    ],
)
def test_constants_take_the_type_of_the_compared_column(sql: str, other: str) -> None:
    assert bound(sql) == bind(parse_predicate(other), PLAIN)
    assert Cast not in {type(arg) for arg in getattr(bound(sql), "args", ())}


def test_a_timestamp_computed_without_a_zone_can_be_assigned_to_both_timestamp_types() -> None:
    written = parse_predicate("timestamp '2024-01-02' + interval 1 hour = at").args[0]
    found = bind_assignments({"at": written, "local": written}, PLAIN)
    assert found["at"] == Literal("timestamp", "2024-01-02 01:00:00Z")
    assert found["local"] == Literal("timestamp_ntz", "2024-01-02 01:00:00")


@pytest.mark.parametrize(
    ("sql", "other"),
    [
        ("day + 7 > day", "date_add(day, 7) > day"),
        ("day - 7 > day", "date_sub(day, 7) > day"),
        ("day - id + 1 > day", "date_add(date_sub(day, id), 1) > day"),
    ],
)
def test_adding_a_whole_number_to_a_date_adds_days(sql: str, other: str) -> None:
    assert bound(sql) == bound(other)


def test_a_constant_out_of_range_widens_the_compared_column() -> None:
    assert bound("tiny < 300") == Call(
        "<", (Cast(Column(("tiny",)), "long", implied=True), Literal("long", "300"))
    )
    assert evaluate(bound("tiny > 1.5"), {"tiny": 2}) is True
    assert evaluate(bound("tiny > 1.5"), {"tiny": 1}) is False


def test_a_datetime_parameter_fits_only_a_column_with_the_same_use_of_zones() -> None:
    aware, naive = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1)
    bound("at = :t", t=aware)
    bound("local = :t", t=naive)
    for sql, value in (("at = :t", naive), ("local = :t", aware)):
        with pytest.raises(InvalidOperation, match="with a zone"):
            bound(sql, t=value)


def test_columns_of_a_merge_are_bound_with_the_alias_of_their_table() -> None:
    source = pa.schema([("id", pa.int64()), ("extra", pa.string())])
    schemas = {"source": source, "target": PLAIN}
    on = bind(parse_predicate("SOURCE.id = target.ID and extra = 'x'"), schemas)
    assert on == bind(on, schemas)
    assert [c.table for c in columns(on)] == ["source", "target", "source"]
    with pytest.raises(InvalidOperation, match=r"source\.id, target\.Id"):
        bind(parse_predicate("id = 1"), schemas)


def assigned(**values: str) -> dict[str, Expr]:
    trees = {name: parse_expression(sql) for name, sql in values.items()}
    return bind_assignments(trees, PLAIN)


def test_assigned_values_are_cast_to_the_column_and_checked_when_computed() -> None:
    found = assigned(TINY="id + 1", price="price * 1.5", at="day", x="1", tags="array(1, null)")
    assert list(found) == ["tiny", "price", "at", "x", "tags"]
    for name, tree in found.items():
        assert type_of(tree, PLAIN) == type_name(PLAIN.field(name).type)
    assert bind_assignments(found, PLAIN) == found
    assert evaluate(found["tiny"], {"Id": 5}) == 6
    with pytest.raises(InvalidOperation, match="cannot cast"):
        evaluate(found["tiny"], {"Id": 500})
    assert evaluate(found["price"], {"price": Decimal("0.99")}) == Decimal("1.49")
    assert evaluate(found["tags"], {}) == [1, None]
    assert evaluate(found["at"], {"day": date(2024, 1, 1)}) == datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"tiny": "300"}, "300"),
        ({"id": "x * 2"}, "cast(... as integer)"),
        ({"name": "id"}, "cast(... as string)"),
        ({"id": "null"}, "NOT NULL"),
        ({"st": "1"}, "column st"),
        ({"nope": "1"}, "nope"),
        ({"tiny": "1", "TINY": "2"}, "twice"),
        ({"local": "at"}, "timestamp_ntz"),
    ],
)
def test_assignments_with_incompatible_types_are_refused(
    values: dict[str, str], named: str
) -> None:
    with pytest.raises(InvalidOperation) as caught:
        assigned(**values)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["boolean", "byte", "long", "decimal(38,0)", "timestamp_ntz", "array<map<string,date>>",
     "struct<a:long,b:struct<c:array<decimal(3,1)>>>"],
)  # fmt: skip
def test_type_names_are_unchanged_after_parsing_and_rendering(name: str) -> None:
    assert type_name(arrow_type(name)) == name


@pytest.mark.parametrize(
    ("types", "met"),
    [
        (("byte", "long"), "long"),
        (("long", "decimal(5,2)"), "decimal(21,2)"),
        (("long", "decimal(38,30)"), None),
        (("decimal(10,2)", "double"), "double"),
        (("date", "timestamp"), "timestamp"),
        (("timestamp", "timestamp_ntz"), None),
        (("void", "string"), "string"),
        (("string", "long"), None),
    ],
)
def test_two_types_have_the_expected_common_type_or_none(
    types: tuple[str, str], met: str | None
) -> None:
    assert common_type(*types) == met
    assert common_type(*reversed(types)) == met


def test_every_function_has_a_reference_a_duckdb_template_and_documentation() -> None:
    page = Path(__file__).parents[4] / "docs" / "expressions.md"
    assert documentation() in page.read_text(encoding="utf-8")
    assert set(FUNCTIONS) == set(reference._LAZY) | set(reference._STRICT)
    assert set(FUNCTIONS) == set(duckdb._TEMPLATES) | set(duckdb._SPECIAL) | {"and", "or"}


@pytest.mark.parametrize(
    "sql",
    ["name = open_", "open_ <> name", 'name = "open_"', "name in ('a', open_)", "day = open_",
     "name like open_", "starts_with(name, open_)", "case when name = open_ then true end"],
)  # fmt: skip
def test_text_without_quotes_is_refused_and_the_error_shows_the_quotes(sql: str) -> None:
    with pytest.raises(InvalidOperation) as caught:
        bind(parse_expression(sql), PLAIN, predicate=False)
    assert "there is no column open_" in str(caught.value)
    assert "text is written 'open_', in single quotes" in str(caught.value)


def test_an_assignment_of_text_without_quotes_is_refused_and_the_error_shows_the_quotes() -> None:
    with pytest.raises(InvalidOperation, match="text is written 'open_'"):
        assigned(name="open_")


@pytest.mark.parametrize("sql", ["id = open_", "name = st.open_", "open_ is null"])
def test_an_error_for_an_unknown_column_mentions_quotes_only_where_text_is_possible(
    sql: str,
) -> None:
    with pytest.raises(InvalidOperation) as caught:
        bind(parse_expression(sql), PLAIN, predicate=False)
    assert "single quotes" not in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    ["id in (select id from other)", "exists (select 1)", "id = (select max(id) from other)",
     "id = any (select 1)"],
)  # fmt: skip
def test_a_subquery_is_refused_with_advice_to_use_merge(sql: str) -> None:
    with pytest.raises(InvalidOperation, match="use merge, whose source may be a query"):
        parse_expression(sql)
