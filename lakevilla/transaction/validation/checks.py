"""Check a commit against changes since its reads that are no changes of rows."""

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
from lakevilla.global_log.head import NOWHERE, CommitSummary, Head, TableState
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import commits_since, load_names, load_refs
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.frozen.kept import kept_marks, kept_of, refuse_unkept
from lakevilla.lake.frozen.mounts import mounted_at
from lakevilla.lake.operations.comparing.dropped_columns import files_fit
from lakevilla.lake.operations.perform import layout_given
from lakevilla.lake.table_log import load_noted, noted
from lakevilla.lake.tables.overlaps import in_the_way
from lakevilla.lake.view import View
from lakevilla.store.effects import Program
from lakevilla.store.location import is_external
from lakevilla.sublogs.operations import (
    Append,
    Operation,
    Overwrite,
    Transplant,
    is_direct,
    snapshots_removed,
)
from lakevilla.transaction.state.parts import Done, Working
from lakevilla.transaction.state.transaction import TransactionState, conflict

# -------------------- direct
#
# Check whether a transaction may write to the lake directly (docs/design/0030-refs.md).
#
# A protected main accepts only merges and other applied states, and upkeep. This is checked when a
# verb is called, and again against the HEAD that is replaced: no direct write follows the
# replacement of HEAD that protects main.


_INSTEAD = "write on a branch, and `merge` it; `protect_main(on=False)` lifts that"


def refuse_direct(txn: TransactionState, location: str, verb: str) -> Program[None]:
    """Refuse a verb that writes to main directly while main is protected.

    The cached HEAD may be old, so HEAD is read again before a verb is refused.

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
    """Return the conflict of a transaction with direct writes if main is protected in ``head``."""
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


# -------------------- names
#
# Check whether the names that the caller has used still mean the same tables (note 23).


def moved_name(txn: TransactionState, head: Head) -> Program[ConflictError | None]:
    """Return the conflict with a rename, or another change, of a name that the caller has used.

    Within the transaction the name keeps its first meaning. So this matters only to a transaction
    that moves to a newer state and goes on there, where the caller may use the table's new name,
    too.
    """
    bound = txn.bound
    if bound.names_at == head.replacement:
        return None
    # A table that the transaction itself has renamed counts under its name in HEAD.
    used: dict[str, tuple[str, str]] = {}
    own: set[str] = set()
    for one in txn.work.renames:
        if one.old not in own:
            used[one.old] = one.old, one.table
        own |= {one.old, one.new}
    for name, (location, called) in bound.meant.items():
        if (
            location in txn.work.tables
            and not is_external(name)
            and (called or location) not in own
        ):
            used[called or location] = name, location
    yield from load_names(head, used)
    for known, (name, location) in used.items():
        by_path = location if known == location else NOWHERE
        if head.names.get(known, by_path) != location:
            reason = "the name that it was read by was given to another table, or to none"
            return conflict(txn, name, reason)
    bound.names_at = head.replacement
    return None


# -------------------- merged
#
# Check whether the entry of the branch that a transaction merges is unchanged.


def changed_branch(txn: TransactionState, head: Head) -> Program[ConflictError | None]:
    """Return the conflict of a merge whose branch's entry has changed since it was read."""
    merging = txn.work.merging
    if merging is None:
        return None
    return (yield from changed_entry(txn, head, merging.name, merging.entry))


def changed_entry(
    txn: TransactionState, head: Head, name: str, entry: RefEntry
) -> Program[ConflictError | None]:
    """Return the conflict if a branch's entry in ``head`` differs from the read ``entry``."""
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
# Check whether the files that a transaction brings back are kept by the HEAD that it replaces.
#
# This is checked when the verb brings them back, and again in each HEAD to be replaced in which the
# marks of the files that may be deleted have changed (docs/design/0032-apply.md).


def unkept(txn: TransactionState, head: Head) -> Program[LakeVillaError | None]:
    """Return the error if a file that the transaction brings back may be deleted at ``head``.

    So is it if the transaction removes a snapshot that a ref keeps there.
    """
    for done in txn.work.done:
        removed = snapshots_removed(done.operation)
        if removed:
            reason = yield from kept_by_a_ref(txn.context, head, done.table, removed)
            if reason is not None:
                return conflict(txn, done.table, reason)
        if done.kept_under != kept_marks(head, done.table):
            try:
                yield from note_kept(txn, head, done)
            except VersionNotFound as error:
                error.txn_id = txn.id
                return error
    return None


def kept_by_a_ref(
    context: Context, head: Head, location: str, snapshots: set[int]
) -> Program[str | None]:
    """Return why snapshots can't be removed from a table, if a ref in ``head`` needs one."""
    kept = yield from kept_of(context, head, location)
    if kept.lost:
        return f"the snapshots that a ref needs are not known: {kept.lost[0].message}"
    needed = sorted(kept.snapshots & snapshots)
    if not needed:
        return None
    return f"a ref of the lake keeps snapshot {needed[0]}: delete_ref first, if it is not needed"


def note_kept(txn: TransactionState, head: Head, done: Done) -> Program[None]:
    """Check that ``head`` keeps a transplant's files, and note that. Raises ``VersionNotFound``."""
    operation = done.operation
    if not isinstance(operation, Transplant):
        return
    by_ref = yield from refuse_unkept(txn.context, head, done.table, operation.adds)
    # If a ref keeps them, check each HEAD: the ref may be deleted.
    done.kept_under = None if by_ref else kept_marks(head, done.table)


# -------------------- mounted
#
# Check whether the clones still exist whose tables a transaction uses.
#
# This is checked against the HEAD that is replaced: if a clone was deleted there, its source's
# files may be deleted, and a new clone of that name shows other tables
# (docs/design/0039-clones.md).


def still_mounted(
    txn: TransactionState, head: Head | None, view: View, state: TableState | None
) -> Program[LakeVillaError | None]:
    """Return the conflict of a transaction that uses a table of a clone, if the clone has changed.

    ``state`` is the table's own state in ``head``, if a client has written to it through the clone.
    """
    assert view.mount is not None, "asked of what a clone shows"
    location = view.location
    if state is not None and state.dropped:
        return conflict(txn, location, "it was dropped meanwhile")
    if state is not None:
        return None  # a table of the lake by now: its commits show the changes
    found = None if head is None else (yield from mounted_at(head, location))
    if found is None or found.entry.id != view.mount.entry.id:
        name = view.mount.name
        return conflict(
            txn, location, f"clone {name!r}, which showed it, was deleted or created again"
        )
    return None


def no_log(location: str, blank: TableSnapshot) -> Tail:
    """Return the empty log of a table that a clone shows and no client has written to."""
    return Tail(location, -1, {-1: blank})


# -------------------- new places
#
# Check whether a table may still be created, or revived, at its location.


def refused_place(
    txn: TransactionState, old: View, state: TableState | None, head: Head | None
) -> Program[LakeVillaError | None]:
    """Return why a table can't be created or reused at its location in ``head``; None if it can.

    ``state`` is that location's state in ``head``. After the transaction wrote its claim, another
    client may have begun to delete that claim (docs/design/0051-claims-let-go.md).
    """
    known = "" if old.state is None else old.state.released_by
    if state is not None and state.released_by not in ("", known):
        return conflict(txn, old.location, "it was released to other lakes by `unregister`")
    reason = yield from in_the_way(old.location, head)
    if reason is not None:
        return InvalidOperation(reason, table=old.location, txn_id=txn.id)
    return None


# -------------------- given files
#
# Check whether files that were written for a verb fit the table when the verb is performed.


def refuse_unfit(txn: TransactionState, operation: Operation, before: Working | None) -> None:
    """Refuse files if the transaction has moved, after they were written, to another schema.

    ``before``: the table when they were written; None if the transaction had not opened it.

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
# Check whether another client has changed a table that a rollback has found unchanged.
#
# The rollback opens only the tables that differ from its target. It relies on the fact that the
# other tables do not differ.


def touched_within(txn: TransactionState, head: Head) -> Program[ConflictError | None]:
    """Return the conflict of a rollback with a commit on a table that the rollback did not open."""
    patterns = patterns_of(txn)
    if not patterns:
        return None
    commits = yield from commits_since(head, txn.bound.sequence)
    if commits is None:
        return ConflictError(
            f"transaction {txn.id} is so old that the commits since it began are not kept any "
            "more: run it again",
            txn_id=txn.id,
        )
    for commit in commits:
        for location in commit.tables:
            is_known = location in txn.work.tables  # such a table is validated itself
            if not is_known and _changes(commit, location) and _fits(location, patterns):
                return conflict(txn, location, "it was changed while other tables were rolled back")
    return None


def patterns_of(txn: TransactionState) -> frozenset[str]:
    """Return the patterns of the tables that the transaction's rollbacks cover."""
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
# Check whether the lake still has a table, for a transaction that commits by a log entry.
#
# Such a transaction needs no HEAD, and could add its entry to the log of a dropped table. So it
# reads HEAD every few seconds, in the same round as requests that it sends anyway
# (docs/design/0050-drops-and-log-entries.md).


#: The greatest age of a HEAD on which such a transaction relies. It is far below
#: ``reuse_after_seconds``: all clients that write to a dropped table know of the drop before
#: another table can be created in its place.
_KNOWN_SECONDS = 10.0


def ask_now_and_then(txn: TransactionState) -> Program[None]:
    """Read HEAD unless the cached one is new: one request every few seconds for each process."""
    if not txn.through_head:
        trusted = txn.context.settings.trusted_tip_seconds
        yield from txn.context.head_of_late(min(_KNOWN_SECONDS, trusted))


def refuse_dropped(txn: TransactionState, location: str) -> Program[None]:
    """Refuse a table that HEAD has dropped; if the cached HEAD says so, read HEAD again first.

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
                f"table {location} does not exist: it was dropped from this lake; "
                "`register` revives it while its log exists",
                table=location,
                txn_id=txn.id,
            )


def _is_dropped(context: Context, location: str) -> Program[bool]:
    yield from load_noted(context, location)
    state = noted(context, location)
    return state is not None and state.dropped
