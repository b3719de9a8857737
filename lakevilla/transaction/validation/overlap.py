"""Overlap: whether commits can have changed the rows of a table on which a transaction relies.

The summaries in HEAD are checked first, which costs no request; then the commit objects of commits
that their summaries do not clear, in one round. If a doubt remains, validation builds the table's
new state and compares it in detail (``validate``). So a doubt costs requests, and nothing else.

A commit is cleared if no file that it adds can have a row that the transaction has requested, and
no file that it removes can have had one, or is one that the transaction removes, too. If all
commits are cleared, the same rows are in the same files on the newer state as on the bound one, and
each operation would do there just what it has done.

An operation that acts on all rows that it depends on has removed each file that had one. So the
files that it has left had none, whatever else a commit removes or marks there (note 65, rule V11).

The rows of a new file are those that its commit's operations have made. Where these say which rows,
as an upsert names its keys, no file is read to see that it has none that were requested (V12).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import Change
from lakevilla.formats.files import DataFile, FileRef, file_refs
from lakevilla.formats.layout import as_of, located
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import CommitSummary, Head, application_id, commits_after
from lakevilla.global_log.rules import known_of, may_hold
from lakevilla.global_log.summaries import Summary, fingerprint, together
from lakevilla.lake.context import Tail
from lakevilla.lake.operations.matching import NO_ROW, are_disjoint, rows_made
from lakevilla.lake.row_changes import only
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.binding import locate
from lakevilla.sublogs.operations import (
    Append,
    Delete,
    Given,
    Insert,
    Merge,
    Overwrite,
    Transplant,
    Update,
    acts_on_all,
    is_append,
    tables_read,
)
from lakevilla.transaction.state.parts import Working
from lakevilla.transaction.state.transaction import TransactionState

#: The most files of a predicate that are compared by fingerprints; with more, the commit object is
#: read.
_MOST_CANDIDATES = 4096
#: Operations that bring no row back in a file that stays.
_ONLY_MARK = (Append, Insert, Update, Delete, Merge, Overwrite)


def needs_its_version(txn: TransactionState, location: str) -> bool:
    """Return whether any later version of a table is in conflict: an Iceberg client relies on it.

    The version counts, and not only its rows (docs/design/0073-given-commits.md).
    """
    return any(isinstance(d.operation, Given) and d.table == location for d in txn.work.done)


def only_appends(txn: TransactionState, location: str) -> bool:
    """Return whether the transaction relies on no rows of the table, only on its metadata."""
    return not any(table == location for table, _ in txn.work.reads) and all(
        is_append(done.operation)
        if done.table == location
        else location not in tables_read(done.operation)
        for done in txn.work.done
    )


def is_cleared(txn: TransactionState, head: Head, location: str, tail: Tail) -> Program[bool]:
    """Return whether all commits since the bound state are cleared (see the module).

    ``tail`` is the cached log; ``head`` shows the commits that the log does not have yet.
    """
    found = _since(txn, head, location, tail)
    if found is None or needs_its_version(txn, location):
        return False
    entries, commits = found
    if only_appends(txn, location):
        return True
    if txn.options.slack or txn.options.validation == "rules" or txn.work.behind:
        return False  # then version numbers count, or reads of older states
    if any(done.deferred for done in txn.work.done):
        return False  # a deferred operation reads all rows of the new state
    if any(isinstance(d.operation, Transplant) and d.table == location for d in txn.work.done):
        return False  # a commit may have added the same file, and summaries name no added files
    predicates = _predicates(txn, location)
    for change in entries:
        if _meets(txn, location, change) or (
            yield from _touches(txn, location, predicates, change, change.adds)
        ):
            return False
    known = [summary for commit in commits if (summary := commit.tables[location].summary)]
    all_known = len(known) == len(commits)
    # First check the sum of all summaries: it takes the same time for a hundred commits as for one.
    if all_known and not (yield from _may_touch(txn, location, predicates, together(known))):
        return True
    doubtful: list[CommitSummary] = []
    for commit in commits:
        summary = commit.tables[location].summary
        if summary is not None and not (yield from _may_touch(txn, location, predicates, summary)):
            continue
        if commit.kind != "transaction" or None in predicates:
            return False  # one commit object does not show it, or all rows are requested
        doubtful.append(commit)
    objects = yield from parallel(
        [txn.context.commit_object(commit.txn, commit.hash) for commit in doubtful]
    )
    for found_object in objects:
        change = found_object.tables[location].change
        if _meets(txn, location, change):
            return False
        added = _with_new_rows(txn, found_object, location, predicates)
        if (yield from _touches(txn, location, predicates, change, added)):
            return False
    return True


def paths_without(
    txn: TransactionState, head: Head, location: str, tail: Tail, where: Expr | None
) -> Program[frozenset[str]]:
    """Return files that commits since the bound state have made, and of which no row fits
    ``where``, by what the commits' operations say.
    """
    found = None if where is None else _since(txn, head, location, tail)
    commits = [] if found is None else [one for one in found[1] if one.kind == "transaction"]
    if where is None or not commits:
        return frozenset()
    objects = yield from parallel(
        [txn.context.commit_object(commit.txn, commit.hash) for commit in commits]
    )
    changes = [
        one.tables[location].change for one in objects if _makes_no(txn, one, location, [where])
    ]
    # Not those that were there before, and of which a commit has only marked rows: another one may
    # have brought rows back there.
    return frozenset(
        path
        for change in changes
        for path in {file.path for file in change.adds} - {file.path for file in change.removes}
    )


def _with_new_rows(
    txn: TransactionState,
    commit: CommitObject,
    location: str,
    predicates: Sequence[Expr | None],
) -> Sequence[DataFile]:
    """Return the files that a commit adds, without those of which it only marks rows, or makes
    none that was requested.

    An operation that applies another state may bring rows back.
    """
    own = [one for one in commit.operations if one.table == location]
    change = commit.tables[location].change
    if not all(type(one) in _ONLY_MARK for one in own):
        return change.adds
    if _makes_no(txn, commit, location, predicates):
        return []
    before = {file.path for file in change.removes}
    return [file for file in change.adds if file.path not in before]


def _makes_no(
    txn: TransactionState,
    commit: CommitObject,
    location: str,
    predicates: Sequence[Expr | None],
) -> bool:
    """Return whether a commit has marked rows, and made none that fits one of the predicates.

    Where it has rewritten a file, it has copied rows that it does not name.
    """
    change = commit.tables[location].change
    if not {file.path for file in change.removes} <= {file.path for file in change.adds}:
        return False
    layout = txn.work.tables[location].view.snapshot.layout
    try:
        wanted = [located(where, layout, nulls=True) for where in predicates if where is not None]
        made = [
            rows_made(locate(one, layout), layout.schema)
            for one in commit.operations
            if one.table == location
        ]
    except InvalidOperation:
        return False  # it names columns that the bound state does not have
    if len(wanted) < len(predicates):
        return False
    return bool(made) and all(
        rows is not None and (rows == NO_ROW or are_disjoint(where, rows, layout.schema))
        for rows in made
        for where in wanted
    )


def _since(
    txn: TransactionState, head: Head, location: str, tail: Tail
) -> tuple[list[Change], list[CommitSummary]] | None:
    """Return the changes of a table since the bound state, if they only add and remove files.

    The result has changes by log entries that HEAD does not know, and commits that HEAD lists. None
    if there were other changes, or if they are not known.

    The two lists have all changes: HEAD lists each of its own commits, and a foreign commit is
    either in the log above the versions that HEAD knows, or was absorbed by a commit of the kind
    ``foreign``.
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
        # If neither HEAD has the table, its log shows all. Else it entered or left the lake.
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
    """Return the predicates of the rows of the table that were read; None stands for all rows."""
    predicates = [record.where for record in txn.work.reads.values() if record.table == location]
    for done in txn.work.done:
        read = tables_read(done.operation)
        if location in read:
            predicates.append(read[location])
    return list(dict.fromkeys(predicates))


def _left_in_place(txn: TransactionState, location: str) -> list[Expr | None]:
    """Return the predicates whose rows the transaction has left in their files: those of reads, and
    of operations that do not act on each of their rows.
    """
    reads = [record.where for record in txn.work.reads.values() if record.table == location]
    for done in txn.work.done:
        read = tables_read(done.operation)
        if location in read and not (done.table == location and acts_on_all(done.operation)):
            reads.append(read[location])
    return list(dict.fromkeys(reads))


def _removed(txn: TransactionState, location: str) -> Iterable[FileRef]:
    for done in txn.work.done:
        if done.table == location:
            yield from (file.ref for file in done.change.removes)


def _meets(txn: TransactionState, location: str, change: Change) -> bool:
    """Return whether a commit has removed, or marked, a file that the transaction does, too."""
    return not {file.ref for file in change.removes}.isdisjoint(_removed(txn, location))


def _touches(
    txn: TransactionState,
    location: str,
    predicates: Sequence[Expr | None],
    change: Change,
    added: Iterable[DataFile],
) -> Program[bool]:
    """Return whether a commit, by its full change, can have changed the requested rows.

    ``added``: the files of ``change`` that may have a row which was not there.
    """
    refs = {file.ref for file in change.removes}
    known = [(file.partition_values, file.stats) for file in added]
    view = txn.work.tables[location].view
    if may_hold(view.snapshot.layout, predicates, known):
        return True
    for where in _left_in_place(txn, location):
        removed = yield from only(view.snapshot, where, refs)
        if removed.num_rows:
            return True
    return False


def _may_touch(
    txn: TransactionState, location: str, predicates: Sequence[Expr | None], summary: Summary
) -> Program[bool]:
    """Return whether a commit, by its summary, can have changed the requested rows."""
    removed = set(summary.removed)
    if removed.intersection(fingerprint(ref) for ref in _removed(txn, location)):
        return True
    working = txn.work.tables[location]
    if may_hold(working.view.snapshot.layout, predicates, map(known_of, summary.added)):
        return True
    for where in _left_in_place(txn, location) if removed else ():
        candidates = yield from candidates_of(working, where)
        if candidates is None or not removed.isdisjoint(candidates):
            return True
    return False


def candidates_of(working: Working, where: Expr | None) -> Program[frozenset[int] | None]:
    """Return fingerprints of the files of the bound view that may match; None if too many."""
    if where not in working.candidates:
        snapshot = working.view.snapshot
        files = yield from snapshot.files(as_of(where, snapshot.layout))
        known = None
        if files.num_rows <= _MOST_CANDIDATES:
            known = frozenset(map(fingerprint, file_refs(files)))
        working.candidates[where] = known
    return working.candidates[where]
