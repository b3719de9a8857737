"""Rows with edge values of every kind, and expressions over them as the language and Spark write
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import product
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.evaluate import evaluate
from lakevilla.sql.expressions.parse import parse_expression
from lakevilla.sql.expressions.tree import Expr

RAISED = "raised"


@dataclass(frozen=True)
class Said:
    """An expression; ``spark`` is Spark's form of it, the same if empty, None if Spark has none."""

    sql: str
    spark: str | None = ""
    places: int = 0  # units in the last place by which engines may differ


@dataclass(frozen=True)
class Cases:
    schema: pa.Schema
    rows: list[dict[str, Any]] = field(repr=False)
    said: Sequence[Said]

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows, schema=self.schema)

    def bound(self, one: Said) -> Expr:
        return bind(parse_expression(one.sql), self.schema, predicate=False)

    def expected(self, one: Said) -> list[Any]:
        tree = self.bound(one)
        return [_evaluated(tree, row) for row in self.table.to_pylist()]


def _evaluated(tree: Expr, row: dict[str, Any]) -> Any:
    try:
        return evaluate(tree, row)
    except InvalidOperation:
        return RAISED


def same(a: Any, b: Any, places: int = 0) -> bool:
    """Return whether two engines' values are the same; real numbers may differ in the
    last places.
    """
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        if math.isinf(a) or math.isinf(b):
            return a == b
        return abs(a - b) <= places * math.ulp(max(abs(a), abs(b)))
    return type(a) is type(b) and bool(a == b)


def _every(**values: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(zip(values, row, strict=True)) for row in product(*values.values())]


_INF, _NAN = math.inf, math.nan
_REALS = [None, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 1e-320, 1e308, -1e308, 710.0, -745.5, 100.0,
          1000.0, 0.1, 2.718281828459045, 1 / 3, -3.0, _INF, -_INF, _NAN]  # fmt: skip

NUMBERS = Cases(
    pa.schema([("a", pa.float64()), ("b", pa.float64()), ("n", pa.int64())]),
    [row | {"n": at % 7 - 3} for at, row in enumerate(_every(a=_REALS, b=_REALS))],
    [
        Said("power(a, b)", places=1),
        Said("pow(a, 2)", places=1),
        Said("power(n, 3)", places=1),
        Said("exp(a)", places=1),
        Said("ln(a)", places=1),
        Said("ln(n)", places=1),
        Said("log10(a)", places=2),
        Said("sqrt(a)"),
        Said("sign(a)"),
        Said("signum(n)", "sign(n)"),
        Said("isnan(a)"),
        Said("mod(n, 2)"),
        Said("if(a > b, a, b)"),
        Said("iff(a > b, n, 7)", "if(a > b, n, 7L)"),
        Said("nvl(a, b)"),
        Said("ifnull(a, 1e0)", "ifnull(a, 1d)"),
        Said("nvl2(a, 1, n)", "nvl2(a, 1L, n)"),
        Said("isnull(a)"),
        Said("isnotnull(b)"),
    ],
)

_TEXTS = [None, "", "a", "abc", "ABC def", "  x  y ", "é", "😀b😀", "a,b,,c", ",", "e\u0301x",
          "x\n", "x\r\n", "\r\n", "x\u2028", "a\nb", "10%_", "Straße", "\t\x0b", "Ⅷ", "a-b_c.d",
          "\\1$1", "ÀÉ îô", "aAbB", "2024-02-29"]  # fmt: skip
_COUNTS = [None, -3, 0, 1, 2, 5, 2**31]

TEXTS = Cases(
    pa.schema([("a", pa.string()), ("b", pa.string()), ("n", pa.int64()), ("x", pa.binary())]),
    [
        row | {"n": _COUNTS[at % len(_COUNTS)], "x": None if at % 9 == 0 else bytes([at % 256])}
        for at, row in enumerate(_every(a=_TEXTS, b=[None, "", "a", "b😀", ",", "é", "x"]))
    ],
    [
        Said("left(a, n)", None),  # Spark's counters have 32 bits
        Said("right(a, n)", None),
        Said("left(a, 2)"),
        Said("right(a, 2)"),
        Said("left(a, -1)"),
        Said("right(a, -1)"),
        Said("right(a, 0)"),
        Said("lpad(a, 4, 'xyz')"),
        Said("rpad(a, 4, 'xyz')"),
        Said("lpad(a, 3)"),
        Said("rpad(a, 0, '😀')"),
        Said("lpad(a, 6, '😀é')"),
        Said("initcap(a)"),
        Said("reverse(a)"),
        Said("translate(a, 'abb,', 'xyz')"),
        Said("translate(a, '😀é', 'é')"),
        Said("translate(a, b, 'q')"),
        Said("instr(a, b)", "cast(instr(a, b) as bigint)"),
        Said("strpos(a, 'b')", "cast(instr(a, 'b') as bigint)"),
        Said("position('b' in a)", "cast(position('b' in a) as bigint)"),
        Said("position(b, a)", "cast(position(b, a) as bigint)"),
        Said("locate(b, a)", "cast(locate(b, a) as bigint)"),
        Said("concat_ws('-', a, b, a)"),
        Said("concat_ws(b, a, 'c')"),
        Said("concat_ws(b)"),
        Said("split_part(a, ',', 2)"),
        Said("split_part(a, ',', -1)"),
        Said("split_part(a, 'b', 1)"),
        Said("split_part(a, '😀', 9)"),
        Said("split(a, ',')"),
        Said("split(a, '[,b]')"),
        Said(r"split(a, '\s+')"),
        Said("split(a, '😀|é')"),
        Said("regexp_like(a, '^[a-z]+$')"),
        Said("a rlike 'b'"),
        Said("not (a rlike 'x$')"),
        Said(r"regexp_like(a, 'x\z')"),
        Said("regexp_like(a, '^.$')"),
        Said("regexp_like(a, '^x.')"),
        Said(r"regexp_like(a, '\w-\w[_]\D')"),
        Said(r"regexp_like(a, '^[\s]{2,}')"),
        Said(r"regexp_like(a, '^\S+$')"),
        Said("regexp_like(a, '')"),
        Said("regexp_matches(a, '(a|b)+?,')", "regexp_like(a, '(a|b)+?,')"),
        Said("regexp_like(a, '^[^a]$|b')"),
        Said("regexp_replace(a, '[ab]', '')"),
        Said("regexp_replace(a, '([a-z])([a-z])', '$2-$1')"),
        Said("regexp_replace(a, '(a)|(b)', '<$1$2>')"),
        Said(r"regexp_replace(a, '\s+\z', '!')"),
        Said("regexp_replace(a, '^a', '!')"),
        Said("regexp_replace(a, '.', '.')"),
        Said(r"regexp_replace(a, '[\\$]', '😀')"),
        Said(r"regexp_extract(a, '(\d{4})-(\d\d)', 2)"),
        Said("regexp_extract(a, 'b|c', 0)"),
        Said("regexp_extract(a, '(x)|(a)', 1)"),
        Said("regexp_extract(a, 'b*', 0)"),
        Said("md5(a)"),
        Said("sha1(a)"),
        Said("sha(x)"),
        Said("md5(x)"),
        Said("sha2(a, 256)"),
        Said("sha2(x, 0)"),
        Said("sha256(a)", "sha2(a, 256)"),
        Said("ucase(b)"),
        Said("len(a)", "cast(len(a) as bigint)"),
    ],
)

_DAYS = [None, date(1, 1, 1), date(1600, 2, 29), date(1969, 12, 31), date(1970, 1, 1),
         date(2020, 12, 31), date(2021, 1, 3), date(2023, 1, 31), date(2024, 2, 29),
         date(2024, 3, 31), date(2024, 12, 30), date(9999, 12, 31)]  # fmt: skip
_MOMENTS = [None, datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999),
            datetime(2024, 2, 29, 12, 30, 1, 1234),
            datetime(9999, 12, 31, 23, 59, 59, 999_999)]  # fmt: skip
_MONTHS = [0, 1, -1, 13, -120_000, 120_000, None, 2**40, 12]

DATES = Cases(
    pa.schema([
        ("a", pa.date32()), ("b", pa.date32()), ("ts", pa.timestamp("us", "UTC")),
        ("tn", pa.timestamp("us")), ("n", pa.int64()), ("t", pa.string()), ("u", pa.string()),
    ]),
    [
        row | {
            "ts": None if row["tn"] is None else row["tn"].replace(tzinfo=UTC),
            "n": _MONTHS[at % len(_MONTHS)],
            "b": _DAYS[at * 5 % len(_DAYS)],
            "t": [None, "2024-02-29", "0001-01-01", "9999-12-31", "2023-02-29", "x",
                  "2024-2-9", " 2024-02-29", "", "0000-01-01", "2024-02-29\n"][at % 11],
            "u": [None, "29/02/2024 23:59", "01/01/0001 00:00", "31/04/2024 00:00",
                  "01/01/2024 24:00", "1/01/2024 00:00"][at % 6],
        }
        for at, row in enumerate(_every(a=_DAYS, tn=_MOMENTS))
    ],
    [
        *(Said(f"{name}({column})", f"cast({name}({column}) as bigint)")
          for name in ("quarter", "weekofyear", "dayofyear", "dayofweek", "weekday")
          for column in ("a", "ts", "tn")),
        Said("week(a)", "cast(weekofyear(a) as bigint)"),
        Said("extract(doy from a)", "cast(extract(doy from a) as bigint)"),
        Said("extract(week from tn)", "cast(extract(week from tn) as bigint)"),
        Said("datediff(a, b)", "cast(datediff(a, b) as bigint)"),
        Said("date_diff(ts, a)", "cast(date_diff(ts, a) as bigint)"),
        Said("datediff('2024-03-01', tn)", "cast(datediff('2024-03-01', tn) as bigint)"),
        Said("add_months(a, n)", "add_months(a, cast(n as int))"),
        Said("add_months(ts, 1)"),
        Said("last_day(a)"),
        Said("last_day(tn)"),
        Said("make_date(year(a), month(b), day(a))"),
        Said("make_date(n, 1, 1)", None),
        Said("date_format(a, 'yyyy-MM-dd')"),
        Said("date_format(a, 'dd.MM.yyyy')"),
        Said("date_format(ts, 'yyyy/MM/dd''T''HH:mm:ss.SSS')", "date_format(ts, "
             '"yyyy/MM/dd\'T\'HH:mm:ss.SSS")'),
        Said("date_format(tn, 'HH:mm:ss,SSSSSS')"),
        Said("date_format(tn, 'yyyyMM')"),
        Said("to_date(t)"),
        Said("to_date(t, 'yyyy-MM-dd')"),
        Said("to_timestamp_ntz(t, 'yyyy-MM-dd')"),
        Said("to_timestamp(u, 'dd/MM/yyyy HH:mm')"),
        Said("date(tn)"),
        Said("date_sub(a, n)", None),
        Said("date_sub(a, -2)"),
    ],
)  # fmt: skip

_STRUCTS = [None, {"k": None, "Name": None}, {"k": 5, "Name": 'a"\\\b\f\n\r\t\x01\x1b\x7fé😀/'},
            {"k": -1, "Name": ""}]  # fmt: skip
_LISTS = [None, [], [1], [1, None], [None], [3, 2, 1], [2**63 - 1]]
_AT = [None, 0, 1, 2, -1, -3, 2**31, -(2**63), 3]

NESTED = Cases(
    pa.schema([
        ("a", pa.list_(pa.int64())), ("i", pa.int64()), ("x", pa.list_(pa.float64())),
        ("s", pa.list_(pa.string())), ("st", pa.struct([("k", pa.int64()), ("Name", pa.string())])),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("deep", pa.list_(pa.struct([("d", pa.date32()), ("l", pa.list_(pa.bool_()))]))),
        ("v", pa.float64()), ("lists", pa.list_(pa.list_(pa.string()))),
        ("st2", pa.struct([("k", pa.int64()), ("Name", pa.string())])),
        ("other", pa.map_(pa.string(), pa.int64())),
    ]),
    [
        row | {
            "x": [None, [], [0.0], [_NAN, 1.0], [None, -0.0], [1.5]][at % 6],
            "v": [None, 0.0, _NAN, 1.0, -0.0][at % 5],
            "s": [None, ["é", "b"], [None, ""], []][at % 4],
            "st": _STRUCTS[at % len(_STRUCTS)],
            "st2": _STRUCTS[at % (len(_STRUCTS) + 1) % len(_STRUCTS)],
            "other": [None, [], [("b", 7), ("a", 1)], [("a", 1), ("b", 7)], [("a", None)]][at % 5],
            "lists": [None, [], [None], [["a"], ["b", None]], [[], []]][at % 5],
            "m": [None, [], [("a", 1), ("b", 7)], [("", 5)]][at % 4],
            "deep": [None, [], [None, {"d": None, "l": [True, None]}],
                     [{"d": date(2024, 2, 29), "l": None}, {"d": None, "l": None}]][at % 4],
        }
        for at, row in enumerate(_every(a=_LISTS, i=_AT))
    ],
    [
        Said("a[0]", "get(a, 0)"),
        Said("a[i]", None),
        Said("get(s, 1)"),
        Said("a[-1]", "get(a, -1)"),
        Said("s[0]", "get(s, 0)"),
        Said("m['a']"),
        Said("element_at(m, 'b')", "try_element_at(m, 'b')"),
        Said("m['zz']"),
        Said("element_at(a, i)", None),
        Said("element_at(a, -1)", "try_element_at(a, -1)"),
        Said("element_at(a, 3)", "try_element_at(a, 3)"),
        Said("lists[1][0]", "get(get(lists, 1), 0)"),
        Said("(st).name", "st.name"),
        Said("a = array(i, 1, i)", "a = array(i, 1L, i)"),
        Said("array(v) = x"),
        Said("x <> array(v, 1.0)", "x <> array(v, 1.0D)"),
        Said("st = st2"),
        Said("st <=> st2"),
        Said("lists in (array(s), lists)"),
        Said("nullif(lists, array(array('a'), s))"),
        Said("m = other", None),
        Said("size(a)", "cast(array_size(a) as bigint)"),
        Said("cardinality(m)", "cast(cardinality(m) as bigint)"),
        Said("array_length(s)", "cast(size(s) as bigint)"),
        Said("array_contains(a, 1)", "array_contains(a, 1L)"),
        Said("array_contains(a, i)"),
        Said("array_contains(x, v)"),
        Said("array_contains(x, 0)", "array_contains(x, 0d)"),
        Said("array_contains(a, 1.5)", "array_contains(a, 1.5)"),
        Said("list_contains(s, 'é')", "array_contains(s, 'é')"),
        Said("to_json(st)"),
        Said("to_json(a)"),
        Said("to_json(deep)"),
        Said("to_json(s)"),
    ],
)  # fmt: skip

_DOCUMENTS = [
    None, "", " ", "null", "1", '"a"', "[]", "{}", '["x"]', '{"a":1}', '{"a":null}',
    '{"a":"x\\u0041\\n"}',
    '{"a":true}', '{"a":-0}', '{"a":-0.0}', '{"a":12.50}', '{"a":0.001}', '{"a":1e3}',
    '{"a":18446744073709551615}',
    '{"a":-9223372036854775808}', '{"a":{"b":[10,{"c":"d"}]}}',
    '{"a":"é😀\\ud83d\\ude00"}', '{ "a" : [ 1 , "two" ] }', '{"A":2}', '{"a":[[1],[2,3]]}',
]  # fmt: skip
#: Texts for which Spark returns a value though they are no JSON, or other digits, or for which no
#: single result is right.
_ODD_DOCUMENTS = [
    '{"a":1,}', '{"a":1} x', "{'a':1}", "{a:1}", '{"a":NaN}', '{"a":inf}', '{"a":1/*x*/}',
    '{"a":"\\ud83d"}', '{"a":"\x01"}', '{"a":01}', '{"a":1e999}', '{"a":1e-5}', '{"a":10000000.0}',
    '{"a":18446744073709551616}', '{"a":1,"a":2}', '{"a":"\\"},/nan,]"}', "[1,]", '{"a":+1}',
    '{"a":"\\\\ud83d"}', '{"a":[1,2],"b":Infinity}', '{"\\ud83d":1,"a":2}', "\ufeff{}",
    '{"a":-9223372036854775809}', '{"a":.5}', '{"a":0.5"}', '{"a":"\\x"}', "nul", '{"a":tru}',
]  # fmt: skip
_PATHS = [
    Said("get_json_object(a, '$.a')"),
    Said("get_json_object(a, '$.a.b[0]')"),
    Said("get_json_object(a, '$.a.b[1].c')"),
    Said("get_json_object(a, '$.a[1]')"),
    Said("get_json_object(a, '$.a[1][0]')"),
    Said("get_json_object(a, '$[0]')"),
]

JSON = Cases(pa.schema([("a", pa.string())]), [{"a": text} for text in _DOCUMENTS], _PATHS)
ODD_JSON = Cases(
    pa.schema([("a", pa.string())]),
    [{"a": text} for text in _ODD_DOCUMENTS],
    [Said(one.sql, None) for one in _PATHS],
)

ALL = {
    "numbers": NUMBERS, "texts": TEXTS, "dates": DATES, "nested": NESTED, "json": JSON,
    "odd json": ODD_JSON,
}  # fmt: skip
