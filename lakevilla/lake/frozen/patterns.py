"""Tables by patterns of what they are called: their names, and their paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from lakevilla.errors import InvalidOperation


def called_by(locations: Iterable[str], names: Mapping[str, str]) -> dict[str, set[str]]:
    """What each of these tables is called; ``names`` are at hand."""
    called = {location: {location} for location in locations}
    for name, location in names.items():
        if location in called:
            called[location].add(name)
    return called


def that_fit(
    called: Mapping[str, Iterable[str]], patterns: Sequence[str], argument: str = "tables"
) -> set[str]:
    """The tables that one of the patterns fits. Raises ``InvalidOperation`` if one fits none."""
    found: set[str] = set()
    for pattern in patterns:
        fitting = {
            location
            for location, names in called.items()
            if any(fnmatchcase(name, pattern) for name in names)
        }
        if not fitting:
            raise InvalidOperation(f"{argument}: no table of the lake is called like {pattern!r}")
        found |= fitting
    return found
