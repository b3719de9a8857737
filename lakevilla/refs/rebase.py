"""Rebasing a branch: it goes on from the lake as it is now (docs/design/0034-rebase.md).

The branch gets another life. Its new HEAD has the lake's tables, with what was done on the branch
since it was made, or last merged, applied to them. The one before is closed first; the replacement
of the lake's HEAD that names the new life decides it.
"""

from __future__ import annotations

import msgspec

from lakevilla.errors import InvalidOperation, LakeVillaError, RefNotFound, StoreError
from lakevilla.global_log.bases import Base, load_base, seal_base, store_base
from lakevilla.global_log.head import with_refs
from lakevilla.global_log.refs import RefEntry, life_of
from lakevilla.global_log.repo import HeldHead, load_refs, store_leaves, store_leaves_of
from lakevilla.lake.context import Context
from lakevilla.lake.refs.branch_head import (
    Branch,
    ended,
    frozen_now,
    has_ended,
    has_moved,
    load_branch,
)
from lakevilla.lake.refs.states import not_found, same_tables
from lakevilla.refs.branches import close_as, put_first
from lakevilla.refs.entries import finish, replace, with_life
from lakevilla.refs.moved import Wanted, moved_to
from lakevilla.refs.states import chosen, now, those_that_fit
from lakevilla.refs.taken_in import with_logs
from lakevilla.store.effects import Program, parallel, sleep
from lakevilla.transaction.verbs.branch_keys import keys_waiting

_MAX_RACES = 200


def rebase_branch(context: Context, name: str, wanted: Wanted) -> Program[tuple[RefEntry, int]]:
    """Let a branch go on from the lake as it is now; its entry, and the version it has come to.

    Raises
    ------
    MergeConflict
        The lake has changed the same since. The branch is as it was.
    RefNotFound
    InvalidOperation
        It is a tag, or protected.
    """
    first: str | None = None
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
        if entry.kind != "branch":
            raise _not_a_branch(name, entry)
        branch = Branch(name, entry, (yield from load_branch(name, entry)))
        if tried.intersection(entry.lives):
            return entry, branch.held.head.sequence  # an answer was lost
        if has_ended(branch.held):
            yield from finish(context, name, entry)
            raise ended(name)
        try:
            _refuse_protected(name, entry)
            done = yield from _attempt(context, held, branch, wanted, tried)
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


def _not_a_branch(name: str, entry: RefEntry) -> InvalidOperation:
    return InvalidOperation(
        f"{entry.kind} {name!r} can't be rebased, as it stays what it is: delete_ref({name!r}) "
        f"and {entry.kind}({name!r}) make one of the lake as it is now"
    )


def _refuse_protected(name: str, entry: RefEntry) -> None:
    if entry.protected:
        raise InvalidOperation(
            f"branch {name!r} is protected, so it can't be rebased: protect({name!r}, on=False) "
            "lifts that"
        )


def _refuse_keys(branch: Branch, since: Base) -> Program[None]:
    """Refuse while idempotency keys wait to be merged: a merge finds those of one life alone.

    None comes meanwhile: the life is closed under ``Match``.
    """
    waiting = yield from keys_waiting(branch, since)
    if waiting:
        raise InvalidOperation(
            f"branch {branch.name!r} has committed with idempotency key {waiting[0]!r}, which is "
            "not merged yet: merge it first, then rebase it"
        )


def _attempt(
    context: Context, held: HeldHead, branch: Branch, wanted: Wanted, tried: set[str]
) -> Program[tuple[RefEntry, int] | None]:
    """One try, on one HEAD of the lake and one of the branch; None if either has moved on."""
    name, entry = branch.name, branch.entry
    bases = yield from parallel([load_base(ref) for ref in entry.bases])
    before, since = bases[0], bases[-1]
    yield from _refuse_keys(branch, since)
    yield from load_refs(held.head)
    only = yield from those_that_fit(held.head, entry.only)
    following = yield from with_logs(context, held.head, only)
    # The base names its leaves, and is stored before it.
    yield from store_leaves(following)
    base = now(following, name, "branch")
    if only is not None:
        base = yield from chosen(base, only)
    if not _has_to(context, branch) and (yield from same_tables(before, base)):
        return entry, branch.held.head.sequence  # it stands there already
    made = following.replacement
    base = msgspec.structs.replace(base, life=life_of(made, context.ids.nonce()))
    yield from store_leaves_of([base.tables, base.names], made)
    ref, body = seal_base(base, made)
    moved = yield from moved_to(context, entry, base, ref, since, frozen_now(branch), wanted)
    yield from parallel([store_base(ref, body), put_first(base.life, moved.head), *moved.uploads])
    if not (yield from _is_closed(context, branch)):
        return None
    new = with_life(context, entry, base.life, kept=moved.lives)
    new = msgspec.structs.replace(new, base=ref, synced=None)
    tried.add(base.life)
    if (yield from replace(context, held, with_refs(following, {name: new}))):
        return new, moved.head.sequence
    return None


def _is_closed(context: Context, branch: Branch) -> Program[bool]:
    """Whether nothing is committed any more in the life that is to end, and nothing was since.

    Before the next one counts: else a commit could be acknowledged that is not in it.
    """
    if has_moved(branch.held):
        return True
    return (yield from close_as(context, branch.entry, branch.held, "moved"))


def _has_to(context: Context, branch: Branch) -> bool:
    """Whether it needs another life, though it may stand on the newest state of the lake."""
    was_merged = branch.entry.synced is not None
    return has_moved(branch.held) or was_merged or branch.held.head.root != context.root
