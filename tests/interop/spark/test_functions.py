"""Compute functions by Spark in the documented spelling: the results are the reference
evaluator's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tests.support.function_cases import ALL, RAISED, Said, same

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",  # as the expression language writes it
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parser.escapedStringLiterals": "true",  # a backslash escapes nothing
}


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    before = {key: spark.conf.get(key) for key in SETTINGS}
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    yield spark
    for key, value in before.items():
        spark.conf.set(key, str(value))


def spelled(one: Said) -> str:
    return one.spark or re.sub(r"cast\((\w+) as timestamp_ntz\)", r"\1", one.sql)


@pytest.mark.parametrize("name", [name for name in ALL if name != "odd json"])
@pytest.mark.seam
def test_spark_returns_the_values_of_the_reference_evaluator(
    session: SparkSession, name: str
) -> None:
    cases = ALL[name]
    expected = {one: cases.expected(one) for one in cases.said if one.spark is not None}
    whole = [one for one, values in expected.items() if RAISED not in values]
    wrong = differing(session, name, whole, list(range(len(cases.rows))), expected)
    for one in expected.keys() - set(whole):
        fine = [at for at, value in enumerate(expected[one]) if value is not RAISED]
        wrong += differing(session, name, [one], fine, expected)
    assert wrong == []


def differing(
    session: SparkSession,
    name: str,
    said: list[Said],
    rows: list[int],
    expected: dict[Said, list[Any]],
) -> list[tuple[Any, ...]]:
    cases = ALL[name]
    table = cases.table.take(rows)
    frame = session.createDataFrame(table, from_arrow_schema(cases.schema, True))
    found = frame.selectExpr(*(f"{spelled(one)} as r{at}" for at, one in enumerate(said)))
    computed = found.toArrow()
    wrong: list[tuple[Any, ...]] = []
    for at, one in enumerate(said):
        values = plain(computed.column(at)).to_pylist()
        wrong += [
            (one.sql, cases.rows[row], expected[one][row], value)
            for row, value in zip(rows, values, strict=True)
            if not same(expected[one][row], value, one.places)
        ]
    return wrong


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return column.cast(pa.timestamp("us", "UTC"))
    return column
