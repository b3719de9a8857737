"""HEAD as a log of numbered objects, for stores that can't replace under a condition."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lakevilla.errors import CorruptObject, UnsupportedFormat
from lakevilla.global_log.head import HEAD_KEY, Head
from lakevilla.global_log.numbered_log import entry_key, newest
from lakevilla.store.base import ANY, Found, PutOutcome
from lakevilla.store.codec import decode, encode
from lakevilla.store.effects import Program, get, list_objects, parallel, put
from lakevilla.store.location import HOMES_PREFIX

# -------------------- head log
#
# The key of each HEAD, if HEAD is a log because the store only creates (design, section 9).
#
# Number 0 is ``_lakevilla/HEAD.json`` itself, in which ``as_log`` is true. It is created if absent
# like any HEAD, so it decides for ever whether the lake's HEAD is a log, even if several clients
# create the lake at the same time: no client replaces a HEAD while another appends to its log. Its
# successors are ``_lakevilla/heads/<replacement, 20 digits>.json``.


HEADS_PREFIX = "_lakevilla/heads"
_HEAD = re.compile(rf"(?:_lakevilla|{HOMES_PREFIX}/[^/]+)/(?:HEAD\.json|heads/.*)")


def head_key(head: Head) -> str:
    """Return the key under which a HEAD is stored."""
    if head.as_log and head.replacement > 0:
        return entry_key(HEADS_PREFIX, head.replacement)
    return HEAD_KEY


def is_head(key: str) -> bool:
    """Return whether a key is that of a HEAD, new or old, of the lake or of a branch."""
    return _HEAD.fullmatch(key) is not None


def newest_head(known: Head, *, is_far: bool) -> Program[tuple[Head, Found] | None]:
    """Return the newest HEAD of the log that ``known`` is in; None if ``known`` is the newest."""
    entry = yield from newest(HEADS_PREFIX, known.replacement, is_far=is_far)
    if entry is None:
        return None
    number, found = entry
    key = entry_key(HEADS_PREFIX, number)
    head = decode(key, found.body, Head)
    if not head.as_log or head.replacement != number:
        raise CorruptObject(
            f"{key} holds the HEAD with replacement {head.replacement}, not {number}: it was "
            "copied there by hand; restore the object that was there before",
            key=key,
        )
    return head, found


# -------------------- recent heads
#
# Recent HEADs: copies of replaced HEADs, for a user that has to go back to one of them.
#
# A copy is stored with each page of older commits, and at the beginning of each gc, so that no
# commit waits for it and few commits cost one more request (docs/design/0053-gone-back.md). No
# commit depends on the copies: ``recover --reset-head`` reads them, and each proves that HEAD had
# advanced to its number.


RECENT_PREFIX = "_lakevilla/recent"
#: Number of the newest copies that are kept.
MOST_RECENT = 16


def put_copy(head: Head) -> Program[PutOutcome]:
    """Store a copy of a HEAD. To store it twice changes nothing."""
    return put(entry_key(RECENT_PREFIX, head.replacement), encode(head), ANY)


def keep_recent(head: Head) -> Program[None]:
    """Store a copy of a HEAD, unless HEAD is a log, in which all HEADs are kept anyway."""
    if not head.as_log:
        yield from put_copy(head)


def too_old(keys: Iterable[str]) -> list[str]:
    """Return the keys of copies that are not among the newest ``MOST_RECENT``."""
    return sorted(keys)[:-MOST_RECENT]


def recent_heads() -> Program[list[Head]]:
    """Return the copies that are kept and can be read, the newest first."""
    listed = yield from list_objects(RECENT_PREFIX)
    outcomes = yield from parallel([get(info.key) for info in listed])
    heads = []
    for info, outcome in zip(listed, outcomes, strict=True):
        try:
            if isinstance(outcome, Found):
                heads.append(decode(info.key, outcome.body, Head))
        except (CorruptObject, UnsupportedFormat):
            continue
    return sorted(heads, key=lambda head: -head.replacement)


def said_of(heads: Iterable[Head]) -> str:
    """Return the copies' numbers and versions as text, for a user that has to choose one."""
    return ", ".join(f"{head.replacement} (global version {head.sequence})" for head in heads)
