"""Table versions for the paper's rules: the version that was read, and how many were added since.

A table's version counts the commits that have changed it, whether they are published yet or not.
(Several pending commits may share one log entry, so a count of entries would go back when they are
published.) It is the log's version where the transaction found the table, plus one for each commit
since: HEAD lists those of the lake, the log has the foreign ones.
"""

from __future__ import annotations

from lakevilla.global_log.head import CommitSummary, Head, application_id
from lakevilla.global_log.repo import commits_since
from lakevilla.global_log.rules import Rule, Versions, fires
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.table_log import entries_at
from lakevilla.lake.view import View
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import is_blind, tables_read
from lakevilla.transaction.state.transaction import TransactionState


def firing(
    txn: TransactionState, head: Head | None, new: View, tail: Tail
) -> Program[tuple[Versions, Rule | None]]:
    """Return a table's versions, and the first of the rules R1 to R3 that ``new`` breaks, if any.

    Deferred operations do not count, since they have read and written nothing yet.
    """
    versions = yield from versions_of(txn, head, new, tail)
    rule = fires(
        versions,
        reads=_is_read(txn, new.location),
        writes=any(
            done.table == new.location and not done.deferred and not is_blind(done.operation)
            for done in txn.work.done
        ),
        isolation=txn.options.isolation,
        slack=txn.options.slack,
    )
    return versions, rule


def _is_read(txn: TransactionState, location: str) -> bool:
    """Return whether the caller, or an operation that was performed, has read the table."""
    return any(table == location for table, _ in txn.work.reads) or any(
        location in tables_read(done.operation) for done in txn.work.done if not done.deferred
    )


def versions_of(
    txn: TransactionState, head: Head | None, new: View, tail: Tail
) -> Program[Versions]:
    """Return the table's version in the transaction's view, and its newest ones at ``head``."""
    old = txn.work.tables[new.location].view
    bound = old.placement.logged + len(old.placement.overlay)
    # Foreign entries that the view has on top of HEAD's state were not in the bound HEAD.
    laid_over = 0 if old.state is None else len(old.placement.hidden)
    foreign = yield from _foreign(txn.context, head, old, new, tail)
    decided, absorbed = 0, 0
    if head is not None:
        commits = yield from commits_since(head, _known(txn, head, old))
        if commits is None:
            # The history since then is not kept: assume as many commits as possible.
            decided = head.sequence
        else:
            decided = sum(_changes(commit, new.location) for commit in commits)
            absorbed = sum(_absorbs(commit, new.location) for commit in commits)
    listed = head is not None and new.location in head.tables and old.state is not None
    return Versions(
        read=bound - txn.work.behind.get(new.location, 0),
        hidden=bound + decided + foreign,
        log=bound - laid_over + decided + absorbed if listed else None,
        write=bound + 1,
        written=laid_over + 1,
    )


def _known(txn: TransactionState, head: Head, old: View) -> int:
    """Return the newest sequence whose commit the view has.

    A transaction with Feature.CT and without Feature.I reads a table at the newest HEAD, which may
    be newer than the HEAD to which it is bound.
    """
    if old.placement.overlay:
        newest = old.placement.overlay[-1].sequence
    else:
        newest = old.base.application_version(application_id(head)) or 0
    return max(txn.bound.sequence, newest)


def _foreign(context: Context, head: Head | None, old: View, new: View, tail: Tail) -> Program[int]:
    """Return the number of entries that ``new`` has, and ``old`` and ``head`` do not have.

    These are foreign entries; in a table that ``head`` lacks, also entries of a newer HEAD.
    """
    count = 0
    versions = range(old.placement.logged + 1, new.placement.logged + 1)
    for entry in (yield from entries_at(context, tail, versions)):
        sequence = None
        if entry is not None and head is not None:
            sequence = entry.applications.get(application_id(head))
        if sequence is None or (head is not None and sequence > head.sequence):
            count += 1
    return count


def _changes(commit: CommitSummary, location: str) -> bool:
    """Return whether a commit in HEAD counts as a version of the table."""
    touch = commit.tables.get(location)
    if touch is None or commit.kind == "foreign":
        return False  # a foreign commit is counted at its place in the log
    # The touch of a reconcile commit does not show its changes: they may be anything.
    return commit.kind == "reconcile" or touch.adds or touch.removes or touch.metadata


def _absorbs(commit: CommitSummary, location: str) -> int:
    """Return the number of the table's foreign entries that a commit has absorbed."""
    touch = commit.tables.get(location)
    if touch is None or commit.kind != "foreign" or touch.first is None:
        return 0
    return touch.published - touch.first + 1
