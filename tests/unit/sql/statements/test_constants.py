"""A long INSERT of constants is cut by a pattern; anything else is read as a statement."""

from __future__ import annotations

import pytest

from lakevilla.sql.statements.dml import constants_of, is_of_constants

ROWS = ", ".join(f"({k}, 'it''s {k}', {k}.5, NULL, DATE '2024-01-01', true)" for k in range(200))
HEADS = [
    "INSERT INTO t ",
    "  insert into sales.orders(k, name, price, x, day, paid)\n",
    'INSERT INTO "my table" ("k", name, price, x, day, paid) ',
]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("end", ["", ";", " ;\n"])
def test_the_rows_of_a_long_insert_of_constants_are_cut_off(head: str, end: str) -> None:
    found = constants_of(f"{head}VALUES {ROWS}{end}", "v")
    assert found == (f"{head} SELECT * FROM v", f"VALUES {ROWS}{end}")


@pytest.mark.parametrize(
    "row",
    [
        "(f(1))",
        "(:x)",
        "(?)",
        "(now())",
        "(1 + 1)",
        "(SELECT 1)",
        "(E'a')",
        "(x'61')",
        "($$a$$)",
        "(DEFAULT)",
        "('a' 'b')",
        "(1) UNION ALL SELECT 2",
        "(1) RETURNING *",
        "(1); DROP TABLE t",
        "(1), ",
        "(1, )",
        "()",
        "('a)",
        "(1) -- one",
        "(/* one */ 1)",
        "(INTERVAL '1' DAY)",
        "(CURRENT_DATE)",
        '("a")',
        "(1_000)",
        "(0x1F)",
        "(- 1)",
    ],
)
def test_a_text_with_anything_but_constants_is_read_as_a_statement(row: str) -> None:
    assert not is_of_constants(f"VALUES (1), {row}")
    assert constants_of(f"INSERT INTO t VALUES {ROWS}, {row}", "v") is None


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OR REPLACE INTO t VALUES {}",
        "INSERT INTO t BY NAME VALUES {}",
        "INSERT OVERWRITE t VALUES {}",
        "INSERT INTO t REPLACE WHERE k = 1 VALUES {}",
        "INSERT INTO t PARTITION (k = 1) VALUES {}",
        "INSERT INTO t (VALUES {})",
        "WITH a AS (SELECT 1) INSERT INTO t VALUES {}",
        "BEGIN; INSERT INTO t VALUES {}",
        "VALUES {}",
    ],
)
def test_other_statements_keep_their_rows(statement: str) -> None:
    assert constants_of(statement.format(ROWS), "v") is None


def test_a_short_insert_is_read_as_a_statement() -> None:
    assert constants_of("INSERT INTO t VALUES (1)", "v") is None


def test_time_grows_with_the_text_when_its_end_is_no_constant() -> None:
    text = "VALUES " + ", ".join(["('" + "''" * 2000 + "', 1e5, 1.)"] * 200) + ", (f(1))"
    assert not is_of_constants(text)
