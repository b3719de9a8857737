"""Of which tables the WHERE of a query leaves out rows, and what the query calls them."""

from __future__ import annotations

import pytest

from lakevilla.sql.statements.conditions import conditions_of


def filtered(text: str) -> dict[str, str]:
    """The paths of tables that a condition on them leaves out rows of, by what they are called."""
    known = conditions_of(text, "duckdb")
    tables = () if known is None else known.tables
    return {table.called: table.path for table in tables if table.is_filtered}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM a.b WHERE id = 1", {"b": "a/b"}),
        ('SELECT * FROM "a/b" WHERE id = 1', {"a/b": "a/b"}),
        ('SELECT * FROM t AS "x/y", u WHERE id = 1', {"x/y": "t", "u": "u"}),
        ("SELECT * FROM u LEFT JOIN t USING (id) JOIN v USING (id) WHERE k", {"u": "u", "v": "v"}),
    ],
)
def test_tables_have_the_names_that_the_query_gives_them(
    text: str, expected: dict[str, str]
) -> None:
    assert filtered(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        'SELECT * FROM a.b JOIN "a/b" AS x ON b.id = x.id + 1 WHERE b.id = 5 AND x.id = 4',
        'SELECT * FROM a.b WHERE id = 5 AND id < (SELECT max(id) FROM "a/b")',
        'SELECT (SELECT max(id) FROM A.b) FROM "a/b" WHERE id = 5',
    ],
)
def test_a_table_that_is_named_in_two_ways_is_read_whole(text: str) -> None:
    assert not filtered(text)
