"""Values for the ``:name`` of a text: named, and of Python's own types."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakevilla.arrow.scalars import plain
from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown

__all__ = ["parameters"]

_NAME = re.compile(r"[A-Za-z_]\w*")


def parameters(given: object, *, nested: bool = False) -> dict[str, object]:
    """Parameters by name, as None, bool, int, float, Decimal, str, bytes, dates, times, UUID or
    lists of these; with ``nested`` also mappings.

    Raises
    ------
    InvalidOperation
        They are given by position, a name is none, or a value is of another type.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        what = "by position" if isinstance(given, list | tuple) else f"as {shown(given)[:80]}"
        raise InvalidOperation(
            f"params are given by name, not {what}: write :n in the text, not ?, $1 or %s, and "
            'pass params={"n": value}'
        )
    found = {}
    for name, value in given.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidOperation(
                f"params has the name {shown(name)}, which no text can use: a name is a letter or "
                "_ and then letters, digits and _, written as :name"
            )
        found[str.__str__(name)] = plain(value, f"parameter :{name}", nested=nested)
    return found
