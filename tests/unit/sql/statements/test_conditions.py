"""The tables of a query whose rows its WHERE restricts, and their names in the query."""

from __future__ import annotations

import pytest

from lakevilla.sql.statements.conditions import conditions_of


def filtered(text: str) -> dict[str, str]:
    """Return the paths of tables that a condition restricts, by their names in the query."""
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
def test_restricted_tables_have_the_names_that_the_query_gives_them(
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
def test_a_table_that_a_query_names_twice_is_read_whole(text: str) -> None:
    assert not filtered(text)
