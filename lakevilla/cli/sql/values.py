"""Values for the ``:name`` of statements, as a command line and a shell give them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NoReturn

from lakevilla.errors import InvalidOperation
from lakevilla.sql.statements.script.used import used_in

Values = Mapping[str, object]


def values_of(given: Iterable[str] | None) -> dict[str, object]:
    """The values by their names.

    Raises
    ------
    InvalidOperation
        One is not ``NAME=VALUE``, or a name comes twice.
    """
    found: dict[str, object] = {}
    for one in given or ():
        name, equals, text = one.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidOperation(f"parameter {one!r} is not understood: write NAME=VALUE")
        if name in found:
            raise InvalidOperation(f"parameter {name} is given twice: leave one of them out")
        found[name] = value_of(text)
    return found


def value_of(text: str) -> object:
    """What JSON makes of a text; a text that is no JSON stands for itself, as dates do."""
    try:
        return json.loads(text, parse_float=_number, parse_constant=_no_constant)
    except ValueError:
        return text
    except RecursionError:
        raise InvalidOperation(f"value {text[:40]!r}... is nested too deeply") from None


def used_by(text: str, values: Values) -> dict[str, object] | None:
    """Those that a statement names: the others are for other statements of the script."""
    used = used_in(text, values, "duckdb")
    return {name: value for name, value in values.items() if name in used} or None


def refuse_unused(texts: Iterable[str], values: Values) -> None:
    """Refuse a value that no statement of any text names: its name is misspelt.

    Raises
    ------
    InvalidOperation
    """
    left = set(values)
    for text in texts:
        left -= used_in(text, left, "duckdb")
    if left:
        raise InvalidOperation(
            f"no statement has :{min(left)}: correct the name, or leave --param out"
        )


def _number(text: str) -> object:
    """As a literal of SQL: with an exponent a double, else a decimal."""
    return float(text) if "e" in text.lower() else Decimal(text)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)
