"""Times that callers give: datetimes, or texts, with a zone."""

from __future__ import annotations

from datetime import datetime

from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown

__all__ = ["instant", "time_or_other"]


def instant(given: object, name: str = "timestamp") -> datetime:
    """Return the time that a caller has given, which has a zone.

    Raises
    ------
    InvalidOperation
        It is no time, or has no zone: what it means would depend on the machine.
    """
    found = given
    if isinstance(given, str):
        try:
            found = datetime.fromisoformat(given.strip())
        except ValueError:
            found = None
    if not isinstance(found, datetime):
        raise InvalidOperation(
            f"{name} must be a time with a zone, such as datetime.now(UTC) or a text like "
            f"2026-01-31T12:00:00Z, not {shown(given)}"
        )
    if found.utcoffset() is None:
        raise InvalidOperation(
            f"{name} {found.isoformat()} has no time zone: give an aware datetime, such as "
            "datetime.now(UTC), or a text that ends in Z or in an offset such as +01:00"
        )
    return found


def time_or_other(given: object, name: str) -> object:
    """Return the time that a text has, or anything else unchanged.

    A text with a colon is a time, because no ref's name has one.
    """
    return instant(given, name) if isinstance(given, str) and ":" in given else given
