"""Timestamps without a zone, in a Spark session whose time zone is not UTC."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.parse import parse_expression
from lakevilla.sql.statements.meaning.zones import refuse_other_zone

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
        ("d", pa.date32()),
        ("s", pa.string()),
        ("id", pa.int64()),
    ]
)


def check(text: str) -> None:
    refuse_other_zone("America/Los_Angeles", [parse_expression(text)], [], SCHEMA)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ts < TIMESTAMP '2024-01-01 05:00:00'", "timestamp '2024-01-01 05:00:00'"),
        ("ts IN (TIMESTAMP '2024-01-01 05:00:00Z', TIMESTAMP '2024-01-01 05:00:00')", "05:00:00'"),
        ("ts >= '2024-01-01'", "'2024-01-01' with a timestamp"),
        ("ts BETWEEN '2024-01-01 00:00:00Z' AND '2024-02-01'", "with a timestamp"),
        ("ts < DATE '2024-01-01'", "date '2024-01-01' with a timestamp"),
        ("coalesce(ts, '2024-01-01') IS NULL", "with a timestamp"),
        ("id = 1 OR ts < d", "d with a timestamp"),
        ("CAST(ts AS DATE) = d", "a cast of timestamp to date"),
        ("CAST(s AS TIMESTAMP) = ts", "a cast of string to timestamp"),
        ("hour(ts) = 3", r"hour\(\) of a timestamp"),
        ("date_trunc('day', ts) = ts", r"date_trunc\(\) of a timestamp"),
        ("ts - INTERVAL 1 DAY < ts", "an interval of days"),
        ("CASE WHEN id = 1 THEN ts ELSE '2024-01-01' END = ts", "with a timestamp"),
    ],
)
def test_expressions_that_mean_another_timestamp_in_the_session_zone_are_refused(
    text: str, named: str
) -> None:
    with pytest.raises(InvalidOperation, match=named) as refused:
        check(text)
    assert "time zone America/Los_Angeles" in refused.value.message
    assert "write the zone into a constant" in refused.value.message


@pytest.mark.parametrize(
    "text",
    [
        "ts < TIMESTAMP '2024-01-01 05:00:00-08:00'",
        "ts IN ('2024-01-01 05:00:00Z', NULL)",
        "ts IS NULL OR coalesce(ts, TIMESTAMP '2024-01-01 05:00:00Z') = ts",
        "ts - INTERVAL 2 HOUR < ts",
        "n < TIMESTAMP '2024-01-01 05:00:00'",
        "n >= '2024-01-01' AND hour(n) = 3 AND d < DATE '2024-01-01'",
        "CAST(n AS DATE) = d AND s = '2024-01-01'",
    ],
)
def test_expressions_with_the_same_meaning_in_all_zones_are_accepted(
    text: str,
) -> None:
    check(text)
