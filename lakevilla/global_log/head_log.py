"""HEAD as a log, where the store only creates: which object holds which HEAD (design, section 9).

Number 0 is ``_lakevilla/HEAD.json`` itself, and it says so (``as_log``). It is created if
absent like any HEAD, so a lake has one form for ever, whichever clients make it at
the same time: no client can replace what another one appends to. What follows it is
``_lakevilla/heads/<replacement, 20 digits>.json``.
"""

from __future__ import annotations

import re

from lakevilla.errors import CorruptObject
from lakevilla.global_log.head import HEAD_KEY, Head
from lakevilla.global_log.numbered_log import entry_key, newest
from lakevilla.store.base import Found
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program
from lakevilla.store.home import HOMES_PREFIX

HEADS_PREFIX = "_lakevilla/heads"
_HEAD = re.compile(rf"(?:_lakevilla|{HOMES_PREFIX}/[^/]+)/(?:HEAD\.json|heads/.*)")


def head_key(head: Head) -> str:
    """Where a HEAD is stored."""
    if head.as_log and head.replacement > 0:
        return entry_key(HEADS_PREFIX, head.replacement)
    return HEAD_KEY


def is_head(key: str) -> bool:
    """Whether a key holds a HEAD, the newest or an old one, of the lake or of a branch."""
    return _HEAD.fullmatch(key) is not None


def newest_head(known: Head, *, is_far: bool) -> Program[tuple[Head, Found] | None]:
    """The newest HEAD of a log of which ``known`` is one, or None if that is the newest."""
    entry = yield from newest(HEADS_PREFIX, known.replacement, is_far=is_far)
    if entry is None:
        return None
    number, found = entry
    key = entry_key(HEADS_PREFIX, number)
    head = decode(key, found.body, Head)
    if not head.as_log or head.replacement != number:
        raise CorruptObject(
            f"{key} holds the HEAD with replacement {head.replacement}, not {number}: it was "
            "copied there by hand; bring back the one that was there",
            key=key,
        )
    return head, found
