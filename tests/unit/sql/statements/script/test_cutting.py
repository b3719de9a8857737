"""Scripts split into statements, and statements that are still being typed."""

from __future__ import annotations

import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.sql.statements.script.cutting import is_complete, script_tokens, statements_of
from lakevilla.sql.statements.select import Dialect

DIALECTS: list[Dialect] = ["duckdb", "spark"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_script_is_split_at_semicolons_outside_of_quotes_and_comments(dialect: Dialect) -> None:
    text = "SELECT 'a;b' ; -- no; cut\n\n/* nor; here */ SHOW TABLES;;\nEXPLAIN SELECT ';'"
    found = statements_of(text, dialect)
    assert [(one.text, one.line) for one in found] == [
        ("SELECT 'a;b'", 1),
        ("SHOW TABLES", 3),
        ("EXPLAIN SELECT ';'", 4),
    ]


def test_a_semicolon_in_a_dollar_quoted_text_does_not_split_a_script_for_duckdb() -> None:
    assert [one.text for one in statements_of("SELECT $$a;b$$; SELECT 2")] == [
        "SELECT $$a;b$$",
        "SELECT 2",
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_begin_atomic_block_is_one_statement_with_inner_statements(dialect: Dialect) -> None:
    text = """SELECT 1;
    BEGIN ATOMIC
        UPDATE t SET a = CASE WHEN a > 1 THEN 1 ELSE 2 END;
        DELETE FROM t WHERE a = 2;
    END;
    SELECT 2"""
    _, block, after = statements_of(text, dialect)
    assert block.line == 2
    assert (block.text[:12], block.text[-3:]) == ("BEGIN ATOMIC", "END")
    assert [(one.text[:6], one.line) for one in block.inner] == [("UPDATE", 3), ("DELETE", 4)]
    assert (after.text, after.line) == ("SELECT 2", 6)


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", False),
        ("  -- nothing yet", False),
        (";", False),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- done", True),
        ("SELECT 1; SELECT", False),
        ("SELECT 'a;", False),
        ('SELECT "a;', False),
        ("SELECT 1 /* ;", False),
        ("BEGIN;", True),
        ("BEGIN ATOMIC INSERT INTO t VALUES (1);", False),
        ("BEGIN ATOMIC INSERT INTO t VALUES (1); END", False),
        ("BEGIN ATOMIC INSERT INTO t VALUES (1); END;", True),
        ("BEGIN ATOMIC END nonsense;", True),  # no further line can complete it
    ],
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_statement_being_typed_is_complete_after_its_last_semicolon(
    text: str, complete: bool, dialect: Dialect
) -> None:
    assert is_complete(text, dialect) is complete


@pytest.mark.parametrize("text", ["BEGIN ATOMIC DELETE FROM t;", "SELECT 'a", "/* a"])
def test_incomplete_statements_raise_invalid_operation(text: str) -> None:
    with pytest.raises(InvalidOperation) as caught:
        script_tokens(text, "duckdb")
        statements_of(text)
    assert caught.type is InvalidOperation


def test_a_block_without_end_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidOperation, match="BEGIN ATOMIC on line 2 has no END"):
        statements_of("SELECT 1;\nBEGIN ATOMIC DELETE FROM t;")
