"""Functions of dates and timestamps, these in UTC."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.functions.declaring import (
    MOMENTS,
    Function,
    Resolution,
    WrongTypes,
    constant_text,
    dates,
)
from lakevilla.sql.expressions.functions.formats import (
    FIELDS,
    canonical,
    form_of,
    format_of,
    read_format,
)
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.expressions.types import is_integer
from lakevilla.sql.expressions.values import cast_value


def _part(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if types[0] not in (*MOMENTS, "void"):
        raise WrongTypes("a date or timestamp")
    return ["date"], "long"


def _between(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    for at in (0, 1):
        dates(args, types, at)
    return ["date", "date"], "long"


def _months(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    dates(args, types, 0)
    if not is_integer(types[1]) and types[1] != "void":
        raise WrongTypes("a date and an integer")
    return ["date", "long"], "date"


def _last_day(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    dates(args, types, 0)
    return ["date"], "date"


def _made(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if not all(is_integer(type_) or type_ == "void" for type_ in types):
        raise WrongTypes("three integers")
    return ["long"] * 3, "date"


_FORMAT = "a constant format"


def _written(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    dates(args, types, 0)
    found = format_of(constant_text(args[1], _FORMAT))
    if types[0] not in MOMENTS:
        return ["timestamp_ntz", "string"], "string"
    if types[0] == "date" and not found.letters.keys() <= {"year", "month", "day"}:
        raise WrongTypes("a timestamp for a format with hours")
    return [types[0], "string"], "string"


def _read(type_: str) -> Callable[..., Resolution]:
    def resolve(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
        if types[0] not in ("string", "void"):
            raise WrongTypes("a string")
        read_format(constant_text(args[1], _FORMAT), "day" if type_ == "date" else "fraction")
        return ["string", "string"], type_

    return resolve


_STRICT = "all digits of each field, the whole text; another text raises"

DATES: dict[str, Function] = {
    "quarter": Function("quarter(a)", "long", "", 1, 1, _part),
    "weekofyear": Function("weekofyear(a)", "long", "of ISO 8601; also week", 1, 1, _part),
    "dayofyear": Function("dayofyear(a)", "long", "", 1, 1, _part),
    "dayofweek": Function("dayofweek(a)", "long", "1 is Sunday, 7 Saturday", 1, 1, _part,
                          duckdb="dayofweek(a) + 1"),
    "weekday": Function("weekday(a)", "long", "0 is Monday, 6 Sunday", 1, 1, _part,
                        duckdb="isodow(a) - 1"),
    "datediff": Function("datediff(end, start)", "long", "days from start to end; also date_diff; "
                         "of timestamps their dates", 2, 2, _between,
                         duckdb="date_diff('day', start, end)"),
    "add_months": Function("add_months(a, n)", "date", "a month ends on its last day", 2, 2,
                           _months, raises=True, duckdb="a + to_months(n)"),
    "last_day": Function("last_day(a)", "date", "of its month", 1, 1, _last_day),
    "make_date": Function("make_date(year, month, day)", "date", "raises if there is no such day",
                          3, 3, _made, raises=True),
    "date_format": Function("date_format(a, 'format')", "string", "formats below; fractions are "
                            "cut off", 2, 2, _written, duckdb="strftime(a, '%Y-%m-%d')"),
    "to_date": Function("to_date(a, 'format')", "date", f"formats below; {_STRICT}; without a "
                        "format as cast(a as date)", 2, 2, _read("date"), raises=True,
                        duckdb="strptime(a, '%Y-%m-%d')"),
    "to_timestamp": Function("to_timestamp(a, 'format')", "timestamp", "as to_date; the text is in "
                             "UTC", 2, 2, _read("timestamp"), raises=True,
                             duckdb="strptime(a, '%Y-%m-%d %H:%M:%S')"),
    "to_timestamp_ntz": Function("to_timestamp_ntz(a, 'format')", "timestamp_ntz", "as to_date", 2,
                                 2, _read("timestamp_ntz"), raises=True,
                                 duckdb="strptime(a, '%Y-%m-%d %H:%M:%S')"),
}  # fmt: skip


def utc(moment: Any) -> Any:
    """A zoned timestamp as UTC's; others as they are."""
    aware = isinstance(moment, datetime) and moment.tzinfo is not None
    return moment.astimezone(UTC) if aware else moment


def months_later(moment: Any, count: int) -> Any:
    """The same day, or the month's last, so many months later."""
    months = moment.year * 12 + moment.month - 1 + count
    year, month = months // 12, months % 12 + 1
    if not 1 <= year <= 9999:
        raise OverflowError
    return moment.replace(year=year, month=month, day=min(moment.day, monthrange(year, month)[1]))


def _shown(moment: date, format_text: str) -> str:
    moment = utc(moment)
    micros = f"{moment.microsecond:06}" if isinstance(moment, datetime) else ""

    def field(letters: str) -> str:
        if letters[0] == "S":
            return micros[: len(letters)]
        return f"{getattr(moment, FIELDS[letters]):0{len(letters)}}"

    return "".join(
        field(text) if is_field else text for text, is_field in format_of(format_text).pieces
    )


def _parsed(type_: str) -> Callable[[str, str], Any]:
    timed = type_ != "date"

    def parse(text: str, format_text: str) -> Any:
        found = read_format(format_text, "fraction" if timed else "day")
        match = re.fullmatch(form_of(found), text)
        if match is None:
            raise InvalidOperation(
                f"{text[:100]!r} is not of the form {format_text!r}: correct the value, or leave "
                "such rows out with a case expression"
            )
        return cast_value(match.expand(canonical(found, timed)), type_)

    return parse


#: What each means for operands that are not NULL; operands that are wanted as dates are dates.
DATE_MEANINGS: dict[str, Callable[..., Any]] = {
    "quarter": lambda a: (a.month + 2) // 3,
    "weekofyear": lambda a: a.isocalendar().week,
    "dayofyear": lambda a: a.timetuple().tm_yday,
    "dayofweek": lambda a: a.isoweekday() % 7 + 1,
    "weekday": lambda a: a.weekday(),
    "datediff": lambda end, start: (end - start).days,
    "add_months": months_later,
    "last_day": lambda a: a.replace(day=monthrange(a.year, a.month)[1]),
    "make_date": date,
    "date_format": _shown,
    "to_date": _parsed("date"),
    "to_timestamp": _parsed("timestamp"),
    "to_timestamp_ntz": _parsed("timestamp_ntz"),
}
