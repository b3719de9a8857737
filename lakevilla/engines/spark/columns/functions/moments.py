"""Functions of dates and timestamps."""

from __future__ import annotations

from datetime import UTC

from lakevilla.engines.spark.columns.coercion import Typed, need_utc
from lakevilla.engines.spark.columns.functions.making import (
    Language,
    Maker,
    check_count,
    constant_of,
    exactly,
    wants,
)
from lakevilla.engines.spark.columns.functions.operators import OPERATORS
from lakevilla.engines.spark.columns.nodes import refused
from lakevilla.sql.expressions.tree import Cast
from lakevilla.sql.expressions.values import literal


def _moment(what: str, arg: Typed, lang: Language, *types: str) -> Typed:
    need_utc(arg.type, f"{what}()", lang.terms)
    return wants(what, arg, *types)


def _part(name: str) -> Maker:
    types: tuple[str, ...] = ("date", "timestamp", "timestamp_ntz")
    if name in ("hour", "minute", "second"):
        types = types[1:]

    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, 1)
        return lang.call(name, [_moment(name, args[0], lang, *types)], "integer")

    return make


def _date_add(sign: int) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count("date_add", args, 2)
        wants("date_add", args[0], "date")
        days = wants("date_add", args[1], "byte", "short", "integer")
        if sign < 0:
            days = OPERATORS["negative"](lang, [days])
        return lang.call("date_add", [args[0], days], "date")

    return make


def _trunc(lang: Language, args: list[Typed]) -> Typed:
    check_count("date_trunc", args, 2)
    unit = constant_of("date_trunc", args[0], str)
    moment = _moment("date_trunc", args[1], lang, "timestamp")
    unit = {"yyyy": "year", "yy": "year", "mon": "month", "mm": "month", "dd": "day"}.get(
        str(unit).lower(), str(unit).lower()
    )
    return lang.plain("date_trunc", [literal(unit), moment.expr], "timestamp")


def _date_format(lang: Language, args: list[Typed]) -> Typed:
    check_count("date_format", args, 2)
    types = ("date", "timestamp", "timestamp_ntz") if lang.terms.is_utc else ("date",)
    return lang.call("date_format", [_moment("date_format", args[0], lang, *types), args[1]],
                        "string")  # fmt: skip


def _read(type_: str) -> Maker:
    """``to_date(text, format)`` and its like."""
    name = f"to_{type_}"

    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, 1, 2)
        if type_ == "timestamp":
            if not lang.terms.zoned:
                raise refused(f"{name}()", "use to_timestamp_ntz")
            need_utc("timestamp", f"{name}()", lang.terms)
        if args[0].type == type_ and len(args) == 1:
            return args[0]
        wants(name, args[0], "string")
        if len(args) == 1:
            return Typed(Cast(args[0].expr, type_), type_)
        return lang.call(name, args, type_)

    return make


def _now(lang: Language, args: list[Typed]) -> Typed:
    return Typed(literal(lang.now.astimezone(UTC)), "timestamp")


def _today(lang: Language, args: list[Typed]) -> Typed:
    need_utc("timestamp", "current_date()", lang.terms)
    return Typed(literal(lang.now.astimezone(UTC).date()), "date")


MOMENTS: dict[str, Maker] = {
    **{
        name: _part(name)
        for name in (
            "year",
            "month",
            "day",
            "quarter",
            "weekofyear",
            "dayofyear",
            "dayofweek",
            "weekday",
            "hour",
            "minute",
            "second",
        )
    },
    "dayofmonth": _part("day"),
    "date_add": _date_add(1),
    "dateadd": _date_add(1),
    "date_sub": _date_add(-1),
    "datediff": exactly("datediff", ["date", "date"], "integer"),
    "date_diff": exactly("datediff", ["date", "date"], "integer"),
    "add_months": exactly("add_months", ["date", "int"], "date"),
    "last_day": exactly("last_day", ["date"], "date"),
    "make_date": exactly("make_date", ["int"] * 3, "date"),
    "date_trunc": _trunc,
    "date_format": _date_format,
    "to_date": _read("date"),
    "to_timestamp": _read("timestamp"),
    "to_timestamp_ntz": _read("timestamp_ntz"),
    "current_timestamp": _now,
    "now": _now,
    "current_date": _today,
    "curdate": _today,
}
