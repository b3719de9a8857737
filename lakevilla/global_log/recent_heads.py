"""Recent HEADs: copies of those that were replaced, for who has to go back to one.

One is stored beside each page of older commits, and one at the beginning of each gc, so that no
commit waits for it and few cost a request more (docs/design/0053-gone-back.md). Nothing rests on
them: they are read by ``recover --reset-head``, and each is a sign that HEAD has come so far.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakevilla.errors import CorruptObject, UnsupportedFormat
from lakevilla.global_log.head import Head
from lakevilla.global_log.numbered_log import entry_key
from lakevilla.store.base import ANY, Found, PutOutcome
from lakevilla.store.codec import decode, encode
from lakevilla.store.effects import Program, get, list_objects, parallel, put

RECENT_PREFIX = "_lakevilla/recent"
#: So many are kept, the newest.
MOST_RECENT = 16


def put_copy(head: Head) -> Program[PutOutcome]:
    """Store a copy of a HEAD that was read. To store it twice changes nothing."""
    return put(entry_key(RECENT_PREFIX, head.replacement), encode(head), ANY)


def keep_recent(head: Head) -> Program[None]:
    """Store a copy of a HEAD; one that is a log has all of them."""
    if not head.as_log:
        yield from put_copy(head)


def too_old(keys: Iterable[str]) -> list[str]:
    """Of the keys of copies those that are more than ``MOST_RECENT`` behind."""
    return sorted(keys)[:-MOST_RECENT]


def recent_heads() -> Program[list[Head]]:
    """The copies that are kept and can be read, the newest first."""
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
    """The copies in words, for who has to choose one."""
    return ", ".join(f"{head.replacement} (global version {head.sequence})" for head in heads)
