"""Overlap: whether the changes of a table can touch what a transaction relies on there.

HEAD's summaries are checked first, which costs no request; then those commits that they do
not clear, in one round. Where even that leaves a doubt, validation builds the
table's new state and checks it in detail (``validate``). So a doubt costs requests and nothing
else.

The changes are cleared commit by commit: no added file can hold a row that was requested, and no
removed file was among those that could, nor is it one that the transaction removes. Then the same
rows are in the same files on the newer state as on the bound one, whatever else it has, and each
operation would do there just what it has done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakevilla.formats.base import Change
from lakevilla.formats.files import FileRef, file_refs
from lakevilla.formats.layout import as_of
from lakevilla.global_log.head import CommitSummary, Head, application_id, commits_after
from lakevilla.global_log.rules import known_of, may_hold
from lakevilla.global_log.summaries import Summary, fingerprint, together
from lakevilla.lake.context import Tail
from lakevilla.lake.row_changes import only
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.operations import Transplant, is_append, tables_read
from lakevilla.transaction.state.parts import Working
from lakevilla.transaction.state.transaction import TransactionState

#: The most candidates of a predicate that are compared with fingerprints; beyond, the commit is
#: read.
_MOST_CANDIDATES = 4096


def only_appends(txn: TransactionState, location: str) -> bool:
    """Return whether the transaction relies on nothing of the table but its metadata."""
    return not any(table == location for table, _ in txn.work.reads) and all(
        is_append(done.operation)
        if done.table == location
        else location not in tables_read(done.operation)
        for done in txn.work.done
    )


def is_cleared(txn: TransactionState, head: Head, location: str, tail: Tail) -> Program[bool]:
    """Return whether nothing since the bound state can touch what the transaction relies on there.

    ``tail`` is the log as far as it is known; HEAD shows the commits that it does not have yet.
    """
    found = _since(txn, head, location, tail)
    if found is None:
        return False
    entries, commits = found
    if only_appends(txn, location):
        return True
    if txn.options.slack or txn.options.validation == "rules" or txn.work.behind:
        return False  # by these, versions count, or older states
    if any(done.deferred for done in txn.work.done):
        return False  # a deferred operation is performed on all that was added
    if any(isinstance(d.operation, Transplant) and d.table == location for d in txn.work.done):
        return False  # a file that it adds may have been added: no summary names the added files
    predicates = _predicates(txn, location)
    for change in entries:
        if (yield from _touches(txn, location, predicates, change)):
            return False
    known = [summary for commit in commits if (summary := commit.tables[location].summary)]
    all_known = len(known) == len(commits)
    # Check all at once first: that takes no longer for a hundred commits than for one.
    if all_known and not (yield from _may_touch(txn, location, predicates, together(known))):
        return True
    doubtful: list[CommitSummary] = []
    for commit in commits:
        summary = commit.tables[location].summary
        if summary is not None and not (yield from _may_touch(txn, location, predicates, summary)):
            continue
        if commit.kind != "transaction" or None in predicates:
            return False  # a part in the log, or more than one, or all rows are requested
        doubtful.append(commit)
    objects = yield from parallel(
        [txn.context.commit_object(commit.txn, commit.hash) for commit in doubtful]
    )
    for found_object in objects:
        change = found_object.tables[location].change
        if (yield from _touches(txn, location, predicates, change)):
            return False
    return True


def _since(
    txn: TransactionState, head: Head, location: str, tail: Tail
) -> tuple[list[Change], list[CommitSummary]] | None:
    """Return the changes of a table since the bound state, if they only add and remove files.

    They are entries that only the log shows, and commits in HEAD. None if there was more than that,
    or if it can't be known.

    All that the newer state has is in one or the other: HEAD lists each of its commits,
    and a foreign commit is in the log above what HEAD has included, or was included by
    a commit of the kind ``foreign``.
    """
    old = txn.work.tables[location].view
    application = application_id(head)
    changes = []
    for version in range(old.placement.logged + 1, tail.tip + 1):
        entry = tail.entries.get(version)
        if entry is None or entry.change.defines:
            return None
        if entry.applications.get(application, head.sequence + 1) > head.sequence:
            changes.append(entry.change)
    state = head.tables.get(location)
    if state is None or old.state is None:
        # In neither HEAD: its log has shown all. Else it entered or left the lake: examine it.
        return (changes, []) if state is old.state else None
    if state.dropped:
        return None
    since = commits_after(head, txn.bound.sequence)
    if since is None:
        return None  # some have moved to a page
    commits = []
    for commit in since:
        touch = commit.tables.get(location)
        if touch is None:
            continue
        if touch.metadata:
            return None
        if touch.adds or touch.removes or commit.kind not in ("transaction", "foreign"):
            commits.append(commit)
    return changes, commits


def _predicates(txn: TransactionState, location: str) -> list[Expr | None]:
    """Return the predicates by which rows of the table were requested; None: all rows."""
    predicates = [record.where for record in txn.work.reads.values() if record.table == location]
    for done in txn.work.done:
        read = tables_read(done.operation)
        if location in read:
            predicates.append(read[location])
    return list(dict.fromkeys(predicates))


def _removed(txn: TransactionState, location: str) -> Iterable[FileRef]:
    for done in txn.work.done:
        if done.table == location:
            yield from (file.ref for file in done.change.removes)


def _touches(
    txn: TransactionState, location: str, predicates: Sequence[Expr | None], change: Change
) -> Program[bool]:
    """Return whether a commit that is known in full touches what was requested."""
    refs = {file.ref for file in change.removes}
    if not refs.isdisjoint(_removed(txn, location)):
        return True
    added = [(file.partition_values, file.stats) for file in change.adds]
    view = txn.work.tables[location].view
    if may_hold(view.snapshot.layout, predicates, added):
        return True
    for where in predicates:
        removed = yield from only(view.snapshot, where, refs)
        if removed.num_rows:
            return True
    return False


def _may_touch(
    txn: TransactionState, location: str, predicates: Sequence[Expr | None], summary: Summary
) -> Program[bool]:
    """Return whether a commit may touch what was requested, by its summary."""
    removed = set(summary.removed)
    if removed.intersection(fingerprint(ref) for ref in _removed(txn, location)):
        return True
    working = txn.work.tables[location]
    if may_hold(working.view.snapshot.layout, predicates, map(known_of, summary.added)):
        return True
    for where in predicates if removed else ():
        candidates = yield from candidates_of(working, where)
        if candidates is None or not removed.isdisjoint(candidates):
            return True
    return False


def candidates_of(working: Working, where: Expr | None) -> Program[frozenset[int] | None]:
    """Return fingerprints of the files that may hold such a row when bound; None: too many."""
    if where not in working.candidates:
        snapshot = working.view.snapshot
        files = yield from snapshot.files(as_of(where, snapshot.layout))
        known = None
        if files.num_rows <= _MOST_CANDIDATES:
            known = frozenset(map(fingerprint, file_refs(files)))
        working.candidates[where] = known
    return working.candidates[where]
