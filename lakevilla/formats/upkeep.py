"""What a table says of its own upkeep, by properties: when it is optimized, and whether vacuumed.

A value that another client has written, and that says nothing here, counts as unset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown

#: As many small files in one partition are worth a commit that puts them together: each read of
#: it then asks for that many objects less. Spark's auto compaction begins at as many.
SMALL_FILES = 50

_OPTIMIZE = "lakevilla.optimize"
_SMALL_FILES = "lakevilla.optimize.small_files"
_DAYS = "lakevilla.optimize.days"
_VACUUM = "lakevilla.vacuum"


@dataclass(frozen=True, slots=True)
class UpkeepRules:
    """What ``maintain`` may do to a table.

    Attributes
    ----------
    small_files : int or None
        It is optimized once a partition has so many files below half the size that files should
        have; None: never.
    days : int or None
        It is also optimized once a partition has two of them, one of which is so old.
    vacuum : bool
    """

    small_files: int | None
    days: int | None
    vacuum: bool


def upkeep_of(properties: Mapping[str, str]) -> UpkeepRules:
    """What a table's properties say."""
    optimizes = _flag(properties.get(_OPTIMIZE, "")) != "false"
    few, days = _number(properties.get(_SMALL_FILES, "")), _number(properties.get(_DAYS, ""))
    return UpkeepRules(
        (max(int(few), 2) if few is not None else SMALL_FILES) if optimizes else None,
        int(days) if days is not None and optimizes else None,
        _flag(properties.get(_VACUUM, "")) != "false",
    )


def is_upkeep(name: str) -> bool:
    """Whether a property is one of these, or is meant to be."""
    meant = name.startswith((_OPTIMIZE, _VACUUM))
    return meant or bool(get_close_matches(name, _KNOWN, n=1, cutoff=0.9))


def check_upkeep(name: str, value: str, table: str) -> None:
    """Refuse a property of upkeep that says nothing.

    Raises
    ------
    InvalidOperation
    """
    known = _KNOWN.get(name)
    if known is None:
        near = get_close_matches(name, _KNOWN, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_KNOWN)}"
        raise InvalidOperation(
            f"property {name} of table {table} is not known to lakevilla: {hint}", table=table
        )
    check, wanted = known
    if check(value) is None:
        raise InvalidOperation(
            f"property {name} of table {table} cannot be {shown(value)}: set it to {wanted}",
            table=table,
        )


def _flag(value: str) -> str | None:
    text = value.strip().lower()
    return text if text in ("true", "false") else None


def _number(value: str) -> str | None:
    text = value.strip()
    return text if text.isascii() and text.isdigit() and len(text) <= 9 else None


def _at_least_two(value: str) -> str | None:
    text = _number(value)
    return text if text is not None and int(text) >= 2 else None


_KNOWN: dict[str, tuple[Callable[[str], str | None], str]] = {
    _OPTIMIZE: (_flag, "true or false"),
    _SMALL_FILES: (_at_least_two, "a whole number from 2 on"),
    _DAYS: (_number, "a whole number of days"),
    _VACUUM: (_flag, "true or false"),
}
