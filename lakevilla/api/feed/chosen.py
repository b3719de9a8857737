"""The tables that somebody follows: by names, or by patterns, which later tables may fit too."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from lakevilla.errors import InvalidOperation
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import load_tables
from lakevilla.store.effects import Program


@dataclass(frozen=True, slots=True)
class Chosen:
    """Locations that were named, and patterns of names and paths; all tables if both are None."""

    locations: frozenset[str] | None = None
    patterns: tuple[str, ...] = ()

    def has(self, location: str, called: Mapping[str, Sequence[str]]) -> bool:
        """Whether a table is one of them; ``called`` is by location what it is called."""
        if self.locations is None or location in self.locations:
            return True
        return any(fits(pattern, location, called) for pattern in self.patterns)


ALL = Chosen()


def is_pattern(text: str) -> bool:
    return any(sign in text for sign in "*?[")


def fits(pattern: str, location: str, called: Mapping[str, Sequence[str]]) -> bool:
    """Whether a table's path or one of its names is as a pattern says."""
    return any(fnmatchcase(name, pattern) for name in (location, *called.get(location, ())))


def names_by_location(head: Head) -> dict[str, list[str]]:
    """What each table is called in HEAD, whose names must be at hand."""
    called: dict[str, list[str]] = {}
    for name, location in head.names.at_hand().items():
        called.setdefault(location, []).append(name)
    return called


def refuse_idle(head: Head, chosen: Chosen, touched: Collection[str]) -> Program[None]:
    """Refuse a pattern that fits no table, now or among the ``touched`` ones.

    Raises
    ------
    InvalidOperation
    """
    called = names_by_location(head)
    idle = [p for p in chosen.patterns if not any(fits(p, place, called) for place in touched)]
    if idle:
        yield from load_tables(head)
        idle = [p for p in idle if not any(fits(p, place, called) for place in head.tables)]
    if idle:
        raise InvalidOperation(f"tables: no table of the lake is called like {idle[0]!r}")
