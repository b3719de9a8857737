"""End a ref, and protect a ref from deletion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from lakevilla.branches.branches import (
    LeftAsIs,
    Next,
    close_as,
    find_ref,
    finish,
    following,
    until_replaced,
)
from lakevilla.branches.clones import end_clone
from lakevilla.errors import CorruptObject, InvalidOperation, StoreError
from lakevilla.global_log.bases import Base
from lakevilla.global_log.head import Head, successor, with_policy, with_refs
from lakevilla.global_log.refs import Policy, RefEntry
from lakevilla.global_log.repo import HeldHead, load_head, load_refs, replace_head
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import ended, has_ended, has_moved, refuse_set_back
from lakevilla.lake.frozen.states import not_found
from lakevilla.lake.newer import refuse_older_head
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.results import Finding
from lakevilla.store.base import Stored
from lakevilla.store.effects import Program, parallel, sleep
from lakevilla.store.location import at_home
from lakevilla.transaction.commit.together.join import with_merged
from lakevilla.transaction.state.values import Merging

#: The number of attempts to finish a branch while other clients replace HEAD.
_MAX_RACES = 10

#: The number of attempts with a branch's own HEAD while other clients replace that.
_MOST_CLOSED = 200


def delete_ref(context: Context, name: str) -> Program[None]:
    """Remove a ref from HEAD; gc and vacuum may then delete what only this ref has kept.

    Raises
    ------
    RefNotFound
    InvalidOperation
        The ref is protected, or it is a clone that keeps files which one of its tables needs.
    """
    _, first = yield from find_ref(context, name)
    yield from refuse_older_head(context, f"delete_ref({name!r})", waits=False)
    if first.kind == "clone":
        yield from end_clone(context, name, first)
    elif first.kind == "branch":
        if (yield from _end_branch(context, name, first)) == "protected":
            raise _protected(name, first)
    else:

        def ended(entry: RefEntry) -> None:
            if entry.protected:
                raise _protected(name, entry)

        yield from _change(context, name, first, ended)


def _protected(name: str, entry: RefEntry) -> InvalidOperation:
    return InvalidOperation(
        f"{entry.kind} {name!r} is protected: protect({name!r}, on=False) lifts that"
    )


def finish_ended(context: Context, head: Head) -> Program[list[Finding]]:
    """Finish the end or the rebase of closed branches, whose clients were interrupted.

    The refs in HEAD must be cached, except those in damaged leaves.
    """
    findings = []
    for name, entry in sorted(head.refs.cached().items()):
        held = (yield from _head_of(entry)) if entry.kind == "branch" else None
        if held is None or not (has_ended(held) or has_moved(held)):
            continue
        for _ in range(_MAX_RACES):
            if (yield from finish(context, name, entry)):
                break
        else:
            # other clients have won each race; the next client that opens the branch finishes it
            continue
        if has_ended(held):
            message = f"branch {name!r} was deleted, and is removed from HEAD"
            findings.append(Finding("note", "ref_ended", message))
        else:
            message = f"a rebase of branch {name!r} was interrupted: the branch continues unchanged"
            findings.append(Finding("note", "ref_moved", message))
    return findings


def delete_merged(context: Context, name: str, merged: Base) -> Program[bool]:
    """End a branch if it is still in its merged state; return False if it has new commits, was
    rebased, or is protected.

    Raises ``RefNotFound``.
    """
    _, first = yield from find_ref(context, name)
    yield from refuse_older_head(context, f"ending branch {name!r}", waits=False)
    return (yield from _end_branch(context, name, first, merged)) == "ended"


def note_merged(context: Context, merging: Merging) -> Program[None]:
    """Record in HEAD that a branch is merged, after a merge that has changed no table.

    Do nothing if the branch's entry has changed since: then another client has merged or ended it.
    """

    def noted(
        held: HeldHead | None, entry: RefEntry | None
    ) -> Program[LeftAsIs[None] | Next[None]]:
        if held is None or not merging.entry.is_as(entry):
            return LeftAsIs(None)
        return Next((yield from with_merged(merging, following(context, held))), None)

    yield from until_replaced(context, merging.name, noted)


def protect(context: Context, name: str, *, on: bool) -> Program[None]:
    """Set whether a ref is protected from deletion. Raises ``RefNotFound``."""
    _, first = yield from find_ref(context, name)
    entry = yield from _change(
        context, name, first, lambda entry: msgspec.structs.replace(entry, protected=on)
    )
    if on and entry is not None and entry.kind == "branch":
        yield from _replace_own_head(context, name, entry)


def protect_main(context: Context, *, on: bool) -> Program[None]:
    """Set whether the lake itself accepts only merges and upkeep.

    The replacement of HEAD that has the new policy decides: a transaction that is open then fails
    at its commit.
    """
    policy = Policy("refuse" if on else "allow")
    held = yield from context.head()
    if held is None and not on:
        return
    if held is None:
        yield from context.make_head()

    def change(head: Head) -> Program[Head | None]:
        yield from ()
        context.refuse_foreign_root()
        if head.policy == policy:
            return None
        new = successor(head, nonce=context.ids.nonce(), now_ms=context.now_ms())
        return with_policy(new, policy)

    yield from replace_until_stored(context, change)


def all_refs(context: Context) -> Program[dict[str, tuple[RefEntry, int]]]:
    """Return the refs in HEAD by name, each with the newest global version that it shows."""
    held = yield from context.head()
    if held is None:
        return {}
    yield from load_refs(held.head)
    refs = dict(sorted(held.head.refs.items()))
    versions = yield from parallel([_version_of(entry) for entry in refs.values()])
    return {
        name: (entry, version)
        for (name, entry), version in zip(refs.items(), versions, strict=True)
        if version is not None
    }


def _version_of(entry: RefEntry) -> Program[int | None]:
    """Return the newest version that a ref shows; None for a closed branch, which HEAD will lose.

    A branch whose own HEAD is lost or damaged is listed with its base's version, so that users can
    delete it.
    """
    if entry.kind != "branch":
        return entry.base.sequence
    held = yield from _head_of(entry)
    if held is None:
        return entry.base.sequence
    return None if has_ended(held) else held.head.sequence


def _head_of(entry: RefEntry) -> Program[HeldHead | None]:
    """Return the HEAD of a branch, closed or not; None if it is lost or damaged."""
    try:
        return (yield from at_home(entry.epoch, load_head()))
    except CorruptObject:
        return None


def _change(
    context: Context,
    name: str,
    first: RefEntry,
    changed: Callable[[RefEntry], RefEntry | None],
) -> Program[RefEntry | None]:
    """Replace a ref's entry in HEAD, or remove it; return the new entry.

    Only the ref with the id of ``first`` is changed. If HEAD has another ref, or none, under the
    name, the caller's ref was deleted: after a lost answer of the store, perhaps by this very call.
    """
    is_again = False

    def step(
        held: HeldHead | None, entry: RefEntry | None
    ) -> Program[LeftAsIs[RefEntry | None] | Next[RefEntry | None]]:
        nonlocal is_again
        if held is None or entry is None or entry.id != first.id:
            if is_again and changed(first) is None:
                return LeftAsIs(None)
            raise (yield from not_found(None if held is None else held.head, name))
        is_again = True
        new = changed(entry)
        if new == entry:
            return LeftAsIs(new)
        return Next(with_refs(following(context, held), {name: new}), new)

    return (yield from until_replaced(context, name, step))


# -------------------- the end of a branch
#
# A branch ends in two HEADs: its own HEAD is closed, then the lake's HEAD loses its entry. A client
# that protects the branch writes to both HEADs in the opposite order
# (docs/design/0031-branches.md).

_End = Literal["ended", "protected", "moved"]


def _end_branch(
    context: Context, name: str, first: RefEntry, merged: Base | None = None
) -> Program[_End]:
    """Close a branch and remove its entry; return ``ended``, or the reason why it stays.

    The branch stays if it is protected. With ``merged``, the state that was merged, it also stays
    if it has new commits or was rebased since.
    """
    entry = first
    for _ in range(_MOST_CLOSED):
        # Read the branch's own HEAD before its entry, and close that HEAD only if it is unchanged.
        # A client that protects the branch changes the entry first and that HEAD afterwards, so it
        # finds the HEAD closed, or its change makes the closing fail.
        held = yield from _head_of(entry)
        if held is not None and held.head.epoch is None:
            held = None  # it is not a branch's HEAD, so no client can commit on it
        if merged is not None and _is_beyond(entry, held, merged):
            return "moved"
        found = yield from _removed(context, name, entry, held)
        if not isinstance(found, RefEntry):
            return found
        entry = found
        yield from sleep(context.settings.retry_base_seconds * context.ids.jitter())
    raise StoreError(f"branch {name!r} was changed {_MOST_CLOSED} times in a row: try again")


def _is_beyond(entry: RefEntry, held: HeldHead | None, merged: Base) -> bool:
    """Return whether a branch has changes that are not in its merged state."""
    if entry.epoch != merged.epoch:
        return True  # versions of different epochs can't be compared by number
    return held is not None and held.head.sequence != merged.sequence


def _removed(
    context: Context, name: str, known: RefEntry, held: HeldHead | None
) -> Program[RefEntry | _End]:
    """Try to close a branch's own HEAD, if it is unchanged, and to remove its entry.

    Return the present entry if that HEAD or the epoch has changed. A closed branch is removed even
    if its entry says that it is protected: the client that protects it has not returned yet, and
    will find the HEAD closed. If an interrupted rebase has closed that HEAD, no transaction can
    commit there either, so it is enough to remove the entry: a client that finishes the rebase
    would replace the entry, too.
    """
    is_closed = held is not None and has_ended(held)
    is_again = is_closed

    def step(
        now: HeldHead | None, entry: RefEntry | None
    ) -> Program[LeftAsIs[RefEntry | _End] | Next[RefEntry | _End]]:
        nonlocal is_closed, is_again
        if now is None or entry is None or entry.id != known.id:
            if is_again:
                return LeftAsIs("ended")  # another client may remove a closed branch
            raise (yield from not_found(None if now is None else now.head, name))
        if entry.epoch != known.epoch:
            return LeftAsIs(entry)
        if entry.protected and not is_closed:
            return LeftAsIs("protected")
        if held is not None and not (is_closed or has_moved(held)):
            if not (yield from close_as(context, known, held, "deleted")):
                return LeftAsIs(entry)
            is_closed = True
        is_again = True  # from here on, a missing entry means that the branch has ended
        return Next(with_refs(following(context, now), {name: None}), "ended")

    return (yield from until_replaced(context, name, step))


def _replace_own_head(context: Context, name: str, first: RefEntry) -> Program[None]:
    """Replace a protected branch's own HEAD by an equal one.

    A client that read the branch before it was protected can't close it any more then.

    Raises
    ------
    RefNotFound
        Another client has closed the branch.
    CorruptObject
        The branch's HEAD was set back to an older one; replacing it would hide that. The branch's
        entry is protected all the same.
    """
    entry = first
    for _ in range(_MOST_CLOSED):
        held = yield from _head_of(entry)
        if held is None or held.head.epoch is None:
            return  # without a readable HEAD, the entry alone protects the branch
        if has_ended(held):
            yield from finish(context, name, entry)
            raise ended(name)
        refuse_set_back(name, entry, held)
        if has_moved(held):
            yield from finish(context, name, entry)
        else:
            same = successor(held.head, nonce=context.ids.nonce(), now_ms=context.now_ms())
            if isinstance((yield from at_home(entry.epoch, replace_head(held, same))), Stored):
                return
        yield from sleep(context.settings.retry_base_seconds * context.ids.jitter())
        _, entry = yield from find_ref(context, name)
        if entry.id != first.id:
            raise ended(name)
        if not entry.protected:
            return  # another client has lifted the protection meanwhile
    raise StoreError(f"branch {name!r} was changed {_MOST_CLOSED} times in a row: try again")
