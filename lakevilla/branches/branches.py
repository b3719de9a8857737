"""Branches: how one begins, is opened, and ends (docs/design/0031-branches.md)."""

from __future__ import annotations

from typing import Literal

import msgspec

from lakevilla.errors import CorruptObject, StoreError
from lakevilla.global_log.bases import Base
from lakevilla.global_log.head import HEAD_KEY, BranchLife, Head, first_head, successor
from lakevilla.global_log.refs import BaseRef, RefEntry
from lakevilla.global_log.repo import HeldHead, load_head, replace_head, store_leaves
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import is_closed
from lakevilla.lake.frozen.mounts import clones_of
from lakevilla.store.base import ABSENT, Stored, Unknown
from lakevilla.store.codec import encode
from lakevilla.store.effects import Program, put, sleep
from lakevilla.store.home import at_home, key_at

_MAX_RACES = 200


def store_first_head(
    context: Context, now: Head, base: Base, ref: BaseRef, entry_id: str
) -> Program[None]:
    """Store the HEAD with which a branch begins, before the lake's HEAD names the branch.

    Were it made by the first commit, one that stalls until the branch is deleted and swept would be
    acknowledged, and lost.
    """
    life = BranchLife(base.life, base.name, entry_id, ref, apart=bool(base.kept))
    first = first_head(now, life, base.tables, base.names, context.ids.nonce(), clones=base.clones)
    yield from put_first(base.life, first)


def store_again(context: Context, closed: Head, life: str) -> Program[None]:
    """Store the HEAD with which a branch goes on in another life, as it was when it was closed.

    What it names of the lives before stays where it is.
    """
    before = closed.life
    assert before is not None, "the HEAD of a branch"
    again = first_head(
        closed,
        BranchLife(life, before.name, before.ref_id, before.base, apart=before.apart),
        closed.tables,
        closed.names,
        context.ids.nonce(),
        closed.sequence,
        clones_of(closed),
    )
    yield from put_first(life, again)


def put_first(life: str, first: Head) -> Program[None]:
    """Store the HEAD of a life that nobody knows yet. Raises ``StoreError``."""
    yield from store_leaves(first)
    stored = yield from at_home(life, put(HEAD_KEY, encode(first), ABSENT))
    if isinstance(stored, Unknown):
        key = key_at(life, HEAD_KEY)
        raise StoreError(f"could not store {key} ({stored.reason}): try again")


def close(context: Context, entry: RefEntry, at: int | None = None) -> Program[bool]:
    """See to it that nothing is committed on a branch any more: its own HEAD says so.

    ``at``: only if it has come to this version, and no further; whether it is closed.

    First of all that ends it. Were it taken out of the lake's HEAD before, a commit could be
    acknowledged of which nobody would know that it has to be kept.
    """
    for _ in range(_MAX_RACES):
        try:
            held = yield from at_home(entry.life, load_head())
        except CorruptObject:
            return True  # nobody can commit on what can't be read
        life = None if held is None else held.head.life
        if held is None or life is None:
            return True
        if at is not None and held.head.sequence != at:
            return False
        if life.closed or (yield from close_as(context, entry, held, "deleted")):
            return True
        yield from sleep(context.settings.retry_base_seconds * context.ids.jitter())
    raise StoreError(f"a branch's HEAD was replaced by others {_MAX_RACES} times in a row")


def close_as(
    context: Context, entry: RefEntry, held: HeldHead, why: Literal["deleted", "moved"]
) -> Program[bool]:
    """One try to close the HEAD of a branch, as long as it is the one that was read."""
    following = successor(held.head, nonce=context.ids.nonce(), now_ms=context.now_ms())
    assert following.life is not None, "the HEAD of a branch"
    closed = msgspec.structs.replace(following.life, closed=why)
    new = msgspec.structs.replace(following, life=closed)
    return isinstance((yield from at_home(entry.life, replace_head(held, new))), Stored)


def was_made(entry: RefEntry) -> Program[bool]:
    """Whether a branch that its maker has no answer about came to be, and is ended by now.

    Asked when the lake's HEAD has no such entry: only who saw it there closes a branch.
    """
    held = yield from at_home(entry.life, load_head())
    return held is not None and is_closed(held)
