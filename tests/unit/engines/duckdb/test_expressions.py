"""Expressions on DuckDB have the values and the errors of the reference evaluator."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lakevilla.engines.duckdb.expressions import to_duckdb
from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.evaluate import compare, evaluate
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.sql.expressions.tree import Call, Expr, children, columns
from tests.support.search import WHOLE, how_many
from tests.support.trees import ROWS, SCHEMA, any_tree, row_table

RAISED = "raised"


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("set timezone = 'America/New_York'")
    return connection


def bound_or_rejected(tree: Expr) -> Expr:
    try:
        return bind(tree, SCHEMA, predicate=False)
    except InvalidOperation:
        assume(False)
        raise


def reference(tree: Expr, row: dict[str, Any]) -> Any:
    try:
        return evaluate(tree, row)
    except InvalidOperation:
        return RAISED


def computed(connection: duckdb.DuckDBPyConnection, sql: str, at: int) -> Any:
    try:
        found = connection.sql(f"select {sql} from numbered where number = {at}")
        return found.to_arrow_table().column(0).to_pylist()[0]
    except duckdb.Error:
        return RAISED


def same(a: Any, b: Any) -> bool:
    if a is None or b is None or isinstance(a, str) or isinstance(b, str):
        return type(a) is type(b) and bool(a == b)
    return compare(a, b) == 0


def has_constant_side(tree: Expr) -> bool:
    """Return whether one side of a call is a constant, so that DuckDB may skip the other side."""
    parts = list(children(tree))
    constant = any(not columns(part) for part in parts)
    folds = isinstance(tree, Call) and tree.name in ("and", "or", "nullif", "coalesce")
    if isinstance(tree, Call) and tree.name == "in" and len(tree.args) == 1:
        return True  # an IN with an empty list is false
    if isinstance(tree, Call) and any(
        not columns(part) and reference(part, {}) in (None, RAISED) for part in parts
    ):
        return True  # next to NULL, which may decide
    return (folds and constant) or any(has_constant_side(part) for part in parts)


@settings(
    max_examples=how_many(66, whole=400),
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.filter_too_much,
    ],
)
@given(tree=any_tree(), rows=st.lists(ROWS, min_size=1, max_size=4))
def test_an_expression_on_duckdb_has_the_value_of_the_reference(
    connection: duckdb.DuckDBPyConnection, tree: Expr, rows: list[dict[str, Any]]
) -> None:
    bound = bound_or_rejected(tree)
    sql = to_duckdb(bound, SCHEMA)
    table = row_table(rows).append_column("number", [list(range(len(rows)))])
    connection.register("numbered", table)
    for at, row in enumerate(table.to_pylist()):
        want, got = reference(bound, row), computed(connection, sql, at)
        if want == RAISED and has_constant_side(bound):
            continue  # DuckDB folds it: if one side alone decides, it does not compute the other
        assert same(want, got), f"{want!r} but DuckDB {got!r} for {sql}"


def test_lower_and_upper_use_unicodes_simple_case_mapping() -> None:
    characters = [chr(at) for at in range(1, 0x110000) if not 0xD800 <= at <= 0xDFFF]
    # Most characters without case are ideographs and private-use characters.
    without = {"Cn"} if WHOLE else {"Cn", "Lo", "Co"}
    known = [c for c in characters if unicodedata.category(c) not in without]
    schema = pa.schema([("c", pa.string())])
    for name in ("lower", "upper"):
        tree = bind(parse_expression(f"{name}(c)"), schema, predicate=False)
        connection = duckdb.connect()
        connection.register("letters", pa.table({"c": known}))
        found = connection.sql(f"select {to_duckdb(tree, schema)} from letters")
        mapped = found.to_arrow_table().column(0).to_pylist()
        assert mapped == [evaluate(tree, {"c": c}) for c in known]


NUMBERS = pa.schema([("n", pa.int64()), ("d", pa.int64()), ("v", pa.decimal128(6, 2))])
MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("sql", "row", "value"),
    [
        ("d <> 0 and n / d > 1", {"n": 4, "d": 0}, False),
        ("d = 0 or n / d > 1", {"n": 4, "d": 0}, True),
        ("d <> 0 and n / d > 1", {"n": 4, "d": 2}, True),
        ("d <> 0 and n / d > 1", {"n": 4, "d": None}, None),
        ("n / d > 1", {"n": 4, "d": 0}, RAISED),
        ("d <> 0 and n / d in (1, 2, 3, 4, 5, 6, 7)", {"n": 4, "d": 0}, False),
        ("d <> 0 and n / d in (1, 2, 3, 4, 5, 6, null)", {"n": 14, "d": 2}, None),
        ("d <> 0 and n / d in (1, 2, 3, 4, 5, 6, d)", {"n": 4, "d": 2}, True),
        ("n % d > 1", {"n": 4, "d": 0}, RAISED),
        ("n + 1 > 5", {"n": MOST}, RAISED),  # must not be rewritten to n > 4
        ("cast(n as byte) > 5", {"n": 300}, RAISED),
        ("cast(v as decimal(2,1)) > 5", {"v": Decimal("9.96")}, RAISED),
        ("n * n = 0", {"n": MOST}, RAISED),
        ("n % -1 = 0", {"n": -MOST - 1}, True),
        ("n / 2 = 1.5", {"n": 3}, True),
        ("cast(cast(v as double) / 100000 as decimal(5,1)) = 0", {"v": Decimal("6.90")}, True),
        (
            "cast(cast(v as double) / 100000 as decimal(5,5)) = 0.00007",
            {"v": Decimal("6.90")},
            True,
        ),
        ("cast(cast(v as double) / 100000 as decimal(5,4)) = 0.0001", {"v": Decimal("5")}, True),
        ("cast(-cast(v as double) / 100000 as decimal(5,1)) = 0", {"v": Decimal("6.90")}, True),
        ("cast(cast(v as decimal(2,2)) as string)", {"v": Decimal("-0.05")}, "-0.05"),
        ("cast(cast(v as decimal(2,2)) as string)", {"v": Decimal("0.00")}, "0.00"),
        ("n in ()", {"n": None}, False),
        ("n in (1, null)", {"n": 2}, None),
        ("n not in (1, null)", {"n": 1}, False),
    ],
)
def test_expressions_on_which_engines_differ_have_the_reference_value_on_duckdb(
    sql: str, row: dict[str, Any], value: Any
) -> None:
    whole = {"n": None, "d": None, "v": None} | row
    tree = bind(parse_expression(sql), NUMBERS, predicate=False)
    connection = duckdb.connect()
    assert reference(tree, whole) is value or reference(tree, whole) == value
    table = pa.Table.from_pylist([whole], schema=NUMBERS).append_column("number", [[0]])
    connection.register("numbered", table)
    assert computed(connection, to_duckdb(tree, NUMBERS), 0) == value


@pytest.mark.parametrize("type_", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_date_arithmetic_that_leaves_the_years_1_to_9999_raises(type_: pa.DataType) -> None:
    schema = pa.schema([("m", type_)])
    for year, sign in ((9999, "+"), (1, "-")):
        row = {"m": datetime(year, 6, 1, tzinfo=UTC if getattr(type_, "tz", None) else None)}
        if type_ == pa.date32():
            row["m"] = row["m"].date()
        table = pa.Table.from_pylist([row], schema=schema).append_column("number", [[0]])
        connection = duckdb.connect()
        connection.register("numbered", table)
        units = ["interval '1' year", "interval '8' month", "interval '400' day"]
        texts = [f"m {sign} {unit} <> m" for unit in units]
        texts += [f"date_add(m, {sign}400) <> m"] if type_ == pa.date32() else []
        for text in texts:
            tree = bind(parse_expression(text), schema)
            assert reference(tree, row) == RAISED
            assert computed(connection, to_duckdb(tree, schema), 0) == RAISED, text
        near = bind(parse_expression(f"m {sign} interval '1' month <> m"), schema)
        assert reference(near, row) is computed(connection, to_duckdb(near, schema), 0) is True


@pytest.mark.parametrize("name", ["=", "<>", "<=>", "<", ">="])
@pytest.mark.parametrize("type_", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_date_trunc_of_null_is_null(type_: pa.DataType, name: str) -> None:
    schema = pa.schema([("m", type_)])
    day = datetime(2024, 2, 29, 1, tzinfo=UTC if getattr(type_, "tz", None) else None)
    value = day.date() if type_ == pa.date32() else day
    tree = bind(parse_predicate(f"date_trunc('month', m) {name} :p", {"p": value}), schema)
    rows = [{"m": None}, {"m": value}]
    table = pa.Table.from_pylist(rows, schema=schema).append_column("number", [[0, 1]])
    connection = duckdb.connect()
    connection.register("given", table)
    connection.execute("CREATE TABLE numbered AS FROM given")
    for at, row in enumerate(rows):
        assert computed(connection, to_duckdb(tree, schema), at) is reference(tree, row)


def test_duckdb_evaluates_the_terms_of_a_filter_in_their_order() -> None:
    tree = bind(parse_expression("d <> 0 and n / d > 1"), NUMBERS)
    connection = duckdb.connect()
    rows = {"n": list(range(100_000)), "d": [n % 3 for n in range(100_000)]}
    connection.register("many", pa.table(rows))
    sql = f"select count(*) from many where {to_duckdb(tree, NUMBERS)}"
    assert connection.execute(sql).fetchall() == [(66_664,)]


def test_quotes_and_null_characters_in_names_and_values_are_escaped() -> None:
    schema = pa.schema([('a"b', pa.string())])
    nasty = "x' or 1=1; --\0\\"
    tree = bind(parse_expression('"a""b" = :v', {"v": nasty}), schema)
    connection = duckdb.connect()
    connection.register("t", pa.table({'a"b': [nasty, "y"]}))
    sql = f"select count(*) from t where {to_duckdb(tree, schema)}"
    assert connection.execute(sql).fetchall() == [(1,)]


def test_merge_columns_are_rendered_with_their_alias() -> None:
    schemas = {"s": pa.schema([("id", pa.int64())]), "t": pa.schema([("id", pa.int32())])}
    tree = bind(parse_expression("s.id = t.id"), schemas)
    assert to_duckdb(tree, schemas) == '("s"."id" = CAST("t"."id" AS BIGINT))'
    own = to_duckdb(tree, schemas, column=lambda path, table: f"{table}_{path[0]}")
    assert own == "(s_id = CAST(t_id AS BIGINT))"
    assert evaluate(tree, {"s": {"id": 1}, "t": {"id": 1}}) is True


def test_a_cast_of_a_struct_field_raises_only_for_the_selected_rows() -> None:
    schema = pa.schema([("st", pa.struct([("v", pa.string())])), ("n", pa.int64())])
    tree = bind(parse_expression("cast(st.v as long)"), schema, predicate=False)
    connection = duckdb.connect()
    rows = [{"st": {"v": "x"}, "n": 0}, {"st": {"v": "7"}, "n": 1}]
    connection.register("rows", pa.Table.from_pylist(rows, schema=schema))
    connection.execute("set disabled_optimizers = 'filter_pushdown'")
    found = connection.execute(f"select {to_duckdb(tree, schema)} from rows where n = 1")
    assert found.fetchall() == [(7,)]


@pytest.mark.parametrize(
    ("text", "type_"),
    [("0000-01-01", "date"), ("0000-12-31 23:59:59", "timestamp_ntz"),
     ("2024-01-01 24:00:00", "timestamp"), ("2024-01-01 24:00:00", "timestamp_ntz"),
     ("2024-01-01 12:00:00+24:00", "timestamp"), ("2024-01-01 12:00:00+02:60", "timestamp"),
     ("0001-01-01 00:00:00+02:00", "timestamp"), ("9999-12-31 23:00:00-05:00", "timestamp")],
)  # fmt: skip
def test_a_cast_of_text_that_is_no_date_or_timestamp_raises(text: str, type_: str) -> None:
    schema = pa.schema([("t", pa.string())])
    tree = bind(parse_expression(f"cast(t as {type_})"), schema, predicate=False)
    connection = duckdb.connect()
    connection.register("numbered", pa.table({"t": [text], "number": [0]}))
    assert reference(tree, {"t": text}) == RAISED
    assert computed(connection, to_duckdb(tree, schema), 0) == RAISED
