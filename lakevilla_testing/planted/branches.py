"""Planted bugs of branches and rebases (docs/design/0031-branches.md, 0034-rebase.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lakevilla.branches import branches, change
from lakevilla.branches import branches as entries
from lakevilla.branches import branches as lives_before
from lakevilla.branches import rebase as moved
from lakevilla.errors import RefNotFound
from lakevilla.global_log import refs, repo
from lakevilla.lake import past, table_log
from lakevilla.lake.context import Tail
from lakevilla.lake.frozen import branch_head
from lakevilla.lake.frozen.kept import BranchEpochs
from lakevilla.maintenance import vacuum
from lakevilla.maintenance.gc import garbage as dead_epochs
from lakevilla.store.effects import Program
from lakevilla.transaction.commit import commit as doubt
from lakevilla.transaction.commit import squash
from lakevilla.transaction.commit.together import join as behind
from lakevilla.transaction.commit.together import join as merging
from lakevilla.transaction.commit.together import replacing
from lakevilla.transaction.commit.together.group import Failed
from lakevilla.transaction.validation import checks as merged
from lakevilla.transaction.verbs import idempotency
from lakevilla.transaction.verbs import idempotency as branch_keys
from lakevilla.transaction.verbs.applying import observed
from lakevilla_testing.planted.bugs import attribute, instead, nothing, planted


@planted(for_histories=False)
def dereg_first() -> Iterator[None]:
    """A deletion removes a branch from HEAD first, and closes it afterwards."""
    end, close = change._end_branch, branches.close_as

    def out_first(context: Any, name: str, first: Any, merged: Any = None) -> Program[Any]:
        found = yield from end(context, name, first, merged)
        held = yield from change._head_of(first)
        if held is not None:
            yield from close(context, first, held, "deleted")
        return found

    def not_yet(context: Any, entry: Any, held: Any, why: Any) -> Program[bool]:
        if why == "deleted":
            return True
        return (yield from close(context, entry, held, why))

    with instead(close, not_yet), instead(end, out_first):
        yield


@planted(for_histories=False)
def protected_in_the_lake_alone() -> Iterator[None]:
    """A client that protects a branch leaves the branch's own HEAD unchanged."""
    with instead(change._replace_own_head, nothing):
        yield


@planted(for_histories=False)
def closed_is_not_looked_at() -> Iterator[None]:
    """A commit replaces the HEAD of a branch that was closed."""

    def check(_: Any) -> None:
        return

    with instead(repo.check_not_closed, check):
        yield


@planted(for_histories=False)
def branch_follows_logs() -> Iterator[None]:
    """A branch shows what was added to a table's log since."""
    original = table_log._tail_on_branch

    def newest(context: Any, location: str, *, missing_ok: bool) -> Program[Any]:
        tail = yield from original(context, location, missing_ok=missing_ok)
        formats = context.formats.of(tail.snapshot)
        snapshot = yield from formats.open(location, location)
        return Tail(location, snapshot.version, {snapshot.version: snapshot})

    with instead(original, newest):
        yield


def _none_owned(_: Any, head: Any) -> Program[BranchEpochs]:
    yield from ()
    return BranchEpochs(frozenset(), -1 if head is None else head.replacement)


@planted(for_histories=False)
def squash_takes_what_came_since() -> Iterator[None]:
    """A squash replaces all pending commits, including those that were committed after it was
    prepared.
    """

    def within(found: Any, pending: Any) -> Any:
        return (*(ref for ref in pending if not ref.epoch), found.ref)

    with attribute(squash.Squash, "within", within):
        yield


@planted(for_histories=False)
def gc_knows_no_epochs() -> Iterator[None]:
    """Gc takes the directories of all branches for directories of branches that have ended."""
    with attribute(BranchEpochs, "of", classmethod(_none_owned)):
        yield


@planted(for_histories=False)
def vacuum_knows_no_epochs() -> Iterator[None]:
    """A vacuum takes the files of all branches for the table's own."""

    def hidden(_: str, __: Any) -> bool:
        return False

    with instead(vacuum._is_hidden, hidden):
        yield


@planted(for_histories=False)
def samelife() -> Iterator[None]:
    """An epoch gets the number of the attempt before, which gc may have listed."""
    original = refs.new_epoch

    def new_epoch(_: int, nonce: str) -> str:
        return original(0, nonce)

    with instead(original, new_epoch):
        yield


@planted(for_histories=False)
def createlost() -> Iterator[None]:
    """A maker that does not find its branch concludes that the branch was never made."""

    def was_made(_: Any) -> Program[bool]:
        yield from ()
        return False

    with instead(branches.was_made, was_made):
        yield


@planted(for_histories=False)
def goneno() -> Iterator[None]:
    """A branch that has ended reports that a transaction sent to it was not committed."""

    def refused(_: Any, why: str = "") -> Failed:
        return Failed(RefNotFound(why))

    def sure(_: Any, error: Any) -> Any:
        return error

    with instead(replacing.unknown, refused), instead(doubt.doubtful, sure):
        yield


@planted(for_histories=False)
def tagged_commits_go_with_their_branch() -> Iterator[None]:
    """Gc deletes the commit objects of a branch that has ended, and checks no tag."""

    def none(_: Any) -> Program[set[str]]:
        yield from ()
        return set()

    with instead(dead_epochs._commits_of, none):
        yield


@planted(for_histories=False)
def nosync() -> Iterator[None]:
    """A merge does not note what it has merged."""

    def with_merged(_: Any, following: Any) -> Program[Any]:
        yield from ()
        return following

    with instead(merging.with_merged, with_merged):
        yield


@planted(for_histories=False)
def blindmerge() -> Iterator[None]:
    """A merge writes the branch's entry as it has read it, though the entry may have
    changed since.
    """
    with instead(merged.changed_branch, nothing):
        yield


@planted(for_histories=False)
def syncback() -> Iterator[None]:
    """A merge checks that its branch exists, and not how far the branch is merged."""

    def changed_branch(txn: Any, head: Any) -> Program[Any]:
        yield from ()
        found = head.refs.get(txn.work.merging.name) if txn.work.merging else None
        if txn.work.merging and (found is None or found.id != txn.work.merging.entry.id):
            raise AssertionError("another branch")
        return None

    with instead(merged.changed_branch, changed_branch):
        yield


@planted(for_histories=False)
def branch_reads_held_once() -> Iterator[None]:
    """A merge checks reads on a branch against the lake's state at its start, and not at its
    commit.
    """
    with attribute(observed, "observe", lambda *_: None):
        yield


# Bugs of rebases (docs/design/0034-rebase.md).


@planted(for_histories=False)
def noclose() -> Iterator[None]:
    """A rebase does not close the epoch that it has read."""
    original = branches.close_as

    def close_as(context: Any, entry: Any, held: Any, why: Any) -> Program[bool]:
        if why == "moved":
            return True
        return (yield from original(context, entry, held, why))

    with instead(original, close_as):
        yield


@planted(for_histories=False)
def droplives() -> Iterator[None]:
    """A branch releases its older epochs, although files of them are still named."""

    def none(_: Any) -> frozenset[str]:
        return frozenset()

    with instead(moved._epochs_named, none):
        yield


@planted(for_histories=False)
def movedlost() -> Iterator[None]:
    """A client without an answer does not read a HEAD that was closed."""
    original = behind.look_for

    def look_for(candidate: Any, base: Any) -> Program[Any]:
        if base.head.epoch is None or not base.head.epoch.closed:
            return (yield from original(candidate, base))
        candidate.held = base
        candidate.txn.note_not_in(base.head)
        return None

    with instead(original, look_for):
        yield


@planted(for_histories=False)
def shortlives() -> Iterator[None]:
    """A branch releases an epoch as soon as nothing names the epoch any more."""
    original = entries.with_epoch

    def with_epoch(context: Any, entry: Any, epoch: str, *, kept: Any = ()) -> Any:
        new = original(context, entry, epoch, kept=kept)
        epochs = tuple(one for one in new.epochs if one in kept)
        return msgspec.structs.replace(new, epochs=(*epochs, epoch))

    with instead(original, with_epoch):
        yield


@planted(for_histories=False)
def moved_is_ended() -> Iterator[None]:
    """A branch whose rebase was interrupted is removed from HEAD, like a branch that
    was deleted.
    """

    def has_ended(held: Any) -> bool:
        return held.head.epoch is not None and bool(held.head.epoch.closed)

    with instead(branch_head.has_ended, has_ended):
        yield


@planted(for_histories=False)
def dereg_moved() -> Iterator[None]:
    """A deletion removes a branch from HEAD, whatever epoch the branch is in by now."""

    def in_any_life(context: Any, name: str, known: Any, held: Any) -> Program[str]:
        yield from branches.close_as(context, known, held, "deleted")
        yield from change._change(context, name, known, lambda _: None)
        return "ended"

    with instead(change._removed, in_any_life):
        yield


@planted(for_histories=False)
def outcomelives() -> Iterator[None]:
    """For a transaction that was begun before a rebase only the branch's new epoch is checked."""
    with instead(lives_before.committed_before, nothing):
        yield


# Bugs of older versions, and of idempotency keys.


@planted(for_histories=False)
def later_squash_taken() -> Iterator[None]:
    """An older version of a branch has all commits that one object in HEAD replaces."""
    original = past._no_later

    def no_later(pending: Any, later: Any) -> Any:
        return original(pending, later[2:])

    with instead(original, no_later):
        yield


@planted(for_histories=False)
def keys_left_on_the_branch() -> Iterator[None]:
    """A merge leaves the idempotency keys of its commits on the branch."""

    def keys_to_take(*_: Any, **__: Any) -> Program[Any]:
        yield from ()
        return ()

    with instead(branch_keys.keys_to_take, keys_to_take):
        yield


@planted(for_histories=False)
def merged_keys_not_bound() -> Iterator[None]:
    """A merge checks whether the lake has committed its keys, and binds none to itself."""
    original = idempotency.bind_key

    def bind_key(txn: Any, use: Any) -> Program[None]:
        if use is txn.claims.key:
            yield from original(txn, use)

    with instead(original, bind_key):
        yield
