"""A branch's next life: it stands on another base, with what was done on the branch.

The one before is closed first; the replacement of the lake's HEAD that names the new life decides
it (docs/design/0034-rebase.md).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lakevilla.branches.branches import close_as, put_first
from lakevilla.branches.entries import finish, replace, with_life
from lakevilla.branches.moved import Wanted, moved_to
from lakevilla.errors import InvalidOperation, LakeVillaError, RefNotFound, StoreError
from lakevilla.global_log.bases import Base, seal_base, store_base
from lakevilla.global_log.head import Head, with_refs
from lakevilla.global_log.refs import RefEntry, life_of
from lakevilla.global_log.repo import HeldHead, load_refs, store_leaves_of
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import Branch, ended, has_ended, has_moved, load_branch
from lakevilla.lake.frozen.states import AtBase, not_found
from lakevilla.store.effects import Program, parallel, sleep
from lakevilla.transaction.verbs.branch_keys import keys_waiting

_MAX_RACES = 200

#: The entry of a branch, and the version that it has come to.
Came = tuple[RefEntry, int]
#: One try, on one HEAD of the lake and one of the branch; None to look at both again.
Attempt = Callable[[HeldHead, Branch, set[str]], Program[Came | None]]


def until_it_has(
    context: Context,
    name: str,
    attempt: Attempt,
    *,
    refuse_other: Callable[[str, RefEntry], None],
    first: str | None = None,
) -> Program[Came]:
    """Try to give a branch another life until one try has come to an end.

    ``first``: the id of the branch that is meant; the first that is met if not given. An attempt
    notes the lives that it makes, so that one whose answer was lost is known again.

    Raises
    ------
    RefNotFound
        There is none, or it was deleted meanwhile.
    """
    tried: set[str] = set()
    for _ in range(_MAX_RACES):
        held = yield from context.head()
        context.refuse_foreign_root()
        head = None if held is None else held.head
        yield from load_refs(head, [name])
        entry = None if head is None else head.refs.get(name)
        if first is None and entry is None:
            raise (yield from not_found(head, name))
        if held is None or entry is None or entry.id != (first or entry.id):
            raise ended(name)
        first = entry.id
        refuse_other(name, entry)
        branch = Branch(name, entry, (yield from load_branch(name, entry)))
        if tried.intersection(entry.lives):
            return entry, branch.held.head.sequence  # an answer was lost
        if has_ended(branch.held):
            yield from finish(context, name, entry)
            raise ended(name)
        try:
            done = yield from attempt(held, branch, tried)
        except RefNotFound:
            raise
        except LakeVillaError:
            # Closed already, by an attempt that has lost its race, or by another client.
            if has_moved(branch.held):
                yield from finish(context, name, entry)
            raise
        if done is not None:
            return done
        yield from sleep(context.settings.retry_base_seconds * context.ids.jitter())
    raise StoreError(f"HEAD was replaced by others {_MAX_RACES} times in a row: try again")


def go_on(
    context: Context,
    held: HeldHead,
    branch: Branch,
    following: Head,
    base: Base,
    states: tuple[AtBase, AtBase],
    wanted: Wanted,
    tried: set[str],
) -> Program[Came | None]:
    """One try: the life that stands on ``base``, with what was done between the two states.

    ``following`` is the HEAD that is to name it. None if the branch, or the lake, has moved on.
    """
    name, entry = branch.name, branch.entry
    made = following.replacement
    base = msgspec.structs.replace(base, life=life_of(made, context.ids.nonce()))
    yield from store_leaves_of([base.tables, base.names], made)
    ref, body = seal_base(base, made)
    if base.kept:
        yield from store_base(ref, body)  # it tells where tables lie, to whoever opens them
    moved = yield from moved_to(context, entry, base, ref, *states, wanted)
    stores = [put_first(base.life, moved.head), *moved.uploads]
    yield from parallel(stores if base.kept else [store_base(ref, body), *stores])
    if not (yield from _is_closed(context, branch)):
        return None
    new = with_life(context, entry, base.life, kept=moved.lives)
    new = msgspec.structs.replace(new, base=ref, synced=None)
    tried.add(base.life)
    if (yield from replace(context, held, with_refs(following, {name: new}))):
        return new, moved.head.sequence
    return None


def refuse_keys(branch: Branch, since: Base, verb: str) -> Program[None]:
    """Refuse while idempotency keys wait to be merged: a merge finds those of one life alone.

    None comes meanwhile: the life is closed under ``Match``.
    """
    waiting = yield from keys_waiting(branch, since)
    if waiting:
        raise InvalidOperation(
            f"branch {branch.name!r} has committed with idempotency key {waiting[0]!r}, which is "
            f"not merged yet: merge it first, then {verb} it"
        )


def _is_closed(context: Context, branch: Branch) -> Program[bool]:
    """Whether nothing is committed any more in the life that is to end, and nothing was since.

    Before the next one counts: else a commit could be acknowledged that is not in it.
    """
    if has_moved(branch.held):
        return True
    return (yield from close_as(context, branch.entry, branch.held, "moved"))
