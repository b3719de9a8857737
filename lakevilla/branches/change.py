"""Ending a ref, and protecting one from that."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lakevilla.branches.branches import (
    LeftAsIs,
    Next,
    close,
    find_ref,
    finish,
    following,
    until_replaced,
)
from lakevilla.branches.clones import end_clone
from lakevilla.errors import CorruptObject, InvalidOperation
from lakevilla.global_log.bases import Base
from lakevilla.global_log.head import Head, successor, with_policy, with_refs
from lakevilla.global_log.refs import Policy, RefEntry
from lakevilla.global_log.repo import HeldHead, load_head, load_refs
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import has_ended, has_moved
from lakevilla.lake.frozen.states import not_found
from lakevilla.lake.newer import refuse_older_head
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.results import Finding
from lakevilla.store.effects import Program, parallel
from lakevilla.store.location import at_home
from lakevilla.transaction.commit.together.join import with_merged
from lakevilla.transaction.state.values import Merging

#: The number of attempts to replace HEAD while other clients do so.
_MAX_RACES = 10


def delete_ref(context: Context, name: str) -> Program[None]:
    """Remove a ref from HEAD. From then on gc and vacuum may delete what it alone has held.

    Raises
    ------
    RefNotFound
    InvalidOperation
        It is protected, or a clone of which a table names files that it keeps.
    """
    _, first = yield from find_ref(context, name)
    yield from refuse_older_head(context, f"delete_ref({name!r})", waits=False)

    def ended(entry: RefEntry) -> RefEntry | None:
        if entry.protected and not closed:
            raise InvalidOperation(
                f"{entry.kind} {name!r} is protected: protect({name!r}, on=False) lifts that"
            )
        return None

    closed = False
    if first.kind == "clone":
        yield from end_clone(context, name, first)
        return
    if first.kind == "tag":
        yield from _change(context, name, first, ended)
        return
    ended(first)
    context.refuse_foreign_root()
    yield from close(context, first)
    closed = True
    while True:
        other = yield from _change(context, name, first, ended, is_closed=True)
        if other is None:
            return
        # It was rebased meanwhile: nothing may be committed in that epoch of it either.
        yield from close(context, other)
        first = other


def finish_ended(context: Context, head: Head) -> Program[list[Finding]]:
    """Finish branches that are closed: the client that deleted, or rebased, them was cut off."""
    yield from load_refs(head)
    findings = []
    for name, entry in sorted(head.refs.items()):
        held = (yield from _head_of(entry)) if entry.kind == "branch" else None
        if held is None or not (has_ended(held) or has_moved(held)):
            continue
        for _ in range(_MAX_RACES):
            if (yield from finish(context, name, entry)):
                break
        else:
            continue  # other clients were faster; whoever opens the branch finishes it too
        if has_ended(held):
            message = f"branch {name!r} was deleted, and is removed from HEAD"
            findings.append(Finding("note", "ref_ended", message))
        else:
            message = f"a rebase of branch {name!r} was interrupted: the branch continues unchanged"
            findings.append(Finding("note", "ref_moved", message))
    return findings


def delete_merged(context: Context, name: str, merged: Base) -> Program[bool]:
    """End a branch as it was merged. One that has moved on, was rebased, or is protected stays.

    Raises ``RefNotFound``.
    """
    _, first = yield from find_ref(context, name)
    yield from refuse_older_head(context, f"ending branch {name!r}", waits=False)
    if first.protected:
        return False  # since the merge began
    if first.epoch != merged.epoch:
        return False  # its versions may be numbered as those of the epoch before
    if not (yield from close(context, first, at=merged.sequence)):
        return False
    other = yield from _change(context, name, first, lambda entry: None, is_closed=True)
    return other is None


def note_merged(context: Context, merging: Merging) -> Program[None]:
    """Note that a branch is merged, where the merge has changed no table.

    It is not noted if its entry has changed since: then another client has merged it, or ended it.
    """

    def noted(
        held: HeldHead | None, entry: RefEntry | None
    ) -> Program[LeftAsIs[None] | Next[None]]:
        if held is None or not merging.entry.is_as(entry):
            return LeftAsIs(None)
        return Next((yield from with_merged(merging, following(context, held))), None)

    yield from until_replaced(context, merging.name, noted)


def protect(context: Context, name: str, *, on: bool) -> Program[None]:
    """Set whether a ref may be deleted. Raises ``RefNotFound``."""
    _, first = yield from find_ref(context, name)
    yield from _change(
        context, name, first, lambda entry: msgspec.structs.replace(entry, protected=on)
    )


def protect_main(context: Context, *, on: bool) -> Program[None]:
    """Set whether the lake itself accepts only merges and upkeep.

    It counts from the replacement of HEAD on that says so: a transaction that is open then fails at
    its commit.
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
    """Return the refs in HEAD, by name, and the global version that each has come to."""
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
    """Return the version that a ref shows; None for a deleted branch, which will leave HEAD.

    A branch whose own HEAD is lost or damaged is listed, at its base: it can be deleted.
    """
    if entry.kind != "branch":
        return entry.base.sequence
    held = yield from _head_of(entry)
    if held is None:
        return entry.base.sequence
    return None if has_ended(held) else held.head.sequence


def _head_of(entry: RefEntry) -> Program[HeldHead | None]:
    """Return the HEAD of a branch, closed or not; None where it is lost or damaged."""
    try:
        return (yield from at_home(entry.epoch, load_head()))
    except CorruptObject:
        return None


def _change(
    context: Context,
    name: str,
    first: RefEntry,
    changed: Callable[[RefEntry], RefEntry | None],
    *,
    is_closed: bool = False,
) -> Program[RefEntry | None]:
    """Replace a ref's entry in HEAD, or remove it, again on each newer HEAD until it is stored.

    This is done only while it is the very entry that was found ``first``: one that was made again
    under its name is not the caller's, and after a lost answer it shows that the ref was removed.
    The entry is returned, unchanged, where the epoch that the caller has closed (``is_closed``) is
    not its newest.
    """
    is_again = False

    def step(
        held: HeldHead | None, entry: RefEntry | None
    ) -> Program[LeftAsIs[RefEntry | None] | Next[RefEntry | None]]:
        nonlocal is_again
        if held is None or entry is None or entry.id != first.id:
            if is_closed or (is_again and changed(first) is None):
                return LeftAsIs(None)  # any client that finds a closed branch removes it
            raise (yield from not_found(None if held is None else held.head, name))
        is_again = True
        if is_closed and entry.epoch != first.epoch:
            return LeftAsIs(entry)
        new = changed(entry)
        if new == entry:
            return LeftAsIs(None)
        return Next(with_refs(following(context, held), {name: new}), None)

    return (yield from until_replaced(context, name, step))
