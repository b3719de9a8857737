"""Logs of numbered objects: each created if absent, none ever replaced or deleted.

What a store that only creates can do in the place of replacing an object: number n + 1
stands for what replaces number n. ``docs/design/0009-head-as-a-log.md`` argues it.

Two things hold, and everything here rests on them. The log is dense: number n + 1 is
created only by one who has read number n. And it only grows. So, unlike in a table's log,
the absence of number n + 1 proves that n was the newest at that moment; and
whether a number is taken grows monotonously, so that the newest can be searched for.
"""

from __future__ import annotations

import re

from lakevilla.errors import CorruptObject
from lakevilla.store.base import Found, ObjectInfo
from lakevilla.store.effects import Program, get, list_objects, parallel, stat

#: A LIST answers with so many keys at once: nearer than this the newest is listed.
_PAGE = 1000

#: A number and what is stored under it.
Entry = tuple[int, Found]


def entry_key(prefix: str, number: int) -> str:
    return f"{prefix}/{number:020}.json"


def newest(prefix: str, known: int, *, is_far: bool = False) -> Program[Entry | None]:
    """The newest entry, or None if it is still ``known``: one GET while nothing is new.

    Ends with a GET that finds the next number absent, whatever a hint or a list has said
    before: those may be old, and only tell from where to look on.

    Parameters
    ----------
    known : int
        A number that is taken.
    is_far : bool
        Much may have come since: search before the first look.
    """
    found: Entry | None = None
    number, taken = known, known
    walked = 0
    while True:
        if is_far or walked == 2:
            taken = yield from _search(prefix, number)
            number = max(number, taken - 1)
            is_far, walked = False, 3  # once: from here on it is near
        outcome = yield from get(entry_key(prefix, number + 1))
        if isinstance(outcome, Found):
            number += 1
            walked += 1
            found = number, outcome
        elif number < taken:
            raise _gap(prefix, number + 1)
        else:
            return found


def _search(prefix: str, low: int) -> Program[int]:
    """A number that is taken, ``low`` or above it: the newest, unless the list is old.

    In a log of a million entries that takes 32 requests in eight rounds; to list it
    all would take a thousand, one after the other.
    """
    width = _PAGE
    while (yield from _is_taken(prefix, low + width)):
        width *= 10
    if width > _PAGE:
        low += width // 10
    while width > _PAGE:
        width //= 10
        tens = yield from parallel([_is_taken(prefix, low + n * width) for n in range(1, 10)])
        low += width * sum(tens)
    listed = yield from list_objects(prefix, entry_key(prefix, low))
    numbers = sorted(number for info in listed if (number := _number(prefix, info)) is not None)
    for place, number in enumerate(numbers, low + 1):
        if number != place:
            raise _gap(prefix, place)
    return numbers[-1] if numbers else low


def _is_taken(prefix: str, number: int) -> Program[bool]:
    return isinstance((yield from stat(entry_key(prefix, number))), ObjectInfo)


def _number(prefix: str, info: ObjectInfo) -> int | None:
    name = info.key.removeprefix(f"{prefix}/")
    return int(name[:20]) if re.fullmatch(r"\d{20}\.json", name) else None


def _gap(prefix: str, number: int) -> CorruptObject:
    key = entry_key(prefix, number)
    return CorruptObject(
        f"{key} is missing although later ones are there, and none is ever deleted: restore it "
        "from a copy",
        key=key,
    )
