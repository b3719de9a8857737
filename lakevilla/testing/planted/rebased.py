"""Planted bugs of rebases (docs/design/0034-rebase.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lakevilla.lake.refs import branch_head
from lakevilla.refs import branches, change, entries, moved
from lakevilla.store.effects import Program
from lakevilla.testing.planted.bugs import instead, planted
from lakevilla.testing.planted.refs import EqualToAll, Whichever
from lakevilla.transaction.commit.together import replacing


@planted(for_histories=False)
def noclose() -> Iterator[None]:
    """A rebase does not close the life that it has read."""
    original = branches.close_as

    def close_as(context: Any, entry: Any, held: Any, why: Any) -> Program[bool]:
        if why == "moved":
            return True
        return (yield from original(context, entry, held, why))

    with instead(original, close_as):
        yield


@planted(for_histories=False)
def droplives() -> Iterator[None]:
    """A branch lets go of its older lives, whoever names files of them."""

    def none(_: Any) -> frozenset[str]:
        return frozenset()

    with instead(moved._lives_named, none):
        yield


@planted(for_histories=False)
def movedlost() -> Iterator[None]:
    """Who has no answer does not look into a HEAD that was closed."""
    original = replacing.look_for

    def look_for(candidate: Any, base: Any) -> Program[Any]:
        if base.head.life is None or not base.head.life.closed:
            return (yield from original(candidate, base))
        candidate.held = base
        candidate.txn.note_not_in(base.head)
        return None

    with instead(original, look_for):
        yield


@planted(for_histories=False)
def shortlives() -> Iterator[None]:
    """A branch lets go of a life at once when nothing of it is named any more."""
    original = entries.with_life

    def with_life(context: Any, entry: Any, life: str, *, kept: Any = ()) -> Any:
        new = original(context, entry, life, kept=kept)
        lives = tuple(one for one in new.lives if one in kept)
        return msgspec.structs.replace(new, lives=(*lives, life))

    with instead(original, with_life):
        yield


@planted(for_histories=False)
def moved_is_ended() -> Iterator[None]:
    """A branch whose rebase was cut off is taken out of HEAD, as one that was deleted."""

    def has_ended(held: Any) -> bool:
        return held.head.life is not None and bool(held.head.life.closed)

    with instead(branch_head.has_ended, has_ended):
        yield


@planted(for_histories=False)
def dereg_moved() -> Iterator[None]:
    """A deletion takes a branch out of HEAD, whatever life it is in by now."""
    original = change._change

    def in_any_life(
        context: Any, name: str, first: Any, changed: Any, **options: Any
    ) -> Program[Any]:
        known: Any = Whichever(first.id, EqualToAll(first.life))
        return (yield from original(context, name, known, changed, **options))

    with instead(original, in_any_life):
        yield
