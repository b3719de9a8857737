"""Whether others have touched a table of those that a rollback has found to be as they were.

It has opened only the tables that differ; that the others do not is part of what it has read.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from lakevilla.errors import ConflictError
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.global_log.repo import commits_since
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Transplant
from lakevilla.transaction.state.errors import conflict
from lakevilla.transaction.state.transaction import TransactionState


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
