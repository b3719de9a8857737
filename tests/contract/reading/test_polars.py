"""Tables as polars frames: a lazy frame reads what it needs, and filters as polars does."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Literal
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import lakevilla as lv
from lakevilla.sql.expressions.tree import Expr
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.search import how_many

NAN, INF = float("nan"), float("inf")
UTC = dt.UTC
SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("n", pa.int32()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("s", pa.string()),
        ("y", pa.binary()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("l", pa.timestamp("us")),
        ("m", pa.decimal128(10, 2)),
        ('a "quoted" name', pa.int64()),
    ]
)


def at(day: int, microsecond: int = 0) -> dt.datetime:
    return dt.datetime(2024, 1, day, 23, 30, 0, microsecond)


def row(k: int, f: float | None) -> dict[str, Any]:
    aware = at(k, k).replace(tzinfo=UTC)
    values = (
        k, k - 3, f, None if f is None else f / 10, f"é{k}'", bytes([k, 255]), k % 2 == 0,
        at(k).date(), aware, at(k, k), Decimal(k) / 4, k * 10,
    )  # fmt: skip
    return dict(zip(SCHEMA.names, values, strict=True))


#: One file each: numbers, NaN and infinities, NULLs, zeros.
FILES = [
    [row(1, 1.0), row(2, 2.5)],
    [row(3, NAN), row(4, INF)],
    [row(5, NAN), row(6, -INF)],
    [dict.fromkeys(SCHEMA.names)],
    [row(7, -0.0), row(8, 0.0), row(9, None)],
    [row(10, 9.75), dict.fromkeys(SCHEMA.names), row(11, 1.1)],
]
c = pl.col
PREDICATES = [
    c.i == 2, c.i != 2, c.i > 4, pl.lit(4) < c.i, c.i >= c.n,
    c.i.is_between(2, 5, closed="left"), c.n > 2**40,
    c.n <= 5.5, c.i.is_in([1, 7]), ~c.i.is_in([1, 7]), c.i.is_in([1, None]),
    ~c.i.is_in([1, None]), c.i.is_in([]), c.i.is_in([1, 7], nulls_equal=True),
    ~c.i.is_in([1, 7], nulls_equal=True), ~c.s.is_in(["é1'", None], nulls_equal=True),
    c.i.eq_missing(3), c.i.ne_missing(3), c.i.is_null(),
    c.i.is_not_null(), (c.i < 3) | (c.n > 5), ~((c.i < 3) | (c.n > 5)), (c.i > 3) ^ c.b,
    c.f == NAN, c.f != NAN, c.f > 5, c.f < 5, ~(c.f > 5), ~(c.f <= 5), c.f >= INF, c.f == 0.0,
    c.f == -0.0, c.f.is_nan(), c.f.is_not_nan(), ~c.f.is_nan(), c.f.is_in([NAN, 1.0]),
    c.f.is_between(1, 3), c.f.is_finite(), c.g == 0.11, c.g == pl.lit(0.11, pl.Float32),
    c.g > pl.lit(0.25, pl.Float32), c.s == "é3'", c.s > "é5", c.s.is_in(["é1'", "x"]),
    c.s.str.starts_with("é1"), c.s.str.contains("1"), c.y == b"\x03\xff",
    c.b, ~c.b, c.b & (c.i > 2), c.b == False, c.d > dt.date(2024, 1, 5),  # noqa: E712
    c.d.is_in([dt.date(2024, 1, 2), dt.date(2024, 1, 9)]), c.d > at(5), c.m == Decimal("0.75"),
    c.m > 1, c.m.is_between(Decimal("0.5"), 2), c.t == at(3, 3).replace(tzinfo=UTC),
    c.t < at(5).replace(tzinfo=UTC),
    c.t.dt.convert_time_zone("America/New_York")
    < at(5).replace(tzinfo=ZoneInfo("America/New_York")),
    c.t.is_in([at(3, 3).replace(tzinfo=UTC)]), c.l >= at(5), c.l.is_between(at(2), at(7)),
    c.l == pl.lit(1).cast(pl.Datetime("ns")), c("a \"quoted\" name") >= 70, pl.lit(True),
    pl.lit(False), c.i % 2 == 1, c.i + 1 > 3, (c.i > 1) & (c.f.is_finite() | c.s.is_null()),
]  # fmt: skip


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, local_place: Place) -> Iterator[lv.Lake]:
    kind: Literal["delta", "iceberg"] = request.param
    with local_place.connect() as lake:
        lake.create_table("t", SCHEMA, format=kind)
        for rows in FILES:
            with lake.transaction() as txn:
                txn.append("t", pa.Table.from_pylist(rows, SCHEMA))
        yield lake


def test_a_lazy_frames_filter_gives_the_same_rows_as_polars_own(lake: lv.Lake) -> None:
    table = lake.table("t")
    whole, lazy = table.to_polars(), table.to_polars(lazy=True)
    assert whole.height == 13
    assert lazy.collect_schema() == whole.schema
    for predicate in PREDICATES[:: how_many(4, whole=1)]:
        expected = whole.filter(predicate)
        assert_frame_equal(lazy.filter(predicate).collect(), expected, check_row_order=False)
        found = lazy.filter(predicate).select("s", "i").collect()
        assert_frame_equal(found, expected.select("s", "i"), check_row_order=False)
        if str(predicate) != "null":
            found = lazy.filter(predicate, c.i > 0).select(pl.len()).collect()
            assert found.item() == expected.filter(c.i > 0).height


@pytest.mark.parametrize(
    ("predicate", "where"),
    [
        (c.i == 2, "i = 2"),
        ((c.i < 2) | (c.s == "é4'"), "i < 2 OR s = 'é4'''"),
        ((c.i % 2 == 1) & (c.d > dt.date(2024, 1, 8)), "d > date '2024-01-08'"),
        (c.f > 100, "f > 100"),  # NaN is greater than every number, and statistics leave it out
        (c.t < at(3).replace(tzinfo=UTC), "t < timestamp '2024-01-03 23:30:00Z'"),
        (c.i.is_null() & c.s.is_null(), "i IS NULL AND s IS NULL"),
        (c.s.str.starts_with("é7"), "starts_with(s, 'é7')"),
    ],
)
def test_a_lazy_frame_skips_files_without_a_row_for_its_filter(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch, predicate: pl.Expr, where: str
) -> None:
    read: list[int] = []
    engine = inside(lake).engine
    scan = engine.scan

    def counted(table: Any, columns: Any, where: Expr | None) -> Any:
        read.append(table.files.num_rows)
        return scan(table, columns, where)

    monkeypatch.setattr(engine, "scan", counted)
    table = lake.table("t")
    assert table.to_polars(lazy=True).filter(predicate).collect().height > 0
    assert table.read(where=where).num_rows > 0
    of_polars, of_ours = read
    assert of_polars == of_ours < len(FILES)


def test_a_lazy_frame_reads_only_the_columns_of_its_query(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []
    engine = inside(lake).engine
    scan = engine.scan

    def noted(table: Any, columns: Any, where: Expr | None) -> Any:
        read.append(columns)
        return scan(table, columns, where)

    monkeypatch.setattr(engine, "scan", noted)
    frame = lake.table("t").to_polars(lazy=True)
    assert frame.select("n", "b").head(2).collect().shape == (2, 2)
    assert frame.select(pl.len()).collect().item() == 13
    assert len(read[0]) == 2
    assert len(read[1]) == 1
    given = lake.table("t").to_polars(["s", "i"], where="i < :n", params={"n": 3}, lazy=True)
    assert given.filter(c.i > 1).collect().rows() == [("é2'", 2)]


def test_a_lazy_frame_shows_the_tables_state_at_its_creation(lake: lv.Lake) -> None:
    frame = lake.table("t").to_polars(lazy=True)
    with lake.transaction() as txn:
        txn.delete("t", "true")
        txn.alter("t", add_columns={"new": "long"})
    assert lake.table("t").to_polars().height == 0
    assert "new" not in frame.collect_schema()
    joined = frame.join(frame, on="i").collect()  # two threads read the frame at once
    assert joined.height == 11
    assert frame.collect(engine="streaming").height == 13


def test_mistakes_in_to_polars_are_reported_before_the_frame_is_collected(lake: lv.Lake) -> None:
    table = lake.table("t")
    for given in ({"columns": ["gone"]}, {"where": "gone > 1"}, {"where": "i"}, {"lazy": 1}):
        with pytest.raises(lv.InvalidOperation):
            table.to_polars(**{"lazy": True, **given})
