"""Logs of numbered objects: each is created if absent, and none is ever replaced or deleted.

A store that only creates objects uses such a log instead of replacing an object: number n + 1 is
the replacement of number n. ``docs/design/0009-head-as-a-log.md`` argues it.

Everything here depends on two properties. The log has no gaps: only a client that has read number n
creates number n + 1. And it only grows. So, unlike in a table's log, the absence of number n + 1
proves that n was the newest at that time; and the newest number can be found by bisection, since
all numbers up to it exist, and none above.
"""

from __future__ import annotations

import re

from lakevilla.errors import CorruptObject
from lakevilla.store.base import Found, ObjectInfo
from lakevilla.store.effects import Program, get, list_objects, parallel, stat

#: Number of keys in one answer to a LIST: a newest entry within this distance is found by a LIST.
_PAGE = 1000

#: A number and the object that is stored under it.
Entry = tuple[int, Found]


def entry_key(prefix: str, number: int) -> str:
    return f"{prefix}/{number:020}.json"


def newest(prefix: str, known: int, *, is_far: bool = False) -> Program[Entry | None]:
    """Return the newest entry, or None if it is still ``known``; that takes one GET.

    The last request is always a GET that finds the next number absent: hints and lists may be old,
    and only give the number from which the search continues.

    Parameters
    ----------
    known : int
        A number that exists.
    is_far : bool
        Many entries may have been added after ``known``: search before the first GET.
    """
    found: Entry | None = None
    number, taken = known, known
    walked = 0
    while True:
        if is_far or walked == 2:
            taken = yield from _search(prefix, number)
            number = max(number, taken - 1)
            is_far, walked = False, 3  # search once: from here on the newest number is near
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
    """Return a number from ``low`` on that exists: the newest, unless the list is old.

    In a log of a million entries that takes 32 requests in eight rounds. To list the whole log
    would take a thousand requests, one after the other.
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
    for position, number in enumerate(numbers, low + 1):
        if number != position:
            raise _gap(prefix, position)
    return numbers[-1] if numbers else low


def _is_taken(prefix: str, number: int) -> Program[bool]:
    return isinstance((yield from stat(entry_key(prefix, number))), ObjectInfo)


def _number(prefix: str, info: ObjectInfo) -> int | None:
    name = info.key.removeprefix(f"{prefix}/")
    return int(name[:20]) if re.fullmatch(r"\d{20}\.json", name) else None


def _gap(prefix: str, number: int) -> CorruptObject:
    key = entry_key(prefix, number)
    return CorruptObject(
        f"{key} is missing although later ones exist, and none is ever deleted: restore it from a "
        "copy",
        key=key,
    )
