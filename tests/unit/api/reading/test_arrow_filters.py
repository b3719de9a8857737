"""Arrow filters translated into predicates: the part that can be translated keeps its meaning."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from lakevilla.api.reading.arrow_filters import columns_of, translated
from lakevilla.sql.expressions.render import render_sql

SCHEMA = pa.schema(
    [
        ("s", pa.string()),
        ("t", pa.timestamp("us", "UTC")),
        ("d", pa.date32()),
        ("i", pa.int64()),
        ("b", pa.bool_()),
        ("m", pa.decimal128(10, 2)),
        ("f", pa.float64()),
    ]
)
f = ds.field
AT = pa.scalar(dt.datetime(2024, 1, 5, tzinfo=dt.UTC))


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (f("i") > 5, "i > 5"),
        ((f("s") >= "a'") & (f("s") < "b"), "s >= 'a''' and s < 'b'"),
        ((f("i") == 1) | ~f("b"), "i = 1 or not (b)"),
        (f("t") <= AT, "t <= timestamp '2024-01-05 00:00:00Z'"),
        (f("m") != Decimal("1.50"), "m <> cast('1.50' as decimal(10,2))"),
        (f("d").isin([dt.date(2024, 1, 8)]), "d in (date '2024-01-08') and d is not null"),
        (f("i").is_null() & f("s").is_valid(), "i is null and s is not null"),
        # An untranslated conjunct is dropped; an untranslated disjunct drops the whole disjunction.
        ((f("i") > 5) & (f("f") > 1.5), "i > 5"),
        ((f("i") > 5) | (f("f") > 1.5), None),
        ((f("i") > 5) & (f("i") + 1 > f("i")), "i > 5"),
        (f("st", "x") > 5, None),
        (f("i").is_null(nan_is_null=True), None),
        (f("i").isin(pa.array([1, None])), None),
        (f("gone") > 5, None),
        (f("s") > 5, None),
        (f("i").cast(pa.int64()) > 5, None),
    ],
)
def test_an_arrow_filter_becomes_an_equivalent_or_weaker_predicate(
    filter: Any, expected: str | None
) -> None:
    found = translated(filter, SCHEMA)
    assert (None if found is None else render_sql(found)) == expected


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (f("i") > 5, ["i"]),
        ((f("f") > 1.5) | f("s").is_null() | (f("s") == "i"), ["s", "f"]),
        (f("st", "x") > 5, ["st"]),
        (f("st", "i") > f("d"), ["d", "i", "st"]),  # more than the filter reads
        (ds.scalar(True), []),
        # a column by its place is a part that is not known
        (ds.field(("st",)) & ds.field(0), ["s", "t", "d", "i", "b", "m", "f", "st"]),
    ],
)
def test_the_columns_of_an_arrow_filter(filter: Any, expected: list[str]) -> None:
    schema = SCHEMA.append(pa.field("st", pa.struct([("x", pa.int64()), ("i", pa.date32())])))
    assert columns_of(filter, schema) == expected
