"""Spark filters that the data source accepts, and the predicates made of them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark

from lakevilla.api.spark.source.tables import pushed
from lakevilla.sql.expressions.render import render_sql

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.string()),
        ("x", pa.float64()),
        ("n", pa.decimal128(9, 2)),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("ntz", pa.timestamp("us")),
        ("ok", pa.bool_()),
        ("b", pa.binary()),
        ("deep", pa.struct([("a", pa.int64())])),
    ]
)
NOON = datetime(2024, 1, 1, 12)


@pytest.mark.parametrize(
    ("one", "sql"),
    [
        (spark.EqualTo(("id",), 1), "id = 1"),
        (spark.Not(spark.EqualTo(("id",), 1)), "not (id = 1)"),
        (spark.EqualNullSafe(("s",), "a"), "s <=> 'a'"),
        (spark.In(("s",), ("a", "b")), "s in ('a', 'b')"),
        (spark.IsNull(("deep",)), "deep is null"),
        (spark.StringStartsWith(("s",), "a%"), "starts_with(s, 'a%')"),
        (spark.GreaterThan(("n",), Decimal("1.50")), "n > 1.50"),
        (spark.LessThan(("x",), 1.5), "x < 1.5"),
        (spark.LessThanOrEqual(("d",), date(2024, 1, 1)), "d <= date '2024-01-01'"),
        (spark.EqualTo(("ok",), True), "ok = true"),
    ],
)
def test_an_accepted_spark_filter_becomes_the_same_predicate(one: Any, sql: str) -> None:
    from lakevilla.sql.expressions.bind import bind
    from lakevilla.sql.expressions.parse import parse_predicate

    where, left = pushed([one], SCHEMA)
    assert left == []
    assert where == bind(parse_predicate(sql), SCHEMA), where and render_sql(where)


@pytest.mark.parametrize(
    "one",
    [
        spark.EqualTo(("deep", "a"), 1),
        spark.EqualTo(("nope",), 1),
        spark.EqualTo(("x",), float("nan")),
        spark.EqualTo(("id",), "1"),
        spark.EqualTo(("id",), True),
        spark.EqualTo(("b",), b"x"),
        spark.EqualTo(("d",), NOON),
        spark.EqualTo(("ts",), NOON),
        spark.EqualTo(("ntz",), NOON.replace(tzinfo=UTC)),
        spark.In(("s",), ("a", None)),
        spark.EqualNullSafe(("s",), None),
        spark.Not(spark.EqualTo(("s",), 1)),
    ],
)
def test_an_unsupported_filter_is_left_to_spark(one: Any) -> None:
    assert pushed([one], SCHEMA) == (None, [one])


def test_accepted_filters_are_joined_by_and() -> None:
    one, other = spark.EqualTo(("id",), 1), spark.IsNotNull(("s",))
    mine = spark.EqualTo(("b",), b"x")
    where, left = pushed([one, mine, other], SCHEMA)
    assert left == [mine]
    assert where is not None
    assert render_sql(where).count("and") == 1
