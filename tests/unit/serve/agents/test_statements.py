"""The texts that an agent may send."""

from __future__ import annotations

import duckdb
import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.serve.agents.statements import reading, refuse_unless_it_changes_tables


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("SELECT * FROM stock", "\nLIMIT 201"),
        ("SELECT * FROM stock; -- all of it", "\nLIMIT 201"),
        ("SELECT * FROM stock -- all of it", "\nLIMIT 201"),
        ("SELECT * FROM stock LIMIT 5", " LIMIT 5"),
        ("SELECT * FROM stock LIMIT 5000", " LIMIT 201"),
        ("SELECT * FROM stock LIMIT 5000 OFFSET 7", " LIMIT 201 OFFSET 7"),
        ("SELECT * FROM stock OFFSET 7 LIMIT 5000", " OFFSET 7 LIMIT 201"),
        ("SELECT * FROM (SELECT * FROM stock LIMIT 5000)", "LIMIT 5000)\nLIMIT 201"),
        ("SELECT * FROM stock AT (VERSION => 3) LIMIT 5000", " LIMIT 201"),
        ("SELECT * FROM stock AT (BRANCH => etl)", "\nLIMIT 201"),
        ("WITH a AS (SELECT 1 LIMIT 300) SELECT * FROM a", "\nLIMIT 201"),
        ("SELECT 1 UNION ALL SELECT 2 LIMIT 900", " LIMIT 201"),
        ("SHOW TABLES", "SHOW TABLES"),
        ("DESCRIBE stock", "DESCRIBE stock"),
    ],
)
def test_a_query_has_no_more_rows_than_an_answer_and_one(text: str, ends: str) -> None:
    assert reading(text, 201).source.text.endswith(ends)


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM stock",
        "INSERT INTO stock VALUES (1)",
        "MERGE BRANCH etl",
        "USE main",
        "USE BRANCH etl",
        "BEGIN",
        "SET max_rows = 1000000",
        "CREATE TABLE t (a INT)",
        "CREATE BRANCH etl",
        "VACUUM stock",
        "SELECT 1; DELETE FROM stock",
        "WITH a AS (DELETE FROM stock) SELECT 1",
        "EXPLAIN ANALYZE DELETE FROM stock",
        "",
        ";",
    ],
)
def test_query_refuses_a_text_that_does_more_than_read(text: str) -> None:
    with pytest.raises(InvalidOperation):
        reading(text, 201)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO stock VALUES (1)",
        "UPDATE stock SET a = 1",
        "DELETE FROM stock; SELECT count(*) FROM stock",
        "MERGE INTO stock USING news ON stock.a = news.a WHEN MATCHED THEN DELETE",
        "CREATE TABLE t (a INT); ALTER TABLE t ADD COLUMN b INT; COMMENT ON TABLE t IS 'x'",
        "CREATE OR REPLACE VIEW v AS SELECT 1 AS a",
        "TRUNCATE TABLE t; DROP TABLE t",
    ],
)
def test_execute_takes_what_changes_tables_and_views(text: str) -> None:
    refuse_unless_it_changes_tables(text)


@pytest.mark.parametrize(
    "text",
    [
        "USE main",
        "USE main; DELETE FROM stock",
        "MERGE BRANCH etl",
        "MERGE BRANCH etl INTO main DELETE",
        "CREATE BRANCH other",
        "CREATE TAG other",
        "DROP BRANCH other",
        "DROP TAG other",
        "CREATE SCHEMA s",
        "DROP SCHEMA s CASCADE",
        "ALTER SCHEMA s SET PROPERTIES (a = 'b')",
        "COMMENT ON SCHEMA s IS 'x'",
        "OPTIMIZE stock",
        "VACUUM stock RETAIN 0 HOURS",
        "SET features = 'NONE'",
        "RESET max_bytes",
        "BEGIN; DELETE FROM stock; COMMIT",
        "BEGIN (FEATURES NONE)",
        "BEGIN ATOMIC DELETE FROM stock; END",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT a",
        "DELETE FROM stock; USE main",
        " ",
    ],
)
def test_execute_refuses_what_leads_away_from_the_branch(text: str) -> None:
    with pytest.raises(InvalidOperation, match=r"refused|empty"):
        refuse_unless_it_changes_tables(text)


def test_a_text_has_a_length_that_can_be_read() -> None:
    with pytest.raises(InvalidOperation, match="characters"):
        reading(f"SELECT {'1 + ' * 30_000} 1", 201)


@pytest.mark.parametrize(
    "query",
    [
        "(SELECT * FROM range(9))",
        "(SELECT * FROM range(9) LIMIT 8)",
        "(SELECT 1) UNION ALL (SELECT 2) UNION ALL SELECT 3 LIMIT 7",
        "SELECT * FROM range(9) -- all",
    ],
)
def test_a_query_returns_no_more_rows_than_its_limit(query: str) -> None:
    text = reading(query, 2).source.text
    assert len(duckdb.sql(text).fetchall()) == 2
