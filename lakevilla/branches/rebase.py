"""Rebasing a branch: it goes on from the lake as it is now (docs/design/0034-rebase.md).

The branch gets another life. Its new HEAD has the lake's tables, with what was done on the branch
since it was made, or last merged, applied to them. The one before is closed first; the replacement
of the lake's HEAD that names the new life decides it.
"""

from __future__ import annotations

from lakevilla.branches.moved import Wanted
from lakevilla.branches.next_life import Came, go_on, refuse_keys, until_it_has
from lakevilla.branches.states import chosen, now, those_that_fit
from lakevilla.branches.taken_in import with_logs
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.bases import load_base
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import HeldHead, load_refs, store_leaves
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import Branch, frozen_now, has_moved
from lakevilla.lake.frozen.states import SeenBase, same_tables
from lakevilla.lake.newer import refuse_older
from lakevilla.store.effects import Program, parallel


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

    def attempt(held: HeldHead, branch: Branch, tried: set[str]) -> Program[Came | None]:
        yield from refuse_older(context, f"rebase({name!r})", once=True)
        _refuse_protected(name, branch.entry)
        return (yield from _attempt(context, held, branch, wanted, tried))

    return (yield from until_it_has(context, name, attempt, refuse_other=_refuse_other))


def _refuse_other(name: str, entry: RefEntry) -> None:
    if entry.kind != "branch":
        raise InvalidOperation(
            f"{entry.kind} {name!r} can't be rebased, as it stays what it is: delete_ref({name!r}) "
            f"and {entry.kind}({name!r}) make one of the lake as it is now"
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
    """One try, on one HEAD of the lake and one of the branch; None if either has moved on."""
    name, entry = branch.name, branch.entry
    bases = yield from parallel([load_base(ref) for ref in entry.bases])
    before, since = bases[0], bases[-1]
    yield from refuse_keys(branch, since, "rebase")
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
    was = yield from frozen_now(branch)
    states = SeenBase(since, context), SeenBase(was, context)
    return (yield from go_on(context, held, branch, following, base, states, wanted, tried))


def _has_to(context: Context, branch: Branch) -> bool:
    """Whether it needs another life, though it may stand on the newest state of the lake."""
    was_merged = branch.entry.synced is not None
    return has_moved(branch.held) or was_merged or branch.held.head.root != context.root
