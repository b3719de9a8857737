"""Leaves that have fallen: which of them gc may delete (docs/design/0011-scale.md).

A reader that is bound to an older HEAD may still want a leaf which the newest does not
name. So a leaf is kept for ``max_age_seconds`` after it was let go. Nothing in it says when
that was, so gc leaves marks: what HEAD named at a time. A leaf made before an old mark
that the mark does not name was let go before it, or never was in any HEAD.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakevilla.errors import CorruptObject
from lakevilla.global_log.head import Head
from lakevilla.global_log.leaves import LeafMark, is_mark, made_of
from lakevilla.lake.context import Context
from lakevilla.maintenance.gc.listing import Listing
from lakevilla.store.base import ABSENT, Found
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.effects import Program, get, parallel, put


def unreferenced_leaves(
    context: Context, head: Head, named: Iterable[str], listed: Listing, *, dry_run: bool
) -> Program[list[str]]:
    """What may be deleted of ``listed``, which was listed before ``head`` was read, or stored.

    ``named`` are the leaves of that HEAD, and those of the bases that it keeps. How old a mark is
    tells the store.
    """
    keys = list(listed.leaves)
    now = _mark(context, head, named, listed.now)
    marks = yield from _marks([key for key in keys if is_mark(key)])
    leaves = [key for key in keys if not is_mark(key)]
    fallen = [key for key in leaves if _is_unreferenced(key, now)]
    if not fallen and not marks:
        return []
    max_age = context.settings.max_age_seconds
    made = {mark.key: listed.leaves[mark.key] for mark in marks}
    ripe = [mark for mark in marks if made[mark.key] <= listed.now - max_age]
    ripe += [now] if max_age == 0 else []
    ruling = max(ripe, key=lambda mark: mark.replacement, default=None)
    # A few marks are enough for ever: each run need not leave one.
    halfway = listed.now - max_age / 2
    waiting = ruling is None or any(not _is_unreferenced(key, ruling) for key in fallen)
    may_mark = not (dry_run or listed.in_doubt)  # a mark tells that HEAD has come so far
    if waiting and may_mark and all(at <= halfway for at in made.values()):
        # Refused: another gc has marked this very HEAD.
        yield from put(now.key, encode(now), ABSENT)
    if ruling is None:
        return []
    doomed = [key for key in fallen if _is_unreferenced(key, ruling)]
    return doomed + [mark.key for mark in marks if mark.replacement < ruling.replacement]


def _mark(context: Context, head: Head, named: Iterable[str], now: float) -> LeafMark:
    keys = tuple(sorted(named))
    return LeafMark(FORMAT, context.ids.nonce(), head.replacement, int(now * 1000), keys)


def _is_unreferenced(key: str, mark: LeafMark) -> bool:
    """Whether no HEAD from the mark's on names the leaf.

    Safe because a HEAD names the leaves that its own replacement has made, and others that
    the HEAD before it named; and so do the bases that it is the first to keep.
    """
    return made_of(key) <= mark.replacement and key not in mark.named


def _marks(keys: list[str]) -> Program[list[LeafMark]]:
    outcomes = yield from parallel([get(key) for key in keys])
    marks = []
    for key, outcome in zip(keys, outcomes, strict=True):
        if isinstance(outcome, Found):
            mark = decode(key, outcome.body, LeafMark)
            if mark.key != key:
                raise CorruptObject(
                    f"{key} holds the mark of replacement {mark.replacement}: it was copied there "
                    "by hand; delete it",
                    key=key,
                )
            marks.append(mark)
    return marks
