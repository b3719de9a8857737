"""Columns of Spark Connect translated into the expression language, without a session."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.connect import functions as F
from pyspark.sql.connect.column import Column
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.expressions import ColumnReference
from pyspark.sql.connect.plan import Range

import lakevilla as lv
from lakevilla.engines.spark.columns import SessionTerms, Translator, frame_alias, frame_ids
from lakevilla.engines.spark.columns.connect import parts_of, read
from lakevilla.engines.spark.columns.functions import FUNCTIONS
from lakevilla.sql.expressions.bind import bind, exact
from lakevilla.sql.expressions.evaluate import evaluate
from lakevilla.sql.expressions.render import render_sql, shown_sql
from lakevilla.sql.expressions.tree import Expr

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("m", pa.decimal128(38, 2)),
        ("t", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("s", pa.struct([("a.b", pa.int64())])),
    ]
)
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def said(column: Any, zone: str = "UTC") -> str:
    return render_sql(tree(column, zone))


def tree(column: Any, zone: str = "UTC") -> Expr:
    reader = Translator(SCHEMA, SessionTerms(zone), frame_ids([], "none"), NOW)
    return reader.expression(read(column, None))


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (F.col("l") + 1, "l + 1"),
        (F.col("i") + 1, "cast(i + 1 as integer)"),
        (F.col("f") * F.col("f"), "cast(f * f as float)"),
        (F.col("l") == 2.0, "cast(l as double) = 2.0e0"),
        (F.col("l") == 2, "l = 2"),
        (F.col("m") == 1.5, "cast(m as double) = 1.5e0"),
        (F.col("m") == Decimal("1.50"), "m = 1.50"),
        (F.col("t").like("a\\%b"), "t like 'a\\%b' escape '\\'"),
        (F.col("t").like("a%"), "t like 'a%'"),
        (F.col("s")["a.b"] > 0, 's."a.b" > 0'),
        (F.col("`s`.`a.b`") > 0, 's."a.b" > 0'),
        (
            F.col("at") > datetime(2024, 1, 1, tzinfo=UTC),
            "\"at\" > timestamp '2024-01-01 00:00:00Z'",
        ),
        (F.current_timestamp(), "timestamp '2026-01-31 12:00:00Z'"),
        (F.floor("d"), "cast(floor(d) as long)"),
    ],
)
def test_implicit_casts_of_spark_become_explicit_casts(column: Any, text: str) -> None:
    assert said(column) == text


def test_columns_that_depend_on_the_time_zone_are_translated_only_in_utc() -> None:
    for column in (F.year("at"), F.col("at") > "2024-01-01", F.col("at").cast("date")):
        said(column)
        with pytest.raises(lv.InvalidOperation, match="time zone Asia/Tokyo"):
            said(column, "Asia/Tokyo")
    instant = F.col("at") > "2024-01-01 00:00:00+09:00"
    assert "2023-12-31 15" in said(instant, "Asia/Tokyo")


def test_decimal_operations_that_spark_would_round_are_refused() -> None:
    for column in (F.col("m") + F.col("m"), F.col("m") * 2, F.col("m") / 2):
        with pytest.raises(lv.InvalidOperation, match="round"):
            said(column)


def test_column_names_are_parsed_as_by_spark() -> None:
    assert parts_of("a.`b.c`.`d``e`") == ("a", "b.c", "d`e")
    for name in ("a..b", "`a", "`a`b", ""):
        with pytest.raises(lv.InvalidOperation):
            parts_of(name)


def test_a_frame_is_called_by_the_alias_that_its_last_call_gave_it() -> None:
    session: Any = SimpleNamespace(client=None)
    frame = DataFrame(Range(0, 3, 1), session)
    assert frame_alias(frame) is None
    assert frame_alias(frame.alias("s")) == "s"
    assert frame_alias(frame.alias("s").limit(1)) is None


def test_a_column_of_another_frame_than_the_source_is_refused() -> None:
    session: Any = SimpleNamespace(client=None)
    mine, other = (DataFrame(Range(0, 3, 1), session) for _ in range(2))
    whose = frame_ids([(mine, "source")], "the source")
    reader = Translator({"source": SCHEMA, "target": SCHEMA}, SessionTerms(), whose, NOW)

    def column_of(frame: Any, name: str = "l") -> Any:
        return Column(ColumnReference(name, frame._plan._plan_id))

    assert render_sql(reader.expression(read(column_of(mine), None))) == "source.l"
    with pytest.raises(lv.InvalidOperation, match=r"must be of the source itself.*F\.col\('l'\)"):
        reader.expression(read(column_of(other), None))
    with pytest.raises(lv.InvalidOperation, match=r"write F\.col\('s\.`a\.b`'\)"):
        reader.expression(read(column_of(other, "s.`a.b`"), None))


def test_a_chain_of_or_is_translated_up_to_the_length_that_connect_accepts() -> None:
    chain = F.col("l") == 0
    for number in range(1, 40):
        chain = chain | (F.col("l") == number)
    assert said(chain).count(" or ") == 39
    for number in range(3000):
        chain = chain | (F.col("l") == number)
    with pytest.raises(lv.InvalidOperation, match="use isin"):
        said(chain)


def test_the_documentation_lists_all_functions_of_spark_columns() -> None:
    page = (Path(__file__).parents[4] / "docs" / "spark.md").read_text()
    listed = page.partition("and the functions\n")[2].partition(".\n")[0].replace("\n", " ")
    words = {word.strip() for word in listed.split(",")}
    methods = {"in", "like", "ilike", "rlike", "isnull", "isnotnull", "not", "negative",
               "positive", "if"}  # fmt: skip
    assert words == {name for name in FUNCTIONS if name.isidentifier()} - methods


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (F.col("i") / 0, "i / 0"),
        (F.col("i") / 0.5, "i / 0.5"),
        (1 - F.col("i") % F.col("l"), "1 - i % l"),
        ((F.col("i") + 1) * F.col("f"), "(i + 1) * f"),
        (F.col("l") == 2.0, "l = 2"),
        (F.floor("d") > F.col("i"), "floor(d) > i"),
        (F.col("i").cast("long") + 1, "cast(i as long) + 1"),
        (F.when(F.col("i") / 2 > 1, F.col("i") + 1), "case when i / 2 > 1 then i + 1 end"),
    ],
)
def test_a_column_is_shown_without_the_casts_that_types_imply(column: Any, text: str) -> None:
    made = tree(column)
    assert shown_sql(made) == text
    for bound in (exact, bind):
        assert shown_sql(bound(made, SCHEMA, predicate=False)) == text
    assert msgspec.json.decode(msgspec.json.encode(made), type=Expr) == made  # type: ignore[arg-type]


def test_a_division_by_zero_is_told_as_it_was_written() -> None:
    made = bind(tree(F.col("i") / 0), SCHEMA, predicate=False)
    assert evaluate(made, {"i": None}) is None
    with pytest.raises(lv.InvalidOperation, match="division by zero in i / 0: use nullif"):
        evaluate(made, {"i": 1})
