"""The functions of DuckDB that may return another value when they are called again."""

from __future__ import annotations

from datetime import datetime

import duckdb
import pytest

from lakevilla.sql.statements.determinism import (
    FIXED_FUNCTIONS,
    VOLATILE_FUNCTIONS,
    with_fixed_time,
)


def test_all_volatile_functions_of_duckdb_are_listed() -> None:
    unstable = {
        name
        for (name,) in duckdb.sql(
            "select distinct function_name from duckdb_functions() "
            "where stability in ('VOLATILE', 'CONSISTENT_WITHIN_QUERY') "
            "and not list_has_any(parameter_types, ['TIMESTAMP WITH TIME ZONE', 'TIMESTAMPTZ_NS'])"
        ).fetchall()
    }
    # `error` raises the same each time. A function that takes or makes a time with a zone depends
    # only on the session's zone, which is UTC and locked; `age` of one argument is refused
    # elsewhere.
    assert (
        unstable - {"error", "make_timestamptz", "timezone"}
        <= VOLATILE_FUNCTIONS | FIXED_FUNCTIONS.keys()
    )


@pytest.mark.parametrize(
    ("query", "fixed"),
    [
        ("SELECT now()", 'SELECT {at} AS "now()"'),
        ("SELECT NOW ( ), 1", 'SELECT {at} AS "now()", 1'),
        ("SELECT 1, current_date FROM t", 'SELECT 1, {day} AS "current_date" FROM t'),
        ("SELECT DISTINCT today() UNION SELECT d FROM t", '{day} AS "today()" UNION'),
        ("SELECT * FROM (SELECT now())", 'FROM (SELECT {at} AS "now()")'),
        ("SELECT now() AS at", "SELECT {at} AS at"),
        ("SELECT now() AS current_timestamp", "SELECT {at} AS current_timestamp"),
        ("SELECT now() at", "SELECT {at} at"),
        ("SELECT now()::DATE", "SELECT {at}::DATE"),
        ("SELECT 1 + now()", "SELECT 1 + {at}"),
        ("SELECT greatest(a, now(), b) FROM t", "greatest(a, {at}, b)"),
        ("SELECT [a, now()] FROM t", "[a, {at}]"),
        ("SELECT a FROM t WHERE at < now() ORDER BY a, now()", "at < {at} ORDER BY a, {at}"),
        ("SELECT a FROM t GROUP BY a, now()", "GROUP BY a, {at}"),
        ("VALUES (now(), 1)", "VALUES ({at}, 1)"),
    ],
)
def test_a_column_of_the_present_time_keeps_its_name_when_the_time_is_fixed(
    query: str, fixed: str
) -> None:
    at, day = "TIMESTAMPTZ '2024-02-29 12:00:00.000000+00'", "DATE '2024-02-29'"
    assert fixed.format(at=at, day=day) in with_fixed_time(query, datetime(2024, 2, 29, 12))


def test_fixing_the_time_quotes_column_names_as_spark_does() -> None:
    fixed = with_fixed_time("SELECT current_date()", datetime(2024, 2, 29), "spark")
    assert fixed == "SELECT DATE '2024-02-29' AS `current_date()`"
