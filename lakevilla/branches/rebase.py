"""Rebase a branch: begin its next epoch on another base."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from lakevilla.branches.branches import close_as, finish, put_first, replace, with_epoch
from lakevilla.branches.states import chosen, now, those_that_fit, with_logs
from lakevilla.errors import InvalidOperation, LakeVillaError, RefNotFound, StoreError
from lakevilla.formats.delta.deletion_vectors import paths_of
from lakevilla.global_log.bases import Base, load_base, seal_base, store_base
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import FORMAT_WITH_KEPT, BranchEpoch, Head, first_head, with_refs
from lakevilla.global_log.refs import BaseRef, RefEntry, new_epoch
from lakevilla.global_log.repo import HeldHead, load_refs, store_leaves, store_leaves_of
from lakevilla.lake.context import Context, branch_of
from lakevilla.lake.frozen.branch_head import (
    Branch,
    ended,
    frozen_now,
    has_ended,
    has_moved,
    load_branch,
)
from lakevilla.lake.frozen.states import AtBase, SeenBase, not_found, same_tables
from lakevilla.lake.newer import refuse_older
from lakevilla.store.base import Token
from lakevilla.store.effects import Program, parallel, sleep
from lakevilla.store.location import at_home
from lakevilla.transaction.commit.together.group import Candidate, Declined, Failed
from lakevilla.transaction.commit.together.join import add_candidate
from lakevilla.transaction.commit.upload import Sealed, seal_commit, upload
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.transaction import TransactionState, conflict
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.applying.apply import Settle, apply_states
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.idempotency import keys_waiting

# -------------------- rebase
#
# Rebase a branch onto the present state of the lake (docs/design/0034-rebase.md).
#
# The branch gets a new epoch. The HEAD of the epoch has the lake's tables, and on top of them the
# changes made on the branch since it was made, or last merged. The old epoch is closed first; the
# replacement of the lake's HEAD that names the new epoch decides the rebase.


def rebase_branch(context: Context, name: str, wanted: Wanted) -> Program[tuple[RefEntry, int]]:
    """Rebase a branch onto the present state of the lake; return its entry and its new version.

    Raises
    ------
    MergeConflict
        The lake and the branch have changed the same data. The branch is unchanged.
    RefNotFound
    InvalidOperation
        The ref is a tag, or protected.
    """

    def attempt(held: HeldHead, branch: Branch, tried: set[str]) -> Program[Came | None]:
        yield from refuse_older(context, f"rebase({name!r})", once=True)
        _refuse_protected(name, branch.entry)
        return (yield from _attempt(context, held, branch, wanted, tried))

    return (yield from until_it_has(context, name, attempt, refuse_other=_refuse_other))


def _refuse_other(name: str, entry: RefEntry) -> None:
    if entry.kind != "branch":
        raise InvalidOperation(
            f"{entry.kind} {name!r} can't be rebased, as it never changes: delete_ref({name!r}) "
            f"and {entry.kind}({name!r}) create one of the lake in its present state"
        )


def _refuse_protected(name: str, entry: RefEntry) -> None:
    if entry.protected:
        raise InvalidOperation(
            f"branch {name!r} is protected, so it can't be rebased: protect({name!r}, on=False) "
            "lifts that"
        )


def _attempt(
    context: Context, held: HeldHead, branch: Branch, wanted: Wanted, tried: set[str]
) -> Program[Came | None]:
    """Try once, on one HEAD of the lake and one of the branch; None if either was replaced."""
    name, entry = branch.name, branch.entry
    bases = yield from parallel([load_base(ref) for ref in entry.bases])
    before, since = bases[0], bases[-1]
    yield from refuse_keys(branch, since, "rebase")
    yield from load_refs(held.head)
    only = yield from those_that_fit(held.head, entry.only)
    following = yield from with_logs(context, held.head, only)
    # The base names the new HEAD's leaves, so they are stored before it.
    yield from store_leaves(following)
    base = now(following, name, "branch")
    if only is not None:
        base = yield from chosen(base, only)
    if not _has_to(context, branch) and (yield from same_tables(before, base)):
        return entry, branch.held.head.sequence  # the branch is already based on that state
    present = yield from frozen_now(branch)
    states = SeenBase(since, context), SeenBase(present, context)
    return (yield from go_on(context, held, branch, following, base, states, wanted, tried))


def _has_to(context: Context, branch: Branch) -> bool:
    """Return whether the branch needs another epoch even if its base is the newest state."""
    was_merged = branch.entry.synced is not None
    return has_moved(branch.held) or was_merged or branch.held.head.root != context.root


# -------------------- next epoch
#
# The next epoch of a branch: another base, and on top of it the changes made on the branch.
#
# The old epoch is closed first; the replacement of the lake's HEAD that names the new epoch decides
# (docs/design/0034-rebase.md).


_MAX_RACES = 200

#: The entry of a branch, and the branch's newest version.
Came = tuple[RefEntry, int]
#: An attempt, on one HEAD of the lake and one of the branch; None if both must be read again.
Attempt = Callable[[HeldHead, Branch, set[str]], Program[Came | None]]


def until_it_has(
    context: Context,
    name: str,
    attempt: Attempt,
    *,
    refuse_other: Callable[[str, RefEntry], None],
    first: str | None = None,
) -> Program[Came]:
    """Repeat ``attempt`` until it gives the branch another epoch, or finds that none is needed.

    ``first``: the branch's id; if not given, the id that the first try finds. An attempt adds the
    epochs that it makes to its third argument, so that the next try recognises an epoch whose
    replacement of HEAD was stored although the answer was lost.

    Raises
    ------
    RefNotFound
        No such branch exists, or it was deleted meanwhile.
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
        if tried.intersection(entry.epochs):
            # an earlier try was stored, and the store's answer lost
            return entry, branch.held.head.sequence
        if has_ended(branch.held):
            yield from finish(context, name, entry)
            raise ended(name)
        try:
            done = yield from attempt(held, branch, tried)
        except RefNotFound:
            raise
        except LakeVillaError:
            # An earlier try that lost a race, or another client, has closed the branch before:
            # finish that.
            if has_moved(branch.held):
                yield from finish(context, name, entry)
            raise
        if done is not None:
            return done
        yield from sleep(context.settings.retry_base_seconds * context.ids.jitter())
    raise StoreError(f"HEAD was replaced by other clients {_MAX_RACES} times in a row: try again")


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
    """Try once to begin an epoch based on ``base``, with the changes between the two ``states``.

    ``following`` is the lake's HEAD that shall name the epoch. None if the HEAD of the branch or of
    the lake was replaced meanwhile.
    """
    name, entry = branch.name, branch.entry
    made = following.replacement
    base = msgspec.structs.replace(base, epoch=new_epoch(made, context.ids.nonce()))
    yield from store_leaves_of([base.tables, base.names], made)
    ref, body = seal_base(base, made)
    if base.kept:
        yield from store_base(ref, body)  # clients find the places of the tables in it
    kept = branch.held.head.kept
    moved = yield from moved_to(context, entry, base, ref, *states, wanted, kept)
    stores = [put_first(base.epoch, moved.head), *moved.uploads]
    yield from parallel(stores if base.kept else [store_base(ref, body), *stores])
    if not (yield from _is_closed(context, branch)):
        return None
    new = with_epoch(context, entry, base.epoch, kept=moved.epochs)
    new = msgspec.structs.replace(new, base=ref, synced=None)
    tried.add(base.epoch)
    if (yield from replace(context, held, with_refs(following, {name: new}))):
        return new, moved.head.sequence
    return None


def refuse_keys(branch: Branch, since: Base, verb: str) -> Program[None]:
    """Refuse a branch with idempotency keys that are not merged: a merge finds only one epoch's
    keys.

    No key is added meanwhile, because the epoch's HEAD is closed only if it is unchanged.
    """
    waiting = yield from keys_waiting(branch, since)
    if waiting:
        raise InvalidOperation(
            f"branch {branch.name!r} has committed with idempotency key {waiting[0]!r}, which is "
            f"not merged yet: merge it first, then {verb} it"
        )


def _is_closed(context: Context, branch: Branch) -> Program[bool]:
    """Close the old epoch; return False if its HEAD was replaced since it was read.

    This is done before HEAD names the next epoch: otherwise a commit could be acknowledged in the
    old epoch that the next one lacks.
    """
    if has_moved(branch.held):
        return True
    return (yield from close_as(context, branch.entry, branch.held, "moved"))


# -------------------- moved
#
# The HEAD of a branch's next epoch: a state of the lake, and the changes made on the branch.


#: The token of a HEAD that is not stored yet, so it can't replace anything.
_NONE = Token(None)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request for a rebase: ``keys`` by location, and the rule for conflicts.

    ``verb``: the operation's name in the history of a table.
    """

    keys: Mapping[str, tuple[str, ...]]
    settle: Settle = field(default_factory=Settle)
    owner: str = ""
    verb: str = "REBASE"


@dataclass(frozen=True, slots=True)
class Moved:
    """A HEAD that must be stored, and the programs that store the objects which it names.

    ``epochs``: the earlier epochs whose files it names.
    """

    head: Head
    epochs: frozenset[str]
    uploads: Sequence[Program[None]]


def moved_to(
    context: Context,
    entry: RefEntry,
    base: Base,
    ref: BaseRef,
    since: AtBase,
    until: AtBase,
    wanted: Wanted,
    kept: dict[str, Any] | None = None,
) -> Program[Moved]:
    """Apply to ``base`` the changes made on a branch from ``since`` to ``until``.

    A transaction on the new epoch's HEAD does that before this HEAD is stored; the HEAD that will
    be stored has its commit, if there is any change. Errors are those of ``apply``.
    """
    assert context.held is not None, "a branch is found by the lake's HEAD"
    epoch = BranchEpoch(base.epoch, base.name, entry.id, ref, separate_bases=bool(base.kept))
    nonce = context.ids.nonce()
    # Versions of the new epoch continue the earlier ones, so each number names one state of the
    # branch.
    first = first_head(
        context.held.head,
        epoch,
        base.tables,
        base.names,
        nonce,
        sequence=until.version + 1,
        clones=base.clones,
        kept=kept,
    )
    held = HeldHead(first, _NONE)
    txn = _begun(context.of_branch(held), held, wanted.owner)
    applying = apply_states(
        txn, first, since, until, None, dict(wanted.keys), wanted.settle, wanted.verb
    )
    yield from at_home(base.epoch, applying)
    if not txn.work.done:
        return Moved(first, frozenset(), ())
    sealed = yield from at_home(base.epoch, seal_commit(txn))
    txn.context.keep_commit(sealed.digest, sealed.commit)
    following = yield from at_home(base.epoch, _following(txn, held, sealed))
    named = _epochs_named(sealed.commit)
    epoch = msgspec.structs.replace(epoch, earlier=tuple(sorted(named - {epoch.id})))
    head = msgspec.structs.replace(
        following,
        format=max(following.format, FORMAT_WITH_KEPT) if epoch.earlier else following.format,
        replacement=first.replacement,
        epoch=epoch,
    )
    return Moved(head, named, [at_home(base.epoch, upload(txn, sealed))])


def _begun(own: Context, held: HeldHead, owner: str) -> TransactionState:
    """Return a transaction bound, without a read, to the HEAD of an epoch not stored yet."""
    options = Options(Feature.R | Feature.I, owner=owner)
    txn = begin(TransactionState(own, own.new_txn_id(), options, through_head=True))
    txn.bound.held = held
    txn.bound.sequence = txn.bound.began = held.head.sequence
    txn.bound.started_ms = own.now_ms()
    txn.bound.began_at = own.clock.elapsed()
    txn.bound.is_bound = True
    return txn


def _following(txn: TransactionState, held: HeldHead, sealed: Sealed) -> Program[Head]:
    """Return the HEAD with the transaction's commit added, as by a commit on a branch."""
    candidate = Candidate(txn, sealed.commit, sealed.digest, held, body=sealed.body)
    found = yield from add_candidate(held, held.head, candidate)
    if isinstance(found, Head):
        return found
    if isinstance(found, Failed):
        raise found.error
    assert isinstance(found, Declined), found
    if found.found is not None and found.found.conflict is not None:
        raise found.found.conflict
    raise conflict(txn, "", "the state of the branch changed while it was rebased")


def _epochs_named(commit: CommitObject) -> frozenset[str]:
    """Return the epochs in whose directories the files that a commit adds are stored."""
    found = {
        branch_of(path)
        for location, part in commit.tables.items()
        for file in part.change.adds
        for path in paths_of(location, file)
    }
    return frozenset(epoch for epoch in found if epoch is not None)
