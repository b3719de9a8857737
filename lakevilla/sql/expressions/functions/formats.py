"""Formats of dates and times that Java and DuckDB read and write alike.

The letters are Java's (``yyyy-MM-dd``), each field has all its digits, and what is between
them is taken as it is. A field that is read must have the wider ones beside it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from lakevilla.sql.expressions.functions.declaring import WrongTypes

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
#: What digits cannot say alone: there is no year 0, and no hour 24.
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
        """By field, its letters."""
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
    """A format to read by: without gaps, from the year to at most ``last``.

    Raises
    ------
    WrongTypes
        A field without those that it belongs to, or one that the type lacks.
    """
    found = format_of(text)
    fields = found.letters
    for at, field in enumerate(_ORDER):
        if field in fields and at > _ORDER.index(last):
            raise WrongTypes(f"a format without {field}s here, not {text!r}")
        if field in fields and at and _ORDER[at - 1] not in fields:
            raise WrongTypes(f"a format that has the {_ORDER[at - 1]} beside the {field}")
    if "year" not in fields:
        raise WrongTypes(f"a format that has the year, not {text!r}")
    return found


def form_of(found: Format) -> str:
    """A regular expression, for every engine, with a group for each field in order."""
    return "".join(
        _FORMS.get(text, f"([0-9]{{{len(text)}}})")
        if field
        else re.sub(r"([^A-Za-z0-9 ])", r"\\\1", text)
        for text, field in found.pieces
    )


def canonical(found: Format, timed: bool) -> str:
    r"""The groups of ``form_of`` as ISO 8601, with ``\1`` for the first."""
    names = [FIELDS[text] for text, field in found.pieces if field]
    groups = {name: f"\\{at}" for at, name in enumerate(names, 1)}
    day = f"{groups['year']}-{groups.get('month', '01')}-{groups.get('day', '01')}"
    if not timed:
        return day
    hour, minute, second = (groups.get(name, "00") for name in ("hour", "minute", "second"))
    fraction = f".{groups['fraction']}" if "fraction" in groups else ""
    return f"{day} {hour}:{minute}:{second}{fraction}"
