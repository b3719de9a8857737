"""Functions of dates and times, and formats of them."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
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
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.expressions.types import is_integer
from lakevilla.sql.expressions.values import cast_value

# -------------------- moments
#
# Functions of dates and timestamps, the latter in UTC.


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
    "date_format": Function("date_format(a, 'format')", "string", (
        "formats below; fractions are truncated"
    ), 2, 2, _written, duckdb="strftime(a, '%Y-%m-%d')"),
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


def utc(instant: Any) -> Any:
    """Return a zoned timestamp as UTC's; other values unchanged."""
    aware = isinstance(instant, datetime) and instant.tzinfo is not None
    return instant.astimezone(UTC) if aware else instant


def months_later(instant: Any, count: int) -> Any:
    """Return the date ``months`` months later: the same day of the month, or the
    month's last day.
    """
    months = instant.year * 12 + instant.month - 1 + count
    year, month = months // 12, months % 12 + 1
    if not 1 <= year <= 9999:
        raise OverflowError
    return instant.replace(year=year, month=month, day=min(instant.day, monthrange(year, month)[1]))


def _shown(instant: date, format_text: str) -> str:
    instant = utc(instant)
    micros = f"{instant.microsecond:06}" if isinstance(instant, datetime) else ""

    def field(letters: str) -> str:
        if letters[0] == "S":
            return micros[: len(letters)]
        return f"{getattr(instant, FIELDS[letters]):0{len(letters)}}"

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


#: The meaning of each function for operands that are not NULL; where a date is wanted, it is one.
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


# -------------------- formats
#
# Formats of dates and times that Java and DuckDB read and write alike.
#
# The letters are Java's (``yyyy-MM-dd``), each field has all its digits, and the text between them
# is copied unchanged. A format for reading that has a field must also have the wider ones.


#: Fields from wide to narrow, and the letters of each.
FIELDS = {
    "yyyy": "year",
    "MM": "month",
    "dd": "day",
    "HH": "hour",
    "mm": "minute",
    "ss": "second",
    "SSS": "fraction",
    "SSSSSS": "fraction",
}
_ORDER = tuple(dict.fromkeys(FIELDS.values()))
#: Forms that digits alone do not define: there is no year 0, and no hour 24.
_FORMS = {
    "yyyy": "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)",
    "HH": "([01][0-9]|2[0-3])",
}
_PIECES = re.compile(r"([A-Za-z])\1*|'([A-Za-z]+)'|([-/.:, _])|(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Format:
    """The pieces of a format in order: letters of a field, or text between them."""

    pieces: tuple[tuple[str, bool], ...]

    @property
    def letters(self) -> dict[str, str]:
        """Return the letters of each field."""
        return {FIELDS[text]: text for text, field in self.pieces if field}


@lru_cache(maxsize=256)
def format_of(text: str) -> Format:
    """Read a format.

    Raises
    ------
    WrongTypes
        Names the letters that engines differ in.
    """
    pieces: list[tuple[str, bool]] = []
    seen: set[str] = set()
    for match in _PIECES.finditer(text):
        whole, literal = match[0], match[2] or match[3]
        if literal is not None:
            pieces.append((literal, False))
            continue
        field = FIELDS.get(whole)
        if field is None:
            raise WrongTypes(
                f"a format of {', '.join(FIELDS)}, with - / . : , _ and spaces, or letters in "
                f"'...', between them; {text!r} has {whole!r}"
            )
        if field in seen:
            raise WrongTypes(f"a format with each field once, not {text!r}")
        seen.add(field)
        pieces.append((whole, True))
    if not seen:
        raise WrongTypes(f"a format of {', '.join(FIELDS)}, not {text!r}")
    return Format(tuple(pieces))


def read_format(text: str, last: str) -> Format:
    """Return a format for reading: without gaps, from the year to at most ``last``.

    Raises
    ------
    WrongTypes
        A field without the wider ones that it belongs to, or one that the type lacks.
    """
    found = format_of(text)
    fields = found.letters
    for at, field in enumerate(_ORDER):
        if field in fields and at > _ORDER.index(last):
            raise WrongTypes(f"a format without {field}s here, not {text!r}")
        if field in fields and at and _ORDER[at - 1] not in fields:
            raise WrongTypes(f"a format that has the {_ORDER[at - 1]} together with the {field}")
    if "year" not in fields:
        raise WrongTypes(f"a format that has the year, not {text!r}")
    return found


def form_of(found: Format) -> str:
    """Return a regular expression, for every engine, with a group for each field in order."""
    return "".join(
        _FORMS.get(text, f"([0-9]{{{len(text)}}})")
        if field
        else re.sub(r"([^A-Za-z0-9 ])", r"\\\1", text)
        for text, field in found.pieces
    )


def canonical(found: Format, timed: bool) -> str:
    r"""Return the groups of ``form_of`` as ISO 8601, with ``\1`` for the first."""
    names = [FIELDS[text] for text, field in found.pieces if field]
    groups = {name: f"\\{at}" for at, name in enumerate(names, 1)}
    day = f"{groups['year']}-{groups.get('month', '01')}-{groups.get('day', '01')}"
    if not timed:
        return day
    hour, minute, second = (groups.get(name, "00") for name in ("hour", "minute", "second"))
    fraction = f".{groups['fraction']}" if "fraction" in groups else ""
    return f"{day} {hour}:{minute}:{second}{fraction}"
