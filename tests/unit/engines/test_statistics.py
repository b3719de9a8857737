"""Statistics bound every value, whether computed from rows or read from a Parquet file."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakevilla.engines.statistics import (
    STRING_PREFIX_LENGTH,
    statistics_of_copy,
    statistics_of_table,
    string_ceiling,
)
from tests.support.search import how_many

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=60)


@given(TEXT)
def test_the_upper_bound_of_a_text_is_short_and_not_smaller_than_the_text(text: str) -> None:
    ceiling = string_ceiling(text)
    short = len(ceiling) <= STRING_PREFIX_LENGTH
    assert short or set(text[:STRING_PREFIX_LENGTH]) == {"\U0010ffff"}
    assert ceiling.encode() >= text.encode()


@pytest.mark.parametrize(
    ("text", "ceiling"),
    [
        ("a" * 32, "a" * 32),
        ("a" * 33, "a" * 31 + "b"),
        ("a" * 31 + "\ud7ff" + "x", "a" * 31 + "\ue000"),
        ("a" * 31 + "\U0010ffff" + "x", "a" * 30 + "b"),
        ("\U0010ffff" * 33, "\U0010ffff" * 33),
    ],
)
def test_upper_bounds_of_texts_with_extreme_code_points_are_correct(
    text: str, ceiling: str
) -> None:
    assert string_ceiling(text) == ceiling


COLUMNS = {
    "i": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "f": (pa.float64(), st.floats()),
    "s": (pa.string(), TEXT),
    "e": (pa.decimal128(20, 4), st.decimals(-(10**12), 10**12, places=4)),
    "d": (pa.date32(), st.dates()),
    "z": (pa.timestamp("us", "UTC"), st.datetimes()),
    "n": (pa.timestamp("us"), st.datetimes()),
    "b": (pa.bool_(), st.booleans()),
}


@settings(deadline=None, max_examples=how_many(10, whole=60))
@given(data=st.data())
def test_statistics_of_rows_and_of_parquet_files_agree_and_bound_all_values(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, 4))
    columns = {}
    for name, (kind, values) in COLUMNS.items():
        drawn = data.draw(st.lists(st.none() | values, min_size=count, max_size=count))
        if name == "z":
            drawn = [v and v.replace(tzinfo=datetime.UTC) for v in drawn]
        columns[name] = pa.array(drawn, kind)
    rows = pa.table({**columns, "st": pa.array([{"x": v} for v in columns["i"].to_pylist()])})
    wanted = [*COLUMNS, "st.x"]
    ours = parsed(statistics_of_table(rows, wanted))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("r", rows)
        path = tmp_path_factory.mktemp("copied") / "rows.parquet"
        found = connection.execute(
            f"COPY (SELECT * FROM r) TO '{path}' (FORMAT parquet, RETURN_STATS)"
        ).fetchone()
    assert found is not None
    theirs = parsed(statistics_of_copy(rows.schema, found[1], found[4], wanted))
    assert theirs["numRecords"] == ours["numRecords"] == count
    assert theirs["nullCount"] == ours["nullCount"]
    for one in (ours, theirs):
        hold(one, rows)
    assert ours["minValues"].keys() == theirs["minValues"].keys()


def parsed(stats: str) -> dict[str, dict[str, object]]:
    return json.loads(stats, parse_float=Decimal)


def hold(stats: dict[str, dict[str, object]], rows: pa.Table) -> None:
    for name, low in stats["minValues"].items():
        values = [v for v in rows.column(name).to_pylist() if v is not None]
        if name == "st":
            values, low = [v["x"] for v in values if v["x"] is not None], low["x"]  # type: ignore[index]
            high = stats["maxValues"]["st"]["x"]  # type: ignore[index]
        else:
            high = stats["maxValues"].get(name)
        shown = [comparable(name, v) for v in values]
        assert all(low <= v for v in shown), (name, low, shown)
        assert high is None or all(v <= high for v in shown), (name, high, shown)
        if name in ("i", "e", "f"):
            assert low in shown
            assert high in shown


def comparable(name: str, value: object) -> object:
    if isinstance(value, datetime.datetime):
        digits = "milliseconds" if value.microsecond % 1000 == 0 else "microseconds"
        return value.replace(tzinfo=None).isoformat(timespec=digits) + ("Z" if name == "z" else "")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float):
        assert not math.isnan(value)
        return Decimal(repr(value))
    return value


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_all_or_none_drops_all_bounds_if_one_column_has_none(value: float) -> None:
    rows = pa.table({"k": [1, 2], "x": [1.0, value], "n": pa.nulls(2, pa.int64())})
    part = parsed(statistics_of_table(rows, ["k", "x", "n"]))
    assert part["minValues"] == {"k": 1}
    whole = parsed(statistics_of_table(rows, ["k", "x", "n"], all_or_none=True))
    assert whole == {"numRecords": 2, "nullCount": {"k": 0, "x": 0, "n": 2}}
    bounded = statistics_of_table(rows.select(["k", "n"]), ["k", "n"], all_or_none=True)
    assert parsed(bounded)["maxValues"] == {"k": 2}


def test_bounds_of_decimals_are_written_without_an_exponent() -> None:
    values = [Decimal("0E-8"), Decimal("0.00000001")]
    rows = pa.table({"d": pa.array(values, pa.decimal128(18, 8))})
    said = statistics_of_table(rows, ["d"])
    assert '"minValues":{"d":0.00000000},"maxValues":{"d":0.00000001}' in said
