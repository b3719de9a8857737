"""Table properties as callers give them, in the one spelling that every client understands.

A log keeps text alone, and each client reads it by rules of its own: ``True`` as Python
prints it is false to all of them (hazard 42). What a name means is the format's to check.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal

from lakevilla.api.arguments import check_names
from lakevilla.arrow.scalars import plain
from lakevilla.errors import InvalidOperation
from lakevilla.settings import is_unicode, shown

__all__ = ["PropertyValue", "property_names", "property_texts"]

#: What a property's value may be given as.
PropertyValue = str | bool | int | float | Decimal


def property_texts(argument: str, given: object) -> dict[str, str]:
    """Properties as text: booleans in lower case, numbers in digits.

    Parameters
    ----------
    argument : str
        Its name, for messages.
    given : Mapping or None
        Values are str, bool, int, float or Decimal.

    Raises
    ------
    InvalidOperation
        It is no mapping, or a name or value says nothing as text.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidOperation(
            f"{argument} maps names to values, and {shown(given)} does not: pass "
            f'{argument}={{"delta.appendOnly": "true"}}'
        )
    return {_name(argument, name): _text(name, value) for name, value in given.items()}


def property_names(argument: str, given: object) -> list[str]:
    """The names of properties, in a list.

    Raises
    ------
    InvalidOperation
    """
    return [_name(argument, name) for name in check_names(argument, given)]


def _name(argument: str, name: object) -> str:
    if not isinstance(name, str) or not name.strip() or not is_unicode(name):
        raise InvalidOperation(f"{argument} has the name {shown(name)}: name properties by text")
    return str.__str__(name)


def _text(name: str, value: object) -> str:
    if value is None:
        raise InvalidOperation(
            f"property {name!r} is None, which no table can store: leave it out, or remove it with "
            f"alter(unset_properties=[{name!r}])"
        )
    found = plain(value, f"property {name!r}") if _may_be_one(value) else value
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, str) and is_unicode(found):
        return found
    if isinstance(found, int) and found.bit_length() <= 64:
        return str(found)
    if isinstance(found, float) and math.isfinite(found):
        return repr(found)
    if isinstance(found, Decimal) and found.is_finite():
        return format(found, "f")
    raise InvalidOperation(
        f"property {name!r} is {shown(value)} of type {type(value).__name__}, which has more than "
        "one spelling as text: pass a str, bool, int, float or Decimal that says it"
    )


def _may_be_one(value: object) -> bool:
    """Whether it is one value of another library, whose Python value is to be looked at."""
    return hasattr(value, "dtype") or hasattr(value, "as_py") or isinstance(value, str | int)
