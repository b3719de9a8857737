"""Values as text, and the capabilities of the output."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal, get_args

from lakevilla.display import shown_text

# -------------------- values
#
# One value, in JSON and in a table's cell.


def plain(value: Any) -> Any:
    """Return a value in JSON's form: decimals and times as text, structs as objects.

    Numbers that JSON does not have are text: ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.
    """
    match value:
        case tuple() if _is_interval(value):
            return _interval(*value)
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return value.hex()
        case Decimal():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            return {_key(key): plain(item) for key, item in value.items()}
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return {item.name: plain(getattr(value, item.name)) for item in fields}
        case Iterable():
            return [plain(item) for item in value]
        case _:
            return str(value)


def _key(key: object) -> str:
    """Return a map's key as text, in the same form as values."""
    return key if isinstance(key, str) else text_of(key)


def _is_interval(value: tuple[Any, ...]) -> bool:
    """Return whether a value is Arrow's interval, without importing Arrow."""
    return type(value).__name__ == "MonthDayNano"


def _interval(months: int, days: int, nanoseconds: int) -> str:
    """Return an interval in SQL's form: ``2 months 1 day 04:05:06.5``."""
    parts = [
        f"{count} {unit}{'' if abs(count) == 1 else 's'}"
        for count, unit in ((months, "month"), (days, "day"))
        if count
    ]
    if nanoseconds or not parts:
        seconds, rest = divmod(abs(nanoseconds), 10**9)
        minutes, seconds = divmod(seconds, 60)
        fraction = f".{rest:09}".rstrip("0") if rest else ""
        sign = "-" if nanoseconds < 0 else ""
        parts.append(f"{sign}{minutes // 60:02}:{minutes % 60:02}:{seconds:02}{fraction}")
    return " ".join(parts)


def json_text(value: object) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def text_of(value: object) -> str:
    """Return a value that is not NULL as text, in SQL's form if SQL has one."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat(sep=" ")
        case tuple() if _is_interval(value):
            return _interval(*value)
        case Mapping() | list() | tuple():
            return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)
        case _:
            return str(plain(value))


def cell(value: object) -> str:
    """Return a text on one line, without characters that would move a terminal's cursor."""
    return shown_text(text_of(value))


# -------------------- look
#
# The format in which rows are requested, and the capabilities of the output.


Format = Literal["table", "vertical", "csv", "json", "ndjson", "markdown"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True, slots=True)
class Look:
    """The capabilities of an output.

    If ``width`` is None, lines have no limit, but ``widest`` may still cut cells. ``ascii`` is True
    for encodings without box characters.
    """

    width: int | None = None
    widest: int | None = None
    colour: bool = False
    ascii: bool = False
