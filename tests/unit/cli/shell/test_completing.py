"""Completions at the cursor, which the texts below show as ``|``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import duckdb
import pytest

from lakevilla.cli.shell.completing import RESERVED, NamedColumn, Suggestion, suggestions


class Lake:
    """A stub of a lake with a few names."""

    _columns: ClassVar[dict[str, list[str]]] = {
        "stock": ["sku", "qty"],
        "sales/orders": ["id", "sku", "order"],
        "sales/items": ["item", "price"],
        "Odd Name": ["a b"],
    }

    def tables(self, prefix: str) -> Sequence[str]:
        return [name for name in self._columns if name.lower().startswith(prefix.lower())]

    def columns(self, table: str) -> Sequence[NamedColumn]:
        return [NamedColumn(name, "int64") for name in self._columns.get(table, ())]

    def refs(self) -> Sequence[str]:
        return ["main", "etl", "closing-2026"]

    def files(self, prefix: str) -> Sequence[str]:
        return []


def offered(text: str) -> list[Suggestion]:
    before, _, after = text.partition("|")
    return suggestions(before, after, Lake())


def texts(text: str, kind: str | None = None) -> list[str]:
    return [one.text for one in offered(text) if kind in (None, one.kind)]


TABLES = ["stock", "sales.orders", "sales.items", '"Odd Name"']


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM |",
        "select * from |",
        "SELECT * FROM stock, |",
        "SELECT * FROM stock s JOIN |",
        "INSERT INTO |",
        "UPDATE |",
        "DELETE FROM |",
        "MERGE INTO stock USING |",
        "DESCRIBE |",
        "OPTIMIZE |",
        "DROP TABLE IF EXISTS |",
        "SELECT 1; SELECT * FROM |",
        "SELECT (SELECT max(id) FROM |)",
        "-- what is there\nSELECT * FROM |",
        "SELECT 'it''s from ' FROM |",
    ],
)
def test_tables_are_offered_after_from_and_similar_keywords(text: str) -> None:
    assert texts(text, "table") == TABLES


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM sa|", ["sales.orders", "sales.items"]),
        ("SELECT * FROM SA|", ["sales.orders", "sales.items"]),
        ("SELECT * FROM sales.|", ["orders", "items"]),
        ("SELECT * FROM sales.o|", ["orders"]),
        ('SELECT * FROM "o|', ['"Odd Name"']),
        ("WITH recent AS (SELECT 1) SELECT * FROM rec|", ["recent"]),
    ],
)
def test_tables_are_offered_by_the_letters_typed_so_far(text: str, expected: list[str]) -> None:
    assert texts(text, "table") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT | FROM stock", ["sku", "qty"]),
        ("SELECT sku, | FROM stock", ["sku", "qty"]),
        ("SELECT * FROM stock WHERE |", ["sku", "qty"]),
        ("SELECT * FROM stock WHERE qty > 1 AND q|", ["qty"]),
        ("SELECT count(|) FROM stock", ["sku", "qty"]),
        ("UPDATE stock SET |", ["sku", "qty"]),
        ("UPDATE stock SET qty = |", ["sku", "qty"]),
        ("INSERT INTO stock (|", ["sku", "qty"]),
        ("DELETE FROM stock WHERE s|", ["sku"]),
        (
            "SELECT o.| FROM stock s JOIN sales.orders AS o ON s.sku = o.sku",
            ["id", "sku", '"order"'],
        ),
        ("SELECT * FROM sales.orders o JOIN sales.items i ON o.id = i.i|", ["item"]),
        ("SELECT orders.| FROM sales.orders", ["id", "sku", '"order"']),
        ("SELECT sales.orders.s| FROM sales.orders", ["sku"]),
        ("SELECT o.| FROM stock, sales.orders o, sales.items", ["id", "sku", '"order"']),
        ("MERGE INTO stock t USING sales.items s ON t.sku = s.|", ["item", "price"]),
        ('SELECT x."a| FROM "Odd Name" x', ['"a b"']),
        ("SELECT nobody.| FROM stock", []),
    ],
)
def test_columns_are_offered_from_the_tables_that_the_statement_names(
    text: str, expected: list[str]
) -> None:
    assert texts(text, "column") == expected


def test_an_offered_column_shows_its_type_and_among_several_tables_its_table() -> None:
    (column,) = [one for one in offered("SELECT q| FROM stock") if one.kind == "column"]
    assert (column.about, column.back) == ("int64", 1)
    (column,) = [
        one for one in offered("SELECT q| FROM stock a, sales.items") if one.kind == "column"
    ]
    assert column.about == "a: int64"


@pytest.mark.parametrize(
    "text",
    ["SELECT 'fro|", "SELECT 1 -- fro|", "SELECT /* fro|", "SELECT $$ fro|", "SELECT 'it''s |"],
)
def test_no_completion_is_offered_inside_a_string_or_a_comment(text: str) -> None:
    assert offered(text) == []


def test_completed_keywords_follow_the_case_of_the_typed_letters() -> None:
    assert texts("sel|") == ["select"]
    assert texts("SEL|") == ["SELECT"]
    assert "GROUP BY" in texts("SELECT sku FROM stock GR|")
    assert texts("SELECT 1; comm|") == ["comment on", "commit"]


def test_branches_and_tags_are_offered_after_drop_branch_and_merge_branch() -> None:
    assert texts("DROP BRANCH |") == ["main", "etl", '"closing-2026"']
    assert texts("MERGE BRANCH e|") == ["etl"]


def test_keywords_and_no_tables_are_offered_after_a_complete_table_name() -> None:
    assert texts("SELECT * FROM stock |", "table") == []
    assert "WHERE" in texts("SELECT * FROM stock |")


def test_half_typed_statements_are_completed_without_an_error() -> None:
    whole = """WITH a AS (SELECT 'x''y', "q" FROM t1) SELECT a.*, $x$ ; $x$ /* c */ FROM a -- end
        JOIN sales.orders o ON o."id" = 1e5; UPDATE stock SET qty = (SELECT 1), b = :p"""
    for end in range(len(whole) + 1):
        suggestions(whole[:end], whole[end:], Lake())
        suggestions(whole[:end], "", Lake())


def test_the_list_of_reserved_words_equals_that_of_duckdb() -> None:
    query = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'"
    assert {name for (name,) in duckdb.sql(query).fetchall()} == RESERVED
