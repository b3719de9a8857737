"""Idempotency keys and branches: what a branch was made with, and what a merge takes along.

A key commits once in what a lake shows: on a branch, that is what it was made of and what was
committed there; on the lake, what was committed there, and what was merged
(docs/design/0031-branches.md). Keys are strings here; an ``(application, version)`` pair tells of
its last use alone, and nobody could tell what it was at the base.
"""

from __future__ import annotations

from lakevilla.errors import AlreadyCommitted, InvalidOperation, MergeConflict
from lakevilla.global_log.bases import Base, load_base
from lakevilla.global_log.head import Head, find_commit
from lakevilla.global_log.keys import (
    KEYS_PREFIX,
    is_key_object,
    load_key,
    load_key_object,
)
from lakevilla.global_log.repo import commits_since, load_head, load_refs
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import Branch
from lakevilla.lake.publishing.outcome import result_of
from lakevilla.results import CommitResult
from lakevilla.store.effects import Program, list_objects, parallel
from lakevilla.store.home import at_home
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import KeyUse
from lakevilla.transaction.verbs.idempotency import enter_key


def committed_in_base(lake: Context, branch: Head, key: str) -> Program[CommitResult | None]:
    """The result of a commit with that key that the branch was made with; None if there is none.

    ``lake`` is the lake's own context, and ``branch`` a HEAD of the branch. What was not committed
    when it was made has a later number by now, or will have, so the answer stays the same.

    Raises
    ------
    InvalidOperation
        Nobody can tell: the branch was made of another one.
    """
    assert branch.life is not None, "it is a branch's"
    base = yield from load_base(branch.life.base)
    if base.origin:
        raise InvalidOperation(
            f"branch {branch.life.name!r} was made of a state of another branch, so nobody can "
            f"tell whether idempotency key {key!r} was committed in it: use keys on branches of "
            "the lake, or look for the rows before you repeat"
        )
    held = yield from lake.head()
    if held is None:
        return None
    yield from load_refs(held.head, [branch.life.name])
    entry = held.head.refs.get(branch.life.name)
    for life in () if entry is None or entry.id != branch.life.ref_id else entry.lives:
        if life != branch.life.id:
            found_before = yield from at_home(life, _committed_in(lake, key))
            if found_before is not None:
                return found_before
    used = yield from load_key(key, None)
    if used is None:
        return None
    commits = yield from commits_since(held.head, used.record.sequence)
    if commits is None:
        if used.record.committed is None:
            return None  # past its retention: nobody is owed that, on the lake neither
        return CommitResult(used.record.txn, None, None)
    found = find_commit(commits, used.record.txn)
    if found is None or found.sequence > base.sequence:
        return None
    return (yield from result_of(lake, held.head, found))


def keys_to_take(
    txn: TransactionState, branch: Branch, since: Base, *, partial: bool
) -> Program[tuple[KeyUse, ...]]:
    """The keys of commits on a branch that a merge takes along, none of which the lake has.

    Found before the merge is bound to them, as by whoever uses a key: of all who do, one commits.

    Raises
    ------
    MergeConflict
        The lake has committed one of them itself, so what it did is there twice.
    InvalidOperation
        A part of what was committed with a key would be merged.
    """
    name = branch.name
    waiting = yield from keys_waiting(branch, since)
    if waiting and partial:
        raise InvalidOperation(
            f"branch {name!r} has committed with idempotency key {waiting[0]!r}: merge all of its "
            "tables together, as a key stands for the whole of what was committed with it"
        )
    uses = tuple(KeyUse(key, None) for key in waiting)
    for use in uses:
        try:
            yield from enter_key(txn, use)
        except AlreadyCommitted as error:
            raise MergeConflict(
                f"idempotency key {use.key!r} was committed on branch {name!r} and on the lake "
                f"(transaction {error.txn_id}), so that what it stands for would be there twice: "
                "undo one of them, or delete the branch"
            ) from error
    return uses


def keys_waiting(branch: Branch, since: Base) -> Program[list[str]]:
    """The keys that were committed on a branch since it was made, rebased or last merged.

    One that has any is not rebased, so no older life of it has one.
    """
    head = branch.held.head
    assert head.life is not None, "it is a branch's"
    if not head.life.keyed:
        return []
    # Listed once its HEAD is read: whoever commits with a key has stored it before.
    return (yield from at_home(branch.entry.life, _committed_after(head, since.sequence)))


def _committed_after(head: Head, sequence: int) -> Program[list[str]]:
    """The keys with which a commit in ``head`` after ``sequence`` was made."""
    infos = yield from list_objects(f"{KEYS_PREFIX}/")
    names = [info.key for info in infos if is_key_object(info.key)]
    used = yield from parallel([load_key_object(name) for name in names])
    commits = yield from commits_since(head, max(sequence, head.history_start))
    assert commits is not None, "a branch keeps its history"
    by_txn = {commit.txn for commit in commits}
    return sorted(
        held.record.key
        for held in used
        if held is not None and held.record.version is None and held.record.txn in by_txn
    )


def _committed_in(lake: Context, key: str) -> Program[CommitResult | None]:
    """The result of a commit with a key in a life of a branch that is over. It runs at its home."""
    used = yield from load_key(key, None)
    held = yield from load_head()
    if used is None or held is None:
        return None
    commits = yield from commits_since(held.head, used.record.sequence)
    found = None if commits is None else find_commit(commits, used.record.txn)
    if found is None:
        return None
    return (yield from result_of(lake.of_branch(held), held.head, found))
