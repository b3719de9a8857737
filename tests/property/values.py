"""Values for tables, and constants close to them."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from random import Random
from typing import Any
from urllib.parse import quote

import numpy as np

EXACT = Context(prec=80)
BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_NAN, _INFINITY = math.nan, math.inf
_HIGHEST = chr(0x10FFFF)

_DOUBLES = [0.0, -0.0, 0.1, 0.05, 1.5, 1.6, 2.5, -1.5, 1e15, 2.0**53, 2.0**53 + 2, 1e300, -1e300,
            5e-324, 9025684103.8753, 0.30000000000000004, _NAN, _INFINITY, -_INFINITY]  # fmt: skip
_TEXTS = ["a", "ab", "abc", "abd", "A", "Z", "z", "é", "ß", "%", "_a", "a'b", 'q"q', "a\\b", "a b",
          " a", "10", "9", "true", "2020-02-29", "😀", "\uffff", "\ue000", "𐀀", _HIGHEST, "x" * 31,
          "x" * 32, "x" * 33, "x" * 40, "x" * 31 + _HIGHEST, "x" * 32 + "é", "x" * 31 + "😀y",
          _HIGHEST * 33, "\u007f" * 33, "y" * 15 + "😀z", "y" * 16 + "a",
          "é" * 40, "w" * 300]  # fmt: skip
_BYTES = [b"a", b"ab", b"\x00", b"\xff", b"\xff\xff", b"\xff" * 20, b"a" * 16, b"a" * 17,
          b"a" * 16 + b"\xff", b"\x7f", b"\x80", b"a\x00", b"z" * 300]  # fmt: skip
_DAYS = [date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31), date(1970, 1, 1), date(2000, 2, 29),
         date(2023, 1, 28), date(2023, 1, 30), date(2023, 1, 31), date(2023, 2, 28),
         date(2024, 2, 29), date(1582, 10, 10), date(1899, 12, 31)]  # fmt: skip
_TIMES = [timedelta(0), timedelta(microseconds=1), timedelta(hours=23), timedelta(hours=1),
          timedelta(hours=12), timedelta(milliseconds=1), timedelta(microseconds=999_999),
          timedelta(days=1, microseconds=-1), timedelta(hours=11, microseconds=1001)]  # fmt: skip


def decimal_parts(type_: str) -> tuple[int, int]:
    precision, scale = type_[8:-1].split(",")
    return int(precision), int(scale)


def pool(type_: str, rng: Random, *, partition: bool = False) -> list[Any]:
    """Return the few values of one column: all files have some of them, so their bounds overlap."""
    values = [_value(type_, rng) for _ in range(rng.randint(3, 7))]
    if type_ in ("float", "double"):
        values = _few_floats(values, rng, partition)
    if type_.startswith("timestamp") and rng.random() < 0.7:
        values = values[: rng.choice([0, 2])] + _month_ends(type_, rng)
    for value in list(values):
        if rng.random() < 0.4:
            values += [v for v in neighbours(value, type_) if _fits(v, type_)][:2]
    # Values that a format can't distinguish from NULL are refused, and have tests of their own.
    if partition:  # and other clients put the value into a path, whose length is limited
        values = [v for v in values if v not in ("", b"") and len(quote(str(v))) < 180]
    return ordered(values)


def _few_floats(values: list[Any], rng: Random, partition: bool) -> list[Any]:
    """Return few numbers, often with NaN, and zeros of both signs."""
    found = values[: rng.choice([1, 2, 7])]
    if rng.random() < 0.7:
        found.append(_NAN)
    if rng.random() < (0.7 if partition else 0.4):
        found = [0.0, -0.0, *found]
    return found


def _month_ends(type_: str, rng: Random) -> list[Any]:
    """Return timestamps whose order changes a month later: the day becomes the last, the hour
    stays.
    """
    zone = UTC if type_ == "timestamp" else None
    start = datetime(rng.choice([2023, 2024]), 1, rng.choice([28, 29, 30]), tzinfo=zone)
    late = rng.choice([timedelta(hours=23), timedelta(hours=12, microseconds=1)])
    early = rng.choice([timedelta(0), timedelta(hours=1), timedelta(microseconds=1)])
    days = [start + timedelta(days=at) for at in range(32 - start.day)]
    return [day + late for day in days[:-1]] + [day + early for day in days[1:]]


def _value(type_: str, rng: Random) -> Any:
    if type_ in BITS:
        most = 2 ** (BITS[type_] - 1)
        own = [0, 1, -1, 2, 5, 7, 10, most - 1, -most, rng.randint(-20, 20)]
        return rng.choice([*own, min(most - 1, 2**24 + 1), min(most - 1, 2**53 + 1)])
    if type_ in ("double", "float"):
        value = rng.choice([*_DOUBLES, rng.uniform(-3, 3), float(rng.randint(-5, 5))])
        return value if type_ == "double" else _single(value)
    if type_.startswith("decimal"):
        precision, scale = decimal_parts(type_)
        most = 10**precision - 1
        whole = rng.choice([0, 1, -1, 15, 105, most, -most, 90256841038753, rng.randint(-999, 999)])
        return Decimal(max(-most, min(most, whole))).scaleb(-scale, EXACT)
    if type_ == "string":
        return rng.choice(_TEXTS)
    if type_ == "binary":
        return rng.choice(_BYTES)
    if type_ == "boolean":
        return rng.random() < 0.5
    day = rng.choice([*_DAYS, date(2023, 1, 1) + timedelta(days=rng.randint(0, 90))])
    if type_ == "date":
        return day
    instant = datetime(day.year, day.month, day.day) + rng.choice(_TIMES)
    return instant.replace(tzinfo=UTC) if type_ == "timestamp" else instant


def _single(value: float) -> float:
    narrow = ctypes.c_float(value).value
    return narrow if math.isfinite(narrow) or not math.isfinite(value) else 3.4028234663852886e38


def _fits(value: Any, type_: str) -> bool:
    """Return whether a neighbour is a value of the column's own type."""
    if type_ in BITS:
        most = 2 ** (BITS[type_] - 1)
        return type(value) is int and -most <= value < most
    if type_ in ("float", "double"):
        return type(value) is float and (type_ == "double" or ctypes.c_float(value).value == value)
    if type_.startswith("decimal"):
        precision, scale = decimal_parts(type_)
        return (
            type(value) is Decimal
            and value.as_tuple().exponent == -scale
            and value.copy_abs() < Decimal(10) ** (precision - scale)
        )
    kinds: dict[str, type] = {"string": str, "binary": bytes, "date": date}
    if type_ in kinds:
        return type(value) is kinds[type_]
    return type(value) is datetime and (value.tzinfo is not None) == (type_ == "timestamp")


def ordered(values: Sequence[Any]) -> list[Any]:
    """Return the values in the language's order, each once."""
    found = {repr(value): value for value in values}.values()

    def key(value: Any) -> Any:
        if isinstance(value, float):
            return (value != value, 0.0 if value != value else value)
        return value.encode() if isinstance(value, str) else value

    return sorted(found, key=key)


def neighbours(value: Any, type_: str = "") -> list[Any]:
    """Return neighbours of a value, and the value in other types: constants for predicates."""
    if value is None or isinstance(value, bool):
        return [value]
    if isinstance(value, int):
        near = [value, value + 1, value - 1, float(value), float(value) + 0.5, float(value) - 0.4]
        exact = [Decimal(value) + Decimal("0.5"), Decimal(value) - Decimal("0.1")]
        return [v for v in near if isinstance(v, float) or -(2**63) <= v < 2**63] + exact
    if isinstance(value, float):
        return [value, *_floats(value)]
    if isinstance(value, Decimal):
        return [value, *_decimals(value)]
    if isinstance(value, str):
        return [value, value[:-1], value + "\x01", value + _HIGHEST, value[:32], value[:31]
                + chr(0x7F), value[:16] + _HIGHEST, value[:1], value.swapcase()]  # fmt: skip
    if isinstance(value, bytes):
        return [value, value[:-1], value + b"\x00", value + b"\xff", value[:16], value[:1]]
    if isinstance(value, datetime):
        steps = (timedelta(microseconds=1), timedelta(milliseconds=1), timedelta(days=1))
        whole = value.replace(microsecond=value.microsecond // 1000 * 1000)
        return [value, whole, *_moved(value, steps), value.date()]
    instant = datetime(value.year, value.month, value.day)
    zoned = [instant.replace(tzinfo=UTC), instant.replace(tzinfo=UTC) + timedelta(hours=1)]
    return [value, *_moved(value, (timedelta(days=1),)), instant, *zoned]


def between(values: Sequence[Any], rng: Random) -> Any:
    """Return a value between two neighbouring values; None if there is none."""
    known = [value for value in ordered(values) if value == value]
    pairs = [(a, b) for a, b in itertools.pairwise(known) if type(a) is type(b)]
    if not pairs or isinstance(known[0], str | bytes | bool):
        return None
    low, high = rng.choice(pairs)
    try:
        if isinstance(low, Decimal):
            share = Decimal(rng.choice(["0.3", "0.5", "0.6", "0.9"]))
            made = EXACT.add(low, EXACT.multiply(EXACT.subtract(high, low), share))
            return made if len(made.as_tuple().digits) <= 38 else None
        share = rng.choice([0.3, 0.5, 0.6, 0.9])
        if isinstance(low, int | float):
            return low + (high - low) * share
        if not isinstance(low, datetime):
            low, high = (datetime(at.year, at.month, at.day) for at in (low, high))
        return low + (high - low) * share
    except (OverflowError, ArithmeticError):
        return None


def _floats(value: float) -> list[Any]:
    if not math.isfinite(value):
        return [_NAN, 3.4028234663852886e38, 1.7976931348623157e308, _INFINITY]
    near: list[Any] = [math.nextafter(value, _INFINITY), math.nextafter(value, -_INFINITY), -value]
    with np.errstate(all="ignore"):
        single = np.float32(value)
        near += [float(np.nextafter(single, np.float32(side))) for side in (_INFINITY, -_INFINITY)]
        near += [float(single)]
    near += [float(f"{value:.7g}"), value + 0.6]
    if abs(value) < 1e15:
        near += [int(value), int(value) + 1, Decimal(f"{value:.4f}"), Decimal(repr(value))
                 if "e" not in repr(value) else 0]  # fmt: skip
    return near


def _decimals(value: Decimal) -> list[Any]:
    unit = Decimal(1).scaleb(int(value.as_tuple().exponent), EXACT)
    near: list[Any] = [EXACT.add(value, unit), EXACT.subtract(value, unit)]
    number = float(value)
    near += [number, math.nextafter(number, _INFINITY), math.nextafter(number, -_INFINITY)]
    near += [_single(number)]
    half = EXACT.add(value, unit.scaleb(-1, EXACT) * 5)
    near += [half] if len(half.as_tuple().digits) <= 38 else []
    return [v for v in near if isinstance(v, float) or len(v.as_tuple().digits) <= 38]


def _moved(value: Any, steps: Sequence[timedelta]) -> list[Any]:
    found = []
    for step in steps:
        for moved in (step, -step):
            try:
                found.append(value + moved)
            except OverflowError:
                continue
    return found


#: The types to which a column can be changed without a change of its files, in Delta and Iceberg.
DELTA_WIDER = {
    "byte": ("short", "integer", "long", "double", "decimal(12,2)"),
    "short": ("integer", "long", "double", "decimal(12,2)"),
    "integer": ("long", "double", "decimal(14,4)"),
    "long": ("decimal(22,2)",),
    "float": ("double",),
    "date": ("timestamp_ntz",),
    "decimal(6,2)": ("decimal(8,2)", "decimal(20,4)", "decimal(38,6)"),
    "decimal(18,4)": ("decimal(20,4)", "decimal(38,10)"),
}
ICEBERG_WIDER = {
    "integer": ("long",),
    "float": ("double",),
    "decimal(6,2)": ("decimal(9,2)", "decimal(20,2)"),
    "decimal(18,4)": ("decimal(38,4)",),
}


def widened(value: Any, to: str) -> Any:
    """Return a value as the wider type represents it."""
    if value is None:
        return None
    if to == "double":
        return float(value)
    if to.startswith("decimal"):
        return Decimal(value).quantize(Decimal(1).scaleb(-decimal_parts(to)[1]), context=EXACT)
    if to == "timestamp_ntz":
        return datetime(value.year, value.month, value.day)
    return value
