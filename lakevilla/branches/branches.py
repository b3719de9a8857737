"""Branches: their HEADs, their entries, and the remains of deleted ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import msgspec

from lakevilla.errors import (
    AlreadyCommitted,
    CorruptObject,
    StoreError,
    TransactionAborted,
    VersionNotFound,
)
from lakevilla.global_log.bases import Base
from lakevilla.global_log.head import HEAD_KEY, BranchEpoch, Head, first_head, successor, with_refs
from lakevilla.global_log.refs import BaseRef, RefEntry, new_epoch
from lakevilla.global_log.repo import HeldHead, load_head, load_refs, replace_head, store_leaves
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import has_ended, has_moved, is_closed, load_branch
from lakevilla.lake.frozen.mounts import clones_of
from lakevilla.lake.frozen.states import not_found
from lakevilla.lake.publishing.outcome import find_in_history, result_of
from lakevilla.results import CommitResult
from lakevilla.store.base import ABSENT, Found, Stored, Unknown
from lakevilla.store.codec import encode
from lakevilla.store.effects import Program, get, put, sleep
from lakevilla.store.location import at_home, key_at
from lakevilla.sublogs.record import record_key

# -------------------- branches
#
# The HEADs with which branches begin and end (docs/design/0031-branches.md).


_MAX_RACES = 200


def store_first_head(
    context: Context, now: Head, base: Base, ref: BaseRef, entry_id: str
) -> Program[None]:
    """Store the first HEAD of a branch, before the lake's HEAD names the branch.

    If instead the first commit created it, a commit that stalls until the branch is deleted and gc
    has swept its objects would create it again: the commit would be acknowledged, and lost.
    """
    epoch = BranchEpoch(base.epoch, base.name, entry_id, ref, separate_bases=bool(base.kept))
    first = first_head(now, epoch, base.tables, base.names, context.ids.nonce(), clones=base.clones)
    yield from put_first(base.epoch, first)


def store_again(context: Context, closed: Head, epoch: str) -> Program[None]:
    """Store the first HEAD of a branch's next epoch, with the state of the closed epoch unchanged.

    The objects of earlier epochs that this HEAD names stay where they are.
    """
    before = closed.epoch
    assert before is not None, "the HEAD of a branch"
    reopened = first_head(
        closed,
        BranchEpoch(
            epoch,
            before.name,
            before.ref_id,
            before.base,
            separate_bases=before.separate_bases,
            earlier=before.earlier,
        ),
        closed.tables,
        closed.names,
        context.ids.nonce(),
        closed.sequence,
        clones_of(closed),
        closed.kept,
    )
    yield from put_first(epoch, reopened)


def put_first(epoch: str, first: Head) -> Program[None]:
    """Store the first HEAD of an epoch, which no client knows yet. Raises ``StoreError``."""
    yield from store_leaves(first)
    stored = yield from at_home(epoch, put(HEAD_KEY, encode(first), ABSENT))
    if isinstance(stored, Unknown):
        key = key_at(epoch, HEAD_KEY)
        raise StoreError(f"could not store {key} ({stored.reason}): try again")


def close_as(
    context: Context, entry: RefEntry, held: HeldHead, why: Literal["deleted", "moved"]
) -> Program[bool]:
    """Try once to close the HEAD of a branch; False if that is not the HEAD that was read any more.

    This is the first step of the end of a branch or an epoch: after it, no transaction can commit
    there. If the branch were removed from the lake's HEAD first, a commit could be acknowledged on
    a branch that no client knows any more.
    """
    following = successor(held.head, nonce=context.ids.nonce(), now_ms=context.now_ms())
    assert following.epoch is not None, "the HEAD of a branch"
    closed = msgspec.structs.replace(following.epoch, closed=why)
    new = msgspec.structs.replace(following, epoch=closed)
    return isinstance((yield from at_home(entry.epoch, replace_head(held, new))), Stored)


def was_made(entry: RefEntry) -> Program[bool]:
    """Return whether a branch was created, and has ended, after its creator got no answer from the
    store.

    The creator calls this if the lake's HEAD lacks the entry. If the branch's own HEAD is closed, a
    client has seen the entry, because no other client closes a branch.
    """
    held = yield from at_home(entry.epoch, load_head())
    return held is not None and is_closed(held)


# -------------------- entries
#
# The entry of a ref in HEAD: find it, replace it, and finish what interrupted clients have begun.


T = TypeVar("T")


#: The most epochs of a branch that HEAD keeps only for the outcomes of their transactions.
MOST_RECENT = 256


def replace(context: Context, held: HeldHead, new: Head) -> Program[bool]:
    """Try once to replace HEAD; after a lost race, or without an answer, pause and return False."""
    outcome = yield from replace_head(held, new)
    if isinstance(outcome, Stored):
        context.remember(HeldHead(new, outcome.token))
        return True
    yield from sleep(context.settings.retry_base_seconds * context.ids.jitter())
    return False


@dataclass(frozen=True, slots=True)
class LeftAsIs(Generic[T]):
    """The result of a step that does not change HEAD."""

    value: T


@dataclass(frozen=True, slots=True)
class Next(Generic[T]):
    """The HEAD that a step wants to store, and the step's result once it is stored."""

    head: Head
    value: T


#: A step decides, from a HEAD and the ref's entry in it, whether to leave HEAD unchanged, or which
#: HEAD to store next.
Step = Callable[[HeldHead | None, RefEntry | None], Program[LeftAsIs[T] | Next[T]]]


def until_replaced(context: Context, name: str, step: Step[T]) -> Program[T]:
    """Run a step on the newest HEAD until the HEAD that it returns is stored, or it changes
    nothing.

    All changes of refs' entries use this loop. If an answer of the store was lost, the step runs
    again, and sees from the present entry whether its own replacement was stored.
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
    raise StoreError(f"HEAD was replaced by other clients {_MAX_RACES} times in a row: try again")


def following(context: Context, held: HeldHead) -> Head:
    """Return the HEAD that follows one, without changes so far."""
    return successor(held.head, nonce=context.ids.nonce(), now_ms=context.now_ms())


def find_ref(context: Context, name: str) -> Program[tuple[Head, RefEntry]]:
    """Return the entry of a ref, and the HEAD that has it. Raises ``RefNotFound``."""
    held = yield from context.head()
    head = None if held is None else held.head
    yield from load_refs(head, [name])
    entry = None if head is None else head.refs.get(name)
    if head is None or entry is None:
        raise (yield from not_found(head, name))
    return head, entry


def finish(context: Context, name: str, entry: RefEntry) -> Program[bool]:
    """Finish the end, or the rebase, of a closed branch that HEAD still names: its client may be
    dead.

    Return False if HEAD was not replaced: another client has finished it, or won the race.

    A branch that was closed to be deleted is removed from HEAD. A branch that was closed to be
    rebased gets a new epoch with its state unchanged: a rebase may fail because of conflicts, but
    this always succeeds.
    """
    held = yield from context.head()
    context.refuse_foreign_root()
    yield from load_refs(None if held is None else held.head, [name])
    known = None if held is None else held.head.refs.get(name)
    if held is None or known is None or (known.id, known.epochs) != (entry.id, entry.epochs):
        return False
    branch = yield from load_branch(name, known)
    new = following(context, held)
    if has_ended(branch):
        return (yield from replace(context, held, with_refs(new, {name: None})))
    if has_moved(branch):
        epoch = new_epoch(new.replacement, context.ids.nonce())
        yield from store_again(context, branch.head, epoch)
        entry = with_epoch(context, known, epoch, kept=known.epochs)
        return (yield from replace(context, held, with_refs(new, {name: entry})))
    return False


def with_epoch(
    context: Context, entry: RefEntry, epoch: str, *, kept: Collection[str] = ()
) -> RefEntry:
    """Return the entry of a branch with a new epoch added.

    Of the earlier epochs, the entry keeps ``kept``, and those in which a client may still search
    for the outcome of its commit. Of the latter it keeps at most ``MOST_RECENT``, because the entry
    is in HEAD, which each commit of the lake writes. For an older epoch, such a client gets
    ``CommitOutcomeUnknown``.
    """
    now_ms = context.now_ms()
    closed_ms: Mapping[str, int] = {**entry.closed_ms, entry.epoch: now_ms}
    since_ms = now_ms - context.settings.outcome_retention_seconds * 1000
    recent = [one for one in entry.epochs if closed_ms.get(one, 0) >= since_ms][-MOST_RECENT:]
    epochs = tuple(one for one in entry.epochs if one in kept or one in recent)
    return msgspec.structs.replace(
        entry,
        epochs=(*epochs, epoch),
        reached=0,
        closed_ms={one: closed_ms[one] for one in epochs if one in closed_ms},
    )


# -------------------- epochs before
#
# The outcome of a transaction that was begun in an earlier epoch of a branch.
#
# No transaction can commit in such an epoch, so its HEAD and its pages are final.


def committed_before(context: Context, name: str, txn_id: str) -> Program[CommitResult | None]:
    """Return the commit of a transaction in an earlier epoch of a branch; None if it has none.

    ``context`` is the lake's. Search the earlier epochs before the present one: there the id would
    be fenced and reported as not committed.
    """
    _, entry = yield from find_ref(context, name)
    for epoch in reversed(entry.epochs[:-1]):
        found = yield from at_home(epoch, _committed(context, txn_id))
        if found is not None:
            return found
    return None


def refuse_begun_before(context: Context, name: str, txn_id: str) -> Program[None]:
    """Refuse to resume a transaction that was saved before the branch was rebased.

    Raises
    ------
    AlreadyCommitted, TransactionAborted
    """
    result = yield from committed_before(context, name, txn_id)
    if result is not None:
        raise AlreadyCommitted(
            f"transaction {txn_id} was committed on branch {name!r} before that was rebased: "
            "nothing is left to do",
            result=result,
            txn_id=txn_id,
        )
    _, entry = yield from find_ref(context, name)
    for epoch in entry.epochs[:-1]:
        if isinstance((yield from at_home(epoch, get(record_key(txn_id)))), Found):
            raise TransactionAborted(
                f"transaction {txn_id} was saved before branch {name!r} was rebased, and is based "
                "on the branch before that: run it again",
                txn_id=txn_id,
            )


def _committed(context: Context, txn_id: str) -> Program[CommitResult | None]:
    try:
        held = yield from load_head()
    except CorruptObject:
        return None  # not found, as far as this damaged HEAD shows
    if held is None:
        return None
    try:
        summary = yield from find_in_history(held.head, txn_id)
    except VersionNotFound:
        return None
    if summary is None:
        return None
    return (yield from result_of(context.of_branch(held), held.head, summary, txn_id))
