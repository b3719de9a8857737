"""One value, as JSON has it and as a cell shows it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from lakevilla.display import shown_text


def plain(value: Any) -> Any:
    """A value as JSON has it: decimals and times as text, structs as objects.

    Numbers that JSON does not have are text: ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.
    """
    match value:
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
            return {str(key): plain(item) for key, item in value.items()}
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return {item.name: plain(getattr(value, item.name)) for item in fields}
        case Iterable():
            return [plain(item) for item in value]
        case _:
            return str(value)


def json_text(value: object) -> str:
    """A value as JSON, on one line."""
    return json.dumps(plain(value), allow_nan=False)


def text_of(value: object) -> str:
    """A value that is not NULL as text: what SQL writes for it where SQL has a way."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat(sep=" ")
        case Mapping() | list() | tuple():
            return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)
        case _:
            return str(plain(value))


def cell(value: object) -> str:
    """The same on one line, for a terminal: nothing in it moves the cursor."""
    return shown_text(text_of(value))
