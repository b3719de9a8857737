"""Draw expressions over a table of edge values, with names, operators and types of SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

ROWS = 60
_INF, _NAN = float("inf"), float("nan")
_TEXTS = (
    *("", "a", "A", "abc", "ABC", " a ", "12", "1.5", "true", "2024-02-29", "%", "_", "a_b"),
    *("ä", "Straße", "ß", "İ", "\ta", "2024-02-29 12:00:00", "NaN", "a,b,c", "e\u0301x", "\x00"),
    *("-5", '{"b":1}', "😀x", "a\nb", "x\\y", "a\r", "\u2028", "2.50"),
)
_MOMENTS = (
    datetime(2024, 2, 29, 12),
    datetime(1970, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 3, 3, 0, 0, 0, 1),
    datetime(2023, 12, 31, 23, 30),
)
_VALUES: Mapping[str, tuple[pa.DataType, Sequence[Any]]] = {
    "i": (pa.int32(), (0, 1, -1, 7, 2**31 - 1, -(2**31), 100, 16777217)),
    "b": (pa.int64(), (0, 1, -1, 5, 2**63 - 1, -(2**63), 2**53 + 1, 10, 3)),
    "y": (pa.int8(), (0, 1, -1, 127, -128)),
    "f": (pa.float32(), (0.0, -0.0, 0.1, -2.5, _INF, -_INF, _NAN, 1.5, 0.5, 3.4e38, 2.0**31)),
    "d": (
        pa.float64(),
        (0.0, -0.0, 0.1, 2.5, -2.5, 1.5, 0.5, -0.5, _INF, -_INF, _NAN, 9.99, 1e300, 1e-7, 1.005),
    ),
    "m": (
        pa.decimal128(10, 2),
        [Decimal(v) for v in ("0", "1.50", "2.50", "-2.50", "9.99", "0.50", "99999999.99", "1")],
    ),
    "w": (pa.decimal128(38, 0), [Decimal(v) for v in (0, 1, -1, 10**37, 2**63)]),
    "s": (pa.string(), _TEXTS),
    "r": (pa.string(), ("", "a", "b", " ", ",", "abc")),
    "t": (
        pa.date32(),
        [date(2024, 2, 29), date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), date(2024, 3, 3)],
    ),
    "z": (pa.timestamp("us", "UTC"), [instant.replace(tzinfo=UTC) for instant in _MOMENTS]),
    "n": (pa.timestamp("us"), _MOMENTS),
    "o": (pa.bool_(), (True, False)),
    "l": (pa.list_(pa.int64()), ([], [1], [1, None], [3, 2, 1], [None])),
    "p": (pa.map_(pa.string(), pa.int64()), ([], [("a", 1)], [("a", None), ("b", 2)])),
    "g": (pa.struct([("q", pa.int64()), ("s", pa.string())]), ({"q": 1, "s": "a"},)),
}


def table(random: Random) -> pa.Table:
    """Return edge values in columns, each column in an order of its own, with NULLs among them."""
    columns = {"id": pa.array(range(ROWS), pa.int64())}
    for name, (type_, values) in _VALUES.items():
        given = [None, *values]
        drawn = [given[at % len(given)] for at in range(max(ROWS, len(given)))][:ROWS]
        random.shuffle(drawn)
        columns[name] = pa.array(drawn, type_)
    return pa.table(columns)


class Conditions:
    """Draw texts; many of them are refused, as are many that users write."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def condition(self, depth: int = 2) -> str:
        """Return a text that may be boolean."""
        one = self._random.choice
        draws: Sequence[Callable[[], str]] = (
            lambda: f"{self.number(depth)} {one(_COMPARED)} {self.number(depth)}",
            lambda: f"{self.number(depth)} {one(_COMPARED)} {self.number(depth)}",
            lambda: f"{self.text(depth)} {one(_COMPARED)} {self.text(depth)}",
            lambda: f"{self.instant(depth)} {one(_COMPARED)} {self.instant(depth)}",
            lambda: f"{self.number(depth)} IN ({self.number(0)}, {self.number(0)})",
            lambda: f"{self.number(depth)} BETWEEN {self.number(0)} AND {self.number(0)}",
            lambda: f"{self.text(depth)} {one(('LIKE', 'NOT LIKE', 'ILIKE'))} '{one(_PATTERNS)}'",
            lambda: f"{one(_TESTS)}({self.text(depth)}, {self.text(0)})",
            lambda: f"regexp_matches({self.text(0)}, '{one(_REGEXPS)}')",
            lambda: f"{self.number(depth)} IS {one(('', 'NOT '))}NULL",
            lambda: f"isnan({one(('d', 'f', 'i'))})",
            lambda: one(("o", "NOT o", "o IS NOT TRUE", "array_contains(l, b)")),
            lambda: self._joined(depth),
            lambda: self._joined(depth),
        )
        return one(draws)()

    def _joined(self, depth: int) -> str:
        one = self._random.choice
        if depth <= 0:
            return "o"
        left, right = self.condition(depth - 1), self.condition(depth - 1)
        return one((f"{left} AND {right}", f"{left} OR {right}", f"NOT ({left})", f"NOT {left}"))

    def number(self, depth: int) -> str:
        """Return a text that may be a number."""
        one = self._random.choice
        if depth <= 0:
            return one(_NUMBERS)
        inner = self.number
        draws: Sequence[Callable[[], str]] = (
            lambda: one(_NUMBERS),
            lambda: f"{inner(depth - 1)} {one('+-*/%')} {inner(depth - 1)}",
            lambda: f"({inner(depth - 1)}) {one('+-*/%')} {inner(depth - 1)}",
            lambda: f"-{inner(depth - 1)}",
            lambda: f"{one(_OF_NUMBER)}({inner(depth - 1)})",
            lambda: f"{one(_OF_NUMBERS)}({inner(depth - 1)}, {inner(depth - 1)})",
            lambda: f"{one(_OF_TEXT)}({self.text(depth - 1)})",
            lambda: f"{one(('instr', 'strpos'))}({self.text(depth - 1)}, {self.text(0)})",
            lambda: f"{one(_OF_MOMENT)}({self.instant(depth - 1)})",
            lambda: f"CAST({inner(depth - 1)} AS {one(_NUMBER_TYPES)})",
            lambda: f"{inner(0)}::{one(_NUMBER_TYPES)}",
            lambda: f"CAST({self.text(0)} AS {one(_NUMBER_TYPES)})",
            lambda: f"CASE WHEN {self.condition(0)} THEN {inner(0)} ELSE {inner(0)} END",
            lambda: f"if({self.condition(0)}, {inner(0)}, {inner(0)})",
            lambda: f"round(m, {one('0123')})",
            lambda: one(("l[1]", "l[2]", "l[-1]", "p['a']", "g.q", "len(l)", "array_length(l)")),
            lambda: f"extract({one(('year', 'month', 'dow', 'week'))} FROM {self.instant(0)})",
        )
        return one(draws)()

    def text(self, depth: int) -> str:
        """Return a text that may be a string in SQL."""
        one = self._random.choice
        if depth <= 0:
            return one(("s", "s", "r", "g.s", "'a'", "''", "'b'", "NULL"))
        inner = self.text
        draws: Sequence[Callable[[], str]] = (
            lambda: inner(0),
            lambda: f"{inner(depth - 1)} || {inner(depth - 1)}",
            lambda: f"{one(_TEXT_OF_TEXT)}({inner(depth - 1)})",
            lambda: f"{one(_TEXT_OF_TEXTS)}({inner(depth - 1)}, {inner(0)})",
            lambda: f"{one(('left', 'right'))}({inner(depth - 1)}, {one(('2', '0', 'y', '-1'))})",
            lambda: f"{one(('replace', 'translate'))}({inner(depth - 1)}, {inner(0)}, {inner(0)})",
            lambda: f"substring({inner(depth - 1)}, {one('123')}, {one('012')})",
            lambda: f"{one(('lpad', 'rpad'))}({inner(depth - 1)}, {one('035')}, 'xy')",
            lambda: f"split_part({inner(depth - 1)}, ',', {one('123')})",
            lambda: f"CAST({self.number(depth - 1)} AS VARCHAR)",
            lambda: f"CAST({one(('o', 't'))} AS VARCHAR)",
            lambda: f"regexp_replace({inner(0)}, '{one(_REGEXPS)}', 'x')",
            lambda: f"regexp_extract({inner(0)}, '{one(_REGEXPS)}', 0)",
            lambda: f"concat_ws({one(('r', _COMMA))}, {inner(0)}, {inner(0)})",
        )
        return one(draws)()

    def instant(self, depth: int) -> str:
        """Return a text that may be a date or a timestamp."""
        one = self._random.choice
        if depth <= 0:
            return one(
                ("t", "z", "n", "DATE '2024-03-03'", "'2024-02-29'", "TIMESTAMP '1970-01-01'")
            )
        inner = self.instant
        draws: Sequence[Callable[[], str]] = (
            lambda: inner(0),
            lambda: f"{inner(0)} {one('+-')} INTERVAL '{one('123')}' {one(_UNITS)}",
            lambda: f"date_trunc('{one(_UNITS)}', {inner(depth - 1)})",
            lambda: f"CAST({inner(depth - 1)} AS {one(('DATE', 'TIMESTAMP', 'TIMESTAMPTZ'))})",
            lambda: f"last_day({inner(0)})",
            lambda: f"date_add({inner(0)}, {one(('1', '-3', 'y'))})",
            lambda: f"coalesce({inner(0)}, {inner(0)})",
            lambda: f"make_date(2024, {one(('1', '2'))}, {one(('29', '31', 'y'))})",
        )
        return one(draws)()


_COMMA = "','"
_COMPARED = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
_NUMBERS = (
    *("i", "b", "y", "f", "d", "m", "w", "id", "0", "1", "2", "5", "1.5", "9.99", "0.1", "2.5e0"),
    *("NULL", "-5", "9223372036854775808"),
)
_NUMBER_TYPES = (
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)"),
    *("DECIMAL(5,0)", "DECIMAL(38,10)"),
)
_OF_NUMBER = ("abs", "floor", "ceil", "ceiling", "round", "sqrt", "sign", "exp", "ln", "log10")
_OF_NUMBERS = ("coalesce", "nullif", "greatest", "least", "ifnull", "mod", "power", "pow")
_OF_TEXT = ("length", "char_length", "len")
_OF_MOMENT = (
    *("year", "month", "day", "hour", "minute", "second", "quarter", "week", "weekofyear"),
    *("dayofyear", "dayofweek", "weekday", "dayofmonth"),
)
_TEXT_OF_TEXT = (
    *("lower", "upper", "lcase", "ucase", "trim", "ltrim", "rtrim", "reverse", "md5", "sha1"),
    "sha256",
)
_TEXT_OF_TEXTS = ("concat", "coalesce", "nullif", "greatest", "least")
_TESTS = ("starts_with", "ends_with", "contains")
_PATTERNS = ("a%", "%a", "_", "%", "a_b", "A%", "%ß%", "x\\%", "%e%")
_REGEXPS = ("a", "[a-c]+", "^a", "a.c", "a$", "\\d+", "\\s", "a|b", "\\.", "(a)(b)", ".")
_UNITS = ("year", "month", "week", "day", "hour")
