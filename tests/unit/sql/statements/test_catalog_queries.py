"""The catalog tables that a query reads, and the rows of them that it may need."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.sql.catalog import SCHEMAS, CatalogRead, NameRange, Term, range_of
from lakevilla.sql.statements.catalog import catalog_query
from lakevilla.sql.statements.select import select_of
from tests.support.search import how_many

DRAWN = how_many(50, whole=150)


def found(sql, params=None, hidden=frozenset(), dialect="duckdb"):
    select = select_of(sql, params, dialect)
    return catalog_query(select, params or {}, dialect, hidden)


def terms(sql, params=None):
    query = found(sql, params)
    return [(term.column, term.operator, term.values) for term in query.uses[0].terms]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("name = 'a'", [("name", "=", ("a",))]),
        ("'a' = name", [("name", "=", ("a",))]),
        ("5 < rows", [("rows", ">", (5,))]),
        ("t.name IN ('a', 'b')", [("name", "in", ("a", "b"))]),
        ("name LIKE 'sales/%'", [("name", "prefix", ("sales/",))]),
        ("name LIKE 'a_c%'", [("name", "prefix", ("a",))]),
        ("starts_with(name, 'ab')", [("name", "prefix", ("ab",))]),
        ("rows BETWEEN 2 AND 3", [("rows", ">=", (2,)), ("rows", "<=", (3,))]),
        ("(name >= 'a' AND (name < 'b'))", [("name", ">=", ("a",)), ("name", "<", ("b",))]),
        ("rows > -5 AND bytes < 1e3", [("rows", ">", (-5,)), ("bytes", "<", (1000.0,))]),
        ("NAME = 'A'", [("name", "=", ("A",))]),
        ("name = 'a' OR name = 'b'", []),
        ("NOT name = 'a'", []),
        ("name NOT IN ('a')", []),
        ("name NOT LIKE 'a%'", []),
        ("name ILIKE 'a%'", []),
        ("name = 'a' COLLATE NOCASE", []),
        ("lower(name) = 'a'", []),
        ("name = uri", []),
        ("name IN (SELECT 'a')", []),
        ("other.name = 'a'", []),
        ("rows IS NULL", []),
    ],
)
def test_usable_terms_of_the_where_clause_are_found(where, expected):
    assert terms(f"SELECT * FROM lakevilla_tables AS t WHERE {where}") == expected


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM lakevilla_tables a ASOF JOIN x ON a.rows >= x.r WHERE a.name = 'a'",
        "SELECT * FROM lakevilla_tables a POSITIONAL JOIN x WHERE a.name = 'a'",
        "SELECT * FROM lakevilla_tables TABLESAMPLE 10% WHERE name = 'a'",
        "SELECT * FROM lakevilla_tables t(a, b) WHERE name = 'a'",
        "SELECT * FROM lakevilla_tables t, x WHERE name = 'a'",
        "SELECT 'b' AS name FROM lakevilla_tables WHERE name = 'a'",
        "SELECT * FROM (SELECT * FROM lakevilla_tables) WHERE name = 'a'",
        "SELECT * FROM lakevilla_tables HAVING name = 'a'",
    ],
)
def test_no_terms_are_used_where_leaving_out_rows_could_change_the_result(sql):
    assert terms(sql) == []


def test_joined_catalog_tables_have_separate_terms():
    query = found(
        "SELECT * FROM lakevilla_tables t LEFT JOIN lakevilla_files f ON f.table = t.name "
        "WHERE t.name = :n AND f.size_bytes > 10 AND f.partition['region'] = 'Asia'",
        {"n": "orders"},
    )
    tables, files = query.uses
    assert tables.terms == (Term("name", "=", ("orders",)),)
    assert files.terms == (
        Term("size_bytes", ">", (10,)),
        Term("partition.region", "=", ("Asia",)),
    )
    assert query.select.tables == {tables.view, files.view}


def test_a_name_that_the_query_or_user_defines_is_no_catalog_table():
    assert found("SELECT * FROM lakevilla_tables", hidden=frozenset({"lakevilla_tables"})) is None
    assert found("WITH lakevilla_tables AS (SELECT 1) SELECT * FROM lakevilla_tables") is None
    assert found("SELECT * FROM lakevilla_other") is None


def test_unknown_views_of_the_information_schema_are_refused():
    with pytest.raises(InvalidOperation, match="schemata, tables, columns"):
        found("SELECT * FROM information_schema.routines")


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT name FROM lakevilla_tables", ("name",)),
        ("SELECT count(*) FROM lakevilla_tables WHERE rows = 0", ("rows",)),
        ("SELECT * FROM lakevilla_tables", None),
        ("FROM lakevilla_tables", None),
        ("SELECT t FROM lakevilla_tables t", None),
        ("SELECT COLUMNS('r.*') FROM lakevilla_tables", None),
        ("SELECT 1 FROM lakevilla_tables NATURAL JOIN x", None),
    ],
)
def test_the_columns_that_a_query_reads_of_a_catalog_table_are_found(sql, columns):
    assert found(sql).uses[0].columns == columns


def test_terms_on_names_become_a_range_of_names():
    assert range_of([], "name") == NameRange()
    both = range_of([Term("name", ">=", ("a",)), Term("name", "<", ("b",))], "name")
    assert "a" in both
    assert "abc" in both
    assert "c" not in both
    some = range_of([Term("name", "in", ("a", "c")), Term("name", "=", ("c",))], "name")
    assert "c" in some
    assert "a" not in some
    assert "p/x" in range_of([Term("name", "prefix", ("p/",))], "name")


@pytest.mark.parametrize("operator", ["=", "in", "<", "<=", ">", ">="])
@pytest.mark.parametrize(
    ("value", "constant"),
    [
        ({"part": "x"}, 5),
        (datetime(2026, 1, 1, tzinfo=UTC), 5),
        ("5", 5),
        (5, "5"),
        (5, math.nan),  # SQL orders NaN above all numbers
    ],
)
def test_comparisons_that_python_orders_differently_from_sql_leave_out_no_row(
    operator, value, constant
):
    assert Term("x", operator, (constant,)).admits(value)


# Rows that are left out can't be in the result: DuckDB runs the query with and without them.

ROWS = pa.Table.from_pylist(
    [
        {
            "table": name,
            "path": f"{part}/{number}",
            "size_bytes": None if number == 3 else number * 10,
            "rows": number % 3 or None,
            "partition": [("part", part)] if number % 2 else [],
        }
        for name in ("a", "ab", "a/b", "B", "ä")
        for part in ("x", "y", "%")
        for number in range(5)
    ],
    SCHEMAS["files"],
)


def drawn_condition(draw, depth=2):
    column = draw.choice(["table", "path", "size_bytes", "rows", "partition['part']"])
    texts = ["'a'", "'ab'", "'a/'", "'x/1'", "'y'", "'%'", "NULL", "'10'"]
    numbers = ["0", "10", "-1", "1.5", "2e1", "NULL"]
    values = numbers if column in ("size_bytes", "rows") else texts
    value, other = draw.choice(values), draw.choice(values)
    spelled = column if column.startswith("partition") else f'"{column}"'
    kinds = ["compare", "turned", "in", "between", "null"]
    kinds += ["and", "or", "not"] * 2 if depth else []
    kinds += ["like", "starts"] if values is texts else []
    match draw.choice(kinds):
        case "compare":
            return f"{spelled} {draw.choice(['=', '<', '<=', '>', '>=', '<>'])} {value}"
        case "turned":
            return f"{value} {draw.choice(['=', '<', '<=', '>', '>='])} {spelled}"
        case "in":
            return f"{spelled} {draw.choice(['', 'NOT '])}IN ({value}, {other})"
        case "between":
            return f"{spelled} BETWEEN {value} AND {other}"
        case "null":
            return f"{spelled} IS {draw.choice(['', 'NOT '])}NULL"
        case "like":
            return f"{spelled} {draw.choice(['', 'NOT '])}LIKE {draw.choice(PATTERNS)}"
        case "starts":
            return f"starts_with({spelled}, {value})"
        case "not":
            return f"NOT ({drawn_condition(draw, depth - 1)})"
        case word:
            left, right = (drawn_condition(draw, depth - 1) for _ in range(2))
            return f"({left} {word.upper()} {right})"


PATTERNS = ["'a%'", "'%b'", "'a_%'", "'x/_'", "'a'", "'%%'", "''", "'ä%'"]


def test_catalog_rows_that_are_left_out_never_change_the_result():
    draw = random.Random(35)
    with duckdb.connect() as connection:
        connection.register("every", ROWS)
        left_out = 0
        for _ in range(DRAWN):
            conditions = " AND ".join(drawn_condition(draw) for _ in range(draw.randint(1, 3)))
            sql = f"SELECT * FROM lakevilla_files f WHERE {conditions}"
            query = found(sql)
            use = query.uses[0]
            read = CatalogRead("files", range_of(use.terms, "table"), use.terms)
            some = []
            for row in ROWS.to_pylist():
                shown = {**row, "partition": dict(row["partition"])}
                if row["table"] in read.names and read.admits(shown):
                    some.append(row)
            left_out += len(some) < ROWS.num_rows
            connection.register("admitted", pa.Table.from_pylist(some, SCHEMAS["files"]))
            whole, part = (
                connection.sql(query.select.sql.replace(use.view, name)).fetchall()
                for name in ("every", "admitted")
            )
            assert sorted(map(repr, whole)) == sorted(map(repr, part)), conditions
    assert left_out > DRAWN // 4
