"""Checks of a commit against what changed since its reads."""

from __future__ import annotations

from fnmatch import fnmatchcase

from lakevilla.errors import (
    ConflictError,
    InvalidOperation,
    LakeVillaError,
    TableNotFound,
    VersionNotFound,
)
from lakevilla.formats.base import TableSnapshot
from lakevilla.global_log.head import CommitSummary, Head, TableState
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import commits_since, load_refs
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.frozen.kept import kept_marks, refuse_unkept
from lakevilla.lake.frozen.mounts import mounted_at
from lakevilla.lake.operations.comparing.dropped_columns import files_fit
from lakevilla.lake.operations.perform import layout_given
from lakevilla.lake.table_log import load_noted, noted
from lakevilla.lake.tables.surroundings import in_the_way
from lakevilla.lake.view import View
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Append, Operation, Overwrite, Transplant, is_direct
from lakevilla.transaction.state.parts import Done, Working
from lakevilla.transaction.state.transaction import TransactionState, conflict

# -------------------- direct
#
# Whether a transaction may write to the lake directly (docs/design/0030-refs.md).
#
# Where main is protected it takes what other states have, as by a merge, and upkeep. It is asked
# when a verb is called, and again of the very HEAD that is replaced: whoever protects main by a
# replacement of HEAD sees no direct write after it.


_INSTEAD = "write on a branch, and `merge` it; `protect_main(on=False)` lifts that"


def refuse_direct(txn: TransactionState, location: str, verb: str) -> Program[None]:
    """Refuse a verb that writes where main is protected, as far as is known.

    A HEAD that says so may be old: before anybody is refused it is read again.

    Raises ``InvalidOperation``.
    """
    context = txn.context
    if context.held is None or not context.held.head.is_protected:
        return
    held = yield from context.head()
    if held is not None and held.head.is_protected:
        raise InvalidOperation(
            f"{verb} {location}: main is protected, and takes only merges and upkeep: {_INSTEAD}",
            table=location,
            txn_id=txn.id,
        )


def direct_write(txn: TransactionState, head: Head | None) -> ConflictError | None:
    """The conflict of a transaction that writes directly with a HEAD that is protected."""
    if head is None or not head.is_protected:
        return None
    direct = sorted({done.table for done in txn.work.done if is_direct(done.operation)})
    if not direct:
        return None
    return ConflictError(
        f"transaction {txn.id} writes table {direct[0]} directly, and main was protected "
        f"meanwhile, so that it takes only merges and upkeep: {_INSTEAD}",
        table=direct[0],
        txn_id=txn.id,
    )


# -------------------- merged
#
# Whether the branch that a transaction merges is still the one that it has read.


def changed_branch(txn: TransactionState, head: Head) -> Program[ConflictError | None]:
    """The conflict of a merge whose branch is not the one any more that it has read."""
    merging = txn.work.merging
    if merging is None:
        return None
    return (yield from changed_entry(txn, head, merging.name, merging.entry))


def changed_entry(
    txn: TransactionState, head: Head, name: str, entry: RefEntry
) -> Program[ConflictError | None]:
    """The same of a branch by its name and the entry that was read."""
    yield from load_refs(head, [name])
    if entry.is_as(head.refs.get(name)):
        return None
    return ConflictError(
        f"branch {name!r} was merged, protected or deleted by another client meanwhile: "
        "run the transaction again",
        txn_id=txn.id,
    )


# -------------------- kept
#
# Whether the files that a transaction brings back are kept by the HEAD that it replaces.
#
# Looked at when it is told to bring them back, and in each HEAD to be replaced that says something
# else of what may be deleted (docs/design/0032-apply.md).


def unkept(txn: TransactionState, head: Head) -> Program[VersionNotFound | None]:
    """Why it can't be committed on ``head``: a file that it brings back may be going."""
    for done in txn.work.done:
        if done.kept_under != kept_marks(head, done.table):
            try:
                yield from note_kept(txn, head, done)
            except VersionNotFound as error:
                error.txn_id = txn.id
                return error
    return None


def note_kept(txn: TransactionState, head: Head, done: Done) -> Program[None]:
    """Look whether its files are kept, and note by which HEAD. Raises ``VersionNotFound``."""
    operation = done.operation
    if not isinstance(operation, Transplant):
        return
    by_ref = yield from refuse_unkept(txn.context, head, done.table, operation.adds)
    # A ref may be deleted: then each HEAD is asked.
    done.kept_under = None if by_ref else kept_marks(head, done.table)


# -------------------- mounted
#
# Whether the tables of clones that a transaction relies on are still shown by the same clones.
#
# Asked of the very HEAD that is replaced: a clone that is gone there may have let its source's
# files go, and one that is new shows other tables (docs/design/0039-clones.md).


def still_mounted(
    txn: TransactionState, head: Head | None, view: View, state: TableState | None
) -> Program[LakeVillaError | None]:
    """The conflict of a transaction whose view of a table a clone has shown.

    ``state`` is what HEAD says of the table itself by now: somebody has written to it there.
    """
    assert view.mount is not None, "asked of what a clone shows"
    location = view.location
    if state is not None and state.dropped:
        return conflict(txn, location, "it was dropped meanwhile")
    if state is not None:
        return None  # an ordinary table: what came is told by its commits
    found = None if head is None else (yield from mounted_at(head, location))
    if found is None or found.entry.id != view.mount.entry.id:
        name = view.mount.name
        return conflict(txn, location, f"clone {name!r} that showed it was deleted or made anew")
    return None


def no_log(location: str, blank: TableSnapshot) -> Tail:
    """The log of a table that a clone shows: there is none before its first write."""
    return Tail(location, -1, {-1: blank})


# -------------------- new places
#
# Whether a table may still come into the lake where a transaction brings it in.


def refused_place(
    txn: TransactionState, old: View, state: TableState | None, head: Head | None
) -> Program[LakeVillaError | None]:
    """Why a table can't be made at a place, or taken up there, on a newer HEAD; None if it can.

    ``state`` is what that HEAD says of the place. The claim that the transaction has written may be
    what another client has begun to give away since (docs/design/0051-claims-let-go.md).
    """
    known = "" if old.state is None else old.state.let_go
    if state is not None and state.let_go not in ("", known):
        return conflict(txn, old.location, "it was let go to other lakes by `unregister`")
    reason = yield from in_the_way(old.location, head)
    if reason is not None:
        return InvalidOperation(reason, table=old.location, txn_id=txn.id)
    return None


# -------------------- given files
#
# Whether files that a verb was given fit the table as the transaction has it by then.


def refuse_unfit(txn: TransactionState, operation: Operation, before: Working | None) -> None:
    """Refuse files that were written before others were looked for, who have changed the schema.

    ``before``: the table as it was then, None if nothing was written for it.

    Raises ``ConflictError``.
    """
    if before is None or not isinstance(operation, Append | Overwrite):
        return
    then, now = before.snapshot, txn.work.tables[operation.table].snapshot
    if now.metadata == then.metadata and now.protocol == then.protocol:
        return
    written, found = (layout_given(txn.context, operation, state) for state in (then, now))
    if not files_fit(operation.files, written, found):
        reason = "its schema or constraints were changed meanwhile"
        raise txn.fail(conflict(txn, operation.table, reason))


# -------------------- within
#
# Whether others have touched a table of those that a rollback has found to be as they were.
#
# It has opened only the tables that differ; that the others do not is part of what it has read.


def touched_within(txn: TransactionState, head: Head) -> Program[ConflictError | None]:
    """The conflict with a commit since the bound state, of a table that was not opened."""
    patterns = patterns_of(txn)
    if not patterns:
        return None
    commits = yield from commits_since(head, txn.bound.sequence)
    if commits is None:
        return ConflictError(
            f"transaction {txn.id} is so old that what others have committed since is not kept any "
            "more: run it again",
            txn_id=txn.id,
        )
    for commit in commits:
        for location in commit.tables:
            is_known = location in txn.work.tables  # and is looked at by itself
            if not is_known and _changes(commit, location) and _fits(location, patterns):
                return conflict(txn, location, "it was changed while other tables were rolled back")
    return None


def patterns_of(txn: TransactionState) -> frozenset[str]:
    """The patterns, by names or paths, of the tables that were looked at."""
    operations = (done.operation for done in txn.work.done)
    return frozenset(
        pattern for one in operations if isinstance(one, Transplant) for pattern in one.within
    )


def _changes(commit: CommitSummary, location: str) -> bool:
    touch = commit.tables[location]
    entered = touch.entered is not None or touch.left is not None
    return commit.kind != "transaction" or touch.adds or touch.removes or touch.metadata or entered


def _fits(location: str, patterns: frozenset[str]) -> bool:
    return any(fnmatchcase(location, pattern) for pattern in patterns)


# -------------------- by entry
#
# Whether a table is still the lake's, for a transaction that commits by the table's own log entry.
#
# Such a transaction needs no HEAD, and a dropped table's log takes its entry as before. So it asks
# HEAD now and then, beside requests that it makes anyway (docs/design/0050-drops-and-log-
# entries.md).


#: How old a HEAD may be that such a transaction goes by. Far below ``reuse_after_seconds``: no
#: other table is made in a dropped one's place before whoever wrote it knows of the drop.
_KNOWN_SECONDS = 10.0


def ask_now_and_then(txn: TransactionState) -> Program[None]:
    """Have a HEAD at hand that was asked for lately: a request every few seconds, of a process."""
    if not txn.through_head:
        trusted = txn.context.settings.trusted_tip_seconds
        yield from txn.context.head_of_late(min(_KNOWN_SECONDS, trusted))


def refuse_dropped(txn: TransactionState, location: str) -> Program[None]:
    """Refuse a table that HEAD, as it is known, has dropped: asked again before that is believed.

    Raises
    ------
    TableNotFound
    """
    if txn.through_head:
        return
    if (yield from _is_dropped(txn.context, location)):
        yield from txn.context.head()
        if (yield from _is_dropped(txn.context, location)):
            raise TableNotFound(
                f"table {location} was dropped from this lake; `register` revives it while its log "
                "exists",
                table=location,
                txn_id=txn.id,
            )


def _is_dropped(context: Context, location: str) -> Program[bool]:
    yield from load_noted(context, location)
    state = noted(context, location)
    return state is not None and state.dropped
