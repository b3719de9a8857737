"""Guests: Iceberg clients, which hold no place, and when one of them goes first (note 75).

A gateway keeps nothing. What is counted here is a hint: a process that forgets it reserves later.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from lakevilla.global_log.head import Reservation

#: A table is reserved for guests for so long, by the clock of each client that waits.
GUEST_SECONDS = 3.0
#: A second refusal within so long reserves the table.
_REFUSED_SECONDS = 10.0
#: After a reservation that no guest has used, a process makes none for so long.
_REST_SECONDS = 3 * GUEST_SECONDS


@dataclass(slots=True)
class Guests:
    """The refusals of guests by table, when their reservations were made, and when the next may."""

    _refused: dict[str, float] = field(default_factory=dict)
    _reserved: dict[str, float] = field(default_factory=dict)
    _rests: dict[str, float] = field(default_factory=dict)

    def note_refusal(self, tables: Collection[str], now: float) -> bool:
        """Note that others were first; return whether the tables are to be reserved now."""
        is_second = _is_any_since(self._refused, tables, now - _REFUSED_SECONDS)
        rests = _is_any_since(self._rests, tables, now)
        _note(self._refused, tables, now, now - _REFUSED_SECONDS)
        if not is_second or rests:
            return False
        _note(self._reserved, tables, now, now - _REST_SECONDS)
        _note(self._rests, tables, now + _REST_SECONDS, now)
        return True

    def note_commit(self, tables: Iterable[str], now: float) -> None:
        """Note that a guest has committed: others get as long as its tables were reserved."""
        for table in tables:
            since = self._reserved.pop(table, None)
            if since is not None:
                self._rests[table] = now + (now - since)


def guests_at(reserved: Iterable[Reservation], tables: Collection[str]) -> list[str]:
    """Return the ids of the reservations of some tables that are for guests."""
    return [one.txn for one in reserved if one.guest and not set(tables).isdisjoint(one.tables)]


def _is_any_since(times: dict[str, float], tables: Iterable[str], start: float) -> bool:
    return any(times.get(table, -math.inf) > start for table in tables)


def _note(times: dict[str, float], tables: Iterable[str], now: float, start: float) -> None:
    for table in [one for one, time in list(times.items()) if time <= start]:
        times.pop(table, None)
    times.update(dict.fromkeys(tables, now))
