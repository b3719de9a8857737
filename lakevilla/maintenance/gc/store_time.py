"""The store's own time, by which whoever deletes tells what is old.

A client's clock may be ahead by days: then all that others are at work on looks old to it. So a
clean-up writes an object into a directory that it lists right afterwards, and goes by the time that
the store has put on it: one request a run (docs/design/0054-store-time.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakevilla.errors import StoreError
from lakevilla.lake.context import Context
from lakevilla.store.base import ANY, Missing, ObjectInfo
from lakevilla.store.effects import Program, put, stat

#: A clock that differs from the store's by no more is believed: it knows parts of a second, and
#: no retention is so short.
TOLERANCE_SECONDS = 60.0
TIME_NAME = "time.json"
_BODY = b'{"note":"its time of writing tells a clean-up the time of the store"}\n'


@dataclass(frozen=True, slots=True)
class TimeAsked:
    """An object that was just written, and when it was by the client's own clock."""

    key: str
    own_seconds: float


def ask_time(context: Context, directory: str) -> Program[TimeAsked]:
    """Write the object of a directory; a LIST of it that comes after this tells the time.

    Safe beside others who do the same: it is a later time then, and no later than it is.
    """
    asked = TimeAsked(f"{directory}/{TIME_NAME}", context.clock.now())
    yield from put(asked.key, _BODY, ANY)
    return asked


def shown_time(asked: TimeAsked, listed: Iterable[ObjectInfo]) -> Program[float]:
    """Seconds since the epoch, by the store's clock; it was not earlier when it was asked for.

    A list that is behind has an older time, or none: what is deleted by it is rather less.

    Raises
    ------
    StoreError
        The object is gone.
    """
    info: ObjectInfo | Missing | None
    info = next((one for one in listed if one.key == asked.key), None)
    if info is None:
        info = yield from stat(asked.key)
    if isinstance(info, Missing):
        raise StoreError(
            f"{asked.key} was deleted while a clean-up asked it for the store's time: nothing was "
            "deleted, run it again"
        )
    written, own = info.modified_seconds, asked.own_seconds
    return own if abs(own - written) <= TOLERANCE_SECONDS else written
