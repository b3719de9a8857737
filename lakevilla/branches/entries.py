"""The entry of a ref in HEAD: found, replaced, and finished where others were cut off."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from lakevilla.branches.branches import store_again
from lakevilla.errors import StoreError
from lakevilla.global_log.head import Head, successor, with_refs
from lakevilla.global_log.refs import RefEntry, life_of
from lakevilla.global_log.repo import HeldHead, load_refs, replace_head
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import has_ended, has_moved, load_branch
from lakevilla.lake.frozen.states import not_found
from lakevilla.store.base import Stored
from lakevilla.store.effects import Program, sleep

T = TypeVar("T")

_MAX_RACES = 200

#: So many lives of a branch stay in HEAD that it needs for no file.
MOST_RECENT = 256


def replace(context: Context, held: HeldHead, new: Head) -> Program[bool]:
    """One try to replace HEAD; False, after a pause, if it was lost, or may be."""
    outcome = yield from replace_head(held, new)
    if isinstance(outcome, Stored):
        context.remember(HeldHead(new, outcome.token))
        return True
    yield from sleep(context.settings.retry_base_seconds * context.ids.jitter())
    return False


@dataclass(frozen=True, slots=True)
class LeftAsIs(Generic[T]):
    """Nothing is left to be replaced: what it came to."""

    value: T


@dataclass(frozen=True, slots=True)
class Next(Generic[T]):
    """The HEAD that is to be stored, and what it has come to once it is."""

    head: Head
    value: T


#: Of a HEAD, the ref's entry in it, and the HEAD that may follow, what is to be done.
Step = Callable[[HeldHead | None, RefEntry | None], Program[LeftAsIs[T] | Next[T]]]


def until_replaced(context: Context, name: str, step: Step[T]) -> Program[T]:
    """Change what HEAD says of a ref: again on each newer HEAD until that is stored, or needless.

    The one loop of those who change an entry. After a lost answer the step is asked again, and
    tells from the entry that is there whether it was its own replacement that has made it.
    """
    for _ in range(_MAX_RACES):
        held = yield from context.head()
        context.refuse_foreign_root()
        head = None if held is None else held.head
        yield from load_refs(head, [name])
        found = yield from step(held, None if head is None else head.refs.get(name))
        if isinstance(found, LeftAsIs):
            return found.value
        assert held is not None, "without a HEAD there is nothing to be replaced"
        if (yield from replace(context, held, found.head)):
            return found.value
    raise StoreError(f"HEAD was replaced by others {_MAX_RACES} times in a row: try again")


def following(context: Context, held: HeldHead) -> Head:
    """The HEAD that comes after one, as yet without any change."""
    return successor(held.head, nonce=context.ids.nonce(), now_ms=context.now_ms())


def find_ref(context: Context, name: str) -> Program[tuple[Head, RefEntry]]:
    """A ref by its name, with the HEAD that has it. Raises ``RefNotFound``."""
    held = yield from context.head()
    head = None if held is None else held.head
    yield from load_refs(head, [name])
    entry = None if head is None else head.refs.get(name)
    if head is None or entry is None:
        raise (yield from not_found(head, name))
    return head, entry


def finish(context: Context, name: str, entry: RefEntry) -> Program[None]:
    """Finish with a branch that is closed and still named: whoever has closed it may be dead.

    One that was deleted is taken out of HEAD. One that is moved gets another life, with all that
    it had: a rebase may find afterwards that it can't go on, and this always can.
    """
    held = yield from context.head()
    context.refuse_foreign_root()
    yield from load_refs(None if held is None else held.head, [name])
    known = None if held is None else held.head.refs.get(name)
    if held is None or known is None or (known.id, known.lives) != (entry.id, entry.lives):
        return
    branch = yield from load_branch(name, known)
    new = following(context, held)
    if has_ended(branch):
        yield from replace(context, held, with_refs(new, {name: None}))
    elif has_moved(branch):
        life = life_of(new.replacement, context.ids.nonce())
        yield from store_again(context, branch.head, life)
        entry = with_life(context, known, life, kept=known.lives)
        yield from replace(context, held, with_refs(new, {name: entry}))


def with_life(
    context: Context, entry: RefEntry, life: str, *, kept: Collection[str] = ()
) -> RefEntry:
    """The entry of a branch that has another life from now on.

    Of those before it has ``kept``, and those in which somebody may yet look for a commit whose
    answer he has lost. If these are very many, only the newest: HEAD has them, which each commit
    of the lake replaces, and he is told then that nobody can tell.
    """
    now_ms = context.now_ms()
    closed_ms: Mapping[str, int] = {**entry.closed_ms, entry.life: now_ms}
    since_ms = now_ms - context.settings.outcome_retention_seconds * 1000
    recent = [one for one in entry.lives if closed_ms.get(one, 0) >= since_ms][-MOST_RECENT:]
    lives = tuple(one for one in entry.lives if one in kept or one in recent)
    return msgspec.structs.replace(
        entry,
        lives=(*lives, life),
        reached=0,
        closed_ms={one: closed_ms[one] for one in lives if one in closed_ms},
    )
