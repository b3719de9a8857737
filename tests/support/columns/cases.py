"""Rows with edge values of every type, and Columns over them: of a classic session or of Connect.

``written`` has expressions as users write them, ``drawn`` nests these deeper than users do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("y", pa.int8()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("m", pa.decimal128(7, 2)),
        ("w", pa.decimal128(20, 4)),
        ("t", pa.string()),
        ("u", pa.string()),
        ("b", pa.bool_()),
        ("x", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("ntz", pa.timestamp("us")),
        ("s", pa.struct([("a", pa.int32()), ("in", pa.struct([("t", pa.string())]))])),
        ("k", pa.map_(pa.string(), pa.int64())),
        ("arr", pa.list_(pa.int64())),
    ]
)

_NARROW = float(pa.scalar(0.1, pa.float32()).as_py())
_EDGES: dict[str, Sequence[Any]] = {
    "y": [None, 0, 1, -1, 7, 127, -128],
    "i": [None, 0, 1, -1, 3, 100, 2**31 - 1, -(2**31)],
    "l": [None, 0, 1, -1, 5, 2**53 + 1, 2**63 - 1, -(2**63)],
    "f": [None, 0.0, -0.0, 1.0, -2.5, _NARROW, 16777216.0, math.inf, math.nan],
    "d": [None, 0.0, -0.0, 1.0, -1.5, 0.1, 2.0**53, 1e300, -math.inf, math.nan],
    "m": [Decimal(v) if v else None for v in (None, "0.00", "1.00", "-1.25", "0.10", "99999.99")],
    "w": [Decimal(v) if v else None
          for v in (None, "0.0000", "1.0000", "0.1000", "9999999999999999.9999", "-3.5000")],
    "t": [None, "", "a", "A", "ab%c", "a_b", "1", " x ", "2024-02-29", "é\u00e9", "a\\b", "true"],
    "u": [None, "", "a", "b", "B", "%", "x", "-12", "2024-01-01", "ab", ",", "Straße"],
    "b": [None, True, False],
    "x": [None, b"", b"a", b"\xff\x00", b"ab"],
    "day": [None, date(2024, 2, 29), date(1970, 1, 1), date(1999, 12, 31), date(2024, 1, 31)],
    "at": [None, datetime(2024, 2, 29, 23, 30, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC),
           datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
           datetime(2024, 7, 1, 5, 0, 1, 5, tzinfo=UTC)],
    "ntz": [None, datetime(2024, 2, 29, 23, 30), datetime(1970, 1, 1)],
    "s": [None, {"a": 1, "in": {"t": "a"}}, {"a": None, "in": None}, {"a": -5, "in": {"t": None}}],
    "k": [None, [], [("a", 1), ("b", None)]],
    "arr": [None, [], [1, 2, 3], [None, 5]],
}  # fmt: skip


def rows(random: Random, count: int) -> pa.Table:
    """Return rows whose values are edges, in many combinations."""
    made = [{name: random.choice(_EDGES[name]) for name in SCHEMA.names} for _ in range(count)]
    return pa.Table.from_pylist(made, schema=SCHEMA)


Made = Callable[[Any], Any]

#: Functions ``lambda F: Column``, with ``F`` from either ``pyspark.sql.functions``.
WRITTEN: list[Made] = [
    # literals of each type
    lambda F: F.col("l") == 5,
    lambda F: F.col("l") > 2**40,
    lambda F: F.col("l") == float(2**53),
    lambda F: F.col("d") == 0.1,
    lambda F: F.col("f") == 0.1,
    lambda F: F.col("f") == 1,
    lambda F: F.col("m") == Decimal("1.000"),
    lambda F: F.col("m") > 0.1,
    lambda F: F.col("w") == 0.1,
    lambda F: F.col("t") == "a",
    lambda F: F.col("x") == F.lit(b"ab"),
    lambda F: F.col("b") == True,  # noqa: E712
    lambda F: F.col("day") >= date(2024, 1, 31),
    lambda F: F.col("day") == "2024-02-29",
    lambda F: F.col("at") < datetime(2024, 2, 29, 23, 30, tzinfo=UTC),
    lambda F: F.col("at") == "2024-02-29 23:30:00+00:00",
    lambda F: F.col("ntz") == F.lit("2024-02-29 23:30:00").cast("timestamp_ntz"),
    lambda F: F.col("ntz") >= date(2024, 1, 1),
    lambda F: F.col("d") == F.lit(None),
    lambda F: F.col("d") == F.lit(math.nan),
    lambda F: F.lit(None).cast("int"),
    # comparisons
    lambda F: F.col("i") != F.col("l"),
    lambda F: F.col("l") <= F.col("d"),
    lambda F: F.col("f") < F.col("d"),
    lambda F: F.col("m") == F.col("w"),
    lambda F: F.col("m") < F.col("d"),
    lambda F: F.col("i") > F.col("m"),
    lambda F: F.col("t").eqNullSafe(F.col("u")),
    lambda F: F.col("i").eqNullSafe(None),
    lambda F: F.col("i").between(-1, F.col("l")),
    lambda F: F.col("i").isin(1, 2, None),
    lambda F: F.col("i").isin([]),
    lambda F: F.col("l").isin(1.5, 5),
    lambda F: F.col("t").isin("a", "A", F.col("u")),
    lambda F: ~(F.col("b") & (F.col("i") > 0) | F.col("b").isNull()),
    lambda F: F.col("i").isNotNull(),
    lambda F: F.isnan("d") | F.isnan("f"),
    # arithmetic
    lambda F: F.col("y") + F.col("y"),
    lambda F: F.col("i") + 1,
    lambda F: 1 - F.col("l"),
    lambda F: F.col("i") * F.col("i"),
    lambda F: F.col("f") + F.col("f"),
    lambda F: F.col("f") * _NARROW,
    lambda F: F.col("f") + F.col("i"),
    lambda F: F.col("d") - F.col("l"),
    lambda F: F.col("m") + F.col("m") == F.col("w"),
    lambda F: F.col("m") * 3,
    lambda F: F.col("m") - F.col("i"),
    lambda F: F.col("m") * 0.5,
    lambda F: F.col("i") / F.col("y"),
    lambda F: F.col("i") / 2,
    lambda F: F.col("d") / F.col("d"),
    lambda F: F.col("f") / F.col("f"),
    lambda F: F.col("i") % 3,
    lambda F: F.col("l") % F.col("y"),
    lambda F: F.col("d") % 1.5,
    lambda F: F.col("m") % 3,
    lambda F: -F.col("i"),
    lambda F: -F.col("m"),
    lambda F: F.abs("l"),
    lambda F: F.abs("f"),
    lambda F: F.round("d"),
    lambda F: F.round("m", 1),
    lambda F: F.round("i"),
    lambda F: F.floor("d"),
    lambda F: F.ceil("m"),
    lambda F: F.ceil("f"),
    lambda F: F.sqrt("d"),
    lambda F: F.signum("d"),
    lambda F: F.col("d") ** 2,
    # text
    lambda F: F.col("t").like("a%"),
    lambda F: F.col("t").like("a\\_b"),
    lambda F: F.col("t").like("a\\\\b"),
    lambda F: F.col("t").ilike("A%"),
    lambda F: F.col("t").rlike("^a.?b"),
    lambda F: F.col("t").startswith("a"),
    lambda F: F.col("t").endswith(F.col("u")),
    lambda F: F.col("t").contains("b"),
    lambda F: F.lower("u"),
    lambda F: F.upper("t"),
    lambda F: F.trim("t"),
    lambda F: F.length("t"),
    lambda F: F.substring("t", 1, 2),
    lambda F: F.col("t").substr(2, 1),
    lambda F: F.concat("t", F.lit("-"), "u"),
    lambda F: F.concat_ws("-", "t", "u"),
    lambda F: F.replace("t", F.lit("a"), F.lit("zz")),
    lambda F: F.regexp_replace("t", "[ab]", "z"),
    lambda F: F.regexp_extract("t", "(a)(.?)", 2),
    lambda F: F.split("t", "[_]"),
    lambda F: F.split_part("t", F.lit("_"), F.lit(2)),
    lambda F: F.instr("t", "b"),
    lambda F: F.locate("b", "t"),
    lambda F: F.lpad("t", 4, "*"),
    lambda F: F.rpad("t", 2, "*"),
    lambda F: F.left("t", F.lit(1)),
    lambda F: F.right("t", F.lit(2)),
    lambda F: F.translate("t", "ab", "x"),
    lambda F: F.reverse("t"),
    lambda F: F.initcap("t"),
    lambda F: F.md5("t"),
    lambda F: F.sha1("x"),
    lambda F: F.sha2("t", 256),
    # dates
    lambda F: F.year("day"),
    lambda F: F.dayofweek("day"),
    lambda F: F.weekofyear("day"),
    lambda F: F.quarter("ntz"),
    lambda F: F.hour("ntz"),
    lambda F: F.date_add("day", 30),
    lambda F: F.date_sub("day", 1),
    lambda F: F.datediff("day", F.lit(date(2024, 1, 1))),
    lambda F: F.add_months("day", 1),
    lambda F: F.last_day("day"),
    lambda F: F.date_format("day", "yyyy/MM/dd"),
    lambda F: F.make_date(F.lit(2024), F.lit(2), F.col("y")),
    lambda F: F.to_date(F.lit("2024-02-29")),
    lambda F: F.to_date(F.lit("29/02/2024"), "dd/MM/yyyy"),
    # casts
    lambda F: F.col("d").cast("int"),
    lambda F: F.col("l").cast("int"),
    lambda F: F.col("l").cast("double"),
    lambda F: F.col("l").cast("float"),
    lambda F: F.col("d").cast("decimal(10,3)"),
    lambda F: F.col("f").cast("decimal(10,3)"),
    lambda F: F.col("w").cast("decimal(10,1)"),
    lambda F: F.col("w").cast("long"),
    lambda F: F.col("w").cast("double"),
    lambda F: F.col("w").cast("string"),
    lambda F: F.col("i").cast("string"),
    lambda F: F.col("b").cast("string"),
    lambda F: F.col("b").cast("int"),
    lambda F: F.col("day").cast("string"),
    lambda F: F.col("day").cast("timestamp_ntz"),
    lambda F: F.col("ntz").cast("date"),
    lambda F: F.when(F.col("t") == "1", F.col("t").cast("int")),
    lambda F: F.when(F.col("t") == "2024-02-29", F.col("t").cast("date")),
    # choices
    lambda F: F.when(F.col("i") > 0, "p").when(F.col("i") < 0, "n").otherwise(F.col("t")),
    lambda F: F.when(F.col("b"), F.col("i")).otherwise(F.col("d")),
    lambda F: F.coalesce("i", "l", F.lit(0)),
    lambda F: F.coalesce("l", F.lit(2.0)),
    lambda F: F.coalesce("f", F.lit(0.1)),
    lambda F: F.coalesce("m", "i"),
    lambda F: F.nullif("t", F.lit("a")),
    lambda F: F.nvl2("i", "t", "u"),
    lambda F: F.greatest("d", "f"),
    lambda F: F.least("i", "l"),
    # parts
    lambda F: F.col("s.a") + 1,
    lambda F: F.col("s")["in"]["t"] == "a",
    lambda F: F.col("s").getField("a"),
    lambda F: F.col("`s`.`in`.t"),
    lambda F: F.col("k")["a"],
    lambda F: F.col("k").getItem("b"),
    lambda F: F.get("arr", F.lit(1)),
    lambda F: F.try_element_at("arr", F.lit(-1)),
    lambda F: F.size("arr"),
    lambda F: F.array_contains("arr", F.lit(5).cast("long")),
    lambda F: F.col("i").alias("z") > 0,
]

_COLUMNS = {
    "number": ["y", "i", "l", "f", "d", "m", "w"],
    "text": ["t", "u"],
    "boolean": ["b"],
    "date": ["day"],
}
_VALUES: dict[str, Sequence[Any]] = {
    "number": [0, 1, -1, 3, 127, 2**31, 2**53 + 1, 0.1, 1.5, 2.0**53, Decimal("0.10"),
               Decimal("12.5")],
    "text": ["", "a", "A", "ab", "%", "1"],
    "boolean": [True, False],
    "date": [date(2024, 2, 29), date(1970, 1, 1)],
}  # fmt: skip


def drawn(random: Random, kind: str = "boolean", depth: int = 3) -> Made:
    """Draw a Column of a kind, whose operators are nested ``depth`` deep."""
    if depth == 0 or (kind != "boolean" and random.random() < 0.2):
        if random.random() < 0.7:
            name = random.choice(_COLUMNS[kind])
            return lambda F: F.col(name)
        value = random.choice([*_VALUES[kind], None])
        return lambda F: F.lit(value)

    def inner(of: str) -> Made:
        return drawn(random, of, depth - 1)

    return _MADE[kind](random, inner)


def _boolean(random: Random, inner: Callable[[str], Made]) -> Made:
    of = random.choice(["number", "number", "text", "date", "boolean"])
    a, b, c = inner(of), inner(of), inner(of)
    p, q = inner("boolean"), inner("boolean")
    options: list[Made] = [
        lambda F: a(F) == b(F),
        lambda F: a(F) < b(F),
        lambda F: a(F) >= b(F),
        lambda F: a(F) != b(F),
        lambda F: a(F).eqNullSafe(b(F)),
        lambda F: a(F).isin(b(F), c(F)),
        lambda F: a(F).between(b(F), c(F)),
        lambda F: a(F).isNull(),
        lambda F: p(F) & q(F),
        lambda F: p(F) | q(F),
        lambda F: ~p(F),
    ]
    return random.choice(options)


def _number(random: Random, inner: Callable[[str], Made]) -> Made:
    a, b, p, t = inner("number"), inner("number"), inner("boolean"), inner("text")
    options: list[Made] = [
        lambda F: a(F) + b(F),
        lambda F: a(F) - b(F),
        lambda F: a(F) * b(F),
        lambda F: a(F) / b(F),
        lambda F: a(F) % b(F),
        lambda F: -a(F),
        lambda F: F.abs(a(F)),
        lambda F: F.coalesce(a(F), b(F)),
        lambda F: F.greatest(a(F), b(F)),
        lambda F: F.when(p(F), a(F)).otherwise(b(F)),
        lambda F: F.length(t(F)),
        lambda F: a(F).cast("double"),
        lambda F: a(F).cast("int"),
        lambda F: F.floor(a(F)),
    ]
    return random.choice(options)


def _text(random: Random, inner: Callable[[str], Made]) -> Made:
    a, b, p = inner("text"), inner("text"), inner("boolean")
    options: list[Made] = [
        lambda F: F.lower(a(F)),
        lambda F: F.concat(a(F), b(F)),
        lambda F: F.substring(a(F), 2, 2),
        lambda F: F.trim(a(F)),
        lambda F: F.nullif(a(F), b(F)),
        lambda F: F.when(p(F), a(F)),
        lambda F: F.coalesce(a(F), b(F)),
    ]
    return random.choice(options)


def _date(random: Random, inner: Callable[[str], Made]) -> Made:
    a, b, p = inner("date"), inner("date"), inner("boolean")
    options: list[Made] = [
        lambda F: F.date_add(a(F), 3),
        lambda F: F.last_day(a(F)),
        lambda F: F.coalesce(a(F), b(F)),
        lambda F: F.when(p(F), a(F)).otherwise(b(F)),
    ]
    return random.choice(options)


_MADE = {"boolean": _boolean, "number": _number, "text": _text, "date": _date}
