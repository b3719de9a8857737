"""Statements are split at their keywords; unsupported ones are refused by name."""

from __future__ import annotations

import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.sql.statements.dml import (
    DeleteStatement,
    InsertStatement,
    MergeStatement,
    UpdateStatement,
    WhenClause,
)
from lakevilla.sql.statements.select import Select, named_parameters, select_of
from lakevilla.sql.statements.statement import parse_statement


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT * FROM t", {"t"}),
        ("FROM t SELECT x", {"t"}),
        ('SELECT * FROM a.b JOIN "x/y" USING (k)', {"a/b", "x/y"}),
        ("SELECT * FROM prod.ns.t, LATERAL (SELECT * FROM u)", {"prod/ns/t", "u"}),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", {"t"}),
        ("WITH a AS (SELECT * FROM x), b AS (SELECT * FROM a) SELECT * FROM b", {"x"}),
        ("WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT * FROM r) SELECT * FROM r", set()),
        ("WITH a AS (SELECT 1) SELECT * FROM (WITH b AS (FROM a) FROM b, c)", {"c"}),
        ("SELECT (SELECT max(x) FROM s) FROM t WHERE EXISTS (FROM u)", {"s", "t", "u"}),
        ("SELECT * FROM t UNION ALL SELECT * FROM u ORDER BY 1", {"t", "u"}),
        ("SELECT * FROM range(3), unnest([1]), generate_series(1, 2)", set()),
        ("VALUES (1, 2)", set()),
        ("SELECT 1;", set()),
        ("SELECT 1 -- FROM hidden", set()),
    ],
)
def test_the_tables_that_a_select_reads_are_found(sql: str, tables: set[str]) -> None:
    assert select_of(sql).tables == tables


def test_a_select_keeps_its_text() -> None:
    sql = "SELECT :n /* why */ FROM t"
    assert parse_statement(sql) == Select(sql, frozenset({("t",)}))


def test_an_update_statement_is_split_at_its_keywords() -> None:
    sql = """UPDATE sales.orders AS o SET qty = qty - :n, "Note" = CASE WHEN a = 1 THEN 'x, y'
             WHEN b THEN f(1, 2) END WHERE sku IN (SELECT_LIKE, 2) AND qty >= :n;"""
    assert parse_statement(sql) == UpdateStatement(
        "sales.orders",
        "o",
        {
            "qty": "qty - :n",
            "Note": """CASE WHEN a = 1 THEN 'x, y'
             WHEN b THEN f(1, 2) END""",
        },
        "sku IN (SELECT_LIKE, 2) AND qty >= :n",
        "sales.orders",
    )


def test_update_from_and_delete_using_statements_are_parsed() -> None:
    assert parse_statement("UPDATE t SET a = b IS DISTINCT FROM c FROM s, u AS v WHERE x") == (
        UpdateStatement("t", None, {"a": "b IS DISTINCT FROM c"}, "x", "t", "s, u AS v")
    )
    assert parse_statement('DELETE FROM "a/t" USING (SELECT 1) AS s WHERE x') == (
        DeleteStatement("a/t", None, "x", '"a/t"', "(SELECT 1) AS s")
    )


def test_update_and_delete_without_where_apply_to_all_rows() -> None:
    assert parse_statement("UPDATE t SET a = 1") == UpdateStatement(
        "t", None, {"a": "1"}, "true", "t"
    )
    assert parse_statement("DELETE FROM `t`") == DeleteStatement("t", None, "true", "`t`")
    assert parse_statement("delete from t x where x.a = ';'") == DeleteStatement(
        "t", "x", "x.a = ';'", "t"
    )


@pytest.mark.parametrize(
    ("before", "left"),
    [
        ("", "qty"),
        ("orders.", '"orders"."qty"'),
        ("Sales.Orders.", '"orders"."qty"'),
        ('"sales/orders".', '"orders"."qty"'),
        ("other.orders.", '"other"."orders"."qty"'),
    ],
)
def test_the_target_column_of_an_update_may_be_qualified_by_its_table(
    before: str, left: str
) -> None:
    statement = parse_statement(f"UPDATE sales.orders SET {before}qty = 1")
    assert isinstance(statement, UpdateStatement)
    assert statement.assignments == {left: "1"}


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("place.qty", '"place"."qty"'),
        ("t.place.qty", '"t"."place"."qty"'),
        ("`a.b`", '"a.b"'),
        ('"a.b"."c""d"', '"a.b"."c""d"'),
    ],
)
def test_a_nested_field_is_assigned_by_its_path(target: str, path: str) -> None:
    update = parse_statement(f"UPDATE t SET {target} = 1")
    assert isinstance(update, UpdateStatement)
    assert update.assignments == {path: "1"}
    merge = parse_statement(
        f"MERGE INTO t USING s ON true WHEN MATCHED THEN UPDATE SET {target} = s.x"
    )
    assert isinstance(merge, MergeStatement)
    assert merge.clauses[0].assignments == {path: "s.x"}


def test_an_insert_takes_a_query_or_values() -> None:
    assert parse_statement('INSERT INTO a.b (x, "Y") SELECT 1, 2 FROM t') == InsertStatement(
        "a.b", ("x", "Y"), Select("SELECT 1, 2 FROM t", frozenset({("t",)}))
    )
    assert parse_statement("INSERT INTO t VALUES (1), (2)") == InsertStatement(
        "t", None, Select("VALUES (1), (2)", frozenset())
    )
    parenthesised = parse_statement("INSERT INTO t (SELECT * FROM u)")
    assert isinstance(parenthesised, InsertStatement)
    assert parenthesised.columns is None


def test_a_merge_statement_may_have_every_kind_of_clause() -> None:
    statement = parse_statement("""
        MERGE INTO stock USING (SELECT * FROM news WHERE d = :d) AS s ON stock.k = s.k
        WHEN MATCHED AND s.gone THEN DELETE
        WHEN MATCHED AND CASE WHEN s.a THEN true ELSE false END THEN
            UPDATE SET stock.v = s.v, n = s.n + 1
        WHEN MATCHED THEN UPDATE SET *
        WHEN NOT MATCHED BY TARGET AND s.v > 0 THEN INSERT (k, v) VALUES (s.k, f(s.v, 1))
        WHEN NOT MATCHED THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND stock.v = 0 THEN DELETE
        WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 0
    """)
    assert statement == MergeStatement(
        "stock",
        "stock",
        Select("SELECT * FROM news WHERE d = :d", frozenset({("news",)})),
        "s",
        "stock.k = s.k",
        (
            WhenClause("matched_delete", "s.gone", {}),
            WhenClause(
                "matched_update",
                "CASE WHEN s.a THEN true ELSE false END",
                {'"stock"."v"': "s.v", "n": "s.n + 1"},
            ),
            WhenClause("matched_update", None, None),
            WhenClause("not_matched_insert", "s.v > 0", {"k": "s.k", "v": "f(s.v, 1)"}),
            WhenClause("not_matched_insert", None, None),
            WhenClause("not_matched_by_source_delete", "stock.v = 0", {}),
            WhenClause("not_matched_by_source_update", None, {"v": "0"}),
        ),
    )


def test_a_merge_source_may_be_a_table_or_a_path() -> None:
    statement = parse_statement(
        "MERGE INTO a.t x USING b.news ON x.k = news.k WHEN MATCHED THEN DELETE"
    )
    assert isinstance(statement, MergeStatement)
    assert (statement.target_alias, statement.source_alias) == ("x", "news")
    by_path = parse_statement(
        'MERGE INTO a.t USING "b/news" ON t.k = news.k WHEN MATCHED THEN DELETE'
    )
    assert isinstance(by_path, MergeStatement)
    assert (by_path.target_alias, by_path.source_alias) == ("t", "news")
    assert statement.source == Select("SELECT * FROM b.news", frozenset({("b", "news")}))


def test_a_merge_source_may_have_names_for_its_columns() -> None:
    given = parse_statement(
        "MERGE INTO t USING (VALUES (1, 5), (3, 7)) AS s(id, v) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET x = s.v"
    )
    assert isinstance(given, MergeStatement)
    assert given.source_alias == "s"
    assert given.source.sql == "SELECT * FROM (VALUES (1, 5), (3, 7)) AS source(id, v)"
    table = parse_statement("MERGE INTO t USING u s(id) ON t.id = s.id WHEN MATCHED THEN DELETE")
    assert isinstance(table, MergeStatement)
    assert table.source == Select("SELECT * FROM u AS source(id)", frozenset({("u",)}))


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("DROP TABLE t", "DROP"),
        ("CREATE TABLE t AS SELECT 1", "CREATE"),
        ("SET x = 1", "SET"),
        ("PRAGMA version", "PRAGMA"),
        ("COPY t TO 'x'", "COPY"),
        ("EXPLAIN SELECT 1", "EXPLAIN"),
        ("SHOW TABLES", "SHOW"),
        ("UPDATE t SET a = 1 RETURNING a", "RETURNING"),
        ("DELETE FROM t WHERE a RETURNING a", "RETURNING"),
        ("INSERT INTO t BY COLUMN SELECT 1", "COLUMN"),
        ("INSERT OR REPLACE INTO t VALUES (1)", "OR"),
        ("MERGE INTO t USING (SELECT 1) ON true WHEN MATCHED THEN DELETE", "without a name"),
        ("MERGE INTO t USING u ON true", "without WHEN"),
        ("MERGE INTO t USING u ON true WHEN MATCHED THEN DO NOTHING", "DO"),
        ("WITH x AS (SELECT 1) DROP TABLE t", "cannot be read"),
        ("SELECT 1 INTO x", "not"),
        ("SELECT * FROM read_csv('x')", "read_csv"),
        ("SELECT * FROM my_macro(1)", "my_macro"),
    ],
)
def test_unsupported_statements_are_refused_by_name(sql: str, named: str) -> None:
    with pytest.raises(InvalidOperation, match=named.replace(".", r"\.")):
        parse_statement(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "  ",
        ";",
        "-- only a comment",
        "SELECT 1; SELECT 2",
        "DELETE FROM t WHERE a; DROP TABLE t",
        "UPDATE t SET a = 1; DELETE FROM t",
        "UPDATE t SET",
        "UPDATE t SET a = WHERE b",
        "UPDATE t SET a = 1, A = 2",
        "DELETE t",
        "DELETE FROM t WHERE",
        "INSERT INTO t",
        "MERGE INTO t USING u ON WHEN MATCHED THEN DELETE",
        "MERGE INTO t USING u ON a WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)",
        "SELECT 'open",
        "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    ],
)
def test_malformed_statements_raise_invalid_operation(sql: str) -> None:
    with pytest.raises(InvalidOperation) as caught:
        parse_statement(sql)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("SELECT :a + b:c", "SELECT $a + b:c"),
        ("SELECT x::INT, ':a', {'a':a}, l[1:a], l[(1):a]", None),
        ("SELECT {'a': :a}", "SELECT {'a': $a}"),
        ('SELECT ":a" -- :a\n, :a', 'SELECT ":a" -- :a\n, $a'),
        ("WHERE a>:a AND b IN (:a,:a)", "WHERE a>$a AND b IN ($a,$a)"),
    ],
)
def test_a_colon_marks_a_parameter_only_where_a_value_may_stand(
    sql: str, written: str | None
) -> None:
    assert named_parameters(sql, None) == (written or sql)


def test_parameters_without_a_value_and_unused_values_are_refused() -> None:
    with pytest.raises(InvalidOperation, match=":b has no value"):
        named_parameters("SELECT :a, :b", {"a"})
    with pytest.raises(InvalidOperation, match="not used: c"):
        named_parameters("SELECT :a", {"a", "c"})
